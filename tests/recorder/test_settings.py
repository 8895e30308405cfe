"""What to record is said on the command line, in a file or in pyproject.toml."""

from pathlib import Path

import pytest
from workshop import Workshop

from traceparity.recorder.settings import (
    Settings,
    SettingsError,
    parse_steps,
    settings_from,
    settings_from_file,
)
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Phase


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("3", {3}),
        ("0:2", {0, 1}),
        (":2,8:", {0, 1, 8, 9}),
        (" 1 : 2 , 5 ", {1, 5}),
    ],
)
def test_steps_are_half_open_ranges(text: str, wanted: set[int]) -> None:
    settings = Settings(steps=parse_steps(text))

    assert {step for step in range(10) if settings.wants_step(step)} == wanted


@pytest.mark.parametrize("text", ["", "x", "1:2:3", "5:5", "7:3", "-1", "1,,2", "1.5"])
def test_steps_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="steps"):
        parse_steps(text)


def test_every_and_steps_hold_together() -> None:
    settings = Settings(steps=((4, 11),), every=3)

    assert [step for step in range(20) if settings.wants_step(step)] == [6, 9]


@pytest.mark.parametrize(
    "data",
    [
        {"colour": "red"},
        {"capture": "all"},
        {"capture": 3},
        {"every": 0},
        {"every": True},
        {"every": "3"},
        {"steps": 5},
        {"steps": [5]},
        {"steps": [["a", "b"]]},
        {"steps": [[3, 3]]},
        {"phases": "sideways"},
        {"phases": 3},
        {"include": [1]},
        {"exclude": {"a": 1}},
    ],
)
def test_a_wrong_setting_is_named_with_its_origin(data: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"^somewhere: .*") as caught:
        settings_from(data, "somewhere")

    assert next(iter(data)) in str(caught.value)


def test_settings_survive_the_way_to_the_program() -> None:
    settings = Settings("values", ((0, 3), (7, None)), 2, ("loss",), ("a", "b"), ("c",))

    assert settings_from(settings.as_data(), "environment") == settings


def test_any_other_file_is_settings_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "capture.toml"
    path.write_text('capture = "digest"\nsteps = [[0, 5]]\nphases = "loss, gradient"\n')

    assert settings_from_file(path) == Settings("digest", ((0, 5),), phases=("loss", "gradient"))


def test_the_command_line_wins_over_pyproject(workshop: Workshop) -> None:
    """One recording shows what all options together leave in."""
    workshop.write(
        "pyproject.toml",
        """
        [tool.traceparity]
        capture = "digest"
        every = 2
        exclude = ["*:2*:*"]
        """,
    )
    workshop.write("program.py", "from training import train\ntrain(10)\n")

    done = workshop.record(
        "program.py", options=("--steps", "1:7", "--phases", "forward,gradient", "--rank", "3")
    )

    assert done.stderr == ""
    with open_trace(workshop.trace) as trace:
        assert [step.number for step in trace.steps] == [2, 4, 6]
        capture = trace.header.capture
        assert (capture["capture"], capture["every"]) == ("digest", 2)
        assert trace.header.rank == 3
        sites = {
            trace.sites[number].site
            for step in trace.steps
            for number in trace.columns(step.number).site.tolist()
        }
    assert {site.phase for site in sites} == {Phase.FORWARD, Phase.GRADIENT}
    assert {site.component.partition(".")[0] for site in sites} >= {"0", "1"}
    assert not [site for site in sites if site.component.startswith("2")]
