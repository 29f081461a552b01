"""Functions that compiled code calls by address, and NamedTuples of any type behind one array of numbers.

A sampler is compiled once because what differs between models is behind addresses: `pointer` compiles a function and gives its
address, `calls` makes the function of an address again, in Python and in compiled code alike.

A family, a bound, a prior, a proxy is a NamedTuple of numbers, arrays and NamedTuples. `numbers_of` turns it into one float64 array,
`kind_of` into its type, and `member_maker` into a function that makes it again, which a pointer closes over. Arrays inside are held
by address: code behind a pointer sees views of them, which cost nothing to pass, and the array of numbers keeps them alive.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import carray, typeof, types
from numba.core import cgutils
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc
from numba.extending import intrinsic, overload

from tallbayes.compile import CACHED, HELPER, INLINED, SCALAR, STRICT, SUMS, StampedCache, StampedIndex, inlinable, normalized

PLAIN: dict[int, Callable[..., Any]] = {}
"""The uncompiled function behind every pointer of this process, by its address: what `calls` runs in Python."""

GENERATOR: Any = typeof(np.random.default_rng(0))
"""The type of random generators in signatures."""

_POINTERS: list[Any] = []  # kept: their code is used by address
_imagined = itertools.count(1)
_rehearsing = False


def rehearse() -> None:
    """From now on pointers of this process are numbers that name no code: for a process that only needs the types of what it makes."""
    global _rehearsing
    _rehearsing = True


class _PointerCache(StampedCache):
    """The cache of a pointer: its closure is told by the name it was given, which stands for the same code in every process."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        super().__init__(function)
        self._tag = name
        self._cache_file = StampedIndex(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}",
            source_stamp=self._cache_file._source_stamp,
        )
        self._files = {"": self._cache_file}

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple(), (self._tag,)


def _without_owner(target: Any, builder: Any, kind: Any, value: Any) -> Any:
    """A value whose arrays, at any depth, say that nobody counts references to them."""
    if isinstance(kind, types.Array):
        array = target.make_array(kind)(target, builder, value)
        array.meminfo = array.meminfo.type(None)
        array.parent = array.parent.type(None)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        for place, part in enumerate(iter(kind)):  # type: ignore[call-overload]
            inner = _without_owner(target, builder, part, builder.extract_value(value, place))
            value = builder.insert_value(value, inner, place)
    return value


def _borrowing(context: Any, value: Any) -> Any:
    def make(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _without_owner(target, builder, value, values[0])

    return value(value), make


_borrow: Any = intrinsic(_borrowing)


def borrowed(value: Any) -> Any:
    """The same, for compiled code that its caller outlives: counting references to its arrays would cost more than using them."""
    return value


@overload(borrowed, jit_options={**SCALAR, **HELPER}, strict=False)
def _compiled_borrowed(value: Any) -> Any:
    return lambda value: _borrow(value)


def _with_borrowed_arrays(function: Callable[..., Any], signature: Any, options: Any) -> Callable[..., Any]:
    """The function with arguments that it does not own."""
    names = [f"a{k}" for k in range(len(signature[0]))]
    given = [f"_borrowed({n})" if isinstance(kind, types.Array) else n for n, kind in zip(names, signature[0], strict=True)]
    scope = {
        "__name__": function.__module__,
        "_function": inlinable(function, options={**options, **INLINED}),  # not a name that a function may have
        "_borrowed": borrowed,
    }
    text = f"def {function.__name__}({', '.join(names)}):\n    return _function({', '.join(given)})\n"
    exec(compile(text, function.__code__.co_filename, "exec"), scope)
    return scope[function.__name__]


def pointer(function: Callable[..., Any], signature: Any, name: str | None, *, options: Any = SUMS) -> int:
    """The address of the compiled function, which must raise nothing: an exception in it is lost.

    `name` stands for the function and all it closes over: code is cached under it and the stamp of the sources. Without a name, as for
    types from outside the package, it is compiled in every process.
    """
    if _rehearsing:
        address = next(_imagined)
        PLAIN[address] = function
        return address
    kinds = normalized(signature)
    flags = {k: v for k, v in options.items() if k != "no_cfunc_wrapper"}
    compiled: Any = CFunc(_with_borrowed_arrays(function, kinds, options), kinds, {}, flags)
    if name is not None and CACHED:
        try:
            compiled._cache = _PointerCache(function, name)
        except (AttributeError, TypeError):  # Numba's is of another shape: compiled in every process
            compiled._cache = NullCache()
    compiled.compile()
    address = int(compiled.address)
    PLAIN[address] = function
    _POINTERS.append(compiled)
    return address


def calls(*signatures: Any) -> Callable[..., Any]:
    """A function `call(address, *arguments)` that runs what is behind a pointer of a signature, compiled or interpreted.

    Passing the address as a number costs nothing, and every caller is compiled once. Of several signatures the first argument decides.
    """
    kinds = {}
    for signature in signatures:
        arguments, result = normalized(signature)
        kinds[arguments[0] if len(signatures) > 1 else None] = types.FunctionType(result(*arguments))

    def of_kind(kind: Any) -> Any:
        @intrinsic
        def function_at(context: Any, address: Any) -> Any:
            def make(target: Any, builder: Any, signature: Any, values: Any) -> Any:
                made = cgutils.create_struct_proxy(kind)(target, builder)
                made.c_addr = builder.inttoptr(values[0], target.get_value_type(types.voidptr))
                return made._getvalue()

            return kind(types.int64), make

        inputs = ", ".join(
            f"a{k}" for k in range(len(kind.signature.args))
        )  # said one by one: a tuple of arrays costs counting
        names = {"function_at": function_at}
        exec(f"def run(address, {inputs}):\n    return function_at(address)({inputs})\n", names)
        return names["run"]

    runs = {first: of_kind(kind) for first, kind in kinds.items()}

    def call(address: int, *arguments: Any) -> Any:
        return PLAIN[int(address)](*arguments)

    @overload(call, jit_options={**SCALAR, **HELPER}, strict=False)
    def compiled(address: Any, *arguments: Any) -> Any:
        return runs[None] if None in runs else runs.get(_plain_array(arguments[0]))

    return call


def _plain_array(kind: Any) -> Any:
    """An array type as signatures have it: aligned, in order, and not read-only."""
    return types.Array(kind.dtype, kind.ndim, "C")


def _memory(context: Any, address: Any) -> Any:
    def make(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], target.get_value_type(types.voidptr))

    return types.voidptr(types.int64), make


memory_at: Any = intrinsic(_memory)


def array_at(address: float, shape: tuple[int, ...], kind: Any) -> np.ndarray:
    """The array of a type of numbers that begins at an address: a view, which keeps nothing alive."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if size == 0:
        return np.empty(shape, kind)
    return np.frombuffer((ctypes.c_byte * size).from_address(int(address)), kind).reshape(shape)


@overload(array_at, jit_options={**STRICT, **HELPER}, strict=False)
def _compiled_array_at(address: Any, shape: Any, kind: Any) -> Any:
    def view(address: Any, shape: Any, kind: Any) -> Any:
        return carray(memory_at(np.int64(address)), shape, kind)

    return view


class Held(NamedTuple):
    """An array of a member: its numbers and its dimensions."""

    numbers: str
    dimensions: int


class Kind(NamedTuple):
    """The type of a member; `parts` has the type of each field that is a number, `Held` of an array, the kind of a tuple inside."""

    type: type
    parts: tuple[Any, ...]


def kind_of(member: Any) -> Kind:
    """The kind of a NamedTuple: all that code compiled for it depends on.

    >>> class Line(NamedTuple):
    ...     slope: float
    ...     points: np.ndarray
    >>> kind_of(Line(2.0, np.zeros(3))).parts
    (<class 'float'>, Held(numbers='float64', dimensions=1))
    """

    def part_of(part: Any) -> Any:
        if isinstance(part, tuple):
            return kind_of(part)
        if isinstance(part, np.ndarray):
            return Held(part.dtype.name, part.ndim)
        return bool if isinstance(part, bool | np.bool_) else int if isinstance(part, int | np.integer) else float

    return Kind(type(member), tuple(part_of(part) for part in member))


_HOLDING: dict[int, Any] = {}  # what arrays of numbers keep alive, by their identity


def numbers_of(member: Any, room: int = 0) -> np.ndarray:
    """The numbers of a member in the order of its fields; of an array its address and its shape. Keeps the arrays alive.

    `room` zeros come after them.

    >>> numbers_of((1.0, (True, 3)), 1)
    array([1., 1., 3., 0.])
    """
    found: list[float] = []
    arrays: list[np.ndarray] = []

    def collect(part: Any) -> None:
        for value in part:
            if isinstance(value, tuple):
                collect(value)
            elif isinstance(value, np.ndarray):
                if not (value.flags.c_contiguous and value.flags.aligned and value.dtype.isnative):
                    raise ValueError(
                        "an array that is held by its address must be contiguous, aligned and in native byte order"
                    )
                arrays.append(value)
                found.extend([float(value.ctypes.data), *map(float, value.shape)])  # addresses have at most 48 bits
            else:
                found.append(float(value))

    collect(member)
    numbers = np.array([*found, *[0.0] * room], np.float64)
    if arrays:
        name = id(numbers)
        _HOLDING[name] = member
        weakref.finalize(numbers, _HOLDING.pop, name, None)
    return numbers


def held_by(numbers: np.ndarray) -> Any:
    """The member that an array of numbers was made of; None if it has no arrays."""
    return _HOLDING.get(id(numbers))


def member_of(numbers: np.ndarray, kind: Kind) -> Any:
    """The member of a kind that an array of numbers was made of."""
    held = held_by(numbers)
    return member_maker(kind)(numbers) if held is None else held


def member_maker(kind: Kind) -> Callable[[np.ndarray], Any]:
    """A function that makes the member from its numbers, in Python and in compiled code.

    >>> member_maker(kind_of((1.0, (True, 3))))(np.array([1.0, 1.0, 3.0])) == (1.0, (True, 3))
    True
    """
    names: dict[str, Any] = {"array_at": array_at}
    place = 0

    def held(part: Held) -> str:
        nonlocal place
        shape = ", ".join(f"int(p[{place + 1 + k}])" for k in range(part.dimensions))
        names[part.numbers] = np.dtype(part.numbers).type
        text = f"array_at(p[{place}], ({shape},), {part.numbers})"
        place += 1 + part.dimensions
        return text

    def source(kind: Kind) -> str:
        nonlocal place
        parts = []
        name = "" if kind.type is tuple else f"kind{len(names)}"
        if name:
            names[name] = kind.type
        for part in kind.parts:
            if isinstance(part, Kind):
                parts.append(source(part))
            elif isinstance(part, Held):
                parts.append(held(part))
            else:
                number = f"p[{place}]"
                parts.append({int: f"int({number})", bool: f"{number} != 0.0"}.get(part, number))
                place += 1
        return f"{name}({', '.join(parts)}{',' if not name and parts else ''})"

    text = f"def member(p):\n    return {source(kind)}\n"
    exec(compile(text, "<member>", "exec"), names)
    return inlinable(names["member"])


def cache_name(kind: Kind) -> str | None:
    """A name for the code of a kind, the same in every process; None for types from outside the package that have no tag."""
    inside = kind.type is tuple or kind.type.__module__.partition(".")[0] == __name__.partition(".")[0]
    own = getattr(kind.type, "cache_tag", None) if not inside else ""
    parts = []
    for part in kind.parts:
        if isinstance(part, Kind):
            parts.append(cache_name(part))
        else:
            parts.append(f"{part.numbers}{part.dimensions}" if isinstance(part, Held) else part.__name__)
    if own is None or None in parts:
        return None
    return f"{kind.type.__module__}.{kind.type.__qualname__}{own}({','.join(str(part) for part in parts)})"


def member_pointer(function: Callable[..., Any], verb: str, kind: Kind, signature: Any, *, options: Any = SUMS) -> int:
    """The address of a function that closes over the maker of a kind; `verb` tells it from others of the same kind."""
    name = cache_name(kind)
    return pointer(function, signature, None if name is None else f"{verb} {name}", options=options)
