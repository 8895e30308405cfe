"""Lets the tests of the format import `trace_story`, and closes what they open."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from traceparity.tracefmt.reader import Trace, open_trace

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def opened() -> Iterator[Callable[[Path], Trace]]:
    """Opens traces that are closed when the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda path: stack.enter_context(open_trace(path))
