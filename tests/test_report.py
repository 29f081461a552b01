"""The report: complete, well formed, self-contained, escaped, honest about bad runs; opened in a browser if there is one."""

import json
import re
import shutil
import subprocess
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import known_fit, logistic_arrays
from test_cli import invoke, run_main

import tallbayes as tb

VOID = {"meta", "img", "br", "link", "input", "hr"}
NASTY = '<script>alert("x")</script>&'
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)


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


def test_the_page_says_everything(good, tmp_path):
    path = good.report(tmp_path / "deep" / "report.html")
    checker, text = parsed(path.read_text())
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    for part in (
        "logistic model of y", "3,000 rows", "weakly_informative (the default)", good.meta["sampler_name"], good.why,
        good.guarantee.kind, good.guarantee.statement, *good.guarantee.assumed, *good.guarantee.checked, good.status,
        good.meta["fingerprint"], f"tallbayes {tb.__version__}", f"numpy {np.__version__}", "Evaluations per effective draw",
        "R-hat", "ESS bulk", "no warnings",
    ):  # fmt: skip
        assert " ".join(part.split()) in text, part
    assert checker.tags.count("img") == 4 and "script" not in checker.tags
    assert all(v.startswith("data:image/png;base64,") for v in checker.loads)
    assert "prefers-color-scheme: dark" in path.read_text() and "viewport" in path.read_text()


def test_nothing_is_loaded_from_elsewhere(good):
    text = page_of(good)
    assert "http" not in text and "url(" not in text and "@import" not in text


def test_text_of_users_is_escaped(good):
    text = page_of(good)
    assert NASTY not in text and "&lt;script&gt;" in text
    assert NASTY in parsed(text)[1]


def test_a_loaded_fit_has_the_same_page(good, tmp_path):
    loaded = tb.load(good.save(tmp_path / "fit.nc"))
    assert "other things being equal" not in page_of(loaded)  # its rows were only in memory
    loaded.data = good.data
    assert page_of(loaded) == page_of(good)


def test_findings_come_first_then_trust_then_the_appendix(good):
    _, text = parsed(page_of(good))
    places = [text.index(part) for part in ("Findings", "y ~ ", "higher by one standard deviation", "odds ratios", "How far to trust it",
                                            "Appendix", "Posterior", "Cost", "Where it comes from")]  # fmt: skip
    assert places == sorted(places)
    effect = good.comparisons({NASTY: "sd"})
    assert f" is {100 * effect['mean'][0]:.3g} percentage points higher" in text


def test_long_tables_fold_and_quiet_data_are_said_to_be_quiet():
    rng = np.random.default_rng(3)
    table = pa.table({"y": rng.poisson(2.0, 800), "g": rng.choice([f"level {k:02d}" for k in range(18)], 800)})
    data = tb.read(table, "y ~ g", progress=False)
    fit = known_fit(data, "poisson", np.tile(np.r_[0.7, np.zeros(17)], (2, 200, 1)) + 0.05 * rng.standard_normal((2, 200, 18)))
    fit.seconds.update(draws=1.0, total=1.0)
    fit.setup.update(evals=60, seconds=1.0, passes=1)
    fit.warmup.update(evals=60, seconds=1.0, iterations=1)
    checker, text = parsed(page_of(fit))
    assert "No effect is clearly different from zero" in text and "y ~ g" in text
    assert checker.tags.count("details") == 4  # effects, rate ratios, posterior, R-hat


def test_other_endings_are_refused(good, tmp_path):
    assert good.report(tmp_path / "page", plots=False).name == "page.html"
    with pytest.raises(tb.OptionError, match=r"should end in \.html"):
        good.report(tmp_path / "page.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(tb.StoreError, match="cannot write the report"):
        good.report(tmp_path / "file" / "page.html", plots=False)


def test_the_commands(tmp_path, monkeypatch, capsys):
    """fit, report and predict on files, as text and as JSON; errors in one line."""
    X, y = logistic_arrays(300)
    rows, fit = tmp_path / "rows.parquet", tmp_path / "fit.nc"
    pq.write_table(pa.table({"x": X[:, 1], "y": y}), rows)
    run = ("--sampler", "mh", "--draws", "40", "--warmup", "30", "--chains", "2", "--seed", "3", "--quiet")
    invoke("fit", rows, "-f", "y ~ x", *run, "--out", fit)
    assert "saved to" in invoke("report", fit).stdout and (tmp_path / "fit.html").exists()
    printed = json.loads(invoke("report", fit, "--out", tmp_path / "other.html", "--json").stdout)
    assert printed["out"].endswith("other.html") and printed["warnings"]
    expected = tb.load(fit).predict(rows)
    assert "lower" in invoke("predict", fit, rows).stdout
    shown = json.loads(invoke("predict", fit, rows, "--json").stdout)
    np.testing.assert_allclose([r["mean"] for r in shown], expected["mean"], rtol=1e-9)
    out = tmp_path / "predictions.parquet"
    assert "saved to" in invoke("predict", fit, rows, "--out", out, "--kind", "mean").stdout
    np.testing.assert_array_equal(pq.read_table(out)["upper"].to_numpy(), expected["upper"])
    assert json.loads(invoke("predict", fit, rows, "--out", out, "--kind", "response", "--json").stdout)["kind"] == "response"
    for arguments, message in (
        (("report", tmp_path / "no.nc"), "does not exist"),
        (("predict", fit, tmp_path / "no.parquet"), "does not exist"),
        (("predict", fit, rows, "--kind", "men"), "did you mean 'mean'?"),
        (("predict", fit, rows, "--prob", "2"), "between 0 and 1"),
    ):
        code, output = run_main(monkeypatch, capsys, *arguments)
        assert code == 1 and not output.out and output.err.count("\n") == 1 and message in output.err
    assert run_main(monkeypatch, capsys, "predict", fit)[0] == 2


PROBE = """<script>addEventListener('load', () => parent.postMessage([[...document.images].every(i => i.naturalWidth > 100),
document.documentElement.scrollWidth <= innerWidth, innerWidth, matchMedia('(prefers-color-scheme: dark)').matches].join(' '), '*'))
</script></body>"""
FRAME = """<!doctype html><body style="margin:0"><iframe src="report.html" style="border:0;width:{width}px;height:1200px"></iframe>
<script>addEventListener('message', event => {{ document.title = event.data }})</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH")
@pytest.mark.parametrize(
    ("width", "dark"),
    [(1000, False), (390, True), *(pytest.param(w, d, marks=pytest.mark.slow) for w, d in ((1000, True), (390, False)))],
)
def test_a_browser_shows_it(good, tmp_path, width, dark):
    """On a desktop and on a phone, light and dark: plots have a size, and nothing but tables and plots, which scroll, is too wide.

    A frame has the width of the screen, because the window of a browser cannot be as narrow as a phone.
    """
    path = good.report(tmp_path / "report.html")
    path.write_text(path.read_text().replace("</body>", PROBE))
    frame, picture = tmp_path / "frame.html", tmp_path / "page.png"
    frame.write_text(FRAME.format(width=width))
    off = ("gpu", "quic", "background-networking", "component-update", "sync", "dev-shm-usage")
    flags = (
        "--headless",
        "--no-sandbox",
        "--no-first-run",
        *(f"--disable-{name}" for name in off),
        "--virtual-time-budget=5000",
    )
    flags += ("--force-dark-mode",) if dark else ()
    common = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'user'}", f"--window-size={max(width, 500)},1200"]
    dumped = subprocess.run([*common, "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    assert re.search(r"<title>(.*?)</title>", dumped.stdout)[1] == f"true true {width} {str(dark).lower()}"
    subprocess.run([*common, f"--screenshot={picture}", frame.as_uri()], capture_output=True, timeout=120, check=True)
    pixels = matplotlib.image.imread(picture)[:, :width, :3]
    brightness = np.median(pixels[:, :8].mean(-1))  # of the margin: plots are light
    assert pixels.std() > 0.05 and (brightness < 0.3 if dark else brightness > 0.8)
