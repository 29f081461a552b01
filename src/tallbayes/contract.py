"""What a sampler is: a move of theta with a scheme of rows, and the one compiled loop that runs them all.

A sampler file registers `init` and `step` for the NamedTuple of its compiled options, and offers a frozen dataclass of
user-facing options with a `prepare`. The state is a NamedTuple with a field `theta`; tuning parameters are options, not state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from tallbayes.bounds.bound import DRAW, TOTAL
from tallbayes.compile import SCALAR, declared, generic, jit
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, from_dict
from tallbayes.moves.linear import fill
from tallbayes.option_types import check_types
from tallbayes.target import (
    COUNTED,
    END_NOW,
    GO_ON,
    STATUS,
    STOP,
    NoProxy,
    Target,
    charge,
    failed,
    raise_failures,
    stopped,
    target_of,
)


@dataclass(frozen=True)
class Guarantee:
    """How far the draws can be trusted.

    EXACT: the posterior is invariant. EXACT-SIGNED: signed averages are consistent. TV-BOUND: each kernel is within a stated
    distance of an exact one. ASYMPTOTIC: the bias vanishes at a stated rate. HEURISTIC: none of these.
    """

    kind: str
    statement: str
    assumed: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.statement}"


Columns = TypeVar("Columns")
Result = TypeVar("Result")

KINDS = ("EXACT", "EXACT-SIGNED", "TV-BOUND", "ASYMPTOTIC", "HEURISTIC")  # from strongest to weakest


@generic(argument=2)
@declared
def init(rng: np.random.Generator, target: Target, options: Any, theta: np.ndarray) -> Any:
    """The state at theta, auxiliary variables drawn given theta."""
    raise TypeError


@generic(argument=2, options=SCALAR)
@declared
def step(rng: np.random.Generator, target: Target, options: Any, state: Any, info: np.ndarray) -> Any:
    """One iteration; fills `info` in the order of the sampler's names."""
    raise TypeError


@jit
def advance(
    rng: np.random.Generator,
    target: Target,
    options: Any,
    state: Any,
    fresh: bool,
    theta: np.ndarray,
    info: np.ndarray,
    thin: int,
) -> tuple[Any, int]:
    """Fill the rows of `theta` with one draw for every `thin` iterations, those of `info` with every iteration; returns the state
    and the draws made.

    The first columns of `info` are the counters of the target. A nonzero status in the counters ends the chunk; the state is of
    no use then. A chunk that is asked to stop ends after a draw, so that the state is good, or abandons the iteration it is in.
    """
    if info.shape[0] < theta.shape[0] * thin:
        raise ValueError("info needs a row for every iteration: draws x thin")  # compiled code would write beyond it
    if fresh:
        state = init(rng, target, options, state.theta)
        if target.counters[STATUS] != 0 or failed(target):
            return state, 0
    counted = 4
    for row in range(theta.shape[0]):
        if row > 0 and target.counters[STOP] != GO_ON:
            return state, row
        for at in range(row * thin, (row + 1) * thin):
            if stopped(target):
                return state, row
            for c in range(counted):
                info[at, c] = -target.counters[c]
            state = step(rng, target, options, state, info[at, counted:])
            if target.counters[STATUS] != 0 or failed(target):
                return state, row
            for c in range(counted):
                info[at, c] += target.counters[c]
        fill(theta[row], state.theta)
    return state, theta.shape[0]


def interruptible(target: Target, function: Callable[..., Result], *arguments: Any) -> Result:
    """The result of a function that runs compiled code on a target, in a thread of its own, so that Ctrl-C reaches it."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(function, *arguments)
        try:
            result = future.result()
            raise_failures(target)
            return result
        except KeyboardInterrupt:
            target.counters[STOP] = END_NOW
            raise


def advance_pilot(
    rng: np.random.Generator, target: Target, options: Any, state: Any, draws: int, columns: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """A short chain before the run: draws, what its steps reported, and how many were made. What it reads is charged.

    The time limit of the run ends it by its counters.
    """
    theta, info = np.empty((draws, state.theta.size)), np.zeros((draws, columns))
    made = interruptible(target, advance, rng, target, options, state, True, theta, info, 1)[1]
    charge(target)
    return theta, info, made


class Policy(ABC):
    """How warm-up turns what it saw into options; one object serves all chains, what it knows of a chain is `tuning`."""

    @abstractmethod
    def begin(self) -> Any:
        """Tuning numbers before warm-up."""

    def seen(self, theta: np.ndarray) -> np.ndarray:
        """The part of new draws that `update` looks at; large ones are not held for it otherwise."""
        return theta

    @abstractmethod
    def window_ends(self, warmup: int) -> list[int]:
        """Iterations of warm-up at which options may change."""

    @abstractmethod
    def update(self, tuning: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> Any:
        """Tuning numbers after a window."""

    @abstractmethod
    def options(self, tuning: Any, final: bool) -> Any:
        """Compiled options; `final` after warm-up, from when on they are frozen."""

    @abstractmethod
    def blank(self, theta: np.ndarray) -> Any:
        """A state at theta with the right types, to be replaced by `init`."""


@dataclass(frozen=True, eq=False)
class Setup:
    """What a sampler prepared for all chains: policy and proxy. What preparing reads is counted by `engine.ledger`."""

    model: Model
    policy: Policy
    proxy: Any = field(default_factory=NoProxy)
    why: str = ""
    notes: dict[str, Any] = field(default_factory=dict)  # numbers worth keeping with the fit, in JSON types
    asked: tuple[str, ...] = (TOTAL, DRAW)  # of the certified bound, if there is one

    def target(self, number: int = 0) -> Target:
        """A target for one chain; its number matters only where chains have rows of their own."""
        return target_of(self.model, self.proxy, self.asked)

    def advance(
        self,
        number: int,
        rng: np.random.Generator,
        target: Target,
        options: Any,
        state: Any,
        fresh: bool,
        theta: np.ndarray,
        info: np.ndarray,
        thin: int,
    ) -> tuple[Any, int, Target]:
        """`advance` for the chain of a number, and the target to go on with."""
        state, made = advance(rng, target, options, state, fresh, theta, info, thin)
        raise_failures(target)
        return state, made, target


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished run, for `Sampler.diagnose`: draws (chains, draws, dim), what the steps reported, iterations per draw."""

    setup: Setup
    theta: np.ndarray
    stats: dict[str, np.ndarray]
    thin: int = 1


class Diagnosis(NamedTuple):
    """What is worth knowing of a finished run."""

    notes: dict[str, Any] = {}  # noqa: RUF012 - numbers to keep with the fit, in JSON types; never changed in place
    warnings: tuple[str, ...] = ()  # sentences for the user: the reason, then the remedy

    def __add__(self, other: Diagnosis) -> Diagnosis:  # type: ignore[override]
        """Both, notes of the second taking precedence."""
        return Diagnosis({**self.notes, **other.notes}, (*self.warnings, *other.warnings))


def positions(info: type[Columns]) -> Columns:
    """The NamedTuple of what a step reports, each field at its own position: `info[AT.rows] = 3` in compiled code.

    >>> class Info(NamedTuple):
    ...     accepted: int
    ...     rows: int
    >>> positions(Info).rows
    1
    """
    return info(*range(len(info._fields)))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Sampler(ABC):
    """User-facing options of a sampler. A leaf declares `name`, `guarantee`, `cost` and `Info`, and writes `prepare`."""

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # of a class with several names: the options of each
    cost: ClassVar[str]  # rows read per iteration, in words, for the table of samplers
    Info: ClassVar[Any]  # NamedTuple class of what a step reports; "acceptance_rate" must be among its fields
    needs_groups: ClassVar[bool] = False  # whether it serves hierarchical models, and no others
    needs_unknown_scales: ClassVar[bool] = False  # whether it serves priors with unknown scales, and no others
    crosses_modes: ClassVar[bool] = False  # whether its chains weigh separate modes correctly
    streams: ClassVar[bool] = False  # whether it serves rows in partitions, from streams of rows drawn where they are
    any_rows: ClassVar[bool] = False  # whether it serves models with a `row_limitation`, such as a time series

    def __post_init__(self) -> None:
        check_types(self)
        self.check()

    def check(self) -> None:  # noqa: B027 - a sampler may have nothing to refuse
        """Refuse options that are out of range or contradict each other; their types are right already."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The string by which `tallbayes.sample` knows it: a class variable, or `variant` where options decide."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """How far its draws can be trusted: a class variable, or a property where options decide."""

    @abstractmethod
    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Prepare what all chains share."""

    def setup(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """`prepare`, for a model that the sampler can serve."""
        if model.grouped and not self.serves_groups:
            raise ModelError(f"{self.name} does not support models with group effects; use 'minibatch-gibbs' or 'nuts'.")
        if model.partitions is not None and not self.streams:
            others = (
                "'surrogate-transition', which draws the few rows that it needs where they are,"
                if model.unknown_scales
                else "'exact-minibatch', 'zigzag' or 'hmc-ecs', which draw the few rows that they need where they are, a "
                "stochastic-gradient sampler such as 'sgld',"
            )
            raise ModelError(
                f"{self.name} needs the rows on this machine, but they are in partitions. Use {others} or read the rows with "
                "tallbayes.read(..., memory='disk')."
            )
        if model.row_limitation and not self.any_rows:
            there = "" if model.partitions is None else ", with the rows on this machine: tallbayes.read(..., memory='disk')"
            raise ModelError(
                f"{self.name} reads single rows with a linear predictor, but the rows of {model.family.name} "
                f"{model.row_limitation}. Use a full-data sampler such as 'nuts', or 'informed', which reads subsets or "
                f"contiguous windows{there}."
            )
        if self.needs_groups and not model.grouped:
            raise ModelError(
                f"{self.name} requires a model with group effects: give the data groups, as in "
                f"tallbayes.Dataset.from_arrays(X, y, "
                "groups={'shop': codes}), or use 'auto'."
            )
        if model.unknown_scales != self.needs_unknown_scales:
            raise ModelError(
                f"{self.name} does not support priors with unknown scales, such as ridge and horseshoe; use 'surrogate-transition'."
                if model.unknown_scales
                else f"{self.name} is for priors with unknown scales, such as tallbayes.priors.horseshoe(); use 'auto' for others."
            )
        return self.prepare(model, mode, seed, progress)

    @property
    def serves_groups(self) -> bool:
        """Whether it serves models with group effects."""
        return self.needs_groups

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Notes and warnings on a finished run. Called once, after the last draw; both are kept with the fit."""
        return Diagnosis()

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """Facts and problems from decisions replayed on the full data; None if stored densities are all there is to check."""
        return None

    def variant(self) -> str:
        """The first of `variants` whose options are those of the object; the first of all if there is none."""
        for name, options in self.variants.items():
            if all(getattr(self, key) == value for key, value in options.items()):
                return name
        return next(iter(self.variants))

    @property
    def info(self) -> tuple[str, ...]:
        """Names of the numbers that `step` reports."""
        return self.Info._fields

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns of `info` in `advance`."""
        return COUNTED + self.info

    def as_dict(self) -> dict[str, Any]:
        """Class and options in JSON types."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"class": type(self).__name__, **{k: v.as_dict() if isinstance(v, Move) else v for k, v in options.items()}}

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Sampler:
        """The inverse of `as_dict`, less the class."""
        return cls(**{k: from_dict(v) if k == "move" else v for k, v in options.items()})
