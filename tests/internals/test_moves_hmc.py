"""Internals of `tallbayes.moves.hmc`; what users see of it is tested in test_moves.py."""

import importlib
import inspect
import pkgutil
import textwrap
from typing import NamedTuple

import numpy as np

import tallbayes as tb
from tallbayes.compile import inlinable
from tallbayes.moves.move import log_density_gradient

MODULES = {m.name: importlib.import_module(f"tallbayes.moves.{m.name}") for m in pkgutil.iter_modules(tb.moves.__path__)}
hamiltonian, no_u_turn = MODULES["hmc"], MODULES["nuts"]


class Banana(NamedTuple):
    """log pi = -x^2 / 2 - (y - x^2)^2 / 2 - y^4 / 40: curved, and not symmetric."""


@log_density_gradient.register(Banana)
def _banana(density, theta, gradient):
    x, y = theta
    gradient[0] = -x + 2.0 * x * (y - x * x)
    gradient[1] = -(y - x * x) - y**3 / 10.0
    return -0.5 * x * x - 0.5 * (y - x * x) ** 2 - y**4 / 40.0


FACTOR = np.array([[0.9, 0.0], [-0.4, 1.3]])
PHASE = np.array([0.7, -0.3, 0.5, 1.1])  # position and momentum


def flow(phase, steps, step, leapfrog=hamiltonian.leapfrog):
    """Position and momentum after leapfrog steps on the banana, and the energy there."""
    theta, momentum, gradient, scratch = phase[:2].copy(), phase[2:].copy(), np.empty(2), np.empty(2)
    value = log_density_gradient(Banana(), theta, gradient)
    for _ in range(steps):
        value = leapfrog(Banana(), FACTOR, step, theta, momentum, gradient, scratch)
    return np.concatenate([theta, momentum]), 0.5 * momentum @ momentum - value


def returned(leapfrog=hamiltonian.leapfrog):
    """Where a trajectory comes back to when its momentum is turned round."""
    turn = np.array([1.0, 1.0, -1.0, -1.0])
    there, _ = flow(PHASE, 9, 0.2, leapfrog)
    return turn * flow(turn * there, 9, 0.2, leapfrog)[0]


def test_leapfrog_is_reversible():
    np.testing.assert_allclose(returned(), PHASE, rtol=0, atol=1e-12)


def test_leapfrog_preserves_volume():
    width = 1e-5
    columns = [(flow(PHASE + width * e, 9, 0.2)[0] - flow(PHASE - width * e, 9, 0.2)[0]) / (2 * width) for e in np.eye(4)]
    jacobian = np.column_stack(columns)
    assert np.abs(jacobian - np.eye(4)).max() > 0.5
    assert abs(np.linalg.det(jacobian) - 1.0) < 1e-7


def test_leapfrog_is_of_second_order():
    _, exact = flow(PHASE, 0, 0.0)
    coarse, fine = (abs(flow(PHASE, round(1.2 / step), step)[1] - exact) for step in (0.02, 0.01))
    assert 3.8 < coarse / fine < 4.2


def mutated(function, change=None, **replaced):
    """The function with one piece of its source, or some of the functions that it calls, replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    if change is not None:
        assert source.count(change[0]) == 1
        source = source.replace(*change)
    namespace = {**function.__globals__, **replaced}
    exec(source[source.index("def ") :], namespace)
    return namespace[function.__name__]


HALF_KICK = """    kick(factor, step, gradient, momentum, scratch)
    return value
"""

unkicked = inlinable(mutated(hamiltonian.leapfrog, (HALF_KICK, "    return value\n")))


def test_leapfrog_without_its_final_half_kick_is_not_reversible():
    assert np.abs(returned(unkicked) - PHASE).max() > 0.01
