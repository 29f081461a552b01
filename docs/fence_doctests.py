"""Show the examples of docstrings as code in the API pages: a griffe extension that mkdocs.yml names."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.MULTILINE | re.DOTALL)


class FenceDoctests(griffe.Extension):
    """Put every doctest into a fenced block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every object of the package."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value)
