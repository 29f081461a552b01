"""The front door: `fit`, `sample` and `resume`."""

from __future__ import annotations

import inspect
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes import auto, models, priors, samplers
from tallbayes.contract import KINDS, Outcome, Sampler, Setup
from tallbayes.data.dataset import Dataset
from tallbayes.data.read import from_recipe, read
from tallbayes.errors import OptionError, StoreError, TallbayesWarning, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.progress import Waiting
from tallbayes.results.cost import disagreement, effective_sizes
from tallbayes.results.fit import Fit
from tallbayes.results.levels import check_memory, level_draws
from tallbayes.results.provenance import origin
from tallbayes.run.chain import Chain
from tallbayes.run.checkpoint import Checkpoint
from tallbayes.run.driver import Limits, drive

REFERENCE_TOLERANCE = 1e-3  # posterior sds between reference and mode: exactness needs a frozen reference, not the mode
DISPERSION = 2.0  # chains start at Laplace draws with doubled standard deviations, so that R-hat can see disagreement


def fit(
    formula: str,
    source: Any,
    family: str = "logistic",
    prior: priors.Prior | None = None,
    sampler: str | Sampler = "auto",
    *,
    family_options: dict[str, Any] | None = None,
    offset: str | None = None,
    weights: str | None = None,
    store: str | Path | None = None,
    memory: str = "auto",
    dtype: str = "float64",
    progress: bool = True,
    **options: Any,
) -> Fit:
    """Read, model and sample in one line; the remaining options are those of `sample`.

    >>> import pyarrow as pa, numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal(500)
    >>> rows = pa.table({"x": x, "y": (rng.random(500) < 1 / (1 + np.exp(-x))).astype(int)})
    >>> fit = tb.fit("y ~ x", rows, family="logistic", draws=100, warmup=100, chains=2, seed=1, progress=False)
    >>> fit.names
    ('Intercept', 'x')
    """
    check_family(family, family_options or {})
    data = read(source, formula, offset=offset, weights=weights, store=store, memory=memory, dtype=dtype, progress=progress)
    model = models.build(family, data, prior, **(family_options or {}))
    return sample(model, sampler, progress=progress, **options)


def sample(
    model: Model,
    sampler: str | Sampler = "auto",
    draws: int = 1000,
    warmup: int = 1000,
    chains: int = 4,
    seed: int | None = None,
    *,
    init: str | np.ndarray = "laplace",
    thin: int = 1,
    cores: int | None = None,
    max_seconds: float | None = None,
    until_ess: float | None = None,
    guarantee: str | None = None,
    checkpoint: str | Path | None = None,
    mode: Mode | None = None,
    progress: bool = True,
) -> Fit:
    """Draw from the posterior of a model.

    `sampler` is a name, an object of `tallbayes.samplers`, or "auto". Chains run in parallel threads; the draws depend on
    the seed alone, not on cores, progress or interruptions. `init` is "laplace" (dispersed around the mode), "prior", or an
    array of one or `chains` starting points. `until_ess` goes on in blocks of `draws` until the smallest bulk effective
    sample size is reached, `max_seconds` stops sampling after a time. `guarantee="exact"` refuses weaker methods.
    `checkpoint` names a folder from which `tallbayes.resume` continues after a kill. Ctrl-C returns the draws so far.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.column_stack([np.ones(100), np.linspace(-1, 1, 100)])
    >>> model = tb.models.poisson(tb.Dataset.from_arrays(X, np.tile([0, 1, 2, 1], 25)))
    >>> fit = tb.sample(model, "hmc", draws=50, warmup=50, chains=2, seed=1, progress=False)
    >>> fit.theta.shape, fit.guarantee.kind, fit.status
    ((2, 50, 2), 'EXACT', 'complete')
    """
    _check_options(model, draws, warmup, chains, thin, seed, max_seconds, until_ess, cores)
    check_memory(model, draws, chains)
    begun = time.perf_counter()
    draws, warmup, chains, thin = int(draws), int(warmup), int(chains), int(thin)
    fixed = None if sampler == "auto" else samplers.resolve(sampler)
    _check_guarantee(fixed, guarantee)
    saver = None if checkpoint is None else Checkpoint(checkpoint)
    if saver is not None:
        saver.require_vacant()
    entropy = int(np.random.SeedSequence().entropy) if seed is None else int(seed)  # type: ignore[arg-type]
    if mode is None:
        mode = find_mode(model, progress=progress, cores=cores, tolerance=REFERENCE_TOLERANCE)
    elif not _same(mode.model, model):
        raise OptionError("mode= is that of another model; give tallbayes.find_mode(model), or leave it out.")
    setup, why = None, ""
    if fixed is None:
        chosen, setup, why = auto.choose(model, mode, guarantee, entropy, progress)
    else:
        chosen = fixed
    starts = _starts(model, mode, init, chains, entropy)
    description = {
        "model": model.describe(),
        "sampler": chosen.as_dict(),
        "data": {"fingerprint": model.data.fingerprint, "recipe": model.data.recipe, "store": _path(model.data)},
        "seed": entropy,
        "chains": chains,
        "warmup": warmup,
        "thin": thin,
        "draws": draws,
        "starts": starts.tolist(),
        "until_ess": until_ess,
        "why": why,
        "default_prior": model.default_prior,
    }
    return _run(model, chosen, mode, setup, description, saver, True, cores, max_seconds, progress, begun)


def resume(
    folder: str | Path,
    model: Model | None = None,
    draws: int | None = None,
    *,
    cores: int | None = None,
    max_seconds: float | None = None,
    progress: bool = True,
) -> Fit:
    """Continue a run from its checkpoint; a finished run is extended to `draws` draws for each chain.

    The draws are bit for bit those of a run that was never interrupted. The rows are read again from where they came; give
    the model if they were only in memory. Changed rows or another version of the package are refused.

    >>> import numpy as np, tallbayes as tb, tempfile
    >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0))
    >>> model, folder = tb.models.gaussian(data, sigma=1.0), tempfile.mkdtemp() + "/run"
    >>> first = tb.sample(model, "hmc", draws=20, warmup=20, chains=2, seed=1, checkpoint=folder, progress=False)
    >>> longer = tb.resume(folder, model, draws=30, progress=False)
    >>> longer.theta.shape, bool((longer.theta[:, :20] == first.theta).all())
    ((2, 30, 1), True)
    """
    begun = time.perf_counter()
    saver = Checkpoint(folder)
    description = saver.read()
    model = _rebuild(description, folder, progress) if model is None else model
    if model.data.fingerprint != description["data"]["fingerprint"]:
        raise StoreError(f"the rows differ from those of the run in {folder}; resume it with the same data.")
    if model.describe() != description["model"]:
        raise StoreError(f"the model differs from that of the run in {folder}: it was {description['model']}.")
    if draws is not None:
        if not isinstance(draws, int | np.integer) or draws < description["draws"]:
            raise OptionError(f"the run in {folder} has {description['draws']} draws a chain; draws= can only extend it.")
        description = saver.change(draws=int(draws), until_ess=None)
    chosen = samplers.from_dict(description["sampler"])
    mode = _mode_from_dict(model, description["mode"])
    return _run(model, chosen, mode, None, description, saver, False, cores, max_seconds, progress, begun)


def _run(
    model: Model,
    sampler: Sampler,
    mode: Mode,
    setup: Setup | None,
    description: dict[str, Any],
    saver: Checkpoint | None,
    new: bool,
    cores: int | None,
    max_seconds: float | None,
    progress: bool,
    begun: float,
) -> Fit:
    setup = sampler.setup(model, mode, description["seed"], progress) if setup is None else setup
    seeds = np.random.SeedSequence(description["seed"]).spawn(description["chains"])
    chains = [
        Chain(
            c, sampler, setup, seeds[c], np.asarray(description["starts"][c], float), description["warmup"], description["thin"]
        )
        for c in range(description["chains"])
    ]
    if saver is not None and new:
        saver.create({**description, "mode": _mode_as_dict(mode)})
    elif saver is not None:
        for chain in chains:
            saver.restore(chain)
    with Waiting("compiling the sampler for this family (once; the result is cached)", progress):
        chains[0].compile()
    prepared = time.perf_counter() - begun
    limits = Limits(description["draws"], max_seconds, description["until_ess"])
    status = drive(
        chains, limits, cores, progress, saver, lambda theta, weights: _smallest_ess(theta[:, :, : model.dim], weights)
    )
    return _collect(model, sampler, setup, mode, description, chains, status, prepared, time.perf_counter() - begun)


def _smallest_ess(theta: np.ndarray, weights: np.ndarray | None) -> float:
    return float(np.nan_to_num(effective_sizes(theta, weights)).min())


def _collect(
    model: Model,
    sampler: Sampler,
    setup: Setup,
    mode: Mode,
    description: dict[str, Any],
    chains: list[Chain],
    status: str,
    prepared: float,
    total: float,
) -> Fit:
    parts = [chain.collected() for chain in chains]
    shortest = min(p[0].shape[0] for p in parts)
    if shortest == 0:
        raise OptionError(
            f"stopped ({status}) before every chain had a draw; allow more time, or resume from a checkpoint with "
            "tallbayes.resume."
        )
    theta = np.stack([p[0][:shortest] for p in parts])
    theta, levels = theta[:, :, : model.dim], level_draws(model, theta[:, :, model.dim :])
    table = np.stack([p[1][:shortest] for p in parts])
    stats = {name: table[:, :, k] for k, name in enumerate(sampler.columns)}
    diagnosis = sampler.diagnose(Outcome(setup, theta, stats, description["thin"]))
    for sentence in diagnosis.warnings:
        warnings.warn(sentence, TallbayesWarning, stacklevel=4)
    if (apart := disagreement(theta, model.names)) is not None:  # the summary says so from the draws: not kept
        warnings.warn(apart, TallbayesWarning, stacklevel=4)
    meta = {
        **{k: description[k] for k in ("model", "sampler", "seed", "thin")},
        "sampler_name": sampler.name,
        **origin(model),
        "warmup": description["warmup"],
        "notes": {**setup.notes, **diagnosis.notes},
        "parameters": description["model"]["options"].get("parameters"),
        "warnings": list(diagnosis.warnings),
    }
    return Fit(
        theta=theta,
        stats=stats,
        names=model.names,
        guarantee=sampler.guarantee,
        why=description["why"] or setup.why,
        status=status,
        setup={
            "passes": mode.passes,
            "evals": mode.passes * model.data.n + setup.evaluations + diagnosis.evaluations,
            "seconds": prepared,
        },
        warmup={
            "iterations": sum(c.iteration for c in chains),
            "evals": sum(c.warmup_evaluations for c in chains),
            "seconds": sum(c.seconds["warmup"] for c in chains),
        },
        seconds={"draws": sum(c.seconds["draws"] for c in chains), "total": total},
        laplace_mean=mode.reference,
        laplace_factor=mode.factor,
        meta=meta,
        levels=levels,
    )


def _check_options(
    model: Model,
    draws: int,
    warmup: int,
    chains: int,
    thin: int,
    seed: int | None,
    max_seconds: float | None,
    until_ess: float | None,
    cores: int | None,
) -> None:
    if not isinstance(model, Model):
        raise OptionError(f"sample needs a model such as tallbayes.models.logistic(data); got a {type(model).__name__}.")
    for name, value, least in (("draws", draws, 1), ("warmup", warmup, 0), ("chains", chains, 1), ("thin", thin, 1)):
        if not isinstance(value, int | np.integer) or value < least:
            raise OptionError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    if seed is not None and (not isinstance(seed, int | np.integer) or seed < 0):
        raise OptionError(f"seed must be a whole number >= 0, or None for a fresh one; got {seed!r}.")
    if cores is not None and (not isinstance(cores, int | np.integer) or cores < 1):
        raise OptionError(f"cores must be a whole number of at least 1, or None for all; got {cores!r}.")
    for name, limit in (("max_seconds", max_seconds), ("until_ess", until_ess)):
        if limit is not None and (not isinstance(limit, int | float | np.number) or not limit > 0):
            raise OptionError(f"{name} must be positive; got {limit!r}.")


def check_family(family: str, options: dict[str, Any]) -> None:
    """Refuse a family or an option of it that does not exist, before any row is read."""
    if family not in models.FAMILIES:
        raise unknown("family", family, models.FAMILIES)
    valid = [k for k in inspect.signature(models.FAMILIES[family]).parameters if k not in ("data", "prior")]
    for name in options:
        if name not in valid:
            raise unknown(f"option of {family}", name, valid or ["none"])


def _check_guarantee(sampler: Sampler | None, wanted: str | None) -> None:
    if wanted is None:
        return
    kind = str(wanted).upper()
    if kind not in KINDS:
        raise unknown("guarantee", wanted, [k.lower() for k in KINDS])
    if sampler is not None and KINDS.index(sampler.guarantee.kind) > KINDS.index(kind):
        raise OptionError(
            f"{sampler.name} is {sampler.guarantee.kind}, weaker than guarantee={wanted!r}. Use 'auto' or an exact sampler."
        )


def _starts(model: Model, mode: Mode, init: str | np.ndarray, chains: int, entropy: int) -> np.ndarray:
    rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(1 << 20,)))
    if isinstance(init, str):
        if init == "laplace":
            return np.stack([_inside(model, mode, t) for t in mode.laplace().draw(rng, chains, DISPERSION)])
        if init == "prior":
            return np.stack([_from_prior(model, rng) for _ in range(chains)])
        raise unknown("init", init, ("laplace", "prior"))
    try:
        array = np.asarray(init, float)
    except (TypeError, ValueError):
        raise OptionError(f"init must be 'laplace', 'prior' or an array of numbers; got {init!r}.") from None
    if array.shape == (model.dim,):
        array = np.tile(array, (chains, 1))
    if array.shape != (chains, model.dim):
        raise OptionError(f"init must have shape ({model.dim},) or ({chains}, {model.dim}); got {array.shape}.")
    if not np.isfinite(array).all():
        raise OptionError("init has a value that is not finite.")
    for theta in array:
        if not model.admits(theta):
            raise OptionError(f"init {theta.tolist()} is {model.domain}.")
    return array


def _inside(model: Model, mode: Mode, theta: np.ndarray) -> np.ndarray:
    """A start drawn outside the region of the model is moved halfway to the mode until it is inside."""
    while not model.admits(theta):
        theta = 0.5 * (theta + mode.reference)
    return theta


def _from_prior(model: Model, rng: np.random.Generator) -> np.ndarray:
    assert model.prior is not None
    if model.grouped:
        raise OptionError("init='prior' is not available for models with group effects; use init='laplace' or give an array.")
    for _ in range(10_000):
        theta = model.prior.sample(model.prior_terms, rng)
        if model.admits(theta):
            return theta
    raise OptionError(f"10,000 draws from the prior were {model.domain}. Use init='laplace' or a narrower prior.")


def _path(data: Dataset) -> str | None:
    return None if data.store is None else str(data.store.resolve())


def _rebuild(description: dict[str, Any], folder: str | Path, progress: bool) -> Model:
    data, spec = description["data"], description["model"]
    if data["store"] is None and not data["recipe"].get("source"):
        raise StoreError(
            f"the rows of the run in {folder} were only in memory; call resume(folder, model=...) with the same model."
        )
    rows = from_recipe(data["recipe"], data["store"], progress)
    prior = None if description["default_prior"] else priors.from_dict(spec["prior"])
    return models.build(spec["family"], rows, prior, **spec["options"])


def _same(model: Model, other: Model) -> bool:
    return model is other or (model.data.fingerprint == other.data.fingerprint and model.describe() == other.describe())


def _mode_as_dict(mode: Mode) -> dict[str, Any]:
    names = ("reference", "gradient", "hessian", "precision")
    return {**{k: getattr(mode, k).tolist() for k in names}, "log_posterior": mode.log_posterior, "passes": mode.passes}


def _mode_from_dict(model: Model, values: dict[str, Any]) -> Mode:
    if model.grouped:  # the levels' part is not kept: the search finds the same again
        return find_mode(model, progress=False)
    arrays = {k: np.asarray(values[k], float) for k in ("reference", "gradient", "hessian", "precision")}
    return Mode(model, log_posterior=values["log_posterior"], passes=values["passes"], **arrays)
