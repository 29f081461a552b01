"""The site in a browser: built strictly, formulas typeset, pictures loaded, nothing wider than the screen, light and dark.

It needs the extra `docs` and chromium or google-chrome; `make look` has both.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="neither chromium nor google-chrome is on PATH")]
PAGES = ("", "getting-started", "families", "samplers/exact-minibatch", "results/speed", "gallery/hospitals", "api/fit")

PROBE = """<script>addEventListener('load', () => setTimeout(() => parent.postMessage([
[...document.images].every(i => i.naturalWidth > 100), document.documentElement.scrollWidth <= innerWidth, innerWidth,
document.querySelectorAll('.katex-error').length, [...document.querySelectorAll('.arithmatex')].every(f => f.querySelector('.katex')),
document.body.dataset.mdColorScheme].join(' '), '*'), 500))</script></body>"""
FRAME = """<!doctype html><body style="margin:0"><iframe src="{page}" style="border:0;width:{width}px;height:1200px"></iframe>
<script>addEventListener('message', event => {{ document.title = event.data }})</script></body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)], cwd=ROOT, check=True)
    for page in PAGES:
        path = folder / page / "index.html"
        path.write_text(path.read_text().replace("</body>", PROBE))
    return folder


@pytest.mark.parametrize("width, dark", [(1280, False), (390, True)])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page or "home")
def test_a_browser_shows_a_page(site, tmp_path, page, width, dark):
    """A frame has the width of the screen, because the window of a browser cannot be as narrow as a phone."""
    frame, picture = tmp_path / "frame.html", tmp_path / "page.png"
    frame.write_text(FRAME.format(page=(site / page / "index.html").as_uri(), width=width))
    off = ("gpu", "quic", "background-networking", "component-update", "sync", "dev-shm-usage")
    flags = [
        "--headless",
        "--no-sandbox",
        "--no-first-run",
        *(f"--disable-{name}" for name in off),
        "--virtual-time-budget=5000",
    ]
    flags += ["--force-dark-mode"] if dark else []
    common = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'user'}", f"--window-size={max(width, 500)},1200"]
    dumped = subprocess.run([*common, "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    scheme = "slate" if dark else "default"
    assert re.search(r"<title>(.*?)</title>", dumped.stdout)[1] == f"true true {width} 0 true {scheme}"
    subprocess.run([*common, f"--screenshot={picture}", frame.as_uri()], capture_output=True, timeout=120, check=True)
    pixels = matplotlib.image.imread(picture)[200:, :width, :3]  # below the bar
    margin = np.median(pixels[:, :4].mean(-1))
    assert pixels.std() > 0.05 and (margin < 0.3 if dark else margin > 0.8)
