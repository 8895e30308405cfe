"""Real programs of real frameworks: equal to their repeat, told from a planted fault, unchanged.

Each program is run plainly, recorded, recorded again, and recorded with a fault. Some are also
recorded by `tp-record` itself, which attaches before the framework is imported.
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from traceparity.tracefmt.reader import open_trace

RUNNER = Path(__file__).with_name("runner.py")


@dataclass(frozen=True, slots=True)
class Program:
    """A program and where its fault must be found.

    Attributes:
        module: The module that has it.
        name: Its function.
        sites: Part of the site of the first divergence, one of these.
        step: Its step.
        steps: How many whole steps the program has.
        first: The variant of the first run, which has no fault.
        options: Of tp-diff.
        others: Further faults: variant, part of the site and step.
    """

    module: str
    name: str
    sites: tuple[str, ...]
    step: int
    steps: int
    first: str = "twin"
    options: tuple[str, ...] = ()
    others: tuple[tuple[str, str, int], ...] = ()


RESUMED = {"first": "whole", "options": ("--align", "resume")}
PLAIN = (
    Program("plain_loops", "nano_gpt", ("group[1]:weight_decay",), 0, 4),
    Program("plain_loops", "mini_gpt", ("head.weight",), 0, 4),
    Program("plain_loops", "adversaries", ("optimizer[1] group[0]:betas",), 1, 8),
    Program("plain_loops", "recurrent", ("forward::input[1]",), 2, 4),
    Program("plain_loops", "policy_gradient", ("loss:loss:value",), 0, 3),
    Program("plain_loops", "autoencoder", ("loss:loss:value",), 0, 4),
    Program("plain_loops", "sharpness_aware", ("group[0]:radius",), 0, 4),
    Program("plain_loops", "second_order", ("group[0]:history_size",), 0, 3),
    Program("plain_loops", "search", ("optimizer[2] group[0]:lr",), 8, 12),
    Program("plain_loops", "averaged", ("optimizer[0] group[0]:lr",), 3, 8),
    Program("plain_loops", "reentrant", ("forward::input[0]",), 1, 3),
    Program("plain_loops", "nonreentrant", ("forward::input[0]",), 1, 3),
    Program("plain_loops", "functional_weights", ("optimizer:0.weight:value",), 0, 4),
    Program("plain_loops", "forward_alone", ("state:3.weight:value",), 0, 1),
    Program("plain_loops", "scripted", ("forward::input[0]",), 2, 4),
    Program("plain_loops", "without_hooks", ("optimizer:0.weight:value",), 2, 4),
    Program("plain_loops", "own_schedule", ("optimizer[0] group[0]:lr",), 1, 4),
    Program("plain_loops", "replaced_step", ("optimizer[0] group[0]:lr",), 0, 3),
)
HUGGING_FACE = (
    Program("hugging_face", "accumulating", ("state:scheduler.base_lrs:value",), 0, 4),
    Program("hugging_face", "evaluating", ("data:loader[0]:batch[input_ids]",), 0, 4),
    Program(
        "hugging_face", "resuming", ("state:optimizer[0]:exp_avg",), 2, 4,
        others=(("anew", "data:loader[0]:batch[input_ids]", 2),), **RESUMED,
    ),
    Program(
        "hugging_face", "accelerated_again", ("state:scheduler.last_epoch",), 1, 3,
        others=(("anew", "data:loader[0]:batch[input_ids]", 1),), **RESUMED,
    ),
    Program("hugging_face", "accelerated", ("gradient:",), 0, 3),
    Program("hugging_face", "adapted", ("q_proj:output[0]",), 0, 4),
    Program("hugging_face", "tuned", ("data:loader[0]:batch[input_ids]",), 1, 3),
)  # fmt: skip
LIGHTNING = (
    Program("lightning_loops", "fitted", ("gradient:",), 0, 6),
    Program("lightning_loops", "resumed", ("data:loader[0]:batch[0]",), 3, 6, **RESUMED),
    Program("lightning_loops", "by_hand", ("optimizer[1] group[0]:lr",), 1, 12),
    Program("lightning_loops", "fabric", ("data:loader[0]:batch[0]",), 0, 6),
    Program("lightning_loops", "ignited", ("training",), 6, 12),
)
TIMM = Program("timm_parts", "timm_loop", ("optimizer[0] group[0]:lr",), 1, 8)
NEEDS = {
    "plain_loops": (),
    "hugging_face": ("transformers", "accelerate", "peft", "trl", "datasets"),
    "lightning_loops": ("lightning", "ignite"),
    "timm_parts": ("timm",),
}
RUNS = ("plain", "first", "again", "fault")

Folder = Callable[[Program], Path]


@pytest.fixture(scope="module")
def runs(shared_commands: Any) -> Folder:
    """Gives a program's folder: a report for each of its runs, and the traces of the recorded."""
    done: dict[str, Path] = {}

    def of(program: Program) -> Path:
        module = program.module
        if module not in done:
            done[module] = shared_commands.folder / module
            run_all(shared_commands, module, done[module])
        return done[module] / program.name

    return of


def run_all(commands: Any, module: str, folder: Path) -> None:
    """Run every program of a module in forks of one process."""
    jobs = []
    for program in (
        each for each in (*PLAIN, *HUGGING_FACE, *LIGHTNING, TIMM) if each.module == module
    ):
        place = folder / program.name
        place.mkdir(parents=True)
        for run in (*RUNS, *(fault for fault, *_ in program.others)):
            variant = {"plain": program.first, "first": program.first, "again": "twin"}.get(
                run, run
            )
            trace = "" if run == "plain" else str(place / f"{run}.trace")
            jobs.append(job(program.name, variant, trace, place, run))
    (folder / "jobs.json").write_text(json.dumps(jobs))
    ended = commands.run("python", RUNNER, module, folder / "jobs.json")
    assert ended.returncode == 0, ended.stderr


def job(name: str, variant: str, trace: str, place: Path, run: str) -> dict[str, str]:
    report = str(place / f"{run}.json")
    return {
        "name": name, "variant": variant, "trace": trace, "report": report, "folder": str(place),
    }  # fmt: skip


def report_of(place: Path, run: str) -> dict[str, str]:
    report: dict[str, str] = json.loads((place / f"{run}.json").read_text())
    assert "error" not in report, report["error"]
    return report


def check(program: Program, place: Path, commands: Any) -> None:
    """The three promises."""
    plain, recorded = report_of(place, "plain"), report_of(place, "first")
    faults = [("fault", program.sites, program.step)]
    faults += [(variant, (site,), step) for variant, site, step in program.others]
    for run in ("again", *(fault for fault, *_ in faults)):
        report_of(place, run)

    assert {key for key in plain if plain[key] != recorded.get(key)} == set()
    assert plain.keys() == recorded.keys()
    with open_trace(place / "first.trace") as trace:
        assert trace.complete, trace.incomplete_reason
        assert len(trace.steps) == program.steps
    same = commands.diff(*program.options, place / "first.trace", place / "again.trace")
    assert same["outcome"] == "PASS", (same["reason"], same["first_divergence"])
    for fault, sites, step in faults:
        other = commands.diff(*program.options, place / "first.trace", place / f"{fault}.trace")
        found = other["first_divergence"]
        assert other["outcome"] == "FAIL", other["reason"]
        site = f"{found['phase']}:{found['component']}:{found['field']}"
        assert any(each in site for each in sites), site
        assert found["step"] == step, site


def skip_without(module: str) -> None:
    for name in NEEDS[module]:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize("program", PLAIN, ids=lambda program: program.name)
def test_a_plain_loop(program: Program, runs: Folder, commands: Any) -> None:
    check(program, runs(program), commands)


@pytest.mark.slow
@pytest.mark.parametrize("program", HUGGING_FACE, ids=lambda program: program.name)
def test_hugging_face(program: Program, runs: Folder, commands: Any) -> None:
    skip_without(program.module)
    check(program, runs(program), commands)


@pytest.mark.slow
@pytest.mark.parametrize("program", LIGHTNING, ids=lambda program: program.name)
def test_lightning_and_ignite(program: Program, runs: Folder, commands: Any) -> None:
    skip_without(program.module)
    check(program, runs(program), commands)


@pytest.mark.slow
def test_parts_of_timm(runs: Folder, commands: Any) -> None:
    skip_without(TIMM.module)
    check(TIMM, runs(TIMM), commands)


@pytest.mark.slow
@pytest.mark.parametrize("program", [HUGGING_FACE[0], LIGHTNING[0]], ids=lambda each: each.module)
def test_attached_before_the_framework_is_imported(
    program: Program, runs: Folder, commands: Any
) -> None:
    """By `tp-record`; the recording is the same as one that began after the import."""
    skip_without(program.module)
    place = runs(program)
    jobs = commands.folder / "jobs.json"
    jobs.write_text(json.dumps([job(program.name, "twin", "", commands.folder, "cold")]))

    trace = commands.record("cold", RUNNER, program.module, jobs)

    assert report_of(commands.folder, "cold") == report_of(place, "plain")
    result = commands.diff(place / "first.trace", trace)
    assert result["outcome"] == "PASS", (result["reason"], result["first_divergence"])
