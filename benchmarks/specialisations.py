"""How often samplers are compiled, and of how many arrays their targets are made.

    python -m benchmarks.specialisations [--quick]

Signatures of `advance` are counted in one process that runs eight families, float32 rows, a model in JAX (HMC-ECS) and partitions; each
of them that is not in the compile cache takes seconds. The numbers are those of the sections `signatures` and `arrays` of the baseline.
"""

from __future__ import annotations

import argparse

from benchmarks import measures
from benchmarks.report import show


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.specialisations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two families: to see that it works")
    size = measures.Size(parser.parse_args().quick, 1, "")
    for title, section in (("Signatures of advance", measures.signatures), ("Arrays in a target", measures.targets)):
        show(title, [{"case": line.case, line.unit: int(line.value)} for line in section(size)])


if __name__ == "__main__":
    main()
