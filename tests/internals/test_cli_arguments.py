"""Internals of `tallbayes.cli.arguments`; what users see of it is tested in test_cli.py."""

import pytest

import tallbayes as tb
from tallbayes.cli.arguments import family_of, prior_of


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", None),
        ("flat", tb.priors.flat()),
        ("normal", tb.priors.normal()),
        ("normal:3", tb.priors.normal(3.0)),
        ("normal:3,-1", tb.priors.normal(3.0, -1.0)),
        ("laplace:0.5", tb.priors.laplace(0.5)),
        ("student_t:4,2.5", tb.priors.student_t(4.0, 2.5)),
        ("weakly_informative", tb.priors.weakly_informative()),
    ],
)
def test_priors_are_read_from_text(text, expected):
    assert prior_of(text) == expected


@pytest.mark.parametrize(
    "text, message",
    [
        ("norml:3", "did you mean 'normal'"),
        ("normal:wide", "cannot read the prior 'normal:wide'"),
        ("flat:1,2", "like normal:10"),
    ],
)
def test_priors_that_cannot_be_read_are_refused(text, message):
    with pytest.raises(tb.OptionError, match=message):
        prior_of(text)


@pytest.mark.parametrize(
    "given, message",
    [
        (["shape"], "cannot read --option 'shape'; write it like shape=2."),
        (["=2"], "cannot read --option '=2'"),
        (["shape=2", "shape=3"], "shape is given twice"),
    ],
    ids=str,
)
def test_options_of_a_family_that_cannot_be_read(given, message):
    with pytest.raises(tb.OptionError, match=message):
        family_of("gamma", None, None, given, None, None, None, None)
