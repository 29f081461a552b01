"""Internals of `tallbayes.results.report`; what users see of it is tested in test_report.py."""

import tempfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.results.report import warnings_of

VOID = {"meta", "img", "br", "link", "input", "hr"}
NASTY = '<script>alert("x")</script>&'


class Checker(HTMLParser):
    """Elements that nest, and everything a page could load."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.loads, self.text = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [v for k, v in attributes if k in ("src", "href", "srcset", "action", "data")]
        self.loads += [k for k, _ in attributes if k.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def page_of(fit):
    """The report of a fit without plots."""
    with tempfile.TemporaryDirectory() as folder:
        return fit.report(Path(folder) / "report.html", plots=False).read_text(encoding="utf-8")


def parsed(text):
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert not checker.open
    return checker, " ".join(" ".join(checker.text).split())


@pytest.fixture(scope="module")
def good():
    X, y = logistic_arrays(3000)
    data = tb.Dataset.from_arrays(X, y, columns=["Intercept", NASTY])
    return tb.sample(tb.models.logistic(data), "auto", draws=600, warmup=300, chains=4, seed=2, progress=False)


@pytest.fixture(scope="module")
def bad():
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(500)))
    return tb.sample(model, "mh", draws=30, warmup=0, chains=4, seed=2, progress=False)


def test_a_bad_run_is_warned_of(bad, good):
    assert not warnings_of(good)
    found = warnings_of(bad)
    assert any("Few effective draws" in w for w in found)
    _, text = parsed(page_of(bad))
    assert "read the warnings" in text and all(w in text for w in found)
    assert 'role="alert"' in page_of(bad) and 'class="bad"' in page_of(bad)


def test_one_chain_of_few_draws_has_no_r_hat(small):
    fit = tb.sample(small.model, "mh", draws=7, warmup=50, chains=1, seed=1, progress=False)
    assert any("R-hat is unknown" in w for w in warnings_of(fit))
    assert "nan" not in parsed(page_of(fit))[1].lower().split()
