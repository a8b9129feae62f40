"""GShard's Figures 7, 8 and 9 and its Table 4, from the model: predicted, compiled, and as the paper has them.

    python benchmarks/gshard_figures.py [--out FOLDER] [--compile] [figure-7 figure-8 figure-9 table-4]

Prints tables and what they say to the paper's words, and writes a picture of each (SVG and PNG; with matplotlib, the
extra ``bench``). Predicted figures are the estimate's. Compiled ones are the TPU compiler's for v3, ahead of time: with
``--compile`` it is asked (Figure 7 takes it a minute a program), else its kept answers are told. Nothing here is
measured but what stands as the paper's; the paper's pictures are not to be had, only its text.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from gshard.figure_7 import figure_7
from gshard.figure_8 import figure_8
from gshard.figure_9 import figure_9
from gshard.record import Record
from gshard.shown import Figure
from gshard.table_4 import table_4
from rich.console import Console

FIGURES: dict[str, Callable[[Record], Figure]] = {
    "figure-7": figure_7,
    "figure-8": figure_8,
    "figure-9": lambda _: figure_9(),
    "table-4": table_4,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, default=Path("build/figures"), help="the pictures' folder (%(default)s)")
    parser.add_argument("--compile", action="store_true", help="ask the TPU compiler anew")
    given = parser.parse_args()
    unknown = sorted(set(given.figures) - set(FIGURES))
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    console = Console(width=max(190, Console().width))
    record = Record(ask=given.compile)
    for name in given.figures or FIGURES:
        made = FIGURES[name](record)
        made.print(console)
        save(made, given.out, console)
    console.print(record.said, highlight=False)


def save(made: Figure, folder: Path, console: Console) -> None:
    try:
        paths = made.save(folder)
    except ImportError:
        console.print("No picture: matplotlib is not here (pip install -e '.\\[bench]').", highlight=False)
    else:
        console.print(f"Written: {', '.join(map(str, paths))}\n", highlight=False)


if __name__ == "__main__":
    main()
