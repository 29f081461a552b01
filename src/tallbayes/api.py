"""The front door: `fit`, `sample` and `resume`."""

from __future__ import annotations

import inspect
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes import auto, models, priors, samplers, streams
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Sampler, Setup
from tallbayes.data.dataset import Dataset
from tallbayes.data.read import from_recipe, read
from tallbayes.engine import ledger
from tallbayes.errors import OptionError, StoreError, TallbayesWarning, unknown
from tallbayes.mode import several
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode, mode_as_dict, mode_from_dict
from tallbayes.model import Model
from tallbayes.progress import Waiting
from tallbayes.remote.partitions import Partitions
from tallbayes.remote.supply import open_streams
from tallbayes.results.cost import disagreement, effective_sizes
from tallbayes.results.fit import Fit
from tallbayes.results.levels import check_memory, level_draws
from tallbayes.results.provenance import origin, recorded_options, recorded_sampler, written_by_user
from tallbayes.run.chain import Chain
from tallbayes.run.checkpoint import Checkpoint
from tallbayes.run.driver import Limits, drive
from tallbayes.run.options import check_options
from tallbayes.run.starting_points import check_init, starting_points
from tallbayes.validation import (
    is_whole,
    require_cores,
    require_instance,
    require_path,
    require_positive,
    require_switch,
    require_text,
)

REFERENCE_TOLERANCE = 1e-3  # posterior sds between reference and mode: exactness needs a frozen reference, not the mode


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
    client: Any = None,
    progress: bool = True,
    **options: Any,
) -> Fit:
    """Read, model and sample in one line; the remaining options are those of `sample` and of the family.

    Options of the family, such as `sigma=1.0` or `expression="..."`, may also be collected in `family_options`. `client`, a
    `dask.distributed.Client`, leaves the rows where they are: every file is a partition that workers read. `memory="partitions"` does
    so without a cluster, one file at a time.

    >>> import pyarrow as pa, numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal(500)
    >>> rows = pa.table({"x": x, "y": (rng.random(500) < 1 / (1 + np.exp(-x))).astype(int)})
    >>> fit = tb.fit("y ~ x", rows, family="logistic", draws=100, warmup=100, chains=2, seed=1, progress=False)
    >>> fit.names
    ('Intercept', 'x')
    """
    require_text("formula", formula, "y ~ x1 + C(group)")
    for name, text, example in (("offset", offset, "log(exposure)"), ("weights", weights, "count")):
        if text is not None:
            require_text(name, text, example)
    require_text("memory", memory, "auto")
    require_instance("dtype", dtype, (str, type, np.dtype), "'float64' or 'float32'")
    if store is not None:
        require_path("store", store)
    if prior is not None:
        require_instance("prior", prior, priors.Prior, "a prior such as tallbayes.priors.normal(2.5)")
    described, settings = _divided(family, family_options, options)
    check_options(sampler=sampler, progress=progress, **settings)
    if client is not None or memory == "partitions":
        if store is not None:
            raise OptionError("store= packs the rows on this machine; leave it out where they stay in partitions.")
        columns = {"offset": offset, "weights": weights, "dtype": dtype, "client": client, "progress": progress}
        with Partitions.open(source, formula, family, prior, family_options=described, **columns) as rows:
            return sample(rows, sampler, progress=progress, **settings)
    data = read(source, formula, offset=offset, weights=weights, store=store, memory=memory, dtype=dtype, progress=progress)
    model = models.build(family, data, prior, **described)
    return sample(model, sampler, progress=progress, **settings)


def sample(
    model: Model | Partitions,
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
    `checkpoint` names a folder from which `tallbayes.resume` continues after a kill. Ctrl-C returns the draws so far. `model` may
    be `tallbayes.shards.Partitions`, for "exact-minibatch" and "sgld": its rows stay where they are.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.column_stack([np.ones(100), np.linspace(-1, 1, 100)])
    >>> model = tb.models.poisson(tb.Dataset.from_arrays(X, np.tile([0, 1, 2, 1], 25)))
    >>> fit = tb.sample(model, "hmc", draws=50, warmup=50, chains=2, seed=1, progress=False)
    >>> fit.theta.shape, fit.guarantee.kind, fit.status
    ((2, 50, 2), 'EXACT', 'complete')
    """
    model = model.model if isinstance(model, Partitions) else model
    if not isinstance(model, Model):
        raise OptionError(f"sample needs a model such as tallbayes.models.logistic(data); got a {type(model).__name__}.")
    check_options(
        sampler, progress, draws, warmup, chains, seed, init, thin, cores, max_seconds, until_ess, guarantee, checkpoint, mode
    )
    check_memory(model, draws, chains)
    begun = time.perf_counter()
    draws, warmup, chains, thin = int(draws), int(warmup), int(chains), int(thin)
    init = check_init(model, init, chains)
    fixed = None if isinstance(sampler, str) and sampler == "auto" else samplers.resolve(sampler)
    saver = None if checkpoint is None else Checkpoint(checkpoint)
    if saver is not None:
        saver.require_vacant()
        if fixed is not None:
            recorded_options(fixed)  # refused now, if they cannot be stored
    entropy = streams.entropy(seed)
    if mode is None:
        mode = find_mode(model, progress=progress, cores=cores, tolerance=REFERENCE_TOLERANCE)
    elif not _same(mode.model, model):
        raise OptionError("mode= is that of another model; give tallbayes.find_mode(model), or leave it out.")
    setup, why, spent = None, "", 0
    if fixed is None:
        with ledger.counting() as account:  # rejected candidates and their pilots too
            chosen, setup, why = auto.choose(model, mode, guarantee, entropy, progress)
        spent = account.rows
    else:
        chosen = fixed
    starts = starting_points(model, mode, init, chains, entropy)
    separate = several.warning(mode)
    description = {
        "model": model.describe(),
        "sampler": chosen.as_dict(),
        "user_sampler": written_by_user(chosen),
        "data": {"fingerprint": model.data.fingerprint, "recipe": model.data.recipe, "store": _path(model.data)},
        "seed": entropy,
        "chains": chains,
        "warmup": warmup,
        "thin": thin,
        "draws": draws,
        "starts": starts.tolist(),
        "mode_warnings": [] if separate is None else [separate],
        "until_ess": until_ess,
        "why": why,
        "auto_evals": spent,
        "default_prior": model.default_prior,
    }
    return _run(model, chosen, mode, setup, description, saver, True, cores, max_seconds, progress, begun)


def resume(
    folder: str | Path,
    model: Model | Partitions | None = None,
    draws: int | None = None,
    sampler: str | Sampler | None = None,
    *,
    cores: int | None = None,
    max_seconds: float | None = None,
    progress: bool = True,
) -> Fit:
    """Continue a run from its checkpoint; a finished run is extended to `draws` draws for each chain.

    The draws are bit for bit those of a run that was never interrupted. The rows are read again from where they came; give
    the model if they were only in memory, and the sampler if it is not part of the package. Changed rows, a sampler with other
    options or another version of the package are refused.

    >>> import numpy as np, tallbayes as tb, tempfile
    >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0))
    >>> model, folder = tb.models.gaussian(data, sigma=1.0), tempfile.mkdtemp() + "/run"
    >>> first = tb.sample(model, "hmc", draws=20, warmup=20, chains=2, seed=1, checkpoint=folder, progress=False)
    >>> longer = tb.resume(folder, model, draws=30, progress=False)
    >>> longer.theta.shape, bool((longer.theta[:, :20] == first.theta).all())
    ((2, 30, 1), True)
    """
    require_path("folder", folder)
    model = model.model if isinstance(model, Partitions) else model
    if model is not None:
        require_instance("model", model, Model, "the model of the run, or None to build it again")
    require_cores(cores)
    require_switch("progress", progress)
    if max_seconds is not None:
        require_positive("max_seconds", max_seconds)
    begun = time.perf_counter()
    saver = Checkpoint(folder)
    description = saver.read()
    chosen = recorded_sampler(description["sampler"], description["user_sampler"], sampler, f"the run in {folder}")
    model = _rebuild(description, folder, progress) if model is None else model
    if model.data.fingerprint != description["data"]["fingerprint"]:
        raise StoreError(f"the rows differ from those of the run in {folder}; resume it with the same data.")
    if model.describe() != description["model"]:
        raise StoreError(f"the model differs from that of the run in {folder}: it was {description['model']}.")
    if draws is not None:
        if not is_whole(draws) or draws < description["draws"]:
            raise OptionError(f"the run in {folder} has {description['draws']} draws a chain; draws= can only extend it.")
        description = saver.change(draws=int(draws), until_ess=None)
    mode = mode_from_dict(model, description["mode"])
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
    with ledger.counting() as account:
        setup = sampler.setup(model, mode, description["seed"], progress) if setup is None else setup
    spent = mode.evaluations + (description["auto_evals"] or account.rows)  # `auto` prepared its choice within its own
    if model.partitions is not None:
        setup = open_streams(setup, description)
    seeds = [streams.chain(description["seed"], c) for c in range(description["chains"])]
    starts = np.asarray(description["starts"], float)
    chains = [
        Chain(c, sampler, setup, seeds[c], starts[c], description["warmup"], description["thin"]) for c in range(len(seeds))
    ]
    if saver is not None and new:
        saver.create({**description, "mode": mode_as_dict(mode)})
    elif saver is not None:
        for chain in chains:
            saver.restore(chain)
    with Waiting("compiling the sampler for this family (once; the result is cached)", progress):
        chains[0].compile()
    prepared = time.perf_counter() - begun
    limits = Limits(description["draws"], max_seconds, description["until_ess"])
    failures: list[str] = []

    def smallest_ess(theta: np.ndarray, weights: np.ndarray | None) -> float:
        try:
            return float(np.nan_to_num(effective_sizes(theta[:, :, : model.dim], weights)).min())
        except Exception as error:
            failures.append(_failure("the effective sample size could not be computed, so until_ess= was not reached", error))
            return np.inf

    status = drive(chains, limits, cores, progress, saver, smallest_ess)
    total = time.perf_counter() - begun
    return _collect(model, sampler, setup, mode, description, chains, status, spent, prepared, total, failures)


def _with_modes(guarantee: Guarantee, mode: Mode) -> Guarantee:
    """The guarantee with what it assumes of the modes, where there is not proven to be one."""
    if mode.searches == 0:
        return guarantee
    return replace(guarantee, assumed=(*guarantee.assumed, several.assumption(mode)))


def _failure(what: str, error: Exception) -> str:
    """The sentence for a check that failed after the run: its draws are kept."""
    return f"{what} ({type(error).__name__}: {error}). The draws are complete, but were not checked."


def _collect(
    model: Model,
    sampler: Sampler,
    setup: Setup,
    mode: Mode,
    description: dict[str, Any],
    chains: list[Chain],
    status: str,
    spent: int,
    prepared: float,
    total: float,
    failures: list[str],
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
    diagnosis, apart = Diagnosis(), None
    with ledger.counting() as account:
        try:
            diagnosis = sampler.diagnose(Outcome(setup, theta, stats, description["thin"]))
        except Exception as error:
            failures.append(_failure(f"the checks of {sampler.name} after the run failed", error))
    try:
        apart = disagreement(theta, model.names)  # the summary says so from the draws: not kept
    except Exception as error:
        failures.append(_failure("R-hat could not be computed", error))
    kept = [*description["mode_warnings"], *failures, *diagnosis.warnings]
    for sentence in [*kept, *([] if apart is None else [apart])]:
        warnings.warn(sentence, TallbayesWarning, stacklevel=4)
    meta = {
        **{k: description[k] for k in ("model", "sampler", "user_sampler", "seed", "thin")},
        "sampler_name": sampler.name,
        **origin(model),
        "warmup": description["warmup"],
        "notes": {**setup.notes, **diagnosis.notes},
        "parameters": description["model"]["options"].get("parameters"),
        "warnings": kept,
    }
    return Fit(
        theta=theta,
        stats=stats,
        names=model.names,
        guarantee=_with_modes(sampler.guarantee, mode),
        why=description["why"] or setup.why,
        status=status,
        setup={"passes": mode.passes, "evals": spent + account.rows + _sent_for(setup), "seconds": prepared},
        warmup={
            "iterations": sum(c.iteration for c in chains),
            "evals": sum(c.warmup_evaluations for c in chains),
            "seconds": sum(c.seconds["warmup"] for c in chains),
        },
        seconds={"draws": sum(c.seconds["draws"] for c in chains), "total": total},
        laplace_mean=mode.reference,
        laplace_factor=mode.factor,
        meta=meta,
        data=None if model.partitions is not None else model.data,
        levels=levels,
    )


def _divided(family: str, family_options: Any, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the family and options of `sample`; refuses names that belong to neither, and what is left out."""
    if family_options is not None:
        require_instance("family_options", family_options, dict, "a dictionary of options of the family")
    valid = models.family_options(family)
    run = [name for name in inspect.signature(check_options).parameters if name not in ("sampler", "progress")]
    for name in options:
        if name not in run and name not in valid:
            raise unknown("option", name, [*run, *valid])
        if name in valid and name in (family_options or {}):
            raise OptionError(f"{name} is given twice, by itself and in family_options=.")
    described = {**(family_options or {}), **{k: v for k, v in options.items() if k in valid}}
    models.check_family(family, described)
    return described, {k: v for k, v in options.items() if k not in valid}


def _sent_for(setup: Setup) -> int:
    """Rows that passes for row streams looked at, in the background of the chains."""
    return int(setup.notes.get("streams", {}).get("evals", 0))


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
