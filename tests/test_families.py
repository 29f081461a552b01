"""The contract of a family, run for every file of `tallbayes.families` and for the family of docs/write-a-model.md."""

import re
from pathlib import Path

import numpy as np
import pytest

import tallbayes as tb

ROOT = Path(__file__).parents[1]


def test_no_code_but_families_and_models_knows_one_family_from_another():
    """Others ask for a fact that families declare: neither imports of a family, nor its name, nor the type of its member."""
    switch = re.compile(
        r"family\.name\s*(==|!=|in\b|not in\b)|isinstance\([\w.]*member\b|from tallbayes\.families|import families"
        r"|\[\"family\"\]\s*(==|!=|in\b)|\bfamily\s*(==|!=)\s*\""
    )
    source = ROOT / "src" / "tallbayes"
    hits = [
        f"{path.relative_to(source)}:{number}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        if path.relative_to(source).parts[0] not in ("families", "models")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if switch.search(line)
    ]
    assert hits == []


def test_a_normal_sample_takes_weights_and_refuses_regressors():
    y, w = np.array([1.0, 2.0, 3.0, 7.0]), np.array([1.0, 0.0, 2.0, 3.0])
    model = tb.models.normal(y, weights=w)
    theta = np.array([2.5, 0.3])
    expected = (w * (-0.3 - 0.5 * (y - 2.5) ** 2 * np.exp(-0.6))).sum()
    assert model.log_posterior(theta) == pytest.approx(expected, rel=1e-12)
    data = tb.Dataset.from_arrays(np.ones((4, 1)), y, weights=w)
    assert tb.models.normal(data).log_posterior(theta) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(tb.OptionError, match="a Dataset has its own weights"):
        tb.models.normal(data, weights=w)
    for X in (np.column_stack([np.ones(4), y]), np.arange(4.0)[:, None]):
        with pytest.raises(tb.DataError, match=r"normal has a mean and no regressors.*use tallbayes\.models\.gaussian"):
            tb.models.normal(tb.Dataset.from_arrays(X, y))


def test_a_column_cannot_have_the_name_of_a_parameter():
    data = tb.Dataset.from_arrays(np.ones((5, 1)), np.arange(5.0), columns=("log_sigma",))
    with pytest.raises(tb.DataError, match="column 'log_sigma' has the name of a parameter of gaussian; rename the column"):
        tb.models.gaussian(data)
    assert tb.models.gaussian(data, sigma=1.0).names == ("log_sigma",)
