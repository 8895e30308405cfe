"""Trackers: a result logged where people keep their runs, through the libraries that do that.

Each library is an extra, loaded when it is asked for. What is logged is the same everywhere: the
outcome and its reason, counts, the place of the first finding, and the whole JSON result.
"""

import contextlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from traceparity.verify.errors import TrackerError

TRACKERS = ("wandb", "mlflow", "tensorboard")
"""Names of the libraries, of their packages, of our extras, and of the modules that use them."""
RESULT = "traceparity-result.json"
"""Name of the file that holds the JSON result."""
_COUNTED = ("compared", "coverage", "invariants", "laws")
"""Parts of a JSON result whose numbers are logged."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """A result as it is logged.

    Attributes:
        command: The command that gave it, such as ``tp-diff``.
        outcome: ``PASS``, ``FAIL``, ``ABSTAIN`` or ``ERROR``.
        reason: In one sentence.
        place: Where the first finding is, in words; empty where there is none.
        counts: Numbers by name.
        result: The JSON result.
    """

    command: str
    outcome: str
    reason: str
    place: str
    counts: Mapping[str, float]
    result: str

    @property
    def texts(self) -> dict[str, str]:
        """What is said in words, by name."""
        return {"outcome": self.outcome, "reason": self.reason, "first_finding": self.place}


def check_trackers(wanted: Sequence[tuple[str, str]]) -> None:
    """See that the libraries are there, before any work is done.

    Raises:
        TrackerError: One is not installed.
    """
    for name, _ in wanted:
        found = importlib.util.find_spec(name)
        # A folder of that name, which these libraries make themselves, is no library.
        if found is None or found.origin is None:
            raise TrackerError(
                f"--report {name}: {name} is not installed here; pip install 'traceparity[{name}]'"
            )


def track(wanted: Sequence[tuple[str, str]], tracked: Tracked) -> Iterator[str]:
    """Log a result by each library; yields what went wrong, a line for each that failed.

    Args:
        wanted: Names, each with the project, experiment or folder to log to, or an empty text.
        tracked: The result.
    """
    for name, place in wanted:
        try:
            # Reports go to stdout, and what a library has to say does not belong to them.
            with contextlib.redirect_stdout(sys.stderr):
                importlib.import_module(f"traceparity.verify.track_{name}").log(tracked, place)
        except Exception as error:  # noqa: BLE001 - the verdict stands, whatever a library raises
            first = str(error).strip().partition("\n")[0]
            yield f"--report {name}: nothing was logged: {type(error).__name__}: {first}"


def tracked(command: str, result: str) -> Tracked:
    """A JSON result as it is logged."""
    data = json.loads(result)
    return Tracked(
        command, data["outcome"], data["reason"], _place(data), dict(_counts(data)), result
    )


def _place(data: Mapping[str, Any]) -> str:
    for case in data.get("cases", ()):
        for part in (case["comparison"], case["check"]):
            if part and (place := _place(part)):
                return f"{case['name']}: {place}"
    found = data.get("first_divergence") or next(iter(data.get("violations", ())), None)
    if not found or "phase" not in found:
        return ""
    rank = f" of rank {found['rank']}" if found.get("rank") else ""
    site = f"{found['phase']}:{found['component']}:{found['field']}"
    where = f" ({found['location']})" if found.get("location") else ""
    return f"step {found['step']}{rank}, {site}{where}"


def _counts(data: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    yield "passed", float(data["outcome"] == "PASS")
    if "violations_total" in data:
        yield "violations", float(data["violations_total"])
    if "divergences" in data:
        yield "diverging_steps", float(len(data["divergences"]))
    for part in _COUNTED:
        for name, value in (data.get(part) or {}).items():
            if isinstance(value, int) and not isinstance(value, bool):
                yield f"{part}.{name}", float(value)
    cases = data.get("cases")
    if cases is not None:
        yield "cases", float(len(cases))
        for outcome in ("PASS", "FAIL", "ABSTAIN", "ERROR"):
            count = sum(case["outcome"] == outcome for case in cases)
            yield f"cases.{outcome.lower()}", float(count)
