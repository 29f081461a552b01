"""The compile layer: what the cache may keep, and functions dispatched on a type at both speeds."""

import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pytest
from numba.core.caching import IndexDataCacheFile
from numba.extending import overload

import tallbayes
from tallbayes.compile import RARELY, SUMS, StampedIndex, declared, generic, inlinable, interpreted, jit, source_stamp
from tallbayes.data import Dataset, read
from tallbayes.models import logistic


class Gone(NamedTuple):
    pass


PLAIN = """
import numpy as np
from tallbayes.data import Dataset
from tallbayes.engine import passes
from tallbayes.models import logistic

rows = logistic(Dataset.from_arrays([1.0, 2.0], [0, 1])).rows
print(passes.total_value(rows, np.zeros(1)), sum(passes._value.stats.cache_hits.values()))
"""

OUTSIDE = """
from typing import NamedTuple

import numpy as np
from tallbayes.compile import jit
from tallbayes.data import Dataset
from tallbayes.engine import passes
from tallbayes.engine.family_functions import jet1, jet2, value
from tallbayes.engine.rows import one_index

class Mine(NamedTuple):
    pass

@value.register(Mine)
def _value(family, eta, y):
    return FIRST * y

@jet1.register(Mine)
def _jet1(family, eta, y):
    return FIRST * y, 0.0

@jet2.register(Mine)
def _jet2(family, eta, y):
    return FIRST * y, 0.0, 0.0

@jit
def shifted(x):
    return x + SECOND

data = Dataset.from_arrays([1.0, 2.0], [0, 1])
print(passes.total_value(one_index(Mine(), data.records, 1), np.zeros(1)), shifted(1.0))
"""

PLANTED = """

@value.register(Logistic)
def _planted(family, eta, y):
    return 100.0
"""


@pytest.fixture
def elsewhere(tmp_path):
    """Runs a script against a copy of the package with a compile cache of its own."""
    package = tmp_path / "source" / "tallbayes"
    shutil.copytree(Path(tallbayes.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))

    def run(script, folder=tmp_path):
        variables = {"PYTHONPATH": str(tmp_path / "source"), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", script]
        environment = {**os.environ, **variables}
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr
        return [float(word) for word in done.stdout.split()]

    run.package = package
    return run


def test_the_cache_is_used_until_any_source_changes(elsewhere):
    expected = 2.0 * np.log(0.5)
    assert elsewhere(PLAIN) == pytest.approx([expected, 0])
    assert elsewhere(PLAIN) == pytest.approx([expected, 1])
    with open(elsewhere.package / "families" / "logistic.py", "a") as file:
        file.write(PLANTED)
    assert elsewhere(PLAIN) == [200.0, 0]


def test_families_outside_the_package_are_never_stale_and_do_not_spoil_the_cache(elsewhere, tmp_path):
    folder = tmp_path / "contributed"
    folder.mkdir()
    for first, second in ((3.0, 5.0), (4.0, 6.0)):
        (folder / "mine.py").write_text(OUTSIDE.replace("FIRST", str(first)).replace("SECOND", str(second)))
        assert elsewhere("import mine", folder) == [first, 1.0 + second]
    assert elsewhere(PLAIN)[0] == pytest.approx(2.0 * np.log(0.5))


def test_the_stamp_covers_every_source_file(tmp_path, monkeypatch):
    package = tmp_path / "tallbayes"
    shutil.copytree(Path(tallbayes.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sys.modules[source_stamp.__module__], "__file__", str(package / "compile.py"))
    stamps = [source_stamp.__wrapped__()]
    assert stamps[0] == source_stamp.__wrapped__()
    for path in sorted(package.rglob("*.py")):
        with open(path, "a") as file:
            file.write("\n")
        stamps.append(source_stamp.__wrapped__())
    (package / "engine" / "rows.py").rename(package / "engine" / "lines.py")
    stamps.append(source_stamp.__wrapped__())
    assert len(set(stamps)) == len(stamps) > 20


class Square(NamedTuple):
    side: float


class Circle(NamedTuple):
    radius: float


class Point(NamedTuple):
    pass


@generic
@declared
def area(shape, scale):
    """Area of a scaled shape."""


@area.register(Square)
def _square(shape, scale):
    return scale * shape.side**2


@area.register(Circle)
def _circle(shape, scale):
    return scale * 3.0 * shape.radius**2


@generic(argument=1)
def described(prefix, shape):
    """Number of a shape; 0 unless it says otherwise."""
    return prefix + 0.0


@described.register(Square)
def _described_square(prefix, shape):
    return prefix + 4.0


@inlinable
def both(shape):
    return area(shape, 2.0) + described(100.0, shape)


@jit
def compiled_both(shape):
    return both(shape)


@jit
def compiled_described(shape):
    return described(100.0, shape)


@pytest.mark.parametrize("shape, expected", [(Square(3.0), 122.0), (Circle(2.0), 124.0)])
def test_generic_functions_dispatch_at_both_speeds(shape, expected):
    assert both(shape) == expected
    assert compiled_both(shape) == expected
    assert compiled_both.py_func(shape) == expected


def test_the_body_of_a_declaration_is_the_default():
    assert described(100.0, Point()) == compiled_described(Point()) == 100.0
    assert described(100.0, Square(1.0)) == compiled_described(Square(1.0)) == 104.0


def test_a_missing_implementation_names_the_types():
    with pytest.raises(TypeError, match=r"area is not defined for \(Point, float\)"):
        area(Point(), 2.0)
    with pytest.raises(numba.TypingError, match="area"):
        compiled_both(Point())


@jit
def reciprocal(x):
    """1 / x: infinite at 0 in compiled code, an error in Python."""
    return 1.0 / x


def test_entry_points_run_interpreted_where_that_is_asked_for():
    assert (reciprocal(4.0), reciprocal(0.0)) == (0.25, np.inf)
    with interpreted(), pytest.raises(ZeroDivisionError):
        reciprocal(0.0)
    with pytest.raises(ZeroDivisionError):
        reciprocal.py_func(0.0)
    assert reciprocal(0.0) == np.inf
    assert (reciprocal.__name__, reciprocal.__doc__[:5]) == ("reciprocal", "1 / x")


def test_reordered_sums_keep_the_meaning_of_nan_and_infinity():
    assert set(SUMS["fastmath"]) <= {"reassoc", "contract", "nsz", "arcp", "afn"}


def test_a_generic_function_keeps_its_name_and_description():
    assert (area.__name__, area.__doc__) == ("area", "Area of a scaled shape.")


@inlinable
def deepest(values, k):
    if k >= values.size:
        raise ValueError("no such value")
    return values[k] * np.arange(3.0).sum()


@inlinable
def middle(values, k):
    return deepest(values, k) + 1.0


@jit
def from_above(values, k):
    return middle(values, k)


@jit
def once_more(values, k):
    return deepest(values, k) + middle(values, k)


def test_helpers_have_no_machine_code_of_their_own():
    """Nor does it matter to those who call them: another entry compiled later, and a helper that raises."""
    values = np.array([2.0, 5.0])
    assert from_above(values, 1) == from_above.py_func(values, 1) == 16.0
    assert once_more(values, 0) == once_more.py_func(values, 0) == 13.0
    for entry in (from_above, once_more):
        with pytest.raises(ValueError, match="no such value"):
            entry(values, 2)
    engine = next(iter(from_above.overloads.values())).library.codegen._engine
    defined = [name for name in engine._defined_symbols if "test_compile" in name]
    assert any("from_above" in name for name in defined)
    assert not any("cfunc" in name for name in defined)
    alone = {name for name in defined if "middle" in name and not name.startswith("_ZN08NumbaEnv")}
    linked = {f.name for e in (from_above, once_more) for o in e.overloads.values() for f in o.library.get_defined_functions()}
    assert alone <= linked  # what is left of a helper was linked into an entry


thresholds: list[tuple[int, int, int]] = []


def observed(x):
    return x


@overload(observed)
def _observed(x):
    thresholds.append(gc.get_threshold())
    return lambda x: x


@jit
def observing(x):
    return observed(x)


def test_garbage_is_rarely_collected_while_an_entry_point_is_compiled_and_as_before_afterwards():
    usual = gc.get_threshold()
    observing._cache.disable()
    assert observing(3.0) == 3.0
    assert set(thresholds) == {RARELY}
    assert gc.get_threshold() == usual != RARELY


HEAVY = """
import sys
import MODULE
heavy = ("arviz_base", "arviz_stats", "dask", "formulaic", "jax", "matplotlib", "pandas", "pyarrow", "rich", "scipy.optimize",
    "scipy.spatial", "scipy.stats", "sympy", "typer", "xarray")
print(*[name for name in heavy if name in sys.modules])
"""


@pytest.mark.parametrize("module", ["tallbayes", "tallbayes.api"])
def test_importing_the_package_imports_nothing_heavy(module):
    done = subprocess.run([sys.executable, "-c", HEAVY.replace("MODULE", module)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_of_a_store_have_the_type_of_rows_in_memory(dtype, tmp_path):
    table = pa.table({"y": [0, 1, 1], "x": [1.0, 2.0, 3.0]})
    disk = read(table, "y ~ x", store=tmp_path, dtype=dtype)
    memory = read(table, "y ~ x", memory="ram", dtype=dtype)
    arrays = Dataset.from_arrays(np.ones((3, 2)), [0, 1, 1], dtype=dtype)
    kinds = {numba.typeof(logistic(data).rows) for data in (disk, memory, arrays)}
    assert len(kinds) == 1
    assert numba.typeof(disk.records).mutable
    assert numba.typeof(disk.records).aligned
    assert type(disk.records) is np.ndarray


def test_an_index_that_names_a_class_that_is_gone_is_ignored(tmp_path):
    index = StampedIndex(cache_path=str(tmp_path), filename_base="it", source_stamp="new")
    gone = pickle.dumps(("old", {"signature": Gone})).replace(b"Gone", b"Lost")  # as after a class was renamed
    with open(index._index_path, "wb") as file:
        pickle.dump(index._version, file, protocol=-1)
        file.write(gone)
    with pytest.raises(AttributeError):
        IndexDataCacheFile._load_index(index)
    assert index._load_index() == {}
    index.save("signature", 3.0)
    assert index.load("signature") == 3.0


LACKING = """
import importlib
import json
import sys
from pathlib import Path

import numba
from numba.core import caching, codegen, compiler, sigutils

class Without:
    pass

class IndexElsewhere(caching.FunctionCache):
    def __init__(self, function):
        super().__init__(function)
        self._index_file = self.__dict__.pop("_cache_file")

class OtherArguments(caching.IndexDataCacheFile):
    def __init__(self, path):
        pass

cases = {
    "all there": [],
    "no cache": [(caching, "FunctionCache", None)],
    "cache without hooks": [(caching, "FunctionCache", Without)],
    "no index": [(caching, "IndexDataCacheFile", None)],
    "index elsewhere": [(caching, "FunctionCache", IndexElsewhere)],
    "index with other arguments": [(caching, "IndexDataCacheFile", OtherArguments)],
    "no signatures": [(sigutils, "normalize_signature", None)],
    "no library": [(codegen, "JITCodeLibrary", None)],
    "library without hook": [(codegen, "JITCodeLibrary", Without)],
    "no compiler": [(compiler, "Compiler", None)],
}
seen = {}
for case, parts in cases.items():
    kept = [(module, name, getattr(module, name)) for module, name, _ in parts]
    for module, name, part in parts:
        delattr(module, name) if part is None else setattr(module, name, part)
    for name in ("tallbayes.compile", "functions"):
        sys.modules.pop(name, None)
    layer, functions = importlib.import_module("tallbayes.compile"), importlib.import_module("functions")
    for module, name, part in kept:  # Numba itself needs it later
        setattr(module, name, part)
    before = len(list(Path("cache").rglob("*.nb*")))
    results = functions.outer(3.0), functions.outer.py_func(3.0)
    seen[case] = [*results, len(list(Path("cache").rglob("*.nb*"))) > before, bool(layer.HELPER)]
    for path in Path("cache").rglob("*.nb*"):
        path.unlink()
print(json.dumps(seen))
"""

FUNCTIONS = """
from typing import NamedTuple

from tallbayes.compile import generic, inlinable, jit

class Square(NamedTuple):
    side: float

@generic
def area(shape):
    return 0.0

@area.register(Square)
def _area(shape):
    return shape.side * shape.side

@inlinable
def helper(x):
    return area(Square(x)) + 1.0

@inlinable
def half(x):
    return 0.5 * x

@jit
def outer(x):
    return half(helper(x))
"""


def test_without_a_private_part_of_numba_everything_works_and_only_time_is_lost(tmp_path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    variables = {"PYTHONPATH": str(Path(tallbayes.__file__).parents[1]), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command, environment = [sys.executable, "-c", LACKING], {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        case: [5.0, 5.0, cached, helpers]
        for case, cached, helpers in [
            ("all there", True, True),
            ("no cache", False, True),
            ("cache without hooks", False, True),
            ("no index", False, True),
            ("index elsewhere", False, True),
            ("index with other arguments", False, True),
            ("no signatures", False, True),
            ("no library", True, False),
            ("library without hook", True, False),
            ("no compiler", True, False),
        ]
    }
