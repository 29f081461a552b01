"""Internals of `tallbayes.results.rebuild`; what users see of it is tested in test_imports.py."""

import subprocess
import sys


def test_a_fit_finds_the_module_that_updates_it():
    code = "import tallbayes as tb; tb.fit; from tallbayes.results.rebuild import updater; print(updater().__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "tallbayes.growth"
