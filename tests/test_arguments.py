"""Arguments of the front door: of the wrong type, or of a family and misspelt, they are refused by name before any work."""

import inspect

import numpy as np
import pyarrow as pa
import pytest

import tallbayes as tb

WRONG = {
    "a number": 1.5,
    "a whole number": -3,
    "text": "x",
    "a dictionary": {},
    "a list": ["x"],
    "an array of numbers": np.ones((3, 3, 3)),
    "an object": object(),
    "a switch": True,
    "nothing": None,
}
"""Whatever a parameter takes, most of these are wrong for it."""

RIGHT = {
    "source": set(),
    "formula": {"text"},
    "family": set(),
    "prior": {"nothing", "a dictionary"},
    "sampler": set(),
    "family_options": {"nothing", "a dictionary"},
    "offset": {"text", "nothing"},
    "weights": {"text", "nothing"},
    "store": {"text", "nothing"},
    "memory": set(),
    "dtype": {"text"},
    "na": set(),
    "keep": {"nothing"},
    "client": {"nothing", "text"},  # the address of a scheduler
    "data": {"nothing"},
    "progress": {"a switch"},
    "model": set(),
    "draws": set(),
    "warmup": set(),
    "chains": set(),
    "seed": {"nothing"},
    "init": set(),
    "thin": set(),
    "cores": {"nothing"},
    "max_seconds": {"a number", "nothing"},
    "until_ess": {"a number", "nothing"},
    "guarantee": {"nothing"},
    "checkpoint": {"text", "nothing"},
    "mode": {"nothing"},
    "folder": {"text"},
    "tolerance": {"a number"},
}

ROWS = pa.table({"x": [0.1, 0.4, -0.3, 0.8], "y": [0, 1, 1, 0]})
FUNCTIONS = {"sample": tb.sample, "fit": tb.fit, "resume": tb.resume, "find_mode": tb.find_mode}
CASES = [
    (name, parameter, kind)
    for name, function in FUNCTIONS.items()
    for parameter, described in inspect.signature(function).parameters.items()
    for kind in WRONG
    if described.kind is not described.VAR_KEYWORD and kind not in RIGHT[parameter]
    if not (kind == "nothing" and described.default is None)
]


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arguments") / "run"
    tb.sample(small.model, "mh", draws=2, warmup=2, chains=1, seed=1, checkpoint=folder, progress=False)
    return folder


@pytest.mark.parametrize("name, parameter, kind", CASES, ids=lambda value: str(value))
def test_a_wrong_type_is_an_error_that_names_the_argument(small, run, name, parameter, kind):
    given = {
        "sample": {"model": small.model, "sampler": "mh", "draws": 2, "warmup": 2, "chains": 1, "progress": False},
        "fit": {"formula": "y ~ x", "source": ROWS, "sampler": "mh", "progress": False},
        "resume": {"folder": run, "model": small.model, "progress": False},
        "find_mode": {"model": small.model, "progress": False},
    }[name]
    error = (tb.DataError, tb.StoreError) if parameter == "source" else tb.OptionError
    with pytest.raises(error) as raised:
        FUNCTIONS[name](**{**given, parameter: WRONG[kind]})
    if parameter not in ("source", "model"):
        assert parameter.split("_")[0] in str(raised.value)


def test_options_of_sample_are_checked_before_rows_are_read():
    for parameter in inspect.signature(tb.sample).parameters:
        if parameter != "model":
            with pytest.raises(tb.OptionError, match=parameter.split("_")[0]):
                tb.fit("y ~ x", Unread(), **{parameter: object()})


def unread(*arguments, **options):
    pytest.fail("rows are read")


class Unread:
    """A source whose rows must not be read."""

    __arrow_c_stream__ = unread


EXPRESSION = "y*eta - log(1 + exp(eta))"


def rows(n=200):
    rng = np.random.default_rng(3)
    return pa.table({"x": rng.standard_normal(n), "y": rng.integers(0, 2, n)})


def test_options_of_a_family_are_given_by_name_or_together():
    common = {"sampler": "mh", "draws": 5, "warmup": 5, "chains": 1, "seed": 1, "progress": False}
    named = tb.fit("y ~ x", rows(), family="expression", expression=EXPRESSION, support="binary", **common)
    options = {"expression": EXPRESSION, "support": "binary"}
    together = tb.fit("y ~ x", rows(), family="expression", family_options=options, **common)
    mixed = tb.fit("y ~ x", rows(), "expression", expression=EXPRESSION, family_options={"support": "binary"}, **common)
    assert named.meta["model"] == together.meta["model"] == mixed.meta["model"]
    assert (named.theta == together.theta).all() and (named.theta == mixed.theta).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"family": "gaussian", "sgima": 1.0}, "unknown option 'sgima'; did you mean 'sigma'?"),
        ({"family": "gaussian", "family_options": {"sgima": 1.0}}, "unknown option of gaussian 'sgima'; did you mean 'sigma'?"),
        ({"family": "gaussian", "drws": 10}, "unknown option 'drws'; did you mean 'draws'?"),
        ({"family": "logistic", "sigma": 1.0}, "unknown option 'sigma'"),
        ({"family": "expression"}, "family 'expression' needs expression="),
        ({"family": "expression", "expresion": "eta"}, "unknown option 'expresion'; did you mean 'expression'?"),
        ({"family": "gaussian", "sigma": 1.0, "family_options": {"sigma": 1.0}}, "sigma is given twice"),
    ],
    ids=str,
)
def test_a_misspelt_option_is_refused_before_rows_are_read(options, message):
    with pytest.raises(tb.OptionError) as raised:
        tb.fit("y ~ x", Unread(), **options)
    assert message in str(raised.value)


def test_shards_of_a_model_refuse_options_of_a_family(small):
    with pytest.raises(tb.OptionError, match="family_options= belongs to paths"):
        tb.sample_shards(small.model, shards=2, family_options={"sigma": 1.0}, progress=False)
