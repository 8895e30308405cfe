"""The command that runs the made-up training."""

import sys
from pathlib import Path

TRAIN = f"{sys.executable} {Path(__file__).with_name('fake_training.py')}"
