"""What bad input gets from `sample`, `fit` and the options of samplers and moves: an error that names the remedy."""

import numpy as np
import pyarrow as pa
import pytest

import tallbayes as tb
from tallbayes import samplers


def sample(model, sampler="mh", **options):
    return tb.sample(model, sampler, **{"draws": 2, "warmup": 2, "chains": 2, "progress": False, **options})


def refused(call, message):
    with pytest.raises(tb.OptionError) as raised:
        call()
    assert message in str(raised.value)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    "sampler, message",
    [
        ("nutz", "unknown sampler 'nutz'; did you mean 'nuts'?"),
        ("autom", "did you mean 'auto'?"),
        ("xyzzy", "unknown sampler 'xyzzy'. Valid: "),
        (None, "sampler must be a name or an object of tallbayes.samplers; got None"),
        (tb.moves.hmc(), "sampler must be a name or an object of tallbayes.samplers; got HamiltonianMove"),
    ],
    ids=str,
)
def test_unknown_samplers(small, sampler, message):
    refused(lambda: sample(small.model, sampler), message)


def test_an_unknown_sampler_lists_all_that_there_are(small):
    refused(lambda: sample(small.model, "xyzzy"), ", ".join(sorted([*samplers.SAMPLERS, "auto"])))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"draws": 0}, "draws must be a whole number of at least 1; got 0"),
        ({"draws": 10.0}, "draws must be a whole number of at least 1; got 10.0"),
        ({"draws": "10"}, "draws must be a whole number of at least 1; got '10'"),
        ({"warmup": -1}, "warmup must be a whole number of at least 0; got -1"),
        ({"warmup": None}, "warmup must be a whole number"),
        ({"chains": 0}, "chains must be a whole number of at least 1; got 0"),
        ({"thin": 0}, "thin must be a whole number of at least 1; got 0"),
        ({"seed": -1}, "seed must be a whole number >= 0, or None for a random one; got -1"),
        ({"seed": 1.5}, "seed must be a whole number >= 0"),
        ({"seed": "one"}, "seed must be a whole number >= 0"),
        ({"cores": 0}, "cores must be a whole number of at least 1"),
        ({"cores": -2}, "cores must be a whole number of at least 1"),
        ({"cores": 1.5}, "cores must be a whole number of at least 1"),
        ({"cores": "all"}, "cores must be a whole number of at least 1"),
        ({"max_seconds": 0}, "max_seconds must be positive; got 0"),
        ({"max_seconds": float("nan")}, "max_seconds must be positive; got nan"),
        ({"until_ess": -5}, "until_ess must be positive; got -5"),
        ({"until_ess": "many"}, "until_ess must be positive; got 'many'"),
        ({"init": "laplase"}, "unknown init 'laplase'; did you mean 'laplace'?"),
        ({"init": [0.0]}, "init must have shape (2,) or (2, 2); got (1,)"),
        ({"init": np.zeros((3, 2))}, "init must have shape (2,) or (2, 2); got (3, 2)"),
        ({"init": [0.0, np.nan]}, "init has a value that is not finite"),
        ({"init": ["a", "b"]}, "init must be 'laplace', 'prior' or an array of numbers"),
        ({"init": None}, "init must have shape (2,) or (2, 2); got ()"),
        ({"guarantee": "exakt"}, "unknown guarantee 'exakt'; did you mean 'exact'?"),
        ({"guarantee": 1}, "unknown guarantee 1. Valid: asymptotic, exact"),
    ],
    ids=lambda value: "-".join(f"{k}={v!r}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_options_of_sample(small, options, message):
    refused(lambda: sample(small.model, **options), message)


@pytest.mark.parametrize("thing", [None, "rows.parquet", np.zeros((3, 2)), tb.moves.hmc()], ids=lambda t: type(t).__name__)
def test_sample_needs_a_model(thing):
    refused(
        lambda: sample(thing), f"sample needs a model such as tallbayes.models.logistic(data); got a {type(thing).__name__}"
    )


def test_sample_of_a_dataset_names_the_step_left_out(small):
    refused(lambda: sample(small.model.data), "sample needs a model such as tallbayes.models.logistic(data); got a Dataset")


def test_a_mode_of_another_model_is_refused(small):
    refused(lambda: sample(small.tempered, mode=small.mode), "mode= belongs to another model")
    twin = tb.models.logistic(small.model.data, small.model.prior)
    assert sample(twin, mode=small.mode).theta.shape == (2, 2, 2)


def test_a_weaker_sampler_than_the_guarantee_is_refused(small, monkeypatch):
    weaker = samplers.Guarantee("HEURISTIC", "nothing is known")
    monkeypatch.setattr(samplers.FullData, "guarantee", weaker)
    refused(lambda: sample(small.model, guarantee="exact"), "mh is HEURISTIC, weaker than guarantee='exact'")
    assert sample(small.model, guarantee="heuristic").guarantee == weaker


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: tb.moves.hmc(mass="dens"), "unknown mass 'dens'; did you mean 'dense'?"),
        (lambda: tb.moves.hmc(time=0.0), "time is the length of a trajectory and must be positive and finite; got 0.0"),
        (lambda: tb.moves.hmc(time=float("inf")), "time is the length of a trajectory"),
        (
            lambda: tb.moves.hmc(acceptance=1.0),
            "acceptance is the target acceptance rate of warm-up and must be between 0 and 1; got 1.0",
        ),
        (lambda: tb.moves.nuts(mass="diag"), "did you mean 'diagonal'?"),
        (
            lambda: tb.moves.nuts(max_depth=0),
            "max_depth is the maximum number of doublings and must be between 1 and 20; got 0",
        ),
        (
            lambda: tb.moves.nuts(max_depth=21),
            "max_depth is the maximum number of doublings and must be between 1 and 20; got 21",
        ),
        (lambda: tb.moves.nuts(acceptance=0.0), "acceptance is the target acceptance rate of warm-up"),
        (lambda: tb.moves.random_walk(acceptance=2.0), "acceptance is the target acceptance rate of warm-up"),
        (lambda: tb.moves.pcn(rho=1.0), "rho must be at least 0 and below 1; got 1.0"),
        (lambda: tb.moves.independence(share=1.5), "share is a probability; got 1.5"),
        (lambda: tb.moves.from_dict({"name": "hmcc"}), "unknown move 'hmcc'; did you mean 'hmc'?"),
        (lambda: samplers.from_dict({"class": "FullDatum"}), "did you mean 'FullData'?"),
    ],
)
def test_options_of_moves_and_samplers(make, message):
    refused(make, message)


@pytest.mark.parametrize("blocks", [[[0]], [[0], [0, 1]], [[0], [2]], []], ids=str)
def test_blocks_hold_each_coordinate_once(small, blocks):
    sampler = samplers.FullData(tb.moves.random_walk(blocks=blocks))
    refused(lambda: sample(small.model, sampler), "blocks must hold each of the coordinates 0 to 1 exactly once")


ROWS = pa.table({"x": [0.1, 0.4, -0.3, 0.8], "y": [0, 1, 1, 0]})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"family": "lgoit"}, "unknown family 'lgoit'; did you mean 'logit'?"),
        ({"family_options": {"sigma": 1.0}}, "sigma= is an option of gaussian and student_t; give family= as well"),
        ({"family": "gaussian", "family_options": {"sgima": 1.0}}, "did you mean 'sigma'?"),
        ({"memory": "disc"}, "unknown memory 'disc'; did you mean 'disk'?"),
    ],
    ids=str,
)
def test_options_of_fit(options, message):
    refused(lambda: tb.fit("y ~ x", ROWS, **options, progress=False), message)


def test_an_unknown_family_by_name(small):
    refused(lambda: tb.models.build("poison", small.model.data), "unknown family 'poison'; did you mean 'poisson'?")


def test_rows_are_given_once():
    table = pa.table({"y": [0.0, 1.0], "x": [1.0, 2.0]})
    for arguments in ({"source": table, "data": table}, {}):
        refused(lambda given=arguments: tb.fit("y ~ x", **given), "give the rows once")


@pytest.mark.parametrize(
    "family, nearest",
    [("binomal", "binomial"), ("logistik", "logistic"), ("negative_binom", "negative_binomial"), ("poison", "poisson")],
)
def test_unknown_families_name_the_nearest_one_or_its_alias(family, nearest):
    refused(lambda: tb.fit("y ~ x", data=pa.table({"y": [0.0]}), family=family), f"did you mean '{nearest}'?")


@pytest.mark.parametrize(
    "alias, family, options",
    [
        ("bernoulli", "logistic", {}),
        ("bernoulli", "logistic", {}),
        ("negative_binomial", "negbin", {"size": 2.0}),
        ("t", "student_t", {"nu": 4.0, "scale": 1.0}),
        ("categorical", "softmax", {"classes": 2}),
    ],
)
def test_families_have_the_names_of_other_packages(alias, family, options):
    data = tb.Dataset.from_arrays(np.ones((4, 1)), [0, 1, 1, 0])
    assert tb.models.build(alias, data, **options).describe() == tb.models.build(family, data, **options).describe()


def test_a_constant_response_is_said_before_sampling():
    table = pa.table({"y": np.zeros(50), "x": np.linspace(-1, 1, 50)})
    options = {"sampler": "mh", "draws": 5, "warmup": 5, "chains": 2, "seed": 1, "progress": False}
    with pytest.warns(tb.TallbayesWarning) as caught:
        tb.fit("y ~ x", data=table, **options)
    assert str(caught[0].message).startswith("the response 'y' is 0 in all 50 rows")
