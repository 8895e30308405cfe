"""Lets the tests of the commands import what the tests of format and differ write traces with."""

import sys
from pathlib import Path

for folder in ("tracefmt", "differ"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
