"""Each planted fault is named at its true place; what is no fault passes.

The faults are those of a study of other recorders, none of which named a rate, a sample or a
parameter. The twelfth, two micro-batches for one, is in ``tests/cases/accumulation``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

JOB = Path(__file__).with_name("job.py")
CAPTURES = ["sketch", pytest.param("digest", marks=pytest.mark.slow)]
Recordings = Callable[[str, str], Path]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fault first shows; one of the phases and one of the fields."""

    step: int
    phases: tuple[str, ...]
    component: str
    fields: tuple[str, ...]
    kind: str


SAMPLES = ("batch[0]", "sample_ids")
RATE = "optimizer[0] group[0]"
WEIGHT = Place(2, ("state",), "blocks.1.linear1.weight", ("value",), "value")
PLACES = {
    "lr": Place(0, ("state", "optimizer"), RATE, ("lr",), "hyperparameter"),
    "wd": Place(0, ("state", "optimizer"), RATE, ("weight_decay",), "hyperparameter"),
    "horizon": Place(0, ("scheduler",), RATE, ("lr",), "hyperparameter"),
    "seed": Place(0, ("state",), "embed.weight", ("value",), "value"),
    "batchperm": Place(0, ("data",), "loader[0]", SAMPLES, "order"),
    "sample": Place(1, ("data",), "loader[0]", SAMPLES, "sample_id"),
    "sign": WEIGHT,
    "swap": WEIGHT,
    "ulp": WEIGHT,
}


@pytest.fixture(scope="module")
def recordings(shared_commands: Any) -> Recordings:
    """Records a variant of the job when it is first asked for."""
    known: dict[tuple[str, str], Path] = {}

    def get(fault: str, capture: str) -> Path:
        if (fault, capture) not in known:
            known[fault, capture] = shared_commands.record(
                f"{fault}-{capture}", JOB, "--fault", fault, capture=capture
            )
        return known[fault, capture]

    return get


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("fault", PLACES)
def test_a_fault_is_named_where_it_begins(
    fault: str, capture: str, recordings: Recordings, shared_commands: Any
) -> None:
    want = PLACES[fault]

    result = shared_commands.diff(recordings("none", capture), recordings(fault, capture))

    assert result["outcome"] == "FAIL", result["reason"]
    first = result["first_divergence"]
    assert (first["step"], first["component"], first["kind"]) == (
        want.step,
        want.component,
        want.kind,
    )
    assert first["field"] in want.fields
    assert first["phase"] in want.phases


@pytest.mark.parametrize("fault", ["batchperm", "sample"])
def test_the_samples_of_both_runs_are_told(
    fault: str, recordings: Recordings, shared_commands: Any
) -> None:
    result = shared_commands.diff(recordings("none", "sketch"), recordings(fault, "sketch"))

    told = [line for line in result["first_divergence"]["evidence"] if "sample" in line["what"]]
    assert told
    assert " against " in told[0]["detail"]


def test_a_weight_edited_behind_autograd_is_found_in_the_state(
    recordings: Recordings, shared_commands: Any
) -> None:
    """A write through ``.data`` counts as no version, yet it changes what the step starts from."""
    result = shared_commands.diff(recordings("none", "sketch"), recordings("ulp-by-data", "sketch"))

    first = result["first_divergence"]
    place = (first["step"], first["phase"], first["component"])
    assert place == (2, "state", "blocks.1.linear1.weight")


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_twin_is_equal_to_the_last_bit(
    capture: str, recordings: Recordings, shared_commands: Any
) -> None:
    twin = shared_commands.record(f"twin-{capture}", JOB, capture=capture)

    result = shared_commands.diff(recordings("none", capture), twin)

    assert result["outcome"] == "PASS", result["first_divergence"]
    assert result["compared"]["steps"] >= 4
    assert result["reference"]["content_digest"] == result["target"]["content_digest"]


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_refactoring_without_effect_passes(
    capture: str, recordings: Recordings, shared_commands: Any
) -> None:
    """One more operation per layer, `h * 1.0`, changes no number and no module."""
    result = shared_commands.diff(recordings("none", capture), recordings("refactor", capture))

    assert result["outcome"] == "PASS", result["first_divergence"]
