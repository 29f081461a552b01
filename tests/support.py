"""What several files of tests use: made-up rows, and chains run by hand."""

import functools
import html
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np

import tallbayes as tb
from tallbayes.testing import fit_from_draws


def logistic_arrays(rows, effects=(-0.5, 1.0), seed=7):
    """A design matrix with an intercept, and responses drawn from the logistic model."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(rows), rng.standard_normal((rows, len(effects) - 1))])
    return X, (rng.random(rows) < 1.0 / (1.0 + np.exp(-X @ np.asarray(effects)))).astype(float)


def medium_model():
    """20,000 rows: an iteration of the random walk takes about a tenth of a millisecond."""
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(20_000)), tb.priors.normal(2.0))


def named(sampler, info):
    """Columns of `info` by name."""
    return dict(zip(sampler.columns, info.T, strict=True))


@functools.cache
def sampler_skeletons():
    """The sampler classes of docs/write-a-sampler.md: the blocks of code that define them, run once."""
    page = Path(__file__).parents[1] / "docs" / "write-a-sampler.md"
    blocks = [b for b in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) if "class " in b]
    module = types.ModuleType("write_a_sampler")
    sys.modules[module.__name__] = module  # type hints of a dataclass are looked up there
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page.name}, block {number + 1}", "exec"), module.__dict__)
    kinds = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    return [kind for kind in kinds if issubclass(kind, tb.samplers.Sampler)]


def start_python(*arguments, **options):
    """A new interpreter that imports the same package as this one, and this file."""
    folders = Path(tb.__file__).parents[1], Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=environment, **options)


OPTIONS = {"negbin": {"size": 3.0}, "gamma": {"shape": 2.0}, "gaussian": {"sigma": 0.5}, "student_t": {"nu": 5.0, "scale": 0.5}}


def known_fit(data, family="logistic", theta=None, draws=40, spread=0.05, seed=1, keep=True):
    """A fit whose draws are known, without a run."""
    model = tb.models.build(family, data, **OPTIONS.get(family, {}))
    if theta is None:
        center = 0.3 * np.cos(np.arange(model.dim))
        theta = center + spread * np.random.default_rng(seed).standard_normal((2, draws // 2, model.dim))
    return fit_from_draws(model, theta, keep_rows=keep)


def warned_everywhere(fit, pattern, folder):
    """Whether a sentence is kept by the fit, and said by its summary, its report and the fit that is saved and loaded."""
    (sentence,) = [w for w in fit.meta["warnings"] if re.search(pattern, w)]
    loaded = tb.load(fit.save(folder / "fit.nc"))
    for each in (fit, loaded):
        assert sentence in each.meta["warnings"]
        assert repr(each.summary()).count(sentence) == 1
        page = each.report(folder / "warned.html", plots=False).read_text(encoding="utf-8")
        if html.escape(sentence) not in page:
            return False
    return True
