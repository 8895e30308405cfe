"""The trainings lie beside their test, where an import by name finds them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
