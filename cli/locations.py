"""The argument that says which trace to read: a path, or the URL of one elsewhere."""

import click

from traceparity.tracefmt.location import Location, location


class _LocationType(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    name = "trace"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Location:
        if not str(value):
            self.fail("the path is empty", param, ctx)
        # Not click.Path: it would fold the two slashes of a URL.
        return value if isinstance(value, Location) else location(str(value))


LOCATION = _LocationType()
"""Type of the arguments and options of all commands that read traces."""
