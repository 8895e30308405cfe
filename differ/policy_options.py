"""The command line's options as a policy: shorthand for a policy file, and stronger than it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from traceparity.differ.errors import PolicyError
from traceparity.differ.policy import PHASES, Align, Policy, Rule
from traceparity.differ.policy_file import read_policy, rename_problem


def with_options(
    policy_file: Path | None,
    *,
    align: str | None = None,
    step_offset: str | None = None,
    rename: Sequence[str] = (),
    phases: str | None = None,
    unmatched: str | None = None,
    ignore: Sequence[str] = (),
) -> Policy:
    """The policy of a file, or the default one, with the options applied.

    Raises:
        PolicyError: The file or an option declares something impossible.
    """
    policy = read_policy(policy_file) if policy_file else Policy()
    changed = policy.align
    if align:
        changed = replace(changed, kind=align)
    if step_offset is not None:
        changed = _with_offset(changed, step_offset, declared=align)
    if rename:
        changed = replace(changed, rename=(*changed.rename, *map(_rename, rename)))
    if phases is not None:
        changed = replace(changed, phases=_phases(phases))
    if unmatched:
        changed = replace(changed, unmatched=unmatched)
    if changed.kind != "resume":
        changed = replace(changed, step_offset=None)
    ignored = tuple(Rule(site=glob, ignore=True) for glob in ignore)
    return replace(policy, align=changed, rules=policy.rules + ignored)


def _with_offset(align: Align, text: str, declared: str | None) -> Align:
    if declared not in (None, "resume"):
        raise PolicyError(f"--step-offset goes with --align resume only, not {declared}")
    if text == "auto":
        return replace(align, kind="resume", step_offset=None)
    if not text.isdecimal():
        raise PolicyError(f'--step-offset must be a whole number from 0 or "auto", not {text!r}')
    return replace(align, kind="resume", step_offset=int(text))


def _rename(text: str) -> tuple[str, str]:
    old, separator, new = text.partition("=")
    if problem := rename_problem(old, new) if separator else "must be OLD=NEW":
        raise PolicyError(f"--rename {text}: {problem}")
    return old, new


def _phases(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PHASES:
            raise PolicyError(f"--phases: no phase {name!r}; there are {', '.join(PHASES)}")
    if not names:
        raise PolicyError("--phases: names no phase")
    return tuple(phase for phase in PHASES if phase in names)
