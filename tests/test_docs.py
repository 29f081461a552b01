"""The documentation is current, its links resolve, and every Python block in it runs."""

import ast
import importlib.util
import re
from pathlib import Path

import nbformat
import pytest
import typer

import tallbayes as tb
from tallbayes.cli import app

ROOT = Path(__file__).parents[1]
TOP = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "VISION.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
DAILY = (
    "README.md",
    "docs/index.md",
    "docs/getting-started.md",
    "docs/fit.md",
    "docs/write-a-model.md",
    "docs/write-a-sampler.md",
)


def runnable():
    """Pages with Python blocks. Those on one sampler or one topic compile much that other tests compile: they run every night."""
    for page in PAGES:
        if BLOCK.search(page.read_text()):
            daily = str(page.relative_to(ROOT).as_posix()) in DAILY
            yield pytest.param(page, marks=() if daily else pytest.mark.slow)


def label(page):
    return str(page.relative_to(ROOT))


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [*runnable()], ids=label)
def test_every_python_block_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TALLBAYES_STORE", str(tmp_path / "stores"))
    text, namespace = page.read_text(), {"__name__": "page"}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], str(page), "exec"), namespace)


def test_generated_parts_are_current():
    for page, text in generator().pages().items():
        assert page.read_text() == text, f"{label(page)} is out of date: run python docs/generate.py"


def test_the_reference_names_everything_public():
    text = (ROOT / "docs" / "reference.md").read_text()
    for name in set(tb.__all__) - {"__version__"}:
        assert f"`tb.{name}" in text
    for name in ("normal", "half_normal", "gamma", "lkj", "ridge", "horseshoe"):
        assert f"`tb.priors.{name}`" in text


def test_the_table_of_samplers_lists_all_of_them():
    table = generator().sampler_table()
    for name, make in tb.samplers.SAMPLERS.items():
        row = next(line for line in table.splitlines() if f'`"{name}"`' in line)
        call = re.search(r"`(tb\.samplers[^`]*)`", row)[1]
        assert eval(call, {"tb": tb}) == make()
        assert make().guarantee.kind in row


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_relative_links_resolve(page):
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        path = page.parent / target if target else page
        assert path.exists(), f"{label(page)} links to {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", FENCED.sub("", path.read_text()), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings], link


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f": {page.relative_to(ROOT / 'docs')}\n" in navigation


def _patterns(folder):
    """What the string constants and f-strings of the scripts of a folder can be, as regular expressions, by script."""
    for script in Path(ROOT / folder).glob("*.py"):
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{folder}.{script.stem}", re.escape(node.value)
            if isinstance(node, ast.JoinedStr):
                parts = (re.escape(v.value) if isinstance(v, ast.Constant) else r"[\w-]+" for v in node.values)
                yield f"{folder}.{script.stem}", "".join(parts)


def test_every_block_of_results_has_a_script_that_writes_it():
    pages = [ROOT / "docs/results.md", *(ROOT / "docs/results").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    marks = re.findall(r"<!-- ([\w-]+):begin -->", text)
    assert len(marks) == len(set(marks)) > 40
    patterns = {
        pattern for folder in ("benchmarks", "experiments") for _, pattern in _patterns(folder) if 3 < len(pattern) < 80
    }
    for mark in marks:
        writers = [pattern for pattern in patterns if re.fullmatch(pattern, mark)]
        assert writers, f"no script writes the block {mark!r} of docs/results"
    for command in re.findall(r"python -m ((?:benchmarks|experiments)\.\w+)", text):
        assert (ROOT / (command.replace(".", "/") + ".py")).exists(), command


def test_the_readme_is_short_and_starts_with_an_example():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100
    assert text.count("\n", 0, BLOCK.search(text).start()) < 30


def test_the_command_line_page_names_every_command_and_option():
    text = (ROOT / "docs" / "command-line.md").read_text()
    for name, command in typer.main.get_command(app).commands.items():
        assert f"tallbayes {name}" in text
        for option in command.params:
            if option.param_type_name == "option":
                assert f"`{option.opts[0]}" in text, f"{option.opts[0]} of tallbayes {name}"


def test_the_gallery_lists_its_pages_and_each_has_a_plot():
    gallery = ROOT / "docs" / "gallery"
    listed = (gallery / "index.md").read_text()
    for page in set(gallery.glob("*.md")) - {gallery / "index.md"}:
        text = page.read_text()
        assert f"({page.name})" in listed
        picture = re.search(r"!\[[^\]]+\]\(\.\./figures/gallery/([^)]+)\)", text)[1]
        assert picture == f"{page.stem}.png" and f'"{picture}"' in "".join(BLOCK.findall(text))


def test_notebooks_of_the_gallery_are_valid_and_run_the_code_of_their_pages():
    pages = set((ROOT / "docs" / "gallery").glob("*.md")) - {ROOT / "docs" / "gallery" / "index.md"}
    written = sorted((ROOT / "docs" / "gallery" / "notebooks").glob("*"))
    assert written == sorted(generator().notebooks()) and len(written) == len(pages) >= 9
    for page in pages:
        text, path = page.read_text(), page.parent / "notebooks" / f"{page.stem}.ipynb"
        assert f"(notebooks/{path.name})" in text
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        assert code == [block.strip() for block in BLOCK.findall(text)]
        prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        assert prose.startswith("# ") and ".png" not in prose
        for link in LINK.findall(prose):
            address, _, place = link.partition("/blob/main/")
            assert address.startswith("https://") and (ROOT / place.partition("#")[0]).is_file(), link


def test_the_page_on_a_hundred_million_rows_quotes_the_table():
    table = re.search(r"<!-- scaling-n:begin -->(.*?)<!--", (ROOT / "docs/results/speed.md").read_text(), re.DOTALL)[1]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if re.match(r"\| [\d,]+ \|", line)]
    page = (ROOT / "docs/gallery/laptop.md").read_text()
    quoted = ast.literal_eval(re.search(r"measured = ({.*?})", page)[1])
    assert quoted == {int(line[0].replace(",", "")): float(line[4]) for line in lines}
    last = lines[-1]
    assert f"| mode | {float(last[2]):.0f} s |" in page and f"| certified bounds and tables | {float(last[3]):.0f} s |" in page
    assert f"| {float(last[5]) / 100:.2f} s | {1e4 * float(last[4]):.0f} rows in all |" in page


def test_formulas_are_typeset_by_files_of_the_site():
    settings, docs = (ROOT / "mkdocs.yml").read_text(), ROOT / "docs"
    for name in re.findall(r"^  - (\S+\.(?:css|js))$", settings, re.MULTILINE):
        assert (docs / name).is_file()
    fonts = set(re.findall(r"url\((fonts/[^)]+\.woff2)\)", (docs / "katex" / "katex.min.css").read_text()))
    assert fonts and all((docs / "katex" / font).is_file() for font in fonts)
    assert sum(path.stat().st_size for path in (docs / "katex").rglob("*.*")) < 1_000_000


def test_formulas_have_balanced_braces_and_environments():
    for page in PAGES:
        for formula in re.findall(r"^```math\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            assert formula.count("{") == formula.count("}"), f"{label(page)}: {formula}"
            assert re.findall(r"\\begin{(\w+)}", formula) == re.findall(r"\\end{(\w+)}", formula), f"{label(page)}: {formula}"
            assert formula.count(r"\left") == formula.count(r"\right"), f"{label(page)}: {formula}"
