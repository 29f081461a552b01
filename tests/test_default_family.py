"""`tb.fit` without a family: 0 and 1 are logistic, and the fit says so; any other response asks for a family that fits it."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tallbayes as tb
from tallbayes.cli import app
from tallbayes.testing import BATCH_ROWS

RUN = {"sampler": "mh", "draws": 20, "warmup": 20, "chains": 2, "seed": 1, "progress": False}
RNG = np.random.default_rng(5)
X = RNG.standard_normal(200)
BINARY = RNG.random(200) < 1.0 / (1.0 + np.exp(-X))
SAID = "no family was given: logistic, because y is 0 or 1 in every row"


def table(y, **more):
    return pa.table({"x": X, "y": y, **more})


@pytest.mark.parametrize("kind", [bool, int, float])
def test_a_response_of_zeros_and_ones_is_logistic_and_the_fit_says_so(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a notice is no warning
        fit = tb.fit("y ~ x", table(BINARY.astype(kind)), **RUN)
    named = tb.fit("y ~ x", table(BINARY.astype(kind)), family="logistic", **RUN)
    assert (fit.theta == named.theta).all() and fit.meta["model"] == named.meta["model"]
    assert fit.meta["assumed_family"] == SAID and SAID in repr(fit.summary())
    assert named.meta["assumed_family"] == "" and "no family" not in repr(named.summary())


def test_what_was_assumed_is_kept_by_files_checkpoints_and_updates(tmp_path):
    file = tmp_path / "rows.parquet"
    pq.write_table(table(BINARY.astype(int)), file)
    fit = tb.fit("y ~ x", file, checkpoint=tmp_path / "run", **RUN)
    assert tb.load(fit.save(tmp_path / "fit.nc")).meta["assumed_family"] == SAID
    assert tb.resume(tmp_path / "run", draws=30, progress=False).meta["assumed_family"] == SAID
    assert tb.load(tmp_path / "fit.nc").update(file, progress=False).meta["assumed_family"] == SAID
    assert SAID in fit.report(tmp_path / "fit.html", plots=False).read_text()


FITTING = {
    "counts": (np.arange(200) % 7, ["poisson", "negbin", "zero_inflated_poisson", "softmax", "ordinal", "gaussian"]),
    "large counts": (100 + np.arange(200), ["poisson", "negbin", "gamma", "gaussian"]),
    "positive": (0.5 + np.exp(X), ["gamma", "inverse_gaussian", "weibull", "gaussian", "student_t"]),
    "real": (X, ["gaussian", "student_t"]),
    "between 0 and 1": (1.0 / (1.0 + np.exp(-X)), ["beta", "gamma", "gaussian"]),
    "one half among zeros and ones": (np.append(BINARY[:-1].astype(float), 0.5), ["gaussian"]),
}
FOREIGN = {
    "counts": ["gamma", "beta", "class_gaussian", "arma", "binomial"],
    "large counts": ["softmax", "ordinal", "beta"],
    "positive": ["poisson", "beta", "softmax"],
    "real": ["gamma", "poisson", "beta", "weibull", "normal"],
    "between 0 and 1": ["poisson", "binomial"],
    "one half among zeros and ones": ["beta", "gamma", "poisson"],
}


def names_of(error):
    suggested = str(error).split("Give family=: ")[1].split(".")[0]
    return set(suggested.replace(",", " ").replace(";", " ").split())


@pytest.mark.parametrize("kind", FITTING)
def test_another_response_asks_for_a_family_that_fits(kind):
    y, fitting = FITTING[kind]
    with pytest.raises(tb.DataError, match=r"the response 'y' has .* without family=, only 0 and 1 are modelled") as raised:
        tb.fit("y ~ x", table(y), **RUN)
    found = names_of(raised.value)
    assert set(fitting) <= found and not found & set(FOREIGN[kind])
    for name in found & set(tb.models.FAMILIES):  # each takes these responses
        tb.models.build(name, tb.read(table(y), "y ~ x", progress=False, **tb.models.second_formula(name, {})))


@pytest.mark.parametrize(
    "y, remedy",
    [
        (1 + BINARY.astype(int), "Two classes are coded as 0 and 1, not 1 and 2"),
        (2 * BINARY.astype(int) - 1, "Two classes are coded as 0 and 1, not -1 and 1"),
        (1 + np.arange(200) % 5, "Classes are numbered from 0, for family='softmax' or 'ordinal'"),
        (
            np.where(BINARY, "yes", "no"),
            "encode it as numbers: a response of two classes as 0 and 1, of more classes as 0, 1, 2",
        ),
    ],
    ids=["1 and 2", "-1 and 1", "1 to 5", "labels"],
)
def test_classes_in_another_code_are_told_how_to_be_coded(y, remedy):
    with pytest.raises(tb.DataError) as raised:
        tb.fit("y ~ x", table(y), **RUN)
    assert remedy in str(raised.value)


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
def test_the_last_row_decides_as_much_as_the_first(value):
    n = 2 * BATCH_ROWS + 10
    y = (np.arange(n) % 2).astype(float)
    y[-3] = value
    with pytest.raises(tb.DataError, match=rf"\(row {n - 3}: {value:g}\); without family="):
        tb.fit("y ~ 1", pa.table({"y": y}), **RUN)


def test_successes_among_trials_are_binomial_and_censored_times_ask():
    trials = np.full(200, 4)
    counts = RNG.binomial(4, 0.5, 200)
    fit = tb.fit("p(y, n) ~ x", table(counts, n=trials), **RUN)
    assert fit.meta["model"]["family"] == "binomial"
    assert fit.meta["assumed_family"] == "no family was given: binomial, because y is successes among trials"
    single = tb.fit("p(y, n) ~ x", table(BINARY.astype(int), n=np.ones(200, int)), **RUN)
    assert single.meta["model"]["family"] == "logistic" and single.meta["assumed_family"] == SAID
    with pytest.raises(tb.DataError, match=r"is a time that may be censored.*weibull") as raised:
        tb.fit("censored(y, e) ~ x", table(np.exp(X), e=BINARY), **RUN)
    assert names_of(raised.value) >= {"weibull", "lognormal", "loglogistic"} and "gaussian" not in str(raised.value)


def test_shares_with_trials_as_weights_are_told_of_binomial():
    with pytest.raises(tb.DataError) as raised:
        tb.fit("y ~ x", table(np.arange(200) % 5 / 4.0, n=np.full(200, 4)), weights="n", **RUN)
    assert "binomial" in names_of(raised.value)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"sigma": 1.0}, "sigma= is an option of gaussian and student_t; give family= as well"),
        ({"family_options": {"size": 2.0}}, "size= is an option of negbin; give family= as well"),
        ({"zi": "~ x"}, "zi= is an option of hurdle_negbin, hurdle_poisson, zero_inflated_negbin and zero_inflated_poisson"),
        ({"expression": "y*eta - exp(eta)"}, "expression= is an option of expression; give family= as well"),
        ({"family_options": {"sgima": 2.0}}, "unknown option of a family 'sgima'; did you mean 'sigma'?"),
        ({"drws": 2}, "unknown option 'drws'; did you mean 'draws'?"),
    ],
    ids=str,
)
def test_options_of_a_family_need_the_family(options, message):
    with pytest.raises(tb.OptionError) as raised:
        tb.fit("y ~ x", table(BINARY), **{**RUN, **options})
    assert message in str(raised.value)


def write_parts(folder, last):
    folder.mkdir()
    for k, y in enumerate((BINARY.astype(float), last)):
        pq.write_table(table(y), folder / f"{k}.parquet")
    return str(folder)


def test_partitions_and_shards_assume_the_same(tmp_path):
    good, bad = write_parts(tmp_path / "good", BINARY.astype(float)), write_parts(tmp_path / "bad", np.append(X[1:], 7.0))
    with tb.shards.Partitions.open(good, "y ~ x") as rows:
        assert rows.model.assumed == SAID and rows.model.family.name == "logistic"
    with pytest.raises(tb.DataError, match=r"without family=, only 0 and 1 are modelled.*gaussian"):
        tb.shards.Partitions.open(bad, "y ~ x")
    with pytest.raises(tb.DataError, match=r"without family=, only 0 and 1 are modelled.*gaussian"):
        tb.fit("y ~ x", bad, memory="partitions", **RUN)
    with pytest.raises(tb.DataError, match=r"without family=, only 0 and 1 are modelled.*gaussian"):
        tb.sample_shards(bad, "mh", formula="y ~ x", progress=False)


def test_the_command_line_assumes_the_same(tmp_path, capsys):
    pq.write_table(table(BINARY.astype(int)), tmp_path / "binary.parquet")
    pq.write_table(table(np.arange(200) % 4), tmp_path / "counts.parquet")
    short = ["--sampler", "mh", "--draws", "20", "--warmup", "20", "--chains", "2", "--seed", "1", "--quiet"]
    app(["fit", str(tmp_path / "binary.parquet"), "-f", "y ~ x", *short], standalone_mode=False)
    assert SAID in capsys.readouterr().out
    app(["fit", str(tmp_path / "binary.parquet"), "-f", "y ~ x", "--json", *short], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["assumed_family"] == SAID
    for command in ("fit", "compare"):
        with pytest.raises(tb.DataError, match=r"poisson or negbin for counts|poisson, negbin"):
            app([command, str(tmp_path / "counts.parquet"), "-f", "y ~ x", "--quiet"], standalone_mode=False)
        with pytest.raises(tb.OptionError, match=r"sigma= is an option of gaussian and student_t"):
            app([command, str(tmp_path / "counts.parquet"), "-f", "y ~ x", "--sigma", "2", "--quiet"], standalone_mode=False)
