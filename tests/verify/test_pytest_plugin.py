"""Tests of trainings: recorded, compared and kept golden by the pytest plugin."""

import re
import subprocess
import sys
import textwrap

import pytest
from synthetic import Run, write_trace

import traceparity as tp
from traceparity.tracefmt.reader import open_trace

TRAINING = """
    import torch
    from torch import nn

    def train(lr=0.1, steps=3):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).square().mean().backward()
            optimizer.step()
"""


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """Makes torch import all that a training needs.

    pytester forgets what was imported in a pytest within this process, and torch bears no second
    import.
    """
    training = {}
    exec(textwrap.dedent(TRAINING), training)
    with tp.record(tmp_path_factory.mktemp("warm") / "a.trace"):
        training["train"]()


@pytest.fixture
def tests(pytester, warm):
    """A folder with tests in it, beside a training that they may import."""
    pytester.makepyfile(training=TRAINING)
    pytester.makeconftest("import sys; sys.path.insert(0, '.')")

    def run(*options, text=None, process=False):
        if text is not None:
            pytester.makepyfile(test_it=text)
        start = pytester.runpytest_subprocess if process else pytester.runpytest_inprocess
        return start("-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options)

    run.path = pytester.path
    return run


def test_blocks_are_recorded_and_what_parts_fails_with_the_report(tests):
    done = tests(
        text="""
        import pytest
        from traceparity import assert_same_training
        from training import train

        @pytest.fixture
        def two(tp_record, request):
            lr = 0.1 if "same" in request.node.name else 0.2
            with tp_record("one") as one:
                train()
            with tp_record("two", capture="digest") as two:
                train(lr)
            return one, two

        def test_same(two):
            assert_same_training(*two)

        def test_parts(two):
            assert_same_training(*two)

        def test_declared_to_part(two):
            with open("policy.toml", "w") as stream:
                stream.write('[align]\\nphases = ["data"]')
            with pytest.raises(AssertionError, match="ABSTAIN"):
                assert_same_training(*two, policy="policy.toml")

        def test_result(two, tp_diff):
            result = tp_diff(*two)
            assert (result.outcome.name, result.first.field) == ("FAIL", "lr")
        """
    )

    done.assert_outcomes(passed=3, failed=1)
    output = done.stdout.str()
    assert "FAIL  The runs part at step 0, in the state that the step" in output
    assert "optimizer[0] group[0]  lr" in output
    # The report is all that there is to read: no frames of ours.
    assert "same_training.py" not in output
    kept = tests.path / "tp-artifacts" / "test_it.py.test_parts"
    assert {path.name for path in kept.iterdir()} == {"one.trace", "two.trace"}
    assert f"traces are kept in {kept}" in output
    assert {path.name for path in kept.parent.iterdir()} == {".gitignore", "test_it.py.test_parts"}
    assert (kept.parent / ".gitignore").read_text() == "*\n"


def test_traces_are_kept_where_that_is_asked_for_or_the_test_is_wrong_elsewhere(tests):
    (tests.path / "pytest.ini").write_text("[pytest]\ntp_artifacts = out/kept\n")
    text = """
        import pytest

        @pytest.mark.parametrize("odd", ["a/b", "a_b"])
        def test_passes(tp_folder, odd):
            (tp_folder / "run.trace").write_text(odd)

        def test_records_nothing(tp_folder):
            pass
        """
    tests(text=text).assert_outcomes(passed=3)
    assert not (tests.path / "out").exists()

    tests("--tp-keep").assert_outcomes(passed=3)

    kept = list((tests.path / "out" / "kept").glob("test_*"))
    assert {(path / "run.trace").read_text() for path in kept} == {"a/b", "a_b"}


def test_traces_of_a_test_whose_teardown_fails_are_kept(tests):
    """Whether the fixture that fails ends before the folder's or after it."""
    text = """
        import pytest

        @pytest.fixture
        def outer():
            yield
            raise OSError("after")

        @pytest.fixture
        def inner(tp_folder):
            yield
            raise OSError("before")

        def test_outer(outer, tp_folder):
            (tp_folder / "run.trace").touch()

        def test_inner(inner, tp_folder):
            (tp_folder / "run.trace").touch()
        """

    done = tests(text=text)

    done.assert_outcomes(passed=2, errors=2)
    kept = tests.path / "tp-artifacts"
    assert {each.parent.name for each in kept.glob("*/run.trace")} == {
        "test_it.py.test_outer", "test_it.py.test_inner"
    }  # fmt: skip
    assert f"traces are kept in {kept / 'test_it.py.test_outer'}" in done.stdout.str()


@pytest.mark.slow
def test_a_command_is_recorded_in_a_fresh_process(tests):
    (tests.path / "train.py").write_text("import sys, training\ntraining.train(float(sys.argv[1]))")
    (tests.path / "broken.py").write_text("import torch\nprint('so far')\nraise SystemExit(3)")
    done = tests(
        text="""
        from traceparity import assert_same_training
        from training import train

        def test_same(tp_record):
            with tp_record("here") as here:
                train()
            assert_same_training(here, tp_record.run("train.py", "0.1", name="there"),
                                 policy="close")

        def test_fails(tp_record):
            tp_record.run("broken.py")
        """
    )

    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*broken.py: it ended with exit status 3", "*end of its stdout*",
                               "*so far"])  # fmt: skip
    assert "recorder_fixture.py" not in done.stdout.str()


GOLDEN = """
    import shutil
    from training import train

    def test_numbers(tp_record, tp_golden):
        with tp_record(capture="digest") as trace:
            train({lr})
        tp_golden(trace)
        tp_golden(trace, "second")
"""


def test_a_golden_trace_is_written_when_asked_for_compared_and_replaced(tests):
    golden = tests.path / "golden" / "test_it" / "test_numbers.trace"

    missing = tests(text=GOLDEN.format(lr=0.1))
    missing.assert_outcomes(failed=1)
    assert f"there is no golden trace {golden}" in missing.stdout.str()
    written = tests("--tp-update")
    written.assert_outcomes(passed=1)
    assert f"{golden} is new" in written.stdout.str()
    assert (golden.parent / "test_numbers.second.trace").stat().st_size < 12_000
    tests().assert_outcomes(passed=1)

    before = golden.read_bytes()
    changed = tests(text=GOLDEN.format(lr=0.2))
    changed.assert_outcomes(failed=1)
    assert "optimizer[0] group[0]  lr" in changed.stdout.str()
    assert f"If the change is meant: pytest --tp-update rewrites {golden}" in changed.stdout.str()
    assert golden.read_bytes() == before
    updated = tests("--tp-update").stdout.str()
    assert f"{golden} was rewritten: the runs part at step 0" in updated
    assert re.search(r"reference +0\.1\n.*target +0\.2", updated)
    assert golden.read_bytes() != before
    kept = golden.stat().st_mtime_ns
    again = tests("--tp-update")
    again.assert_outcomes(passed=1)
    assert "golden traces" not in again.stdout.str()
    assert golden.stat().st_mtime_ns == kept


MADE_UP = """
    import shutil, pytest
    from pathlib import Path

    @pytest.mark.parametrize("number", range(4))
    def test_made_up(tp_folder, tp_golden, number):
        trace = tp_folder / "run.trace"
        shutil.copyfile("run.trace", trace)
        tp_golden(trace, elsewhere={elsewhere})
"""


def test_no_golden_trace_is_that_of_two_tests_or_of_two_trainings(tests):
    for name, run in (("one", Run()), ("other", Run(width=5))):
        write_trace(tests.path / f"{name}.trace", run.steps(2))
    text = """
        class TestA:
            def test_numbers(self, tp_golden):
                tp_golden("one.trace")

        class TestB:
            def test_numbers(self, tp_golden):
                tp_golden("other.trace")

        def test_twice(tp_golden):
            tp_golden("one.trace")
            tp_golden("one.trace")
            tp_golden("other.trace")

        def test_nothing(tp_golden):
            tp_golden("missing.trace")
    """

    written = tests("--tp-update", text=text)

    written.assert_outcomes(passed=2, failed=2)
    assert "nothing was recorded: there is no trace missing.trace" in written.stdout.str()
    tests("-k", "TestA or TestB").assert_outcomes(passed=2)


def test_the_plugin_works_with_tests_spread_over_processes(tests):
    """What the workers tell reaches the one that prints, and none is in another's way."""
    write_trace(tests.path / "run.trace", Run().steps(2), versions={"torch": "2.13"})
    workers = "-n2"
    written = tests(workers, "--tp-update", text=MADE_UP.format(elsewhere=None))
    written.assert_outcomes(passed=4)
    assert written.stdout.str().count(" is new") == 4
    tests(workers).assert_outcomes(passed=4)

    (tests.path / "run.trace").unlink()
    changed = Run().steps(2)
    changed[1].change("state:rng.torch:digest", "another")
    changed[1].change("data:loader[0]:batch[label]", changed[0].rows[2].value)
    write_trace(tests.path / "run.trace", changed, versions={"torch": "2.14"})
    parts = tests(workers)
    parts.assert_outcomes(failed=4)
    said = parts.stdout.str()
    # What explains it comes first.
    place = said.index("The golden trace was recorded elsewhere: torch 2.13 against 2.14.")
    assert place < said.index("The runs part at step 1")
    kept = tests.path / "tp-artifacts"
    assert len(list(kept.glob("*/run.trace"))) == 4
    with open_trace(next(kept.glob("*/run.trace"))) as trace:
        assert len(trace.steps) == 2

    policy = "[[compare]]\nsite = 'data:*'\nignore = true\n"
    (tests.path / "elsewhere.toml").write_text(policy)
    tests(workers, text=MADE_UP.format(elsewhere="'elsewhere.toml'")).assert_outcomes(passed=4)


def test_the_plugin_costs_nothing_where_it_is_not_used(pytester):
    """It is loaded by its entry point, and brings neither torch nor numpy."""
    pytester.makepyfile(
        """
        import sys

        def test_nothing_was_loaded(request):
            assert request.config.pluginmanager.has_plugin("traceparity")
            ours = {name for name in sys.modules if name.startswith("traceparity")}
            assert ours == {"traceparity", "traceparity._version", "traceparity.verify",
                            "traceparity.verify.pytest_plugin"}
            assert not {"torch", "numpy", "msgpack", "click"} & sys.modules.keys()
        """
    )
    done = pytester.runpytest_subprocess("-p", "no:hypothesispytest")
    done.assert_outcomes(passed=1)

    took = subprocess.run(
        [
            sys.executable,
            "-X",
            "importtime",
            "-c",
            "import pytest, traceparity.verify.pytest_plugin",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in took.stderr.splitlines() if "traceparity" in line]
    own = sum(int(line.split("|")[0].rpartition(":")[2]) for line in lines)
    assert own < 50_000, f"{own} µs: {lines}"
