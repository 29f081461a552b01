"""Named parameters with constraints: a flat vector of real numbers, as samplers see it, to the user's parameters and back.

Each transform maps real numbers z to its constrained space and knows the log of the absolute determinant of its Jacobian, which
is added to a prior density stated on the constrained space. The same source serves NumPy and JAX: `xp` is the module.

    positive      x = e^z                                        log|J| = z
    interval      x = low + (high - low) / (1 + e^-z)            log|J| = log(high - low) - z - 2 log(1 + e^-z)
    ordered       x_1 = z_1, x_k = x_{k-1} + e^{z_k}             log|J| = z_2 + .. + z_K
    simplex       stick breaking with a uniform centre           log|J| = sum log(b_k (1 - b_k) r_k)

in which b_k is the k-th break and r_k what was left of the stick before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from tallbayes.errors import OptionError, unknown


@dataclass(frozen=True)
class Transform:
    """Real numbers as they are; the other transforms derive from it."""

    shape: tuple[int, ...] = ()
    label: ClassVar[str] = ""
    kind: ClassVar[str] = "real"

    def __post_init__(self) -> None:
        shape = (self.shape,) if isinstance(self.shape, int | np.integer) else self.shape
        if not isinstance(shape, tuple | list) or any(not isinstance(k, int | np.integer) or k < 1 for k in shape):
            raise OptionError(f"the shape of a parameter is a tuple of whole numbers of at least 1; got {self.shape!r}.")
        object.__setattr__(self, "shape", tuple(int(k) for k in shape))

    @property
    def size(self) -> int:
        """Real numbers it takes."""
        return math.prod(self.shape)

    @property
    def result(self) -> tuple[int, ...]:
        """Shape of the parameter."""
        return self.shape

    def constrain(self, z: Any, xp: Any) -> Any:
        """The parameter, flat in its last axis."""
        return z

    def log_jacobian(self, z: Any, xp: Any) -> Any:
        """Log of |d constrained / d z|."""
        return 0.0 * z.sum(-1)

    def as_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {"kind": self.kind, **asdict(self), "shape": list(self.shape)}


@dataclass(frozen=True)
class Positive(Transform):
    """Positive numbers: e^z."""

    label: ClassVar[str] = "log"
    kind: ClassVar[str] = "positive"

    def constrain(self, z: Any, xp: Any) -> Any:
        """e^z."""
        return xp.exp(z)

    def log_jacobian(self, z: Any, xp: Any) -> Any:
        """Sum of z."""
        return z.sum(-1)


@dataclass(frozen=True)
class Interval(Transform):
    """Numbers between `low` and `high`: a logistic function of z."""

    low: float = 0.0
    high: float = 1.0
    label: ClassVar[str] = "logit"
    kind: ClassVar[str] = "interval"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -math.inf < self.low < self.high < math.inf:
            raise OptionError(f"an interval needs low < high, both finite; got {self.low} and {self.high}.")

    def constrain(self, z: Any, xp: Any) -> Any:
        """low + (high - low) / (1 + e^-z), without overflow."""
        tail = xp.exp(-abs(z))
        return self.low + (self.high - self.low) * xp.where(z >= 0, 1.0, tail) / (1.0 + tail)

    def log_jacobian(self, z: Any, xp: Any) -> Any:
        """log(high - low) - |z| - 2 log(1 + e^-|z|), which is even in z."""
        size = abs(z)
        return (math.log(self.high - self.low) - size - 2.0 * xp.log1p(xp.exp(-size))).sum(-1)


@dataclass(frozen=True)
class Ordered(Transform):
    """An increasing vector: the first number and the logs of the steps."""

    label: ClassVar[str] = "steps"
    kind: ClassVar[str] = "ordered"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shape) != 1:
            raise OptionError(f"an ordered parameter is a vector; got shape {self.shape}.")

    def constrain(self, z: Any, xp: Any) -> Any:
        """Cumulative sums of the first number and the steps."""
        return xp.cumsum(xp.concatenate([z[..., :1], xp.exp(z[..., 1:])], -1), -1)

    def log_jacobian(self, z: Any, xp: Any) -> Any:
        """Sum of the logs of the steps."""
        return z[..., 1:].sum(-1)


@dataclass(frozen=True)
class Simplex(Transform):
    """Positive numbers that add up to one: a stick broken `shape` - 1 times, at equal parts when z = 0."""

    label: ClassVar[str] = "sticks"
    kind: ClassVar[str] = "simplex"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shape) != 1 or self.shape[0] < 2:
            raise OptionError(f"a simplex is a vector of at least two numbers; got shape {self.shape}.")

    @property
    def size(self) -> int:
        """One fewer than its elements."""
        return self.shape[0] - 1

    def _breaks(self, z: Any, xp: Any) -> tuple[Any, Any, Any]:
        """Log of break, of its complement, and of the stick before it."""
        shifted = z - np.log(np.arange(self.shape[0] - 1, 0, -1.0))
        taken, rest = -_softplus(-shifted, xp), -_softplus(shifted, xp)
        before = xp.concatenate([xp.zeros_like(rest[..., :1]), xp.cumsum(rest, -1)[..., :-1]], -1)
        return taken, rest, before

    def constrain(self, z: Any, xp: Any) -> Any:
        """The pieces."""
        taken, rest, before = self._breaks(z, xp)
        return xp.exp(xp.concatenate([taken + before, rest.sum(-1, keepdims=True)], -1))

    def log_jacobian(self, z: Any, xp: Any) -> Any:
        """Sum of log(b (1 - b) r)."""
        taken, rest, before = self._breaks(z, xp)
        return (taken + rest + before).sum(-1)


def _softplus(z: Any, xp: Any) -> Any:
    return xp.maximum(z, 0.0) + xp.log1p(xp.exp(-abs(z)))


KINDS: dict[str, type[Transform]] = {t.kind: t for t in (Transform, Positive, Interval, Ordered, Simplex)}


def real(shape: Any = ()) -> Transform:
    """Any real numbers.

    >>> real(3).size
    3
    """
    return Transform(shape)


def positive(shape: Any = ()) -> Transform:
    """Positive numbers, sampled as logs.

    >>> positive().constrain(np.array([0.0]), np)
    array([1.])
    """
    return Positive(shape)


def interval(low: float = 0.0, high: float = 1.0, shape: Any = ()) -> Transform:
    """Numbers in (low, high), sampled as logits.

    >>> interval(0, 10).constrain(np.array([0.0]), np)
    array([5.])
    """
    return Interval(shape, float(low), float(high))


def ordered(size: int) -> Transform:
    """An increasing vector.

    >>> ordered(3).constrain(np.zeros(3), np)
    array([0., 1., 2.])
    """
    return Ordered((size,))


def simplex(size: int) -> Transform:
    """Probabilities that add up to one.

    >>> simplex(4).constrain(np.zeros(3), np)
    array([0.25, 0.25, 0.25, 0.25])
    """
    return Simplex((size,))


@dataclass(frozen=True)
class Parameters:
    """Named parameters in order, over one flat vector of real numbers; `labels` names the elements of some vectors."""

    items: tuple[tuple[str, Transform], ...]
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def dim(self) -> int:
        """Length of the flat vector."""
        return sum(t.size for _, t in self.items)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates of the flat vector: "beta[0]", "log(sigma)"."""
        names = []
        for name, t in self.items:
            shown = f"{t.label}({name})" if t.label else name
            if name in dict(self.labels) and t.kind != "simplex":
                names += [f"{shown}[{label}]" for label in dict(self.labels)[name]]
            else:
                shape = (t.size,) if t.kind == "simplex" else t.shape
                names += [shown + _index(k) for k in np.ndindex(shape)]
        return tuple(names)

    @property
    def coordinates(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Names of dimensions by parameter, and labels by dimension, for ArviZ."""
        dims = {name: [f"{name}_dim_{k}" for k in range(len(t.result))] for name, t in self.items if t.result}
        return dims, {f"{name}_dim_0": list(labels) for name, labels in self.labels}

    def unpack(self, theta: Any, xp: Any) -> dict[str, Any]:
        """Parameters by name from flat vectors in the last axis."""
        parts, start = {}, 0
        for name, t in self.items:
            z = theta[..., start : start + t.size]
            parts[name] = t.constrain(z, xp).reshape(theta.shape[:-1] + t.result)
            start += t.size
        return parts

    def log_jacobian(self, theta: Any, xp: Any) -> Any:
        """Sum over the parameters."""
        total, start = 0.0, 0
        for _, t in self.items:
            total = total + t.log_jacobian(theta[..., start : start + t.size], xp)
            start += t.size
        return total

    def as_list(self) -> list[dict[str, Any]]:
        """JSON types."""
        labels = dict(self.labels)
        return [{"name": name, **t.as_dict(), "labels": list(labels.get(name, ()))} for name, t in self.items]

    @classmethod
    def from_list(cls, values: list[dict[str, Any]]) -> Parameters:
        """The inverse of `as_list`."""
        items = []
        for value in values:
            options = {k: v for k, v in value.items() if k not in ("name", "kind", "labels")}
            items.append((value["name"], KINDS[value["kind"]](**{**options, "shape": tuple(options["shape"])})))
        labels = tuple((value["name"], tuple(value["labels"])) for value in values if value["labels"])
        return cls(tuple(items), labels)


def parameters(specification: Mapping[str, Any], coords: Mapping[str, Any] | None = None) -> Parameters:
    """Parameters from {name: shape, transform or the name of one}; `coords` labels the elements of vectors by name.

    >>> parameters({"beta": 2, "sigma": "positive"}).names
    ('beta[0]', 'beta[1]', 'log(sigma)')
    """
    if not isinstance(specification, Mapping) or not specification:
        raise OptionError("params is a dictionary of names, such as {'beta': 3, 'sigma': 'positive'}.")
    items = []
    for name, value in specification.items():
        if not isinstance(name, str) or not name.isidentifier() or name == "theta":
            raise OptionError(f"a parameter is called by an identifier other than 'theta'; got {name!r}.")
        if isinstance(value, str):
            simple = [k for k in KINDS if k in ("real", "positive", "interval")]
            if value not in simple:
                raise unknown("transform", value, simple)
            value = KINDS[value]()
        items.append((name, value if isinstance(value, Transform) else Transform(value)))
    transforms, labels = dict(items), []
    for name, given in (coords or {}).items():
        if name not in transforms:
            raise unknown("parameter in coords", name, transforms)
        if transforms[name].result != (len(given),) or len(set(given)) != len(given):
            raise OptionError(
                f"coords[{name!r}] must be different labels of a vector; {name} has shape {transforms[name].result}."
            )
        labels.append((name, tuple(str(label) for label in given)))
    return Parameters(tuple(items), tuple(labels))


def _index(k: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, k))}]" if k else ""
