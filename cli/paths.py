"""Paths on a command line."""

import os
from pathlib import Path
from typing import Any

import click


class GivenPath(click.Path):
    """A path that is not empty: the empty one would be the current folder, which nobody meant."""

    def __init__(self) -> None:
        """Give paths as `pathlib.Path`."""
        super().__init__(path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path.

        Raises:
            BadParameter: It is empty, as where a variable of a shell script is not set.
        """
        if not os.fspath(value):
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


PATH = GivenPath()
