"""Internals of `tallbayes.schemes.path_policy`; what users see of it is tested in test_zigzag.py."""

from support import logistic_arrays

import tallbayes as tb
from tallbayes.samplers import ZigZag
from tallbayes.schemes.path_policy import prior_rows


def test_a_gaussian_model_reads_no_row():
    X, _ = logistic_arrays(200)
    model = tb.models.gaussian(tb.Dataset.from_arrays(X, X[:, 1]), tb.priors.flat(), sigma=1.0)
    mode = tb.find_mode(model, progress=False)
    setup = ZigZag().setup(model, mode, 0, False)
    assert setup.notes["candidate rows per unit of time"] == 0.0
    assert prior_rows(mode).weight.size == 0
