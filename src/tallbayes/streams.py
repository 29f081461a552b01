"""Every stream of random numbers of the package, by name; streams of one seed never overlap.

A generator is seeded by `SeedSequence(seed, spawn_key=key)`. Chain c has the key (c,), with c below `FIRST`; everything else has a
key that begins with a number of `Stream`, all of them distinct and at least `FIRST`. So no two purposes share a key, whatever
chains, blocks or shards are numbered. Tables that are the same for every run use `default_rng` of a constant, which has no key.
"""

from __future__ import annotations

from enum import IntEnum, unique

import numpy as np

from tallbayes.errors import OptionError

FIRST = 1 << 20  # keys below are those of chains


@unique
class Stream(IntEnum):
    """What random numbers are for."""

    STARTS = FIRST  # starting points of chains
    GRADIENT_NOISE = 1 << 21  # pilot of stochastic-gradient samplers
    LIKELIHOOD_ESTIMATES = 1 << 22  # pilot of samplers that estimate the likelihood
    PAIRS = FIRST + 1  # pilot of samplers that test log ratios
    NORMALITY = FIRST + 2  # resampled means of that pilot
    VALUES = FIRST + 3  # rows whose values at the mode are looked at
    ROW_ORDER = FIRST + 4  # order of rows in batches
    BRIGHTNESS = FIRST + 5  # draws at which lower bounds are judged
    ESTIMATE_VARIANCE = FIRST + 6  # draws at which the variance of an estimate is predicted
    BOUND = FIRST + 7  # rows on which a bound is chosen
    AUTO = FIRST + 8  # pilot of sampler="auto"
    SUBSAMPLE_MODE = FIRST + 9  # rows of the first search for the mode
    MODES = FIRST + 27  # starts of searches for several modes
    PATH = FIRST + 10  # moments of a Zig-Zag path
    BOUND_CHECK = FIRST + 11  # rows and lines on which a bound given by a user is checked
    AUDIT = FIRST + 12  # decisions replayed
    LEAVE_ONE_OUT = FIRST + 13  # rows left out
    PREDICTION_DRAWS = FIRST + 14  # draws used in predictions
    RESPONSES = FIRST + 15  # simulated responses, by block of rows
    STEIN = FIRST + 16  # signs of the wild bootstrap
    SHARD = FIRST + 17  # seeds of shards, by shard and round
    SHARD_ROWS = FIRST + 18  # assignment of rows to shards
    COMBINATION = FIRST + 19  # combination of shards
    REPARTITION = FIRST + 20  # files of rows in random order
    PARTIAL = FIRST + 21  # partial posteriors
    COMPARISON = FIRST + 22  # seeds of the samplers compared
    INVARIANCE = FIRST + 23  # tests of invariance
    IMPORTANCE = FIRST + 24  # exact posteriors by importance sampling
    DEMO = FIRST + 25  # rows of the demonstration
    USER = FIRST + 26  # samplers written by users
    CHECKED_ROWS = FIRST + 28  # rows of predictive checks
    CHECKED_RESPONSES = FIRST + 29  # yes-or-no and class responses of these checks
    PRIOR_DRAWS = FIRST + 30  # draws from the prior
    EFFECT_ROWS = FIRST + 31  # rows whose remainders correct average effects
    STREAM_COUNTS = FIRST + 60  # rows of a block of a row stream from each partition, by chain, stream and block
    STREAM_ROWS = FIRST + 61  # these rows, by chain, stream, block and partition
    STREAM_ORDER = FIRST + 62  # their order, by chain, stream and block
    STREAM_DEMAND = FIRST + 63  # pairs on which the length of row streams is predicted
    CALIBRATED_ROWS = FIRST + 32  # rows of the calibration plot
    SURROGATE = FIRST + 40  # chain on the surrogate by which the reference of unknown scales is found
    SUBSETS = FIRST + 34  # pilot subsets of semi-automatic statistics
    COUPLED = FIRST + 35  # coupled chains
    NEW_LEVELS = FIRST + 33  # effects of levels that a fit does not know, by factor and level


def entropy(seed: int | None) -> int:
    """The seed itself, or a fresh one for None.

    >>> entropy(7)
    7
    """
    return int(np.random.SeedSequence().entropy) if seed is None else int(seed)  # type: ignore[arg-type]


def chain(seed: int, number: int) -> np.random.SeedSequence:
    """The sequence of a chain.

    >>> chain(1, 3).spawn_key
    (3,)
    """
    if not 0 <= number < FIRST:
        raise OptionError(f"a run has at most {FIRST:,} chains; chain {number:,} was asked for.")
    return np.random.SeedSequence(seed, spawn_key=(number,))


def sequence(seed: int, stream: Stream, *numbers: int) -> np.random.SeedSequence:
    """The sequence of a purpose, or of one of its numbered parts."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise OptionError(f"seed must be a whole number >= 0; got {seed!r}.")
    return np.random.SeedSequence(seed, spawn_key=(int(stream), *numbers))


def generator(seed: int | np.random.Generator, stream: Stream, *numbers: int) -> np.random.Generator:
    """A generator for a purpose, or for one of its numbered parts; one that is given already is used as it is.

    >>> a, b = generator(1, Stream.AUDIT), generator(1, Stream.AUDIT)
    >>> bool(a.random() == b.random()), bool(a.random() == generator(1, Stream.STEIN).random())
    (True, False)
    """
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(sequence(seed, stream, *numbers))
