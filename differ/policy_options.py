"""The command line's options as a policy: shorthand for a policy file, and stronger than it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from traceparity.differ.errors import PolicyError
from traceparity.differ.policy import PHASES, Align, Coverage, Policy, Rule
from traceparity.differ.policy_file import (
    coverage_problem,
    expected_samples,
    read_policy,
    rename_problem,
    renames_problem,
)


def with_options(
    policy_file: Path | None,
    *,
    align: str | None = None,
    step_offset: str | None = None,
    microbatches: str | None = None,
    loss: str | None = None,
    ranks: str | None = None,
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
    changed = _with_accumulation(changed, microbatches, loss, declared=align)
    if ranks:
        changed = replace(changed, ranks=ranks)
    if rename:
        changed = replace(changed, rename=_renames(changed.rename, rename))
    if phases is not None:
        changed = replace(changed, phases=_phases(phases))
    if unmatched:
        changed = replace(changed, unmatched=unmatched)
    if changed.kind != "resume":
        changed = replace(changed, step_offset=None)
    if changed.kind != "accumulation":
        changed = replace(changed, microbatches=None, loss="sum", loss_weight="samples")
    if "" in ignore:
        raise PolicyError("--ignore: needs a glob over phase:component:field")
    ignored = tuple(Rule(site=glob, ignore=True) for glob in ignore)
    return replace(policy, align=changed, rules=policy.rules + ignored)


def with_coverage_options(
    policy: Policy,
    *,
    rule: str | None = None,
    id: str | None = None,
    expected: str | None = None,
    scope: str | None = None,
    count: str | None = None,
    padding: int | None = None,
) -> Policy:
    """The policy with the options of coverage applied.

    Raises:
        PolicyError: An option declares something impossible.
    """
    given = {"id": id, "scope": scope, "count": count, "padding": padding}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if expected is not None:
        changes["expected"] = _expected(expected)
    coverage = policy.coverage
    if rule is not None:
        coverage = replace(coverage or Coverage(rule), policy=rule)
        if rule != "expected_padding":
            coverage = replace(coverage, padding=None)
    if coverage is None:
        if changes:
            raise PolicyError(f"--{next(iter(changes))} needs a rule: add --coverage RULE")
        return policy
    coverage = replace(coverage, **changes)
    if found := coverage_problem(coverage):
        raise PolicyError(f"--{found[0]}: {found[1]}")
    return replace(policy, coverage=coverage)


def _expected(text: str) -> str | tuple[int | str, ...]:
    value: Any = text.strip()
    if not value.startswith("range"):
        import tomllib

        try:
            value = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            raise PolicyError(
                f'--expected: must be "range(START, STOP)" or a list such as [1, 2, 3], not {text}'
            ) from None
    try:
        return expected_samples(value)
    except ValueError as error:
        raise PolicyError(f"--expected: {error}") from None


def _with_offset(align: Align, text: str, declared: str | None) -> Align:
    if declared not in (None, "resume"):
        raise PolicyError(f"--step-offset goes with --align resume only, not {declared}")
    if text == "auto":
        return replace(align, kind="resume", step_offset=None)
    if not text.isdecimal():
        raise PolicyError(f'--step-offset must be a whole number from 0 or "auto", not {text!r}')
    return replace(align, kind="resume", step_offset=int(text))


def _with_accumulation(
    align: Align, microbatches: str | None, loss: str | None, declared: str | None
) -> Align:
    if microbatches is None and loss is None:
        return align
    if declared not in (None, "accumulation"):
        option = "--loss" if microbatches is None else "--microbatches"
        raise PolicyError(f"{option} goes with --align accumulation only, not {declared}")
    align = replace(align, kind="accumulation", loss=loss or align.loss)
    if microbatches is None:
        return align
    counts = [int(part) for part in microbatches.split(":") if part.isdecimal()]
    if len(counts) != 2 or microbatches.count(":") != 1 or 0 in counts:
        raise PolicyError(
            f"--microbatches must be REFERENCE:TARGET, as 1:4, and not {microbatches!r}"
        )
    return replace(align, microbatches=(counts[0], counts[1]))


def _renames(
    declared: Iterable[tuple[str, str]], given: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """The names of a policy file, and those of options, which are stronger."""
    names: dict[str, str] = {}
    for old, new in map(_rename, given):
        if names.setdefault(old, new) != new:
            raise PolicyError(f"--rename: {old} is to be both {names[old]} and {new}")
    together = dict(declared) | names
    if problem := renames_problem(together):
        raise PolicyError(f"--rename: {problem}")
    return tuple(together.items())


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
