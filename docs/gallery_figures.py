"""Draw docs/figures/gallery: run the Python blocks of every page of the gallery and keep the pictures that they save.

python docs/gallery_figures.py [page ...]
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

GALLERY = Path(__file__).resolve().parent / "gallery"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main(pages: list[str]) -> None:
    """Run the named pages, or all of them."""
    home = os.getcwd()
    for page in sorted(GALLERY.glob("*.md")):
        blocks = BLOCK.findall(page.read_text())
        if not blocks or (pages and page.stem not in pages):
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": page.stem})
            os.chdir(home)
            for picture in Path(folder).glob("*.png"):
                shutil.copy(picture, GALLERY.parent / "figures" / "gallery" / picture.name)
                print(f"drew {picture.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
