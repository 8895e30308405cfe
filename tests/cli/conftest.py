"""Lets the tests of tp-show import `trace_story` of the format's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tracefmt"))
