"""Internals of `tallbayes.schemes.references`; what users see of it is tested in test_confidence.py."""

import numpy as np

from tallbayes.proxies.taylor import whiten, whitening_of
from tallbayes.samplers import Confidence
from tallbayes.schemes.references import References, nearest, references_at
from tallbayes.testing import counting_rows, run_chunks


def test_a_renewed_reference_is_the_state_and_its_sums_are_right(small):
    sampler = Confidence(refresh=4)
    theta, info, state = run_chunks(sampler, small.model, small.mode, [9], compiled=False)
    np.testing.assert_array_equal(state["state.references.whitenings"][0, 0], theta[8])
    direct = references_at(small.model, [theta[8]], small.mode.factor, 2, None)
    np.testing.assert_array_equal(state["state.references.whitenings"], direct.whitenings)
    np.testing.assert_allclose(state["state.references.sums"], direct.sums, rtol=1e-9, atol=1e-12)
    report = dict(zip(sampler.columns, info.T, strict=True))
    n, renewed = small.model.data.n, np.arange(9) % 4 == 0
    assert (report["full_read"][renewed] == 1).all() and (report["evals_paper"][renewed] == 2 * n).all()
    np.testing.assert_array_equal(report["evals_gradient"], np.where(renewed, n, 0))
    assert (report["evals"][renewed] >= 2 * n).all()  # the proposal and the pass for the expansion; the state may be cached


def test_the_nearest_reference_is_used(small):
    far = small.mode.reference + 3.0 * small.mode.factor[:, 0]
    points = (tuple(far), tuple(small.mode.reference))
    sampler = Confidence(references=points)
    with counting_rows() as account:
        setup = sampler.setup(small.model, small.mode, 0, False)
    options = setup.policy.options(setup.policy.begin(), True)
    assert nearest(options.references, small.mode.reference) == 1
    assert nearest(options.references, far - 0.1 * small.mode.factor[:, 0]) == 0
    one = Confidence(references=points[1:])
    first, _, _ = run_chunks(sampler, small.model, small.mode, [15], compiled=False)
    assert first.shape == run_chunks(one, small.model, small.mode, [15], compiled=False)[0].shape
    assert isinstance(options.references, References) and account.rows == 3 * small.model.data.n


def test_white_coordinates_of_a_reference(small):
    whitening = whitening_of(small.mode)
    np.testing.assert_allclose(whiten(whitening, small.mode.reference), 0.0, atol=1e-14)
