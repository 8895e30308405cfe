"""The kind ``unchanged``: a program ends with the same bits whether it is recorded or not."""

import json
from dataclasses import dataclass

from traceparity.differ.result import Outcome
from traceparity.recorder.launch import END_STATE
from traceparity.verify.execution import FAILED
from traceparity.verify.result import Verdict
from traceparity.verify.stage import Ended, Stage

_SHOWN = 3
_BY_CHANCE = ("rng.python", "rng.numpy")
"""Random streams that begin otherwise in every process, unless the program seeds them."""
_ROLE = "command"


@dataclass(frozen=True, slots=True)
class _End:
    """What a run ended with.

    Attributes:
        facts: Fingerprints of weights, buffers, optimizer states and random streams by name, the
            exit status, and what was written to stdout.
    """

    facts: dict[str, str]


def unchanged(stage: Stage) -> Verdict:
    """Run with and without the recorder; where both differ, each once more.

    What two equal runs do not agree on tells nothing of the recorder, so the outcome is ABSTAIN
    then.
    """
    plain = _ended(stage, "plain", recorded=False)
    recorded = _ended(stage, "recorded", recorded=True)
    differing = _differing(plain, recorded)
    passed = f"all {len(plain.facts)} facts of the end are equal with and without recording"
    if not differing:
        return Verdict(Outcome.PASS, passed)
    by_itself = _differing(plain, _ended(stage, "plain-2", recorded=False))
    if any(name not in by_itself for name in differing):
        by_itself += _differing(recorded, _ended(stage, "recorded-2", recorded=True))
    if caused := [name for name in differing if name not in by_itself]:
        return Verdict(Outcome.FAIL, f"with recording other values come out: {_listed(caused)}")
    if all(name.endswith(_BY_CHANCE) for name in differing):
        # Drawn from without a seed, and nothing that counts came of it.
        note = f"not seeded, so different in each run: {_listed(differing)}"
        return Verdict(Outcome.PASS, f"{passed}, but unseeded random streams", notes=(note,))
    reason = f"two equal runs differ as well: {_listed(differing)}"
    hint = '; stdout = "ignore" leaves it out' if differing == ["stdout"] else ""
    return Verdict(Outcome.ABSTAIN, reason + hint)


def _ended(stage: Stage, name: str, *, recorded: bool) -> _End:
    """Run once, and read what it ended with.

    Raises:
        Ended: It left nothing to judge.
    """
    folder = stage.folder_of(f"{name}.end")
    run = stage.execute(name, _ROLE, recorded=recorded, added={END_STATE: str(folder)})
    # A status that recording alone brings about is a finding; a program that fails is an error.
    if run.problem and not (recorded and run.problem.startswith(FAILED)):
        raise Ended(Verdict(Outcome.ERROR, f"{name}: {run.problem}"))
    facts = {"exit status": str(run.status)}
    if stage.case.stdout:
        work = str(run.trace.with_suffix("")).encode()
        facts["stdout"] = repr(run.stdout.read_bytes().replace(work, b"{work}"))
    for file in sorted(folder.glob("*.json")):
        state: dict[str, str] = json.loads(file.read_text())
        facts |= {f"process {file.stem} {key}": value for key, value in state.items()}
    if run.status == 0 and not any(name.startswith("process") for name in facts):
        reason = f"{name}: no process told what it ended with; none trained, or it ended abruptly"
        raise Ended(Verdict(Outcome.ERROR, reason))
    return _End(facts)


def _differing(one: _End, other: _End) -> list[str]:
    names = dict.fromkeys([*one.facts, *other.facts])
    return [name for name in names if one.facts.get(name) != other.facts.get(name)]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
