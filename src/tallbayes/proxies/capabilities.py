"""What a scheme of rows may ask of the proxy of a target, one protocol for each capability.

A proxy is a NamedTuple, so that it compiles; samplers and schemes read its fields. A function that says `Target[HasBound]` serves
every proxy with these fields, whatever class it is.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tallbayes.proxies.taylor import Whitening


class HasWhitening(Protocol):
    """Coordinates in which the Laplace fit is standard normal."""

    @property
    def whitening(self) -> Whitening:
        """theta = reference + factor w."""


class HasProxy(HasWhitening, Protocol):
    """A sum of proxies over all rows that reads none of them: `proxies.taylor.proxy_value`."""

    @property
    def proxy(self) -> Any:
        """Taylor sums, or sufficient statistics."""


class HasBound(HasProxy, Protocol):
    """A certified bound of what the proxy leaves out of each row: `bounds.tables`."""

    @property
    def bound(self) -> Any:
        """A bound that registers `total_rate` and `draw_row`, or a range."""


class HasScheme(HasProxy, Protocol):
    """Rows drawn with replacement by a scheme of `engine.random_rows`, for a minibatch gradient."""

    @property
    def scheme(self) -> Any:
        """How rows are drawn."""


class HasWall(HasWhitening, Protocol):
    """A density that is zero beyond a distance from the reference."""

    @property
    def radius(self) -> float:
        """In whitened units."""


class HasDifference(HasWall, Protocol):
    """A difference estimator: sums of proxies in theta, and how the residuals are sampled."""

    @property
    def level(self) -> float:
        """Sum of the proxies at the reference."""

    @property
    def sums(self) -> np.ndarray:
        """Its gradient, and the Hessian in the rows that follow."""

    @property
    def order(self) -> int:
        """Of the Taylor proxies."""

    @property
    def scheme(self) -> Any:
        """How rows are drawn."""


class HasLowerBound(Protocol):
    """A lower bound of each likelihood, and their sum: `proxies.lower_bounds`."""

    @property
    def floor(self) -> Any:
        """The bound of a row."""

    @property
    def sums(self) -> np.ndarray:
        """Where bounds touch, and sums over the rows."""

    @property
    def penalty(self) -> Any:
        """What is subtracted from a Taylor bound."""


class HasGroups(HasWall, Protocol):
    """Groups of rows with a centre each: `schemes.learned_rows`."""

    @property
    def centres(self) -> np.ndarray:
        """Records, one for each group."""

    @property
    def members(self) -> np.ndarray:
        """Row numbers, group after group."""

    @property
    def start(self) -> np.ndarray:
        """Of each group in `members`, and n."""
