"""What several files of tests use: made-up rows, and chains run by hand."""

import functools
import html
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np

import tallbayes as tb
from tallbayes.results.cost import effective_sizes
from tallbayes.results.provenance import origin
from tallbayes.run import chain as chains_module
from tallbayes.run.chain import Chain
from tallbayes.run.flattening import flatten
from tallbayes.run.thinning import thinned
from tallbayes.samplers import Guarantee, advance


def logistic_arrays(rows, effects=(-0.5, 1.0), seed=7):
    """A design matrix with an intercept, and responses drawn from the logistic model."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(rows), rng.standard_normal((rows, len(effects) - 1))])
    return X, (rng.random(rows) < 1.0 / (1.0 + np.exp(-X @ np.asarray(effects)))).astype(float)


def medium_model():
    """20,000 rows: an iteration of the random walk takes about a tenth of a millisecond."""
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(20_000)), tb.priors.normal(2.0))


def interrupting(monkeypatch, times, after=40, number=0):
    """Chains of which the first, or another, sends this process SIGINT, as Ctrl-C does, once it has some draws."""
    sent = []

    def chunk(chain, goal, original=Chain.chunk):
        made = original(chain, goal)
        while chain.number == number and chain.draws >= after and len(sent) < times:
            sent.append(chain.draws)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        return made

    monkeypatch.setattr(Chain, "chunk", chunk)
    monkeypatch.setattr(chains_module, "CHUNK_SECONDS", 0.001)


def run_chunks(sampler, model, mode, sizes, seed=3, thin=1, compiled=True):
    """Draws, info and final state of a chain at the mode with the options of the beginning, in chunks of these sizes."""
    setup = sampler.setup(model, mode, seed, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    rng, state, fresh = np.random.default_rng(seed), setup.policy.blank(mode.reference), True
    thetas, infos = [], []
    for size in sizes:
        theta, info = np.empty((size, model.dim)), np.zeros((size * thin, len(sampler.columns)))
        run = advance if compiled else advance.py_func
        state, made = run(rng, target, options, state, fresh, theta, info, thin)
        assert made == size
        fresh = False
        thetas.append(theta)
        infos.append(thinned(info, sampler.columns, thin))
    return np.concatenate(thetas), np.concatenate(infos), flatten(state, "state")


def named(sampler, info):
    """Columns of `info` by name."""
    return dict(zip(sampler.columns, info.T, strict=True))


class Scripted:
    """A generator whose uniform numbers are given."""

    def __init__(self, *values):
        self.values = list(values)

    def random(self):
        return self.values.pop(0)


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
    return tb.Fit(
        theta, {"evals": np.zeros(theta.shape[:2])}, model.names, Guarantee("EXACT", ""), "", "complete", {}, {}, {},
        np.zeros(model.dim), np.eye(model.dim),
        {"model": model.describe(), "sampler_name": "none", "warnings": [], **origin(model)}, model.data if keep else None,
    )  # fmt: skip


def warned_everywhere(fit, pattern, folder):
    """Whether a sentence is kept by the fit, and said by its summary, its report and the fit that is saved and loaded."""
    from tallbayes.results.report import page, warnings_of

    (sentence,) = [w for w in fit.meta["warnings"] if re.search(pattern, w)]
    loaded = tb.load(fit.save(folder / "fit.nc"))
    for each in (fit, loaded):
        assert sentence in each.meta["warnings"] and sentence in warnings_of(each)
        assert repr(each.summary()).count(sentence) == 1
    return html.escape(sentence) in page(loaded, plots=False)


def everything(fit):
    """Draws of the parameters and of all levels of a hierarchical model."""
    return np.concatenate([fit.theta, *(levels.values for levels in fit.levels.values())], axis=2)


def largest_disagreement(first, second):
    """Largest z-score between two fits of a hierarchical model: of means, mean squares, and probabilities of the tails of 1 %.

    Each has the effective size of its own draws, that of the indicator for tails."""
    a, b = everything(first), everything(second)
    pairs = [(a, b), (a**2, b**2)]
    both = np.concatenate([a.reshape(-1, a.shape[2]), np.resize(b.reshape(-1, b.shape[2]), (a[..., 0].size, b.shape[2]))])
    for p in (0.01, 0.99):
        cut = np.quantile(both, p, axis=0)
        pairs.append(((a < cut).astype(float), (b < cut).astype(float)))
    scores = []
    for one, other in pairs:
        noise = one.var((0, 1)) / effective_sizes(one) + other.var((0, 1)) / effective_sizes(other)
        scores.append(np.abs((one.mean((0, 1)) - other.mean((0, 1))) / np.sqrt(noise)).max())
    return max(scores)
