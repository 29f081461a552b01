"""Files with a digest at their end, checked before a byte of them is parsed: a damaged file is refused, whatever reads it.

A sealed file is its content, `MARK`, and the BLAKE2b digest of the content. Readers of HDF5 and of zip ignore the bytes that follow.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tallbayes.errors import StoreError

MARK = b"tallbayes digest"
_SIZE = 32  # bytes of a digest
_BLOCK = 1 << 20
FOOTER = len(MARK) + _SIZE


def seal(content: bytes) -> bytes:
    """The content with its digest.

    >>> unseal(seal(b"draws"))
    b'draws'
    """
    return content + MARK + hashlib.blake2b(content, digest_size=_SIZE).digest()


def unseal(sealed: bytes) -> bytes:
    """The content of `seal`; refuses any other bytes."""
    content, footer = sealed[:-FOOTER], sealed[-FOOTER:]
    if len(sealed) < FOOTER or not footer.startswith(MARK):
        raise StoreError("its digest is missing")
    if footer != seal(content)[-FOOTER:]:
        raise StoreError("its content has changed since it was written")
    return content


def seal_file(path: Path) -> None:
    """Append the digest to a file."""
    computed = _digest(path, path.stat().st_size)
    with open(path, "ab") as file:
        file.write(MARK + computed)


def check_file(path: Path) -> None:
    """Refuse a file that is not as `seal_file` left it."""
    size = path.stat().st_size - FOOTER
    with open(path, "rb") as file:
        file.seek(max(size, 0))
        footer = file.read()
    if size < 0 or not footer.startswith(MARK):
        raise StoreError("its digest is missing")
    if footer[len(MARK) :] != _digest(path, size):
        raise StoreError("its content has changed since it was written")


def _digest(path: Path, size: int) -> bytes:
    computed = hashlib.blake2b(digest_size=_SIZE)
    with open(path, "rb") as file:
        while size > 0 and (block := file.read(min(size, _BLOCK))):
            computed.update(block)
            size -= len(block)
    return computed.digest()
