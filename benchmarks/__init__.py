"""Benchmarks of the working tree, run from the root of the repository: `python -m benchmarks.engine`.

The sources beside this folder are measured, unless PYTHONPATH names others.
"""

import os
import sys
from pathlib import Path

if not any(Path(folder, "tallbayes").is_dir() for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder):
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
