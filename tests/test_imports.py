"""What `import tallbayes` and `tallbayes --help` load: nothing that takes long. Modules are imported when they are used."""

import subprocess
import sys

import pytest

import tallbayes as tb

HEAVY = {"numba", "scipy", "pandas", "pyarrow", "xarray", "arviz_stats", "jax", "matplotlib"}
HELP = """import runpy
sys.argv = ['tallbayes', '--help']
try:
    runpy.run_module('tallbayes.cli', run_name='__main__')
except SystemExit:
    pass"""


@pytest.mark.parametrize("work", ["import tallbayes", HELP])
def test_little_is_imported(work):
    code = f"import sys\n{work}\nprint('loaded:', *sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split("loaded:")[1].split()
    assert "tallbayes" in loaded and not HEAVY & set(loaded)


def test_every_public_name_is_found():
    assert {name for name in tb.__all__ if getattr(tb, name, None) is None} == set()
    assert set(tb.__all__) <= set(dir(tb))
    assert tb.run.__name__ == "tallbayes.run"  # rooms without a public name too
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tb.nothing  # noqa: B018
