"""The one compile layer: every compiled entry point of the package goes through `jit`.

Three kinds of function exist.

* `jit`: an entry point called from Python. Compiled by Numba without the GIL and cached on disk. Numba stamps a cached
  function with the time of its *own* file only, so an edited helper elsewhere would be ignored; our stamp is a hash of all
  sources of the package. Code for types defined outside the package is compiled anew in every process: the stamp does not
  cover their source, and an index that names them could not be read where they cannot be imported. A type made from an
  expression names the hash of its source in `cache_tag`; its code has index files of its own.
* `inlinable`: a helper. It stays plain Python, so the same source runs interpreted, and compiles into whatever calls it.
* `generic`: a function dispatched on the type of one argument, in Python and in compiled code alike. Families, moves
  and samplers are NamedTuples that register their implementation.

Compiling is most of what a first run waits for, so no code is made that nothing calls: neither wrappers for calls from C,
nor machine code of helpers, which live on in their callers.

What cannot be compiled, such as models written by users in JAX, is called by address (`pointers`), so that samplers are compiled whatever
they run on.

Two things subclass private parts of Numba, to save time alone: the cache on disk, and helpers without machine code. A version of
Numba that lacks one of these parts costs time, never a result: `CACHED` and `HELPER` say what it has.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite import binding, ir
from numba import types
from numba.extending import overload, register_jitable, typeof_impl

Function = TypeVar("Function", bound=Callable[..., Any])


def _private(module: str, name: str, *methods: str) -> Any:
    """A private part of Numba with the methods named; `object` where this version has none, a base for a class never used."""
    try:
        part = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return object
    return part if all(hasattr(part, method) for method in methods) else object


_FunctionCache: Any = _private("numba.core.caching", "FunctionCache", "_load_overload", "_save_overload")
_IndexFile: Any = _private("numba.core.caching", "IndexDataCacheFile", "_load_index")
normalized: Any = _private("numba.core.sigutils", "normalize_signature")
_CodeLibrary: Any = _private("numba.core.codegen", "JITCodeLibrary", "_finalize_final_module", "_optimize_final_module")
_Compiler: Any = _private("numba.core.compiler", "Compiler", "compile_extra")

STRICT: Any = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
"""Options of code whose roundings matter: no algebraic rewriting."""

SUMS: Any = {**STRICT, "fastmath": {"reassoc", "contract", "nsz"}}
"""Options of dot products and sums: they may be reordered for vector registers; NaN and infinity keep their meaning."""

INLINED: Any = {"forceinline": True}
"""Added to the options of a helper in a hot loop that LLVM declines to inline: its call may cost a tenth of an iteration."""

SCALAR: Any = {**STRICT, **INLINED}
"""Options of functions of one number: a call that is not inlined stops its loop from being vectorised. And of helpers that are called once
per evaluation with a whole `Target`, whose many arrays a call that is not inlined would copy."""


RARELY = (50_000, 20, 100)
"""Thresholds of Python's garbage collector while an entry point is compiled."""


@functools.cache
def source_stamp() -> str:
    """Hash of every source file of the package: the version of all compiled code."""
    root = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


AWAITED: list[Callable[[Any, Any], bool]] = []
"""Asked when the cache has no code of a function for a signature: whether it may have by now, from another process. May wait for it."""

_plain = False


@contextmanager
def interpreted() -> Iterator[None]:
    """Run the bodies of entry points interpreted, in this process, to see the types of what they make."""
    global _plain
    _plain = True
    try:
        yield
    finally:
        _plain = False


class StampedIndex(_IndexFile):
    """An index file. One that other sources wrote may name classes that are gone: it is as good as none."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (AttributeError, ImportError, pickle.UnpicklingError):
            return {}


class StampedCache(_FunctionCache):
    """Compiled code of a function on disk, under the hash of the package's sources and the tags of types from outside."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        if not hasattr(self, "_cache_file"):
            raise AttributeError("Numba keeps its index file elsewhere")  # ours would not be used
        own = self._impl.locator.get_source_stamp() if _outside(function) else None
        self._cache_file = StampedIndex(
            cache_path=self._cache_path, filename_base=self._impl.filename_base, source_stamp=(source_stamp(), own)
        )

        self._files = {"": self._cache_file}

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        if not self._choose(sig):
            return None
        found = super()._load_overload(sig, target_context)
        if found is None and any(await_code(self._py_func, sig) for await_code in [*AWAITED]):
            found = super()._load_overload(sig, target_context)
        return found

    def _save_overload(self, sig: Any, data: Any) -> None:
        if self._choose(sig):
            super()._save_overload(sig, data)

    def _choose(self, sig: Any) -> bool:
        """Take the index file for a signature; False if its code must not be cached. Numba holds its compiler lock here."""
        tags = _tags(sig)
        if None in tags:
            return False
        tag = "-".join(sorted(str(t) for t in tags))
        if tag not in self._files:
            self._files[tag] = StampedIndex(
                cache_path=self._cache_path,
                filename_base=f"{self._impl.filename_base}-{tag}",
                source_stamp=self._cache_file._source_stamp,
            )
        self._cache_file = self._files[tag]
        return True


def _outside(thing: Any) -> bool:
    return thing.__module__.partition(".")[0] != __name__.partition(".")[0]


def _tags(sig: Any) -> set[str | None]:
    """The `cache_tag` of every NamedTuple class in a signature, at any depth, that is not the package's own; None without."""

    def inside(kind: Any) -> set[str | None]:
        found: set[str | None] = set()
        if hasattr(kind, "instance_class") and _outside(kind.instance_class):
            found.add(getattr(kind.instance_class, "cache_tag", None))
        if isinstance(kind, types.BaseTuple):
            found.update(*(inside(part) for part in iter(kind)))  # type: ignore[call-overload]
        return found

    return set().union(*(inside(kind) for kind in normalized(sig)[0]))


class _HelperLibrary(_CodeLibrary):
    """Code of a helper: kept for its callers to link, but neither optimised nor made into machine code of its own.

    Numba optimises every function it meets and compiles it down to machine code, those it calls included, so a chain of helpers is
    compiled once for each link. The entry point optimises all of it, once. Only the pointer to a helper's environment must have an
    address, since Numba fills it at once.
    """

    _final_module: Any

    def _optimize_final_module(self) -> None:
        """Left to the entry point."""

    def _finalize_final_module(self) -> None:
        whole, self._final_module = self._final_module, self._environments()
        super()._finalize_final_module()
        self._final_module = whole

    def _environments(self) -> Any:
        """A module with pointers to environments and nothing else."""
        module, pointer = self._codegen._create_empty_module(self.name), ir.IntType(8).as_pointer()
        for variable in self._final_module.global_variables:
            if variable.name.startswith("_ZN08NumbaEnv"):
                environment = ir.GlobalVariable(module, pointer, variable.name)
                environment.linkage, environment.initializer = "common", ir.Constant(pointer, None)
        return binding.parse_assembly(str(module))


class _EntryCompiler(_Compiler):
    """Numba makes millions of small objects that live until the end: looking through them for garbage takes time."""

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        usual = gc.get_threshold()
        gc.set_threshold(*(RARELY if usual[0] else usual))  # 0: the user has none collected
        try:
            return super().compile_extra(func)
        finally:
            gc.set_threshold(*usual)


class _HelperCompiler(_Compiler):
    def compile_extra(self, func: Callable[..., Any]) -> Any:
        self.state.library = _HelperLibrary(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


CACHED: bool = object not in (_FunctionCache, _IndexFile, normalized)
"""Whether compiled code is cached on disk. Without Numba's parts everything works, and every process compiles anew."""

ENTRY: Any = {} if _Compiler is object else {"pipeline_class": _EntryCompiler}
"""Options of entry points. Without Numba's part everything works, and compiling takes a little longer."""

HELPER: Any = {} if object in (_CodeLibrary, _Compiler) else {"pipeline_class": _HelperCompiler}
"""Options of helpers. Without Numba's parts everything works, and the first run compiles for longer."""


def _stamped_cache(function: Callable[..., Any]) -> StampedCache | None:
    """Our cache of a function; None where Numba's is of another shape: its own stamps would let old code live on."""
    if not CACHED:
        return None
    try:
        return StampedCache(function)
    except (AttributeError, TypeError):
        return None


class Entry:
    """A compiled entry point. What it does not define is that of Numba's dispatcher: `py_func`, `signatures` and so on."""

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher = dispatcher
        functools.update_wrapper(self, dispatcher.py_func)

    def __call__(self, *args: Any) -> Any:
        """Compiled, or interpreted where that was asked for."""
        return self.dispatcher.py_func(*args) if _plain else self.dispatcher(*args)

    def place(self) -> tuple[Any, ...]:
        """Where code is cached, for which sources and which processor; empty if it is not cached."""
        cache = getattr(self.dispatcher, "_cache", None)
        if not isinstance(cache, StampedCache):
            return ()
        return str(cache.cache_path), source_stamp(), numba.__version__, self.dispatcher.targetctx.codegen().magic_tuple()

    def __getattr__(self, name: str) -> Any:
        if name == "dispatcher":  # asked for before __init__, by copy and pickle
            raise AttributeError(name)
        return getattr(self.dispatcher, name)


@typeof_impl.register(Entry)
def _type_of_entry(entry: Entry, context: Any) -> Any:
    return types.Dispatcher(entry.dispatcher)


def jit(function: Function | None = None, *, options: Any = STRICT) -> Any:
    """Compile an entry point: no GIL, cached on disk under the hash of the package's sources.

    `options=SUMS` lets additions be reordered (for row kernels). The uncompiled function stays at `.py_func`.
    """
    if function is None:
        return functools.partial(jit, options=options)
    dispatcher: Any = numba.njit(**options, **ENTRY)(function)
    cache = _stamped_cache(function)
    if cache is not None:
        dispatcher._cache = cache
    return Entry(dispatcher)


def inlinable(function: Function | None = None, *, options: Any = STRICT) -> Any:
    """Mark a helper: plain Python when interpreted, compiled into its caller otherwise."""
    if function is None:
        return functools.partial(inlinable, options=options)
    return register_jitable(**options, **HELPER)(function)


def generic(declaration: Function | None = None, *, options: Any = STRICT, argument: int = 0) -> Any:
    """Turn a declaration into a function dispatched on the type of one argument, the first unless `argument` says else.

    Implementations are added with `.register(Type)`, Type a NamedTuple class, and must be compilable. The body of the
    declaration is the default, unless it is marked `declared`: then a missing implementation is a TypeError.
    """
    if declaration is None:
        return functools.partial(generic, options=options, argument=argument)
    registry: dict[type, Callable[..., Any]] = {}
    compilable_default = None if getattr(declaration, "__isabstract__", False) else declaration

    @functools.wraps(declaration)
    def dispatch(*args: Any) -> Any:
        return registry.get(type(args[argument]), declaration)(*args)

    def implementation(*args: Any) -> Any:
        return registry.get(getattr(args[argument], "instance_class", None), compilable_default)  # type: ignore[arg-type]

    def register(kind: type) -> Callable[[Function], Function]:
        def add(function: Function) -> Function:
            registry[kind] = function
            return function

        return add

    dispatch.register = register  # type: ignore[attr-defined]
    dispatch.registry = registry  # type: ignore[attr-defined]
    overload(dispatch, jit_options={**options, **HELPER}, strict=False)(implementation)
    return dispatch


def declared(function: Function) -> Function:
    """Mark the body of a `generic` as having no default: calling it for an unregistered type is a TypeError."""

    @functools.wraps(function)
    def missing(*args: Any) -> Any:
        kinds = ", ".join(type(a).__name__ for a in args)
        raise TypeError(f"{function.__name__} is not defined for ({kinds})")

    missing.__isabstract__ = True  # type: ignore[attr-defined]
    return missing  # type: ignore[return-value]
