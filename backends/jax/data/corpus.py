"""Translation into English, offline: the gettext catalogs of ``pycountry`` (names of countries, regions, languages,
currencies, scripts), whose sizes fall off by a power law as those of GShard's corpus do (section 4.2).
"""

from __future__ import annotations

import gettext
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple, cast

from ....dsl.errors import PlanError, problem

Split = Literal["train", "held-out"]
SPLITS: tuple[Split, ...] = ("train", "held-out")
HELD_OUT_PER_MILLE = 20
ENGLISH = "en"


class Pair(NamedTuple):
    """A text in ``language`` (a locale's name, such as ``pt_BR``) and its English; ``domain`` is the catalog's name."""

    language: str
    source: str
    target: str
    domain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Pairs in a fixed order, the version of the data that they are from, and how many doubles were left out."""

    pairs: tuple[Pair, ...]
    version: str
    num_doubles: int = 0

    @property
    def languages(self) -> dict[str, int]:
        """Pairs by language, the largest language first."""
        counts: dict[str, int] = {}
        for pair in self.pairs:
            counts[pair.language] = counts.get(pair.language, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def split(self, name: Split) -> Corpus:
        """The pairs of one split: ``held-out`` holds 2 % of the English texts, with all their translations."""
        pairs = tuple(pair for pair in self.pairs if split_of(pair.target) == name)
        return Corpus(pairs=pairs, version=self.version)


def split_of(english: str) -> Split:
    """The split of every pair with this English text.

    It hangs on the text alone (letter case and outer spaces aside), so that no language's training pairs contain the
    answer to a held-out pair of another.
    """
    digest = hashlib.blake2b(english.strip().casefold().encode(), digest_size=8).digest()
    return "held-out" if int.from_bytes(digest) % 1000 < HELD_OUT_PER_MILLE else "train"


def read_corpus() -> Corpus:
    """Every pair of every catalog except the English ones, each once, in order of locale, domain and English text.

    Entries without English (a catalog's header) or without a translation are no pairs; the same pair of texts in a
    second catalog of a language is a double. Raises ``PlanError`` (MW501) where ``pycountry`` is not installed.
    """
    folder = Path(cast(str, data_package("pycountry").__file__)).parent / "locales"
    found = [pair for path in sorted(folder.rglob("*.mo")) for pair in _read_catalog(path, folder)]
    unique: dict[tuple[str, ...], Pair] = {}
    for pair in found:
        unique.setdefault(pair[:3], pair)
    pairs = tuple(unique.values())
    return Corpus(pairs=pairs, version=package_version("pycountry"), num_doubles=len(found) - len(pairs))


def data_package(name: str) -> ModuleType:
    """A package of the ``data`` extra. Raises ``PlanError`` (MW501) where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise PlanError([problem("MW501", package=name, reason=error)]) from error


def package_version(name: str) -> str:
    """The installed version of a package of the ``data`` extra."""
    data_package(name)
    return metadata.version(name)


def _read_catalog(path: Path, folder: Path) -> Iterator[Pair]:
    language = path.relative_to(folder).parts[0]
    if language == ENGLISH:
        return
    for english, translation in sorted(_messages(path).items()):
        if english and translation:
            yield Pair(language, translation, english, path.stem)


def _messages(path: Path) -> dict[str, str]:
    """English to translation, as ``gettext`` reads it; a plural form has a (text, number) for its key there."""
    with path.open("rb") as file:
        catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {key if isinstance(key, str) else key[0]: text for key, text in reversed(catalog.items())}
