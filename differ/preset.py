"""Presets: policy files that come with the package, to be named or copied."""

from importlib.resources import files

PRESETS = ("exact", "close", "resume", "accumulation", "ddp", "refactor")


def preset_text(name: str) -> str:
    """The policy file that a preset is."""
    return (files("traceparity.differ") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
