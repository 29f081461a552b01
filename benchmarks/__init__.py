"""Benchmarks of the working tree, run from the root of the repository: `python -m benchmarks.engine`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
