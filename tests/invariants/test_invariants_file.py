"""The file of invariants is plain data: what is wrong with it is said with its line."""

from pathlib import Path

import pytest

from traceparity.invariants.errors import InvariantError
from traceparity.invariants.file import (
    accepted,
    line_of,
    merged,
    read_invariants,
    write_invariants,
)
from traceparity.invariants.invariant import Invariant, Witness

CLIPPED = Invariant(
    template="bounds.clipped",
    outcome=True,
    text="gradients after clipping: have a norm within the limit",
    positive=20,
    witness=Witness(0, 1, "gradients", "train.py:9"),
    references=("abc",),
    id="B-1",
)
RATE = Invariant(
    template="hyperparameter.base_rate",
    outcome=0.1,
    precondition={"optimizer": ("SGD",)},
    text="optimizer groups: use 0.1",
    id="H-1",
)
WAITING = Invariant(template="phase.waiting", outcome=None, high=4.0, text="at most 4", id="P-1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "invariants.jsonl"
    write_invariants(path, [CLIPPED, RATE, WAITING])
    return path


def test_what_is_written_is_read_again(file):
    assert read_invariants(file) == [CLIPPED, RATE, WAITING]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"relation": "bounds"', '"relation": "magic"', "no relation 'magic'"),
        ("bounds.clipped", "bounds.magic", "no template 'bounds.magic'"),
        ('"format": 1', '"format": 9', "format 9"),
        ('"id": "B-1"', '"__import__": "os", "id": "B-1"', "__import__"),
        ('"id": "H-1"', '"id": "B-1"', "stands there twice"),
        ('{"optimizer": ["SGD"]}', '{"pid": [7]}', "no field 'pid'"),
        ('{"optimizer": ["SGD"]}', '{"optimizer": []}', "names no value"),
        ('{"optimizer": ["SGD"]}', '{"optimizer": [1]}', "1 is no text"),
        ('"outcome": true', '"outcome": "banana"', "no outcome"),
        ('"outcome": true', '"outcome": 1', "no outcome"),
        ('"outcome": true', '"high": 1.0', "takes"),
        ('"outcome": true', '"outcome": [[["x"]]]', "outcome"),
        ('"num_positive_examples": 20', '"num_positive_examples": "many"', "Expected `int`"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_of_it_is_evaluated(file, old, new, said):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))

    with pytest.raises(InvariantError, match=said) as caught:
        read_invariants(file)

    assert f"{file}:" in str(caught.value).lower()


def test_what_is_no_text_is_no_file_of_invariants(file):
    file.write_bytes(b"\x89TPT\r\n")

    with pytest.raises(InvariantError, match="not a file of invariants"):
        read_invariants(file)


def test_an_empty_file_is_an_error(file):
    file.write_text("\n")

    with pytest.raises(InvariantError, match="holds no invariant"):
        read_invariants(file)


def test_files_that_contradict_each_other_teach_neither(file):
    other = Invariant(
        template=RATE.template, outcome=0.2, precondition=RATE.precondition, text="0.2", id="H-2"
    )

    assert merged([[CLIPPED, RATE], [other, CLIPPED]]) == [CLIPPED]


def test_an_accepted_deviation_keeps_its_reason(file):
    found = accepted([CLIPPED, RATE], ["H-1=a sweep over rates"])

    assert [each.accepted for each in found] == ["", "a sweep over rates"]
    assert '"accepted": "a sweep over rates"' in line_of(found[1])
