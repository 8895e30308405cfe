"""However a training ends, its trace can be read, and the program's end is its own."""

import signal
import time

import pytest
from workshop import Told, Workshop, our_lines, without_our_lines

ENDINGS = """
    import gc, os, signal, sys, time
    import torch
    from training import train

    def returns(): pass
    def exits(): sys.exit(3)
    def raises(): raise KeyError("x")
    def handles_sigterm():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
    def leaves(): os._exit(4)
    def is_terminated(): os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)
    def is_killed(): os.kill(os.getpid(), signal.SIGKILL); time.sleep(20)
    def becomes_another(): os.execv("/bin/true", ["true"])
    def aborts(): os.abort()

    # Torch loads much with the first optimizer: here rather than in each child.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()
    gc.freeze()
    for end in (
        returns, exits, raises, handles_sigterm,
        leaves, is_terminated, is_killed, becomes_another, aborts,
    ):
        pid = os.fork()
        if pid == 0:
            train(2, left_over=True)
            end()
            sys.exit()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""Many programs in one: each child trains and ends in its own way. The parent trains nothing."""
LAST_WORDS = [0, 3, 1, 7]
NO_LAST_WORDS = [4, -signal.SIGTERM, -signal.SIGKILL, 0, -signal.SIGABRT]


def test_each_ending_leaves_a_readable_trace(workshop: Workshop) -> None:
    """Whoever could say last words has the pass that led to no update, and is complete."""
    workshop.write("endings.py", ENDINGS)

    done = workshop.record("endings.py")

    assert done.status == 0
    assert [int(line) for line in done.stdout.splitlines()] == LAST_WORDS + NO_LAST_WORDS
    assert done.stderr.splitlines()[-1] == "KeyError: 'x'"
    assert our_lines(done.stderr) == []
    told = [
        workshop.told(workshop.trace / f"rank{rank}.trace")
        for rank in range(len(LAST_WORDS + NO_LAST_WORDS))
    ]
    assert [each.rank for each in told] == list(range(len(told)))
    finished, cut = told[: len(LAST_WORDS)], told[len(LAST_WORDS) :]
    assert {(*each.steps, each.tail, each.complete) for each in finished} == {(0, 1, 2, True, True)}
    assert {(*each.steps, each.tail, each.complete) for each in cut} == {(0, 1, False, False)}
    assert all("its process ended without closing it" in each.reason for each in cut)


FAILING = """
    import atexit, sys, torch, traceback
    from torch import nn
    from torch.utils.data import DataLoader
    from training import train

    atexit.register(lambda: print("cleaned up", file=sys.stderr))

    class Bad:
        def __len__(self): return 4
        def __getitem__(self, index): raise ValueError("bad sample")

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x * 2
        @staticmethod
        def backward(ctx, g): raise ValueError("bad backward")

    def fail(what):
        try:
            what()
        except Exception:
            traceback.print_exc()

    def closure():
        raise ValueError("bad closure")

    model = train(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    fail(lambda: torch.load("missing.pt"))
    fail(lambda: torch.save(lambda: 0, "missing/folder.pt"))
    fail(lambda: model.load_state_dict({"x": torch.ones(1)}))
    fail(lambda: optimizer.load_state_dict({"param_groups": []}))
    fail(lambda: torch.optim.SGD([], lr=0.1))
    fail(lambda: DataLoader(Bad(), -1))
    fail(lambda: nn.utils.clip_grad_norm_(3, 1.0))
    fail(lambda: optimizer.step(closure))
    fail(lambda: scheduler.step("x"))
    fail(lambda: Backward.apply(model[0].weight).sum().backward())
    Backward.apply(model[0].weight).sum().backward()
"""


def test_tracebacks_have_no_frames_of_ours(workshop: Workshop) -> None:
    """Not where the exception ends the program, and not where it is caught and printed."""
    workshop.write("failing.py", FAILING)

    plain = workshop.run("python", "failing.py")
    recorded = workshop.record("failing.py")

    assert plain.stderr.count("Traceback") == 11
    assert recorded.status == plain.status == 1
    assert recorded.stderr == plain.stderr
    assert workshop.told().complete


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_tp_record_ends_the_training_and_keeps_its_trace(
    number: signal.Signals, workshop: Workshop
) -> None:
    workshop.write(
        "program.py",
        """
        import time
        from training import train

        train(2, left_over=True)
        print("ready", flush=True)
        time.sleep(30)
        """,
    )
    process = workshop.start("tp-record", "-v", "-o", workshop.trace, "--", "program.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == 128 + number
    told = workshop.told()
    if number == signal.SIGINT:
        assert without_our_lines(stderr).endswith("KeyboardInterrupt\n")
        assert (told.steps, told.tail, told.complete) == ([0, 1, 2], True, True)
        assert "3 steps" in our_lines(stderr)[0]
    else:
        assert stderr == ""
        assert (told.steps, told.tail, told.complete) == ([0, 1], False, False)
        assert told.reason.endswith("the status of the program was 143")


def test_a_program_in_the_background_is_left_to_finish_its_trace(workshop: Workshop) -> None:
    """The index of a trace that is still written to is not ours to write."""
    workshop.write(
        "program.py",
        """
        import os, time
        from training import train

        train(2)
        open("trained", "w").close()
        deadline = time.monotonic() + 60
        while not os.path.exists("go-on") and time.monotonic() < deadline:
            time.sleep(0.05)
        train(1)
        """,
    )
    script = "python program.py >output 2>&1 & while [ ! -e trained ]; do sleep 0.05; done"

    done = workshop.record("bash", "-c", script)
    during = workshop.told()
    workshop.write("go-on", "")
    after = wait_for_the_end(workshop)

    assert "still runs and records" in our_lines(done.stderr)[0]
    assert not during.complete
    assert after.complete
    assert after.steps == [0, 1, 2]


def wait_for_the_end(workshop: Workshop) -> Told:
    deadline = time.monotonic() + 60
    while not (told := workshop.told()).complete and time.monotonic() < deadline:
        time.sleep(0.1)
    return told


PROBING = """
    import importlib, importlib.util, sys
    import torchless

    specs = [importlib.util.find_spec("torch") for _ in range(3)]
    print(specs[0].name, specs[0].origin.rpartition("/")[2], "torch" in sys.modules)
    assert importlib.util.find_spec("torchless") and not importlib.util.find_spec("torch_less")
    import torch
    print(type(torch.__loader__).__name__, torch.__spec__.loader is torch.__loader__)
    from training import train
    train(1)
"""


def test_a_program_that_looks_for_torch_before_it_imports_it_is_recorded(
    workshop: Workshop,
) -> None:
    workshop.write("torchless.py", "")
    workshop.write("probing.py", PROBING)

    done = workshop.record("probing.py")

    assert done.stdout == "torch __init__.py False\nSourceFileLoader True\n"
    assert done.stderr == ""
    assert workshop.told().steps == [0]


def test_a_program_that_trains_nothing_leaves_no_trace_and_is_said_so(workshop: Workshop) -> None:
    """Also where values of evaluation activity were waiting for a step."""
    workshop.write(
        "program.py",
        """
        import sys, torch

        with torch.no_grad():
            torch.nn.Linear(64, 64)(torch.ones(64, 64))
        sys.exit(3)
        """,
    )

    done = workshop.record("program.py", options=("-v", "--capture", "values"))

    assert done.status == 3
    assert len(our_lines(done.stderr)) == 1
    assert "made no training step" in done.stderr
    assert not workshop.trace.exists()
