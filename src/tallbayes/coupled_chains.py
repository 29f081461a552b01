"""`unbiased`: posterior expectations without the bias of a finite chain, from pairs of chains that meet.

X and Y are Metropolis-Hastings chains on all rows with one kernel and one law of their first states; Y runs L iterations behind X,
and the pair (X_t, Y_{t-L}) moves jointly so that each chain by itself is unaware of the other, yet they become equal at a random
time tau and stay so. Then (Jacob, O'Leary and Atchade 2020; lags as in Biswas, Jacob and Vanetti 2019)

    H_{k:m} = 1/(m-k+1) sum_{t=k}^m h(X_t) + sum_{t=k+L}^{tau-1} v_t (h(X_t) - h(Y_{t-L})),
    v_t = (floor((t-k)/L) - max(1, ceil((t-m)/L)) + 1) / (m-k+1),

has the posterior expectation of h as its mean for every k, m and L: the first sum is the average of a finite chain, the second
corrects its bias. The meeting times bound the distance of the law of X_t from the posterior in total variation,

    TV(t) <= E max(0, ceil((tau - L - t) / L)).

In coordinates whitened by the Laplace fit, the kernel proposes a draw from Student's t, the same to both chains, or, with
probability `walk`, a step of a random walk by the reflection-maximal coupling (Bou-Rabee, Eberle and Zimmer 2020): with the largest
possible probability both proposals are the same point, else their steps mirror each other. Both chains accept by the same uniform
number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import ModelError, OptionError, warn
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.option_types import checked
from tallbayes.progress import Progress
from tallbayes.streams import Stream, generator
from tallbayes.validation import require_instance, require_switch, require_whole, shown

DEGREES = 5.0  # of freedom of independent proposals and of first states: their tails are heavier than those of a likelihood
_STEP = 2.38  # of the random walk, over the root of the dimension
_STARTS = 1000  # draws of a first state until one has a density


@dataclass(frozen=True, eq=False)
class Unbiased:
    """Unbiased expectations with their standard errors over independent replications, meeting times, and what they cost.

    `corrections` are the second sums of H_{k:m}: without them the averages would have the bias of finite chains.
    """

    mean: np.ndarray
    error: np.ndarray
    replications: np.ndarray  # (replications, functions)
    corrections: np.ndarray  # (replications, functions), part of them
    meeting: np.ndarray  # tau of each replication
    lag: int
    start: int
    stop: int
    densities: int  # evaluations of the posterior density, each of which reads all rows
    evals: int  # rows that the chains read

    def total_variation(self, iteration: int) -> float:
        """Estimated bound on the total variation between the posterior and the law of a chain after some iterations."""
        require_whole("iteration", iteration, 0)
        late = np.ceil((self.meeting - self.lag - iteration) / self.lag)
        return float(min(1.0, np.maximum(0.0, late).mean()))

    def __repr__(self) -> str:
        values = ", ".join(f"{m:.4g} +- {e:.2g}" for m, e in zip(self.mean, self.error, strict=True))
        waits = self.meeting - self.lag
        return (
            f"unbiased by {self.meeting.size} pairs of coupled chains: {values}; chains met {np.median(waits):g} iterations after "
            f"the lag of {self.lag} (median; longest {waits.max()}); total variation after {self.start} iterations at most "
            f"{self.total_variation(self.start):.2g} (estimated); {self.evals:,.3g} evaluations."
        )


class State(NamedTuple):
    """A point in whitened coordinates with its log posterior."""

    white: np.ndarray
    value: float


class CoupledKernel:
    """The kernel of one chain, and the joint kernel of two."""

    def __init__(self, density: Callable[[np.ndarray], float], dim: int, walk: float) -> None:
        self.density, self.dim, self.walk, self.calls = density, dim, walk, 0
        self.size = _STEP / math.sqrt(dim)

    def state(self, white: np.ndarray) -> State:
        """The state at a point; a density that is not a number is none."""
        self.calls += 1
        value = self.density(white)
        return State(white, -math.inf if math.isnan(value) else value)

    def first(self, rng: np.random.Generator) -> State:
        """A draw from Student's t where the posterior has a density."""
        for _ in range(_STARTS):
            state = self.state(student(rng, self.dim))
            if state.value > -math.inf:
                return state
        raise ModelError(
            f"none of {_STARTS} draws around the mode has a finite posterior density; standardise the columns, or give a prior."
        )

    def step(self, rng: np.random.Generator, x: State) -> State:
        """One iteration of one chain."""
        if rng.random() < self.walk:
            white, independent = x.white + self.size * rng.standard_normal(self.dim), False
        else:
            white, independent = student(rng, self.dim), True
        proposal = self.state(white)
        return proposal if math.log1p(-rng.random()) < log_ratio(x, proposal, independent) else x

    def pair(self, rng: np.random.Generator, x: State, y: State) -> tuple[State, State]:
        """One iteration of two chains that have not met; each of them moves by the law of `step`."""
        if rng.random() < self.walk:
            whites, independent = reflection_coupling(rng, x.white, y.white, self.size), False
        else:
            whites, independent = (student(rng, self.dim),) * 2, True
        first = self.state(whites[0])
        second = first if whites[1] is whites[0] else self.state(whites[1])
        level = math.log1p(-rng.random())
        return (
            first if level < log_ratio(x, first, independent) else x,
            second if level < log_ratio(y, second, independent) else y,
        )


def student(rng: np.random.Generator, dim: int) -> np.ndarray:
    """A draw from the multivariate t law in whitened coordinates."""
    return rng.standard_normal(dim) * math.sqrt(DEGREES / rng.chisquare(DEGREES))


def log_student(white: np.ndarray) -> float:
    """Its log density, up to a constant."""
    return -0.5 * (DEGREES + white.size) * math.log1p(float(white @ white) / DEGREES)


def log_ratio(x: State, proposal: State, independent: bool) -> float:
    """Log of the Metropolis-Hastings ratio; x has a density."""
    gain = proposal.value - x.value
    return gain + log_student(x.white) - log_student(proposal.white) if independent else gain


def reflection_coupling(rng: np.random.Generator, x: np.ndarray, y: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Draws from N(x, size^2 I) and N(y, size^2 I), the same array with the largest possible probability.

    >>> rng = np.random.default_rng(0)
    >>> first, second = reflection_coupling(rng, np.zeros(2), np.full(2, 0.01), 1.0)
    >>> first is second
    True
    """
    noise = rng.standard_normal(x.size)
    gap = (x - y) / size
    moved = noise + gap
    proposal = x + size * noise
    if math.log1p(-rng.random()) <= 0.5 * (noise @ noise - moved @ moved):
        return proposal, proposal
    along = gap / math.sqrt(gap @ gap)
    return proposal, y + size * (noise - 2.0 * (along @ noise) * along)


class Replication(NamedTuple):
    """H_{k:m} of one pair of chains, the correction in it, and the meeting time."""

    value: np.ndarray
    correction: np.ndarray
    meeting: int


def replicate(
    rng: np.random.Generator,
    kernel: CoupledKernel,
    apply: Callable[[np.ndarray], np.ndarray],
    lag: int,
    start: int,
    stop: int,
    limit: int,
) -> Replication:
    """One pair of chains, until they have met and X has made `stop` iterations; `apply` takes points in whitened coordinates."""
    x, y = kernel.first(rng), kernel.first(rng)
    length = stop - start + 1
    zero = 0.0 * apply(x.white)
    total, correction = zero.copy(), zero.copy()
    meeting = None
    t = 0
    while True:
        if t >= lag and meeting is None and x.white is y.white:  # points are equal where they are one array
            meeting = t
        if start <= t <= stop:
            total += apply(x.white)
        if t >= start + lag and meeting is None:
            correction += weight(t, lag, start, stop) * (apply(x.white) - apply(y.white))
        if meeting is not None and t >= stop:
            return Replication(total / length + correction, correction, meeting)
        if meeting is None and t >= lag + limit:
            raise ModelError(
                f"two coupled chains have not met in {limit:,} iterations: the kernel mixes badly on this posterior, as where it "
                "has several modes or is far from its Laplace fit. Raise limit=, change walk=, or use tallbayes.sample."
            )
        if t < lag or meeting is not None:
            x = kernel.step(rng, x)
        else:
            x, y = kernel.pair(rng, x, y)
        t += 1


def weight(t: int, lag: int, start: int, stop: int) -> float:
    """v_t: how often the difference at t is used, over the length of the average.

    >>> [weight(t, lag=1, start=2, stop=4) * 3 for t in (3, 4, 5, 6)]
    [1.0, 2.0, 3.0, 3.0]
    """
    return ((t - start) // lag - max(1, -((stop - t) // lag)) + 1) / (stop - start + 1)


@checked
def unbiased(
    model: Model,
    function: Callable[[np.ndarray], Any] | None = None,
    *,
    replications: int = 20,
    lag: int = 10,
    start: int = 10,
    stop: int = 100,
    walk: float = 0.2,
    limit: int = 10_000,
    mode: Mode | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Unbiased:
    """Unbiased estimates of the posterior expectation of `function(theta)` (default theta) from coupled chains on all rows.

    Each of the independent `replications` runs two chains, the second `lag` iterations behind the first, until they meet, and the
    first for `stop` iterations, of which those from `start` on are averaged. A share `walk` of proposals are those of a random
    walk, the others are drawn around the mode. Chains that do not meet within `limit` iterations are an error, because leaving them
    out would bias the average. An iteration reads all rows once, or twice before the chains meet.

    The estimates are unbiased whatever the options: `lag`, `start` and `stop` decide on variance and cost, and the standard
    error over replications needs no convergence diagnostics. `total_variation(t)` bounds the distance of a chain from the
    posterior after t iterations.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((200, 1)), np.random.default_rng(0).standard_normal(200))
    >>> model = tb.models.gaussian(data, tb.priors.flat(), sigma=1.0)
    >>> done = tb.unbiased(model, replications=40, stop=30, seed=1, progress=False)
    >>> bool(abs(done.mean[0] - data.y.mean()) < 5 * done.error[0]), done.total_variation(20)
    (True, 0.0)
    >>> done.evals == 200 * done.densities
    True
    """
    require_instance("model", model, Model, "a model such as tallbayes.models.logistic(data)")
    _check(model, function, replications, lag, start, stop, walk, limit, mode, progress)
    if mode is None:
        mode = find_mode(model, seed=seed, progress=progress)
    if mode.others:
        warn(
            f"the posterior has {1 + len(mode.others)} separate modes, and chains are proposed around one of them: their error may "
            "be larger than the replications show. Use the sampler 'mode-jumping'."
        )
    reference, factor = mode.reference, mode.factor

    def apply(white: np.ndarray) -> np.ndarray:
        theta = reference + factor @ white
        return _numbers(theta if function is None else function(theta))

    kernel = CoupledKernel(lambda white: model.log_posterior(reference + factor @ white), model.dim, walk)
    done = []
    with Progress("coupled chains", replications, progress) as bar:
        for number in range(replications):
            rng = generator(seed, Stream.COUPLED, number)
            done.append(replicate(rng, kernel, apply, lag, start, stop, limit))
            bar.advance(1)
    table = np.stack([one.value for one in done])
    return Unbiased(
        mean=table.mean(axis=0),
        error=table.std(axis=0, ddof=1) / math.sqrt(replications),
        replications=table,
        corrections=np.stack([one.correction for one in done]),
        meeting=np.array([one.meeting for one in done]),
        lag=lag,
        start=start,
        stop=stop,
        densities=kernel.calls,
        evals=kernel.calls * model.data.n,
    )


def _check(
    model: Model,
    function: Any,
    replications: int,
    lag: int,
    start: int,
    stop: int,
    walk: float,
    limit: int,
    mode: Any,
    progress: Any,
) -> None:
    """Refuse what cannot be meant, before any row is read."""
    model.require_ungrouped("unbiased")
    if model.unknown_scales:
        raise ModelError(
            "unbiased does not support priors with unknown scales, such as ridge and horseshoe; use tallbayes.sample."
        )
    if model.partitions is not None:
        raise ModelError(
            "unbiased needs the rows on this machine, but they are in partitions. Read them with tallbayes.read(..., "
            "memory='disk')."
        )
    if function is not None and not callable(function):
        raise OptionError(f"function= is a function of theta, or None for theta itself; got {shown(function)}.")
    for name, value, least in (("replications", replications, 2), ("lag", lag, 1), ("start", start, 0), ("limit", limit, 1)):
        require_whole(name, value, least)
    require_whole("stop", stop, start)
    if not 0.0 <= walk <= 1.0:
        raise OptionError(f"walk is the share of random-walk proposals and must be between 0 and 1; got {shown(walk)}.")
    require_switch("progress", progress)
    if mode is not None:
        require_instance("mode", mode, Mode, "what tallbayes.find_mode(model) returns, or None")
        if mode.model is not model:
            raise OptionError("mode= is that of another model; give tallbayes.find_mode(model), or None.")


def _numbers(value: Any) -> np.ndarray:
    array = np.atleast_1d(np.asarray(value, float))
    if array.ndim != 1 or not np.isfinite(array).all():
        raise OptionError(f"function= must return a finite number or a vector of them; got {shown(value)}.")
    return array
