"""What a sampler is: a move of theta with a scheme of rows, and the one compiled loop that runs them all.

A sampler file registers `init` and `step` for the NamedTuple of its compiled options, and offers a frozen dataclass of
user-facing options with a `setup`. The state is a NamedTuple with a field `theta`; tuning parameters are options, not state.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from tallbayes.compile import declared, generic, jit
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, from_dict
from tallbayes.moves.linear import fill
from tallbayes.target import COUNTED, STATUS, NoProxy, Target, counters


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


KINDS = ("EXACT", "EXACT-SIGNED", "TV-BOUND", "ASYMPTOTIC", "HEURISTIC")  # from strongest to weakest


@generic(argument=2)
@declared
def init(rng: np.random.Generator, target: Target, options: Any, theta: np.ndarray) -> Any:
    """The state at theta, auxiliary variables drawn given theta."""
    raise TypeError


@generic(argument=2)
@declared
def step(rng: np.random.Generator, target: Target, options: Any, state: Any, info: np.ndarray) -> Any:
    """One iteration; fills `info` in the order of the sampler's names."""
    raise TypeError


@jit
def advance(rng, target, options, state, fresh, theta, info, thin):
    """Fill the rows of `theta` and `info` with one draw for every `thin` iterations; returns state and rows filled.

    The first columns of `info` are the counters of the target. A nonzero status in the counters ends the chunk.
    """
    if fresh:
        state = init(rng, target, options, state.theta)
        if target.counters[STATUS] != 0:
            return state, 0
    counted = 4
    for row in range(theta.shape[0]):
        for c in range(counted):
            info[row, c] = -target.counters[c]
        for _ in range(thin):
            state = step(rng, target, options, state, info[row, counted:])
            if target.counters[STATUS] != 0:
                return state, row
        for c in range(counted):
            info[row, c] += target.counters[c]
        fill(theta[row], state.theta)
    return state, theta.shape[0]


class Policy(ABC):
    """How warm-up turns what it saw into options; one object serves all chains, what it knows of a chain is `tuning`."""

    @abstractmethod
    def begin(self) -> Any:
        """Tuning numbers before warm-up."""

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


@dataclass(eq=False)
class Setup:
    """What a sampler prepared for all chains: policy, proxy, and what preparing cost."""

    model: Model
    policy: Policy
    proxy: Any = field(default_factory=NoProxy)
    evaluations: int = 0
    why: str = ""
    notes: dict[str, Any] = field(default_factory=dict)  # numbers worth keeping with the fit, in JSON types
    thin: int = 1  # iterations a draw: autocorrelations in `diagnose` are of draws

    def target(self) -> Target:
        """A target for one chain."""
        return Target(self.model.rows, self.model.prior_terms, self.proxy, counters())


def _refusing(setup: Callable[..., Setup]) -> Callable[..., Setup]:
    @functools.wraps(setup)
    def checked(sampler: Sampler, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        if model.row_limitation and not sampler.any_rows:
            raise ModelError(
                f"{sampler.name} reads single rows with a linear predictor, but the rows of {model.family.name} {model.row_limitation}. "
                "Use a full-data sampler such as 'nuts', or 'informed', which reads subsets or contiguous windows."
            )
        return setup(sampler, model, mode, seed, progress)

    return checked


@dataclass(frozen=True)
class Sampler(ABC):
    """User-facing options of a sampler."""

    guarantee: ClassVar[Guarantee]
    cost: ClassVar[str]  # rows an iteration reads, in words, for the table of samplers
    any_rows: ClassVar[bool] = False  # whether it serves models with a `row_limitation`, such as a time series

    def __init_subclass__(cls, **options: Any) -> None:
        """Every `setup` first refuses a model whose rows the class cannot serve."""
        super().__init_subclass__(**options)
        if "setup" in vars(cls):
            cls.setup = _refusing(cls.setup)  # type: ignore[method-assign]

    @property
    @abstractmethod
    def name(self) -> str:
        """The string by which `tallbayes.sample` knows it."""

    @property
    @abstractmethod
    def info(self) -> tuple[str, ...]:
        """Names of the numbers that `step` reports."""

    @abstractmethod
    def setup(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Prepare what all chains share."""

    def diagnose(self, setup: Setup, theta: np.ndarray, stats: dict[str, np.ndarray]) -> list[str]:
        """What a user must be told of a finished run, a sentence each: draws (chains, draws, dim) and what the steps reported.

        Called once after the last draw; whatever it returns is warned of and kept with the fit.
        """
        return []

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """Facts and problems from decisions replayed on the full data; None if stored densities are all there is to check."""
        return None

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
