"""Lets the property tests import `trace_stories`, and `trace_story` of the format's tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tracefmt")]
