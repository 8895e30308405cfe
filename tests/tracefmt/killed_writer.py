"""Writes steps until it is killed; says on stdout which ones it has written."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from trace_story import Seen, Step, scalar, sketch, write_step  # noqa: E402 - needs the path

from traceparity.tracefmt.records import Header  # noqa: E402
from traceparity.tracefmt.writer import Writer  # noqa: E402


def story(number: int) -> Step:
    """A step that a reader can tell by its number, with new names now and then."""
    noise = bytes((number * 31 + place) % 251 for place in range(3000))
    return Step(
        number,
        (
            Seen(call=number, sketch=sketch(number), component=f"part.{number // 7}"),
            Seen(digest=number.to_bytes(16, "little"), value=noise, external=True),
            scalar(number),
            Seen(value=noise[:500]),
        ),
    )


def main() -> None:
    """Write for ever, in parts."""
    writer, number = Writer(sys.argv[1], Header), 0
    while True:
        write_step(writer, story(number), parts=2)
        os.write(1, number.to_bytes(4, "little"))
        number += 1


if __name__ == "__main__":
    main()
