"""Differences of what the runs ran in: versions, devices, switches, git state, variables."""

from collections.abc import Iterator, Mapping
from typing import Any

from traceparity.differ.result import Difference
from traceparity.tracefmt.records import Header


def environment_differences(reference: Header, target: Header) -> tuple[Difference, ...]:
    """Versions and environment entries that are not equal, tables flattened by one level."""
    left, right = _flat(reference), _flat(target)
    return tuple(
        Difference(name, left.get(name), right.get(name))
        for name in [*left, *(name for name in right if name not in left)]
        if left.get(name) != right.get(name)
    )


def _flat(header: Header) -> dict[str, Any]:
    return {**header.versions, **dict(_entries(header.environment))}


def _entries(environment: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in environment.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", item) for inner, item in value.items())
        else:
            yield name, value
