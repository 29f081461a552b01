"""The front door: `fit`, `sample` and `resume`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes import auto, models, priors, samplers, streams
from tallbayes.compile_ahead import compiling_ahead
from tallbayes.contract import Sampler
from tallbayes.data.dataset import Dataset
from tallbayes.data.read import from_recipe, is_store, only_one, read
from tallbayes.data.response import warn_of_constant_response
from tallbayes.deadline import Deadline, limited
from tallbayes.engine import ledger
from tallbayes.errors import OptionError, StoreError, unknown
from tallbayes.execution import execute
from tallbayes.mode import several
from tallbayes.mode.laplace import Mode
from tallbayes.mode.saved_modes import mode_from_dict
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.named_priors import PriorLike
from tallbayes.remote.partitions import Partitions
from tallbayes.results.fit import Fit
from tallbayes.results.levels import read_keep
from tallbayes.results.provenance import recorded_options, recorded_sampler, written_by_user
from tallbayes.run.checkpoint import Checkpoint
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
PARTITION_TOLERANCE = 0.05  # the same where each step is a pass over partitions: a few proposals in a hundred are lost


def fit(
    formula: str,
    source: Any = None,
    family: str | None = None,
    prior: PriorLike = None,
    sampler: str | Sampler = "auto",
    *,
    family_options: dict[str, Any] | None = None,
    offset: str | None = None,
    weights: str | None = None,
    store: str | Path | None = None,
    memory: str = "auto",
    dtype: str = "float64",
    na: str = "error",
    data: Any = None,
    client: Any = None,
    progress: bool = True,
    **options: Any,
) -> Fit:
    """Read rows, build a model and draw from its posterior; further options are passed to `sample` and to the family.

    The rows, or `data=`, are what `tallbayes.read` reads. Without `family`, a response of 0 and 1 is logistic, p(successes, trials) is
    binomial, and the summary says so; any other is an error that names the families that fit. Options of the family, such as `sigma=1.0`
    or `expression="..."`, can also be passed as a dictionary in `family_options`. Zero-inflated and hurdle families have a second
    predictor, `zi="~ z"`; `sigma="~ x"` adds one for log sigma of a gaussian or Student-t model. `client`, a `dask.distributed.Client`,
    leaves the rows where they are: every file is a partition that workers read. `memory="partitions"` does so without a cluster, one file
    at a time.

    >>> import pyarrow as pa, numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal(500)
    >>> rows = pa.table({"x": x, "y": (rng.random(500) < 1 / (1 + np.exp(-x))).astype(int)})
    >>> fit = tb.fit("y ~ x", rows, family="logistic", draws=100, warmup=100, chains=2, seed=1, progress=False)
    >>> fit.names
    ('Intercept', 'x')
    """
    begun = time.perf_counter()
    require_text("formula", formula, "y ~ x1 + C(group)")
    source = only_one(source, data)
    for name, text, example in (("offset", offset, "log(exposure)"), ("weights", weights, "count"), ("memory", memory, "auto")):
        if text is not None or name == "memory":
            require_text(name, text, example)
    require_instance("dtype", dtype, (str, type, np.dtype), "'float64' or 'float32'")
    if store is not None:
        require_path("store", store)
    if prior is not None:
        require_instance(
            "prior", prior, (priors.Prior, Mapping), "a prior such as tallbayes.priors.normal(2.5), or priors by name"
        )
    described, settings = _divided(family, family_options, options)
    check_options(sampler=sampler, progress=progress, **settings)
    limit = _limit(settings.pop("max_seconds", None))
    second: dict[str, Any] = {} if family is None else models.second_formula(family, described)
    if client is not None or memory == "partitions":
        if store is not None:
            raise OptionError("store= packs the rows on this machine; leave it out where they stay in partitions.")
        if na != "error":
            raise OptionError("na='drop' is not available for rows in partitions; drop the rows with missing values there.")
        if second:
            raise OptionError(
                f"a second predictor ({next(iter(second))}=) is not available for rows in partitions; read them with memory='disk'."
            )
        columns = {"offset": offset, "weights": weights, "dtype": dtype, "client": client, "progress": progress}
        with Partitions.open(source, formula, family, prior, family_options=described, **columns) as partitions:
            return _sample(partitions.model, sampler, begun, limit, progress=progress, **settings)
    where: dict[str, Any] = {"store": store, "memory": memory, "dtype": dtype, "na": na, "progress": progress}
    if is_store(source) and not any(name in described for name in second):
        second = {}  # the store has its own
    rows = read(source, formula, offset=offset, weights=weights, **where, **second)
    if family is None:
        model = models.build_assumed(rows, prior)
    else:
        model = models.build(models.family_for(family, rows), rows, prior, **described)
    return _sample(model, sampler, begun, limit, progress=progress, **settings)


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
    keep: str | float | list[str] | None = None,
    progress: bool = True,
) -> Fit:
    """Draw from the posterior of a model.

    `sampler` is a name, an object of `tallbayes.samplers`, or "auto". Chains run in parallel threads; the same seed gives the
    same draws, regardless of cores, progress bars and interruptions. `init` is "laplace" (dispersed around the mode), "prior",
    or an array of one or `chains` starting points. With `until_ess` the run continues in blocks of `draws` until every
    parameter reaches this bulk effective sample size. `max_seconds` limits the time of the whole run, including the search for
    the mode, pilots and warm-up, and reading if `tallbayes.fit` reads the rows; compilation does not count, and chains get at
    least half of the time. `guarantee="exact"`
    refuses weaker methods. `checkpoint` is a folder from which `tallbayes.resume` continues an interrupted run. Ctrl-C returns
    the draws so far. `model` may be `tallbayes.shards.Partitions`, for samplers that read streams of rows: they stay where they are.

    `keep` says which draws of levels to keep: "all", "summary" (running statistics and a thinned set), a list of terms such as ["1|shop"],
    or a number of bytes, by default 512 MB, up to which all draws are kept and beyond which a summary is.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.column_stack([np.ones(100), np.linspace(-1, 1, 100)])
    >>> model = tb.models.poisson(tb.Dataset.from_arrays(X, np.tile([0, 1, 2, 1], 25)))
    >>> fit = tb.sample(model, "hmc", draws=50, warmup=50, chains=2, seed=1, progress=False)
    >>> fit.theta.shape, fit.guarantee.kind, fit.status
    ((2, 50, 2), 'EXACT', 'complete')
    """
    begun = time.perf_counter()
    model = model.model if isinstance(model, Partitions) else model
    if not isinstance(model, Model):
        raise OptionError(f"sample needs a model such as tallbayes.models.logistic(data); got a {type(model).__name__}.")
    check_options(
        sampler, progress, draws, warmup, chains, seed, init, thin, cores, max_seconds, until_ess, guarantee, checkpoint, mode
    )
    return _sample(
        model,
        sampler,
        begun,
        _limit(max_seconds),
        draws,
        warmup,
        chains,
        seed,
        init=init,
        thin=thin,
        cores=cores,
        until_ess=until_ess,
        guarantee=guarantee,
        checkpoint=checkpoint,
        mode=mode,
        keep=keep,
        progress=progress,
    )


def _limit(max_seconds: float | None) -> Deadline | None:
    """The clock of a time limit, which starts now."""
    return None if max_seconds is None else Deadline(max_seconds)


def _sample(
    model: Model,
    sampler: str | Sampler,
    begun: float,
    limit: Deadline | None,
    draws: int = 1000,
    warmup: int = 1000,
    chains: int = 4,
    seed: int | None = None,
    *,
    init: str | np.ndarray = "laplace",
    thin: int = 1,
    cores: int | None = None,
    until_ess: float | None = None,
    guarantee: str | None = None,
    checkpoint: str | Path | None = None,
    mode: Mode | None = None,
    keep: str | float | list[str] | None = None,
    progress: bool = True,
) -> Fit:
    """`sample` with checked options, for a call that began before: its time counts from there."""
    warn_of_constant_response(model.data)
    draws, warmup, chains, thin = int(draws), int(warmup), int(chains), int(thin)
    kept = read_keep(model, keep, draws, chains)
    init = check_init(model, init, chains)
    fixed = None if isinstance(sampler, str) and sampler == "auto" else samplers.resolve(sampler)
    saver = None if checkpoint is None else Checkpoint(checkpoint)
    if saver is not None:
        saver.require_vacant()
        if fixed is not None:
            recorded_options(fixed)  # refused now, if they cannot be stored
    entropy = streams.entropy(seed)
    with compiling_ahead(model, fixed, cores):
        if mode is None:
            with limited(limit):
                tolerance = REFERENCE_TOLERANCE if model.partitions is None else PARTITION_TOLERANCE
                mode = find_mode(model, progress=progress, cores=cores, tolerance=tolerance)
        elif not _same(mode.model, model):
            raise OptionError("mode= belongs to another model; pass tallbayes.find_mode(model), or omit it.")
        predictions: list[auto.Prediction] = []
        setup, why, spent = None, "", 0
        if fixed is None:
            with limited(limit), ledger.counting() as account:  # rejected candidates and their pilots too
                chosen, setup, why, predictions = auto.choose(model, mode, guarantee, entropy, progress)
            spent = account.rows
        else:
            chosen = fixed
        starts = starting_points(model, mode, init, chains, entropy)
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
            "keep": kept,
            "starts": starts.tolist(),
            "separate_modes": several.warning(mode),
            "until_ess": until_ess,
            "why": why,
            "auto_evals": spent,
            "predictions": [p.as_dict() for p in predictions] if len(predictions) > 1 and warmup >= auto.JUDGED else [],
            "default_prior": model.default_prior,
            "assumed_family": model.assumed,
        }
        return execute(model, chosen, mode, setup, description, saver, True, cores, limit, progress, begun)


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
    """Continue a run from its checkpoint; a finished run is extended to `draws` draws per chain.

    The draws are bit for bit those of a run that was never interrupted. The rows are read again from their source; pass the
    model if they were only in memory, and the sampler if it is not part of the package. Changed rows, other sampler options or
    another version of the package raise an error.

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
    begun, limit = time.perf_counter(), _limit(max_seconds)
    saver = Checkpoint(folder)
    description = saver.read()
    chosen = recorded_sampler(description["sampler"], description["user_sampler"], sampler, f"the run in {folder}")
    model = _rebuild(description, folder, progress) if model is None else model
    if model.data.fingerprint != description["data"]["fingerprint"]:
        raise StoreError(f"these are not the rows of the run in {folder}; resume it with the same data.")
    if model.describe() != description["model"]:
        raise StoreError(f"this is not the model of the run in {folder}, which was {description['model']}.")
    if draws is not None:
        if not is_whole(draws) or draws < description["draws"]:
            raise OptionError(f"the run in {folder} has {description['draws']} draws per chain; draws= can only extend it.")
        description = saver.change(draws=int(draws), until_ess=None)
    model.assumed = description.get("assumed_family", "")  # type: ignore[misc]
    mode = mode_from_dict(model, description["mode"])
    return execute(model, chosen, mode, None, description, saver, False, cores, limit, progress, begun)


def _divided(family: str | None, family_options: Any, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the family and options of `sample`; refuses names that belong to neither, and what is left out."""
    if family_options is not None:
        require_instance("family_options", family_options, dict, "a dictionary of options of the family")
    valid = {} if family is None else models.family_options(family)
    run = [name for name in inspect.signature(check_options).parameters if name not in ("sampler", "progress")]
    for name in options:
        if family is None and any(name in models.family_options(own) for own in models.FAMILIES):
            models.check_assumed([name])
        if name not in run and name not in valid:
            raise unknown("option", name, [*run, *valid])
        if name in valid and name in (family_options or {}):
            raise OptionError(f"{name} is given twice: as an argument and in family_options=.")
    described = {**(family_options or {}), **{k: v for k, v in options.items() if k in valid}}
    if family is None:
        models.check_assumed(described)
    else:
        models.check_family(family, described)
    return described, {k: v for k, v in options.items() if k not in valid}


def _path(data: Dataset) -> str | None:
    return None if data.store is None else str(data.store.resolve())


def _rebuild(description: dict[str, Any], folder: str | Path, progress: bool) -> Model:
    data, spec = description["data"], description["model"]
    if data["store"] is None and not data["recipe"].get("source"):
        raise StoreError(
            f"the rows of the run in {folder} were only in memory; call resume(folder, model=...) with the same model."
        )
    rows = from_recipe(data["recipe"], data["store"], progress)
    prior = models.recorded_prior(spec, description["default_prior"])
    return models.build(spec["family"], rows, prior, **spec["options"])


def _same(model: Model, other: Model) -> bool:
    return model is other or (model.data.fingerprint == other.data.fingerprint and model.describe() == other.describe())
