"""Internals of `tallbayes.api`; what users see of it is tested in test_arguments.py and test_run.py."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes import api


def unread(*arguments, **options):
    pytest.fail("rows are read")


def test_build_and_shards_refuse_a_misspelt_option(small, monkeypatch, tmp_path):
    from tallbayes.remote import partitions

    with pytest.raises(tb.OptionError, match="did you mean 'sigma'"):
        tb.models.build("gaussian", small.model.data, sgima=1.0)
    with pytest.raises(tb.OptionError, match="needs expression="):
        tb.models.build("expression", small.model.data)
    for name in ("handles_of", "partition"):
        if hasattr(partitions, name):
            monkeypatch.setattr(partitions, name, unread)
    with pytest.raises(tb.OptionError, match="did you mean 'sigma'"):
        tb.sample_shards(str(tmp_path), formula="y ~ x", family="gaussian", family_options={"sgima": 1.0}, progress=False)


DRAWS, WARMUP = 300, 60


def sample(model, sampler="mh", **options):
    return tb.sample(model, sampler, **{"draws": DRAWS, "warmup": WARMUP, "chains": 2, "seed": 5, "progress": False, **options})


@pytest.fixture
def file(tmp_path):
    X, y = logistic_arrays(500)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": X[:, 1], "y": y}), path)
    return path


@pytest.mark.parametrize("family, options", [("poisson", {}), ("gaussian", {"sigma": 0.7}), ("gaussian", {})], ids=str)
@pytest.mark.parametrize("prior", [None, tb.priors.student_t(3.0, [1.0, 2.0], 0.5)], ids=["default", "student_t"])
def test_resume_builds_the_same_model_again(file, monkeypatch, tmp_path, family, options, prior):
    model = tb.models.build(family, tb.read(file, "y ~ x", progress=False), prior, **options)
    descriptions = []
    monkeypatch.setattr(api, "execute", lambda *arguments: descriptions.append(arguments[4]))
    sample(model)
    again = api._rebuild(json.loads(json.dumps(descriptions[0])), tmp_path, False)
    assert again.describe() == model.describe() and again.default_prior == model.default_prior
    theta = np.linspace(0.1, 0.4, model.dim)
    assert again.log_posterior(theta) == model.log_posterior(theta)
