"""A recorded program cannot tell, from all that Python shows it, that it is recorded."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from workshop import Workshop, our_lines, without_our_lines

from traceparity.recorder.launch import default_out

REPORT = """
    import json, os, sys

    def main():
        here = sys.modules["__main__"]
        spec = getattr(here, "__spec__", None)
        print(json.dumps({
            "argv": sys.argv,
            "orig_argv": sys.orig_argv[1:],
            "file": getattr(here, "__file__", None),
            "name": here.__name__,
            "package": here.__package__,
            "spec": spec and spec.name,
            "path": sys.path,
            "flags": str(sys.flags),
            "executable": os.path.dirname(sys.executable),
            "folder": os.getcwd(),
            "input": sys.stdin.read(),
            "terminals": [os.isatty(number) for number in range(3)],
            "descriptors": sorted(os.listdir("/proc/self/fd")),
        }, indent=1))

    if __name__ == "__main__":
        main()
"""

WAYS = {
    "script": (["report.py", "--lr", "3e-4", "-o", "x"], None),
    "script in a folder": (["tools/report.py", "-v", "--", "y"], None),
    "absolute script": (["{folder}/tools/report.py"], None),
    "module": (["-m", "tools.report", "--help"], None),
    "code": (["-c", "import report; report.main()", "-x"], None),
    "python": (["python", "-X", "dev", "report.py", "a b"], []),
    "shell script": (["bash", "run.sh", "--steps", "3"], []),
    "console script": (["bin/report", "-m", "z"], []),
}
"""What is given to `tp-record`, and what comes before it without us (None: python)."""


@pytest.fixture(scope="module")
def programs(shared_workshop: Workshop) -> Workshop:
    for name in ("report.py", "tools/report.py", "tools/__init__.py"):
        shared_workshop.write(name, REPORT)
    shared_workshop.write("run.sh", 'python report.py "$@"\n')
    shared_workshop.write(
        "bin/report", f"#!{sys.executable}\nfrom tools.report import main\nmain()\n", mode=0o755
    )
    return shared_workshop


@pytest.mark.parametrize("way", WAYS)
def test_a_program_sees_the_same_of_itself(way: str, programs: Workshop) -> None:
    words, before = WAYS[way]
    words = [word.replace("{folder}", str(programs.folder)) for word in words]
    others: dict[str, Any] = {
        "stdin": "some input",
        "variables": {"PYTHONPATH": str(programs.folder)},
    }

    plain = programs.run(*(["python"] if before is None else before), *words, **others)
    recorded = programs.record(*words, **others)

    assert plain.status == 0, plain.stderr
    assert json.loads(recorded.stdout) == json.loads(plain.stdout)


def test_options_of_the_target_need_no_dashes_before_it(programs: Workshop) -> None:
    script = programs.run("tp-record", "-o", "a.trace", "report.py", "-o", "b", "--every", "0")
    module = programs.run("tp-record", "-o", "a.trace", "-m", "tools.report", "--steps", "x")

    assert json.loads(script.stdout)["argv"] == ["report.py", "-o", "b", "--every", "0"]
    assert json.loads(module.stdout)["argv"][1:] == ["--steps", "x"]
    assert json.loads(module.stdout)["spec"] == "tools.report"


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('a message')", 1),
        ("raise KeyError('x')", 1),
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), 15)", 143),
        ("os.kill(os.getpid(), 9)", 137),
        ("os.kill(os.getpid(), 2)", 130),
        ("os.abort()", 134),
    ],
)
def test_a_program_ends_as_without_us(end: str, status: int, workshop: Workshop) -> None:
    """A shell shows 128 + n for a program that signal n has ended; so do we."""
    workshop.write("end.py", f"import os, sys\nprint(1)\nprint(2, file=sys.stderr)\n{end}\n")

    plain = workshop.run("python", "end.py")
    recorded = workshop.record("end.py")

    assert recorded.status == status
    assert plain.status in (status, 128 - status)
    assert recorded.stdout == plain.stdout
    assert without_our_lines(recorded.stderr) == plain.stderr


@pytest.mark.parametrize("option", ["-E", "-I", "-S"])
def test_a_python_that_leaves_our_hook_out_is_said_so(option: str, workshop: Workshop) -> None:
    done = workshop.record("python", option, "-c", "import sys; sys.exit(3)")

    assert done.status == 3
    assert len(our_lines(done.stderr)) == 1
    assert "no process recorded itself" in done.stderr
    assert not workshop.trace.exists()


def test_the_python_path_of_the_program_still_counts(workshop: Workshop) -> None:
    workshop.write("library/useful.py", "answer = 42\n")

    done = workshop.record(
        "-c", "import useful; print(useful.answer)", variables={"PYTHONPATH": "library"}
    )

    assert done.stdout == "42\n"


def test_the_programs_own_sitecustomize_runs(workshop: Workshop) -> None:
    workshop.write("library/sitecustomize.py", "import sys\nsys.customized = __name__, __file__\n")
    program = "import sitecustomize, sys; print(sys.customized, sitecustomize.__name__)"
    variables = {"PYTHONPATH": str(workshop.folder / "library")}

    plain = workshop.run("python", "-c", program, variables=variables)
    recorded = workshop.record("-c", program, variables=variables)

    assert "sitecustomize" in plain.stdout
    assert recorded.stdout == plain.stdout


def test_a_sitecustomize_that_fails_is_reported_as_without_us(workshop: Workshop) -> None:
    workshop.write("library/sitecustomize.py", "raise ValueError('of the user')\n")
    variables = {"PYTHONPATH": str(workshop.folder / "library")}

    plain = workshop.run("python", "-c", "print(1)", variables=variables)
    recorded = workshop.record("-c", "print(1)", variables=variables)

    assert "of the user" in plain.stderr
    # `tp-record` is a Python program too, and meets it first.
    assert without_our_lines(recorded.stderr) == 2 * plain.stderr
    assert recorded.stdout == plain.stdout


def test_a_closed_stderr_changes_no_status(workshop: Workshop) -> None:
    command = f"tp-record -o {workshop.trace} -- python -c 'import sys; sys.exit(3)' 2>&-"

    done = workshop.run("bash", "-c", f'{command}; exit "$?"')

    assert done.status == 3


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["missing.py"], 127, "missing.py: no such script"),
        (["no-such-command", "x"], 127, "no-such-command: no such command"),
        (["./plain.txt"], 126, "./plain.txt: is not executable"),
        (["./empty"], 126, "./empty: Exec format error"),
        (["."], 126, ".: is not executable"),
        ([], 125, "TARGET"),
        (["--"], 125, "TARGET"),
        (["--no-such-option", "end.py"], 125, "--no-such-option"),
        (["--every", "0", "end.py"], 125, "--every"),
        (["--capture", "all", "end.py"], 125, "all"),
        (["--steps", "5:5", "end.py"], 125, "the range is empty"),
        (["--steps", "x", "end.py"], 125, "0:10,500:510"),
        (["--phases", "sideways", "end.py"], 125, "sideways"),
        (["--config", "missing.toml", "end.py"], 125, "missing.toml: No such file"),
        (["--config", "unknown.toml", "end.py"], 125, "unknown key 'colour'"),
        (["--config", "broken.toml", "end.py"], 125, "broken.toml"),
        (["--config", "pairs.toml", "end.py"], 125, "steps must be"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_a_status(
    arguments: list[str], status: int, says: str, refusals: Workshop
) -> None:
    done = refusals.run("tp-record", *arguments)

    assert done.status == status
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert says in last
    assert "Traceback" not in done.stderr
    assert not list(refusals.folder.glob("*.trace"))


@pytest.fixture(scope="module")
def refusals(shared_workshop: Workshop) -> Workshop:
    for name, text, mode in (
        ("end.py", "print('it has run')\n", 0o644),
        ("plain.txt", "text\n", 0o644),
        ("empty", "\x00\x01", 0o755),
        ("unknown.toml", "colour = 'red'\n", 0o644),
        ("broken.toml", "colour = \n", 0o644),
        ("pairs.toml", "steps = 3\n", 0o644),
    ):
        shared_workshop.write(name, text, mode=mode)
    for trace in shared_workshop.folder.glob("*.trace"):
        trace.unlink()
    return shared_workshop


@pytest.mark.parametrize("text", ["tool = 3\n", "[tool]\ntraceparity = 3\n", "[tool.other]\n"])
def test_a_pyproject_is_read_with_care(text: str, workshop: Workshop) -> None:
    """What is none of ours does not matter; what is ours and wrong is refused."""
    workshop.write("pyproject.toml", text)

    done = workshop.record("-c", "print(1)")

    ours = "traceparity" in text
    assert done.status == (125 if ours else 0)
    assert ("tool.traceparity must be a table" in done.stderr) == ours


@pytest.mark.parametrize(
    ("torch", "said"), [("raise ValueError('bad torch')\n", False), ("answer = 42\n", True)]
)
def test_a_torch_that_is_none_is_the_programs_own_affair(
    torch: str, said: bool, workshop: Workshop
) -> None:
    """Whether it cannot be imported, or the recorder cannot work with it."""
    workshop.write("torch.py", torch)
    workshop.write("program.py", "import torch\nprint(torch.answer)\n")

    plain = workshop.run("python", "program.py")
    recorded = workshop.record("program.py")

    assert (recorded.status, recorded.stdout) == (plain.status, plain.stdout)
    assert without_our_lines(recorded.stderr) == plain.stderr
    first, *others = our_lines(recorded.stderr)
    assert ("not recorded: " in first) == said
    assert "no process recorded itself" in (others or [first])[0]


def test_without_torch_there_is_one_line_and_nothing_runs(workshop: Workshop) -> None:
    workshop.write(
        "without/sitecustomize.py",
        """
        from importlib.machinery import PathFinder

        found = PathFinder.find_spec

        def find_spec(name, *others):
            return None if name.partition(".")[0] == "torch" else found(name, *others)

        PathFinder.find_spec = find_spec
        """,
    )

    done = workshop.record(
        "-c", "print(1)", variables={"PYTHONPATH": str(workshop.folder / "without")}
    )

    assert done.status == 125
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "tp-record: torch is not installed here; pip install 'traceparity[torch]'"
    ]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("train.py --lr 3", "train.trace"),
        ("work/train.v2.py", "train.v2.trace"),
        ("-m package.train x", "package.train.trace"),
        ("-u train.py", "train.trace"),
        ("-c pass", "python.trace"),
        ("python -m package.train", "package.train.trace"),
        ("bash run.sh train", "run.trace"),
        ("torchrun --nproc-per-node 2 train.py --out other.py", "train.trace"),
        ("accelerate launch -m train", "train.trace"),
        ("python -m torch.distributed.run --standalone train.py", "train.trace"),
        ("bin/tool", "tool.trace"),
    ],
)
def test_a_trace_is_named_after_what_trains(target: str, name: str) -> None:
    assert default_out(target.split()) == Path(name)
