"""Small models that several files of tests share, and the one large real data set."""

import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from support import logistic_arrays, medium_model

import tallbayes as tb
from tallbayes.models import Model
from tallbayes.testing import ExactPosterior, exact_posterior

os.environ.setdefault("TALLBAYES_COMPILE_AHEAD", "0")  # tests use every core already

PRIOR = tb.priors.normal(2.0)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored, and tests send it


class Small(NamedTuple):
    """A model of two parameters, the same model with the likelihood to the power 1.1, and what is known of the first."""

    model: Model
    tempered: Model
    mode: Any  # what tallbayes.find_mode returns
    posterior: ExactPosterior


@pytest.fixture(scope="session")
def small():
    X, y = logistic_arrays(60)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), PRIOR)
    tempered = tb.models.logistic(tb.Dataset.from_arrays(X, y, weights=np.full(60, 1.1)), PRIOR)
    return Small(model, tempered, tb.find_mode(model, progress=False), exact_posterior(model))


@pytest.fixture(scope="session")
def medium():
    return medium_model()


@pytest.fixture(scope="session")
def covtype():
    """Is the cover type Lodgepole pine? 400,000 rows, ten quantitative columns and an intercept."""
    folder = os.environ.get("TALLBAYES_DATA")
    if not folder:
        pytest.skip("TALLBAYES_DATA does not name a folder that holds covtype.parquet")
    import pyarrow.parquet as pq

    path = Path(folder) / "covtype.parquet"
    names = [name for name in pq.read_schema(path).names if name != "Cover_Type"][:10]
    table = pq.read_table(path, columns=[*names, "Cover_Type"])
    chosen = np.random.default_rng(0).permutation(table.num_rows)[:400_000]
    X = np.column_stack([np.ones(chosen.size), *(table[name].to_numpy()[chosen] for name in names)])
    y = table["Cover_Type"].to_numpy()[chosen] == 2
    return tb.models.logistic(tb.Dataset.from_arrays(X, y, columns=["Intercept", *names]))
