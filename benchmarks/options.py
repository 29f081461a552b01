"""What the scripts have in common: `--quick`, a run of seconds that goes through all of the code, and tools that may be missing."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
from collections.abc import Sequence
from typing import Any


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None, **quick: Any) -> argparse.Namespace:
    """Options of a script, `--quick` among them: it replaces the defaults of others by `quick`, and keeps nothing.

    >>> parser = argparse.ArgumentParser()
    >>> _ = parser.add_argument("--rows", type=int, default=1_000_000)
    >>> parsed(parser, ["--quick"], rows=2000).rows
    2000
    """
    parser.add_argument("--quick", action="store_true", help="a few rows and draws, to see that it works; nothing is written")
    options = parser.parse_args(arguments)
    if options.quick:
        if getattr(options, "write", False):
            parser.error("--quick measures too little to be kept: leave out --quick or --write.")
        parser.set_defaults(**quick)
        options = parser.parse_args(arguments)
    return options


def installed(name: str) -> bool:
    """Whether a module or a program is there; says so if it is not.

    >>> installed("argparse"), installed("no_such_tool")
    no_such_tool is not installed: left out
    (True, False)
    """
    found = importlib.util.find_spec(name) is not None or shutil.which(name) is not None
    if not found:
        print(f"{name} is not installed: left out", flush=True)
    return found
