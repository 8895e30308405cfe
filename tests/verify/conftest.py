"""Lets the tests import what lies beside them, and the made-up runs of the differ's tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "differ")]
