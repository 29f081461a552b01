"""Where chains start: dispersed around the mode, drawn from the prior, or given."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.mode.several import important, shares
from tallbayes.model import Model
from tallbayes.models.unknown_scales import UnknownScaleModel
from tallbayes.streams import Stream, generator
from tallbayes.validation import shown

DISPERSION = 2.0  # chains start at Laplace draws with doubled standard deviations, so that R-hat can see disagreement
NAMES = ("laplace", "prior")


def read_init(init: Any) -> str | np.ndarray:
    """The name of a way to start, or an array of numbers.

    >>> read_init([0, 1])
    array([0., 1.])
    """
    if isinstance(init, str):
        if init not in NAMES:
            raise unknown("init", init, NAMES)
        return init
    try:
        return np.asarray(init, float)
    except (TypeError, ValueError, OverflowError):
        raise OptionError(f"init must be 'laplace', 'prior' or an array of numbers; got {shown(init)}.") from None


def check_init(model: Model, init: Any, chains: int) -> str | np.ndarray:
    """The name of a way to start, or an array (chains, dim) of points that the model admits."""
    array = read_init(init)
    if isinstance(array, str):
        return array
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


def starting_points(model: Model, mode: Mode, init: str | np.ndarray, chains: int, seed: int) -> np.ndarray:
    """Starting points (chains, dim), given what `check_init` returns."""
    if not isinstance(init, str):
        return init
    rng = generator(seed, Stream.STARTS)
    if init == "prior":
        return np.stack([_from_prior(model, rng) for _ in range(chains)])
    modes = important(mode)
    if len(modes) == 1:
        return np.stack([_inside(model, mode, theta) for theta in mode.laplace().draw(rng, chains, DISPERSION)])
    homes = [modes[k] for k in allocation(shares(modes), chains)]
    return np.stack([_inside(model, home, home.laplace().draw(rng, 1, DISPERSION)[0]) for home in homes])


def allocation(share: np.ndarray, chains: int) -> list[int]:
    """The mode in which each chain starts: every mode has one while there are chains, the rest go by mass.

    >>> allocation(np.array([0.7, 0.2, 0.1]), 6)
    [0, 1, 2, 0, 0, 0]
    """
    homes = list(range(min(chains, share.size)))
    counts = np.bincount(homes, minlength=share.size).astype(float)
    while len(homes) < chains:
        homes.append(int(np.argmax(share / (counts + 1.0))))
        counts[homes[-1]] += 1.0
    return homes


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
        own, shared = (
            model.draw_scales(model.prior_terms, rng) if isinstance(model, UnknownScaleModel) else (model.prior_terms, ())
        )
        theta = np.append(model.prior.sample(own, rng), shared)
        if model.admits(theta):
            return theta
    raise OptionError(f"10,000 draws from the prior were {model.domain}. Use init='laplace' or a narrower prior.")
