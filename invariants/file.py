"""The file of invariants: JSON Lines of plain data, checked against a schema, never evaluated."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from traceparity.invariants.errors import InvariantError
from traceparity.invariants.families import templates
from traceparity.invariants.finding import FAMILIES
from traceparity.invariants.invariant import Invariant, Witness
from traceparity.invariants.template import Learns, Plain, Template
from traceparity.tracefmt.text_file import read_text_file

FORMAT = 1
"""Version of the file's format; it stands in every line."""

_TEXTS = frozenset({"class", "path", "optimizer", "scheduler", "schedulers", "function"})
"""Fields of preconditions whose values are texts."""
_Value = str | int | float | bool | None


class _Params(msgspec.Struct, forbid_unknown_fields=True):
    template: str
    outcome: _Value = None
    low: float | None = None
    high: float | None = None


class _Witness(msgspec.Struct, forbid_unknown_fields=True):
    reference: int
    step: int
    component: str = ""
    location: str = ""


class _Provenance(msgspec.Struct, forbid_unknown_fields=True):
    references: list[str] = []
    witness: _Witness | None = None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    text_description: str
    relation: str
    params: _Params
    precondition: dict[str, list[_Value]] = {}
    num_positive_examples: int = 0
    num_negative_examples: int = 0
    provenance: _Provenance = msgspec.field(default_factory=_Provenance)
    accepted: str = ""
    format: int = FORMAT


def write_invariants(path: Path, found: Iterable[Invariant]) -> None:
    """Write invariants, one a line.

    Raises:
        InvariantError: The file cannot be written.
    """
    try:
        path.write_text("".join(f"{line_of(each)}\n" for each in found), encoding="utf-8")
    except OSError as error:
        raise InvariantError(f"{path}: {error.strerror or error}") from error


def line_of(invariant: Invariant) -> str:
    """An invariant as one line of JSON; the same invariant is the same text."""
    witness = invariant.witness
    params: dict[str, Any] = {"template": invariant.template}
    if invariant.high is None and invariant.low is None:
        params["outcome"] = invariant.outcome
    for name in ("low", "high"):
        if getattr(invariant, name) is not None:
            params[name] = getattr(invariant, name)
    data: dict[str, Any] = {
        "id": invariant.id,
        "text_description": invariant.text,
        "relation": invariant.relation,
        "params": params,
        "precondition": {name: list(each) for name, each in invariant.precondition.items()},
        "num_positive_examples": invariant.positive,
        "num_negative_examples": invariant.negative,
        "provenance": {
            "references": list(invariant.references),
            "witness": {
                "reference": witness.reference,
                "step": witness.step,
                "component": witness.component,
                "location": witness.location,
            },
        },
    }
    if invariant.accepted:
        data["accepted"] = invariant.accepted
    data["format"] = FORMAT
    return json.dumps(data, ensure_ascii=False)


def read_invariants(path: Path) -> list[Invariant]:
    """The invariants in a file.

    Raises:
        InvariantError: It cannot be read, or a line of it is not as it should be.
    """
    try:
        text = read_text_file(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            getattr(error, "strerror", None) or "not a file of invariants, as tp-infer writes them"
        )
        raise InvariantError(f"{path}: {reason}") from error
    found, ids = [], set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            invariant = _invariant(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvariantError(f"{path}:{number}: {error}") from error
        if invariant.id in ids:
            raise InvariantError(f"{path}:{number}: the id {invariant.id} stands there twice")
        ids.add(invariant.id)
        found.append(invariant)
    if not found:
        raise InvariantError(f"{path}: the file holds no invariant")
    return found


def _invariant(line: str) -> Invariant:
    said = msgspec.json.decode(line, type=_Line)
    if said.format != FORMAT:
        raise ValueError(f"format {said.format} is another one than this version reads, {FORMAT}")
    known = templates(each for each in FAMILIES.values() if each == said.relation)
    if not known:
        raise ValueError(f"no relation {said.relation!r}")
    template = known.get(said.params.template)
    if template is None:
        raise ValueError(f"relation {said.relation} has no template {said.params.template!r}")
    for name, values in said.precondition.items():
        if name not in template.fields:
            named = ", ".join(template.fields) or "none"
            raise ValueError(f"{template.id} has no field {name!r}; there are {named}")
        if not values:
            raise ValueError(f"precondition {name}: it names no value, so nothing is judged")
        wrong = [value for value in values if name in _TEXTS and not isinstance(value, str)]
        if wrong:
            raise ValueError(f"precondition {name}: {wrong[0]!r} is no text")
    bounded = said.params.low is not None or said.params.high is not None
    if bounded != (template.learns is not Learns.CONSTANT):
        raise ValueError(f"{template.id} takes {'an outcome' if bounded else 'low or high'}")
    if not bounded:
        _check_outcome(template, said.params.outcome)
    witness = said.provenance.witness or _Witness(0, 0)
    return Invariant(
        template=template.id,
        outcome=said.params.outcome,
        low=said.params.low,
        high=said.params.high,
        precondition={name: tuple(values) for name, values in said.precondition.items()},
        text=said.text_description,
        positive=said.num_positive_examples,
        negative=said.num_negative_examples,
        witness=Witness(witness.reference, witness.step, witness.component, witness.location),
        references=tuple(said.provenance.references),
        accepted=said.accepted,
        id=said.id,
    )


def _check_outcome(template: Template, outcome: _Value) -> None:
    """That events of a template can have an outcome at all."""
    if isinstance(template.says, str):
        return
    # Counts are any number; what is told of those that are usual says which type they have.
    counted = any(type(each) is int for each in template.says)
    if (counted and type(outcome) is int) or any(
        each == outcome and type(each) is type(outcome) for each in template.says
    ):
        return
    known = ", ".join(json.dumps(each) for each in list(template.says)[:4])
    raise ValueError(f"{template.id} has no outcome {json.dumps(outcome)}; there are {known}")


def accepted(found: Sequence[Invariant], said: Iterable[str]) -> list[Invariant]:
    """The invariants, some with the reason for which deviations are deliberate.

    Args:
        found: The invariants.
        said: Texts ``ID=REASON``.

    Raises:
        InvariantError: A text has no reason, or names no invariant.
    """
    reasons: dict[str, str] = {}
    for text in said:
        name, _, reason = text.partition("=")
        if not reason.strip():
            raise InvariantError(f"accept {text!r}: give the id and the reason, as ID=REASON")
        if all(each.id != name for each in found):
            raise InvariantError(f"accept {text!r}: the file has no invariant {name}")
        reasons[name] = reason.strip()
    return [replace(each, accepted=reasons.get(each.id, each.accepted)) for each in found]


def merged(files: Sequence[Sequence[Invariant]]) -> list[Invariant]:
    """The invariants of several files, each once; where they contradict each other, neither.

    Two invariants contradict each other when they say different things under one precondition.
    """
    found: dict[tuple[str, str], Invariant] = {}
    broken: set[tuple[str, str]] = set()
    for invariant in (each for file in files for each in file):
        key = invariant.template, repr(sorted(invariant.precondition.items()))
        known = found.get(key)
        if known is None:
            found[key] = invariant
        elif (_said(known)) != _said(invariant):
            broken.add(key)
        elif invariant.accepted and not known.accepted:
            found[key] = invariant
    return [each for key, each in found.items() if key not in broken]


def _said(invariant: Invariant) -> tuple[Plain | str, float | None, float | None]:
    return repr(invariant.outcome), invariant.low, invariant.high
