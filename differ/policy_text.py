"""A policy written as the file that declares it."""

import json
from collections.abc import Mapping
from typing import Any

from traceparity.differ.policy import Policy


def policy_text(policy: Policy) -> str:
    """The effective policy as TOML; read again it is the same policy."""
    tables = policy.as_dict()
    parts = [_table("[align]", tables["align"])]
    parts += [_table("[[compare]]", rule) for rule in tables["compare"]]
    if "coverage" in tables:
        parts.append(_table("[coverage]", tables["coverage"]))
    if "laws" in tables:
        parts.append(_table("[laws]", tables["laws"]))
    return "\n".join(parts)


def _table(head: str, values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in values.items()]
    return "\n".join([head, *lines]) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{quoted(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def quoted(text: str) -> str:
    """A text as TOML has it."""
    # A JSON text is a TOML text, but for a character that only TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
