"""Progress in a notebook that is really executed: one line that is kept up to date, and nothing on standard error."""

import textwrap
from pathlib import Path

import nbclient
import nbformat
import pytest

import tallbayes as tb

CELLS = [
    """
    import time
    from tallbayes import progress
    progress.PATIENCE = progress.NOTEBOOK_SECONDS = 0.0
    with progress.Progress("reading", 4) as bar:
        for _ in range(4):
            bar.advance(1, "rows")
    """,
    """
    with progress.Waiting("compiling"):
        time.sleep(5.0)
    """,
    """
    try:
        with progress.Progress("packing", 4) as bar:
            bar.advance(1)
            raise KeyError
    except KeyError:
        pass
    with progress.Progress("silent", 4, enabled=False) as bar:
        bar.advance(1)
    """,
    """
    import numpy as np, tallbayes as tb
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0)), sigma=1.0)
    fit = tb.sample(model, "hmc", draws=20, warmup=20, chains=2, seed=1)
    """,
]


@pytest.fixture(scope="module")
def outputs():
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(text)) for text in CELLS]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    sources = str(Path(tb.__file__).parents[1])
    notebook.cells[0].source = f"import sys; sys.path.insert(0, {sources!r})\n" + notebook.cells[0].source
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    return [[_shown(output) for output in cell.outputs] for cell in notebook.cells]


def _shown(output):
    return output["data"]["text/plain"] if output["output_type"] == "display_data" else dict(output)


def test_one_line_is_kept_up_to_date(outputs):
    assert outputs[0] == ["reading 100% after 0 s"]


def test_waiting_says_what_it_waited_for(outputs):
    assert outputs[1] == ["compiling: done"]


def test_a_bar_that_was_stopped_says_so_and_a_silent_one_nothing(outputs):
    assert outputs[2] == ["packing 25% after 0 s, stopped"]


def test_sampling_shows_its_progress(outputs):
    assert any(line.startswith("sampling 100% after ") for line in outputs[3])
    assert all(isinstance(line, str) for line in outputs[3])  # nothing on standard error
