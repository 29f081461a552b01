"""Packed records: x, y, offset and weight of a row side by side, in whole cache lines.

Reading a random row costs one or two memory latencies instead of one for each array, which is what a subsampling sampler
spends its time on.
"""

from __future__ import annotations

import numpy as np

from tallbayes.compile import jit

CACHE_LINE = 64  # bytes
CHUNK = 1 << 16  # rows handled at a time by every streaming loop


def width_of(columns: int, dtype: np.dtype) -> int:
    """Elements of one record: columns, y, offset and weight rounded up to whole cache lines.

    >>> width_of(10, np.dtype("f8")), width_of(10, np.dtype("f4")), width_of(30, np.dtype("f8"))
    (16, 16, 40)
    """
    line = CACHE_LINE // dtype.itemsize
    return -(-(columns + 3) // line) * line


def empty(n: int, columns: int, dtype: np.dtype) -> np.ndarray:
    """Zeroed records in memory, aligned to a cache line.

    >>> records = empty(3, 2, np.dtype("f8"))
    >>> records.shape, records.ctypes.data % 64
    ((3, 8), 0)
    """
    width = width_of(columns, dtype)
    raw = np.zeros(n * width * dtype.itemsize + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + n * width * dtype.itemsize].view(dtype).reshape(n, width)


def pack(out: np.ndarray, x: np.ndarray, y: np.ndarray, offset: np.ndarray | None, weights: np.ndarray | None) -> None:
    """Fill records from arrays of a chunk of rows."""
    d = x.shape[1]
    out[:, :d] = x
    out[:, d] = y
    out[:, d + 1] = 0.0 if offset is None else offset
    out[:, d + 2] = 1.0 if weights is None else weights
    out[:, d + 3 :] = 0.0


@jit
def _mix(words: np.ndarray, seed: int) -> np.uint64:
    """A 64-bit hash of words, four lanes wide; any changed bit changes the result with probability 1 - 2**-64."""
    prime = np.uint64(0x9E3779B97F4A7C15)
    factor = np.uint64(0xC2B2AE3D27D4EB4F)
    shift = np.uint64(29)
    lanes = np.empty(4, np.uint64)
    for k in range(4):
        lanes[k] = np.uint64(seed) * prime + np.uint64(k + 1) * factor
    for i in range(words.size):
        v = lanes[i & 3] ^ words[i]
        v *= factor
        v ^= v >> shift
        lanes[i & 3] = v * prime + np.uint64(i)
    total = np.uint64(words.size)
    for k in range(4):
        total = (total ^ lanes[k]) * factor
        total ^= total >> shift
    return total


def _chunk_rows(records: np.ndarray) -> int:
    """Rows that are hashed together."""
    return max(1, (1 << 24) // max(1, records.shape[1]))


def complete_hashes(records: np.ndarray, known: list[int] | None = None) -> list[int]:
    """Hashes of all chunks that more rows would not change, given those of the first ones."""
    step, out = _chunk_rows(records), list(known or [])
    for number in range(len(out), records.shape[0] // step):
        out.append(_chunk_hash(records[number * step : (number + 1) * step], number))
    return out


def _chunk_hash(chunk: np.ndarray, number: int) -> int:
    return int(_mix(np.ascontiguousarray(chunk).reshape(-1).view(np.uint64), number))


def fingerprint(records: np.ndarray, columns: tuple[str, ...], response: str, known: list[int] | None = None) -> str:
    """Hash of the content of a data set: names, shape, type and every bit of every record. `known` are hashes of its first chunks.

    >>> a = np.ones((4, 8)); b = a.copy(); b[2, 3] += 1e-15
    >>> fingerprint(a, ("x",), "y") == fingerprint(a.copy(), ("x",), "y")
    True
    >>> fingerprint(a, ("x",), "y") == fingerprint(b, ("x",), "y")
    False
    """
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((tuple(columns), response, records.shape, records.dtype.str)).encode())
    step, known = _chunk_rows(records), known or []
    for number, start in enumerate(range(0, records.shape[0], step)):
        value = known[number] if number < len(known) else _chunk_hash(records[start : start + step], number)
        digest.update(value.to_bytes(8, "little"))
    return digest.hexdigest()
