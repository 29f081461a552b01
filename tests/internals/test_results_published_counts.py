"""Counts and diagnostics as the papers define them."""

import numpy as np
import pytest
from scipy.signal import lfilter
from support import named

import tallbayes as tb
from tallbayes.errors import OptionError
from tallbayes.results.classical_diagnostics import autoregressive_sizes, gelman_rubin, spectrum_at_zero
from tallbayes.results.published_counts import AFTER_2N, AFTER_FULL_READ, published_evaluations
from tallbayes.testing import run_chunks


def test_the_rule_after_2n_is_what_runs_report(small):
    n = small.model.data.n
    for epsilon in (0.1, 1e-300):
        sampler = tb.samplers.Austerity(epsilon=epsilon, batch=30)
        found = named(sampler, run_chunks(sampler, small.model, small.mode, [60], compiled=False)[1])
        charged = published_evaluations(found["rows"], found["full_read"], n, AFTER_2N)
        np.testing.assert_array_equal(charged, found["evals_paper"])
        assert found["full_read"].any()
        assert published_evaluations(found["rows"], found["full_read"], n, AFTER_FULL_READ).sum() < charged.sum()


def test_a_chain_that_always_reads_all_rows_costs_n_after_its_first_iteration():
    rows = np.full((2, 20), 50)
    np.testing.assert_array_equal(published_evaluations(rows, rows == 50, 50, AFTER_FULL_READ), [[100] + [50] * 19] * 2)
    np.testing.assert_array_equal(published_evaluations(rows, rows == 50, 50, AFTER_2N), [[100, 50] * 10] * 2)


def test_an_iteration_that_renews_the_reference_costs_2n_and_leaves_its_state_known():
    rows, renewed = np.array([50, 7, 50, 50, 50]), np.array([True, False, False, True, False])
    np.testing.assert_array_equal(published_evaluations(rows, rows == 50, 50, AFTER_2N, renewed), [100, 7, 100, 100, 50])
    np.testing.assert_array_equal(published_evaluations(rows, rows == 50, 50, AFTER_FULL_READ, renewed), [100, 7, 100, 100, 50])


def test_draws_with_replacement_never_leave_all_rows_known():
    rows = np.array([60, 60])
    np.testing.assert_array_equal(published_evaluations(rows, np.zeros(2), 50, AFTER_FULL_READ), [120, 120])


def test_an_unknown_reading_is_refused():
    with pytest.raises(OptionError, match="reading must be"):
        published_evaluations(np.ones(3), np.zeros(3), 5, "sometimes")


def autoregression(phi: list[float], size: int, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(size + 2000)
    return lfilter([1.0], np.concatenate([[1.0], -np.asarray(phi)]), noise)[2000:]


@pytest.mark.parametrize("phi", [[0.9], [-0.5], [0.5, 0.3], []])
def test_the_spectrum_of_an_autoregression_at_zero(phi):
    found = np.array([spectrum_at_zero(autoregression(phi, 20_000, seed)) for seed in range(12)])
    truth = 1.0 / (1.0 - sum(phi)) ** 2
    error = found.std(ddof=1) / np.sqrt(found.size)
    assert abs(found.mean() - truth) < 5.0 * error + 0.02 * truth and error < 0.06 * truth


def test_the_fit_of_given_order_is_that_of_yule_and_walker():
    values = autoregression([0.6, -0.2], 500, 3)
    centred = values - values.mean()
    covariance = np.array([centred[: 500 - k] @ centred[k:] for k in range(28)]) / 500
    criteria, spectra = [], []
    for order in range(27):
        toeplitz = np.array([[covariance[abs(i - j)] for j in range(order)] for i in range(order)]).reshape(order, order)
        phi = np.linalg.solve(toeplitz, covariance[1 : order + 1])
        noise = covariance[0] - phi @ covariance[1 : order + 1]
        criteria.append(500 * np.log(noise) + 2 * order)
        spectra.append(noise * 500 / (500 - order - 1) / (1 - phi.sum()) ** 2)
    assert int(np.argmin(criteria)) >= 1
    assert abs(spectrum_at_zero(values) / spectra[int(np.argmin(criteria))] - 1.0) < 1e-9


def test_sizes_add_over_chains_and_a_chain_that_never_moved_has_none():
    one, other = autoregression([0.9], 50_000, 1), autoregression([0.9], 50_000, 2)
    theta = np.stack([np.column_stack([one, np.zeros(one.size)]), np.column_stack([other, np.zeros(one.size)])])
    sizes = autoregressive_sizes(theta)
    assert abs(100_000 / sizes[0] / 19.0 - 1.0) < 0.25 and sizes[1] == 0.0  # IF = (1 + phi) / (1 - phi)
    np.testing.assert_allclose(sizes, autoregressive_sizes(theta[:1]) + autoregressive_sizes(theta[1:]))


def test_gelman_and_rubin_by_their_formula():
    theta = np.array([[1.0, 2.0, 3.0, 6.0], [2.0, 4.0, 4.0, 6.0]])[:, :, None]
    within, between = (14.0 / 3.0 + 8.0 / 3.0) / 2.0, 0.5  # means 3 and 4
    np.testing.assert_allclose(gelman_rubin(theta), [(0.75 + between / within) ** 0.5])
