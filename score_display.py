"""Scores of translations as tables: languages from rich to poor in a few rows, and what another run scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.table import Table

ROWS = 8
Language = Mapping[str, Any]


def score_table(record: Mapping[str, Any]) -> Table:
    """A ``scores`` record as a table: eight groups of languages, the richest first, and all of them.

    A group's figures, and those of all languages, are means in which each language has the same weight, as the papers
    average; the last row is of all pairs as one corpus. ``of the source``: BLEU and chrF of the texts untranslated.
    """
    against = record.get("against")
    others = {language["language"]: language for language in against["languages"]} if against else None
    table = Table(title=_title(record), title_justify="left")
    table.add_column("languages, rich to poor", overflow="fold")
    for head in _heads(others):
        table.add_column(head, justify="right")
    for group in grouped(record["languages"], ROWS):
        table.add_row(*_row(group, others))
    if record["languages"]:
        table.add_section()
        table.add_row("mean of all languages", *_row(record["languages"], others)[1:])
    last = ["all pairs as one corpus", "", f"{record['pairs']:,}", *_pair(record), _copied(record)]
    table.add_row(*last, *(_differences(record, against) if against else ()))
    return table


def example_table(record: Mapping[str, Any]) -> Table:
    """Some translations beside the text and the reference."""
    table = Table(title="for example", title_justify="left")
    for name in ("language", "source", "translation", "reference"):
        table.add_column(name, overflow="fold")
    for example in record["examples"]:
        table.add_row(*(example[name] for name in ("language", "source", "translation", "reference")))
    return table


def grouped(languages: Sequence[Language], count: int) -> Iterator[Sequence[Language]]:
    """The languages in at most ``count`` groups of about equal number, in their order."""
    count = min(count, len(languages))
    edges = [len(languages) * at // count for at in range(count + 1)] if count else []
    yield from (languages[start:end] for start, end in pairwise(edges))


def _title(record: Mapping[str, Any]) -> str:
    return (
        f"Translations of held-out text after step {record['step']} "
        f"(measured; sacrebleu {record['sacrebleu']}, {record['beams']} beams)"
    )


def _heads(others: Mapping[str, Language] | None) -> list[str]:
    plain = ["training pairs", "scored", "BLEU", "chrF", "of the source"]
    return plain if others is None else [*plain, "ΔBLEU", "ΔchrF"]


def _row(group: Sequence[Language], others: Mapping[str, Language] | None) -> list[str]:
    most, least = (f"{group[at]['train_pairs']:,}" for at in (0, -1))
    names = ("bleu", "chrf", "copied_bleu", "copied_chrf")
    means = {name: _mean([language[name] for language in group]) for name in names}
    row = [_names(group), f"{most} to {least}", f"{sum(language['pairs'] for language in group):,}", *_pair(means)]
    row.append(_copied(means))
    if others is None:
        return row
    shared = [(language, others[language["language"]]) for language in group if language["language"] in others]
    means, theirs = ({name: _mean([pair[at][name] for pair in shared]) for name in ("bleu", "chrf")} for at in (0, 1))
    return [*row, *(_differences(means, theirs) if shared else ("-", "-"))]


def _names(group: Sequence[Language]) -> str:
    names = [language["language"] for language in group]
    return " ".join(names) if len(names) <= 3 else f"{' '.join(names[:3])} … ({len(names)})"


def _pair(scores: Mapping[str, Any]) -> tuple[str, str]:
    return f"{scores['bleu']:.1f}", f"{scores['chrf']:.1f}"


def _copied(scores: Mapping[str, Any]) -> str:
    return f"{scores['copied_bleu']:.1f}, {scores['copied_chrf']:.1f}"


def _differences(scores: Mapping[str, Any], others: Mapping[str, Any]) -> tuple[str, str]:
    return f"{scores['bleu'] - others['bleu']:+.1f}", f"{scores['chrf'] - others['chrf']:+.1f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
