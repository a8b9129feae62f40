"""The papers' picture of translation quality: what one run scores above another, over languages from rich to poor.

    meshwright run plans/names/dense.yaml   --steps N --eval --metrics dense.jsonl
    meshwright run plans/names/mixture.yaml --steps N --eval --metrics mixture.jsonl --against dense.jsonl
    python benchmarks/delta_bleu.py mixture.jsonl dense.jsonl [--out FOLDER]

Prints the table (ΔBLEU and ΔchrF, measured) and writes the picture as in GShard's Figure 6: languages by their training
pairs, each with its difference, and the mean of ten neighbours, for the scores of one language hang on few pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gshard.shown import Figure
from meshwright.backends.jax.decoding.scores import kept_scores
from meshwright.dsl.errors import PlanError
from meshwright.score_display import score_table
from rich.console import Console

NEIGHBOURS = 10
Scores = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="what a run wrote with --eval --metrics")
    parser.add_argument("baseline", type=Path, help="what another one wrote")
    parser.add_argument("--out", type=Path, default=Path("build/figures"), help="the picture's folder (%(default)s)")
    given = parser.parse_args()
    console = Console(width=max(120, Console().width))
    try:
        scores, baseline = kept_scores(given.run), kept_scores(given.baseline)
    except PlanError as error:
        parser.error(str(error))
    made = Figure(
        name="delta-bleu",
        tables=(score_table({**scores, "against": baseline}),),
        words=(words(scores, baseline),),
        draw=lambda canvas: draw(canvas, scores, baseline),
    )
    made.print(console)
    try:
        console.print(f"Written: {', '.join(map(str, made.save(given.out)))}", highlight=False)
    except ImportError:
        console.print("No picture: matplotlib is not here (pip install -e '.\\[bench]').", highlight=False)


def differences(scores: Scores, baseline: Scores, name: str) -> list[tuple[int, float]]:
    """Training pairs and difference of each language that both have, the richest first."""
    others = {language["language"]: language[name] for language in baseline["languages"]}
    return [
        (language["train_pairs"], language[name] - others[language["language"]])
        for language in scores["languages"]
        if language["language"] in others
    ]


def smoothed(values: Sequence[float], width: int) -> list[float]:
    """The mean of each ``width`` neighbours."""
    return [sum(values[at : at + width]) / width for at in range(len(values) - width + 1)]


def words(scores: Scores, baseline: Scores) -> str:
    found = [delta for _, delta in differences(scores, baseline, "bleu")]
    better = sum(delta > 0 for delta in found)
    return f"better in {better} of {len(found)} languages, worse in {sum(delta < 0 for delta in found)} (BLEU)"


def draw(canvas: Any, scores: Scores, baseline: Scores) -> None:
    for axes, name in zip(canvas.subplots(1, 2), ("bleu", "chrf"), strict=True):
        found = [delta for _, delta in differences(scores, baseline, name)]
        mean = smoothed(found, min(NEIGHBOURS, len(found)))
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.bar(range(len(found)), found, color="lightsteelblue", label="a language")
        axes.plot([at + (NEIGHBOURS - 1) / 2 for at in range(len(mean))], mean, label=f"mean of {NEIGHBOURS}")
        title = {"bleu": "ΔBLEU", "chrf": "ΔchrF"}[name]
        axes.set(xlabel="languages, rich to poor", ylabel=title, title=f"{title} to the baseline (measured)")
        axes.legend()


if __name__ == "__main__":
    main()
