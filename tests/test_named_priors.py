"""Priors by name: which coordinates they reach, their densities with Jacobians, and what is refused."""

import numpy as np
import pytest
from scipy import stats

import tallbayes as tb


def rows(n=60):
    rng = np.random.default_rng(3)
    return {
        "age": rng.normal(40.0, 9.0, n),
        "region": np.array(["a", "b", "c"])[rng.integers(0, 3, n)],
        "y": rng.normal(size=n),
    }


def data_of():
    import pyarrow as pa

    return tb.read(pa.table(rows()), "y ~ age + C(region) + age:C(region)")


def model_of(**priors):
    return tb.models.gaussian(data_of(), prior=priors)


def test_terms_and_coefficients_are_reached_by_name():
    prior = {
        "age": tb.priors.normal(0.1),
        "C(region)": tb.priors.student_t(5.0, 2.0),
        "Intercept": tb.priors.normal(3.0, 1.0),
        "sigma": tb.priors.half_normal(2.0),
        "default": tb.priors.laplace(4.0),
    }
    model = model_of(**prior)
    at = {name: j for j, name in enumerate(model.names)}
    theta = np.random.default_rng(1).standard_normal(model.dim)
    expected = stats.norm(0, 0.1).logpdf(theta[at["age"]]) + stats.norm(1.0, 3.0).logpdf(theta[at["Intercept"]])
    others = [name for name in model.names if name.startswith("C(region)") and ":" not in name]
    assert len(others) == 2
    expected += sum(stats.t(5.0, 0, 2.0).logpdf(theta[at[name]]) for name in others)
    rest = [name for name in model.names if ":" in name]
    assert len(rest) == 2
    expected += sum(stats.laplace(0, 4.0).logpdf(theta[at[name]]) for name in rest)
    sigma = np.exp(theta[-1])
    expected += stats.halfnorm(scale=2.0).logpdf(sigma) + np.log(sigma)
    origin = model.log_prior(np.zeros(model.dim))
    zero = stats.norm(0, 0.1).logpdf(0) + stats.norm(1.0, 3.0).logpdf(0) + 2 * stats.t(5.0, 0, 2.0).logpdf(0)
    zero += 2 * stats.laplace(0, 4.0).logpdf(0) + stats.halfnorm(scale=2.0).logpdf(1.0)
    assert model.log_prior(theta) - origin == pytest.approx(expected - zero, rel=1e-12)


def test_scales_of_a_term_may_be_one_for_each_coefficient():
    model = model_of(**{"C(region)": tb.priors.normal([1.0, 2.0])})
    where = [j for j, name in enumerate(model.names) if name.startswith("C(region)[") and ":" not in name]
    assert model.prior_terms.scale[where].tolist() == [1.0, 2.0]
    with pytest.raises(tb.OptionError, match="one number or 2"):
        model_of(**{"C(region)": tb.priors.normal([1.0, 2.0, 3.0])}).prior_terms  # noqa: B018


def test_a_single_name_keeps_the_default_of_the_others():
    model, plain = model_of(age=tb.priors.normal(0.5)), tb.models.gaussian(data_of())
    j = model.names.index("age")
    ours, theirs = model.prior_terms, plain.prior_terms
    keep = np.arange(model.dim) != j
    assert ours.kind[j] == 1 and (ours.scale[keep] == theirs.scale[keep]).all() and ours.intercept == theirs.intercept
    named = model_of(Intercept=tb.priors.normal(5.0))
    assert named.prior_terms.intercept == -1
    whole = model_of(default=tb.priors.normal(5.0), Intercept=tb.priors.weakly_informative()).prior_terms
    assert whole.intercept == theirs.intercept and (whole.centre == theirs.centre).all()


def test_a_log_may_have_a_normal_prior():
    terms = model_of(log_sigma=tb.priors.normal(0.5, 1.0)).prior_terms
    assert terms.kind[-1] == 1 and terms.scale[-1] == 0.5 and terms.location[-1] == 1.0


def test_blocks_of_several_predictors():
    X = np.column_stack([np.ones(30), np.linspace(-1, 1, 30)])
    data = tb.Dataset.from_arrays(X, np.arange(30) % 3, columns=["one", "x"])
    model = tb.models.softmax(
        data, {"x": tb.priors.normal(2.0), "x[1]": tb.priors.normal(7.0), "default": tb.priors.normal(1.0)}
    )
    assert model.prior_terms.scale.tolist() == [1.0, 2.0, 1.0, 7.0, 1.0, 2.0]


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(tb.OptionError, match="unknown parameter in prior= 'aeg'; did you mean 'age'"):
        model_of(aeg=tb.priors.normal(1.0))
    with pytest.raises(tb.OptionError, match=r"'C\(regin\)'; did you mean 'C\(region\)'"):
        model_of(**{"C(regin)": tb.priors.normal(1.0)})
    with pytest.raises(tb.OptionError, match="unknown parameter in prior= 'sigma'"):
        tb.models.gaussian(data_of(), {"sigma": tb.priors.half_normal(1.0)}, sigma=1.0)
    with pytest.raises(tb.OptionError, match=r"the prior of 'sigma' must come .*half_normal"):
        model_of(sigma=tb.priors.normal(1.0))
    with pytest.raises(tb.OptionError, match=r"the prior of 'age' must come .*normal\(10\)"):
        model_of(age=tb.priors.half_normal(1.0))
    with pytest.raises(tb.OptionError, match="the prior of 'default' must come"):
        model_of(default=3.0)


def test_powers_of_priors_by_name():
    prior = {"sigma": tb.priors.gamma(2.0, 0.5), "age": tb.priors.normal(1.0), "default": tb.priors.normal(3.0)}
    model = model_of(**prior)
    half = tb.models.gaussian(data_of(), model.prior.power(0.5))
    theta = np.random.default_rng(2).standard_normal((2, model.dim))
    whole = np.diff([model.log_prior(t) for t in theta])
    assert 2.0 * np.diff([half.log_prior(t) for t in theta]) == pytest.approx(whole, rel=1e-12)
    with pytest.raises(tb.OptionError, match="cannot be split"):
        model_of(sigma=tb.priors.half_normal(1.0), default=tb.priors.normal(1.0)).prior.power(0.5)


def test_a_fit_with_priors_by_name(tmp_path):
    """The whole path: formula, sampling, summary, report, saving. The prior is so narrow that it decides."""
    import pyarrow as pa

    prior = {"age": tb.priors.normal(1e-4, 3.0), "sigma": tb.priors.half_normal(1e6)}
    fit = tb.fit(
        "y ~ age", pa.table(rows()), family="gaussian", prior=prior, sampler="exact-minibatch", draws=50, seed=1, progress=False
    )
    assert abs(fit.draws("age").mean() - 3.0) < 1e-3
    assert "sigma: half_normal(1e+06)" in str(fit.summary())
    assert "half_normal(1e+06)" in fit.report(tmp_path / "report.html", plots=False).read_text()
    fit.save(tmp_path / "fit.nc")
    again = tb.load(tmp_path / "fit.nc")
    assert again.meta["prior"] == fit.meta["prior"]
    assert (again.draws("sigma") == np.exp(again.draws("log_sigma"))).all()
