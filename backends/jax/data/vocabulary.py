"""Sub-word vocabularies: SentencePiece, one multilingual for the sources, one of English only for the targets
(GShard, appendix A.2), learnt from the training split on first use and kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ....dsl.errors import PlanError, problem
from .corpus import Corpus, data_package, package_version
from .sampling import TRAIN_TEMPERATURE, sample_without_repeats

Side = Literal["source", "target"]
SPECIAL_IDS = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
MIN_PIECES = 64
BYTE_PIECES = 256
BYTES_FROM_PIECES = 1024
FEWEST_TEXTS = 40_000
TEXTS_A_PIECE = 4
SEED = 0
RECIPE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Pieces of text and their ids: pad 0, bos 1, eos 2, unk 3, then the pieces.

    ``num_pieces`` is what could be learnt: at most ``requested_pieces``, less where the texts hold no more.
    """

    side: Side
    requested_pieces: int
    processor: Any

    @property
    def num_pieces(self) -> int:
        """Ids in use, the four special ones included."""
        return int(self.processor.get_piece_size())

    @property
    def fingerprint(self) -> str:
        """Tells this vocabulary from others: parameters learnt with one are of no use with another."""
        return hashlib.blake2b(self.processor.serialized_model_proto(), digest_size=8).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, with eos at its end."""
        return [[*ids, SPECIAL_IDS["eos_id"]] for ids in self.processor.encode(list(texts))]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; padding, bos and eos say nothing."""
        silent = {SPECIAL_IDS[name] for name in ("pad_id", "bos_id", "eos_id")}
        return str(self.processor.decode([int(i) for i in ids if int(i) not in silent]))


def load_vocabulary(corpus: Corpus, *, side: Side, pieces: int, folder: Path | None = None) -> Vocabulary:
    """The vocabulary of at most ``pieces`` ids of one side of the corpus' training split.

    It is read from ``folder`` (the user's cache by default), or learnt and written there: a few seconds. Several
    processes may do so at once: a file appears whole or not at all, and all of them write the same one.
    Raises ``PlanError``: MW501 without ``sentencepiece``, MW502 for fewer than ``MIN_PIECES``, MW503 and MW504 where
    the file cannot be written or read.
    """
    if pieces < MIN_PIECES:
        raise PlanError([problem("MW502", side=side, pieces=pieces, fewest=MIN_PIECES)])
    sentencepiece = data_package("sentencepiece")
    path = (folder or cache_folder()) / f"{side}-{pieces}-{_key(corpus, side, pieces)}.spm"
    if not path.exists():
        _write_whole(path, _learn(corpus, side, pieces))
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise PlanError([problem("MW504", path=path, reason=str(error).rstrip("."))]) from error
    return Vocabulary(side=side, requested_pieces=pieces, processor=processor)


def cache_folder() -> Path:
    """``$MESHWRIGHT_CACHE``, or ``meshwright`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``."""
    own = os.environ.get("MESHWRIGHT_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(own) if own else Path(shared) / "meshwright"


def _key(corpus: Corpus, side: Side, pieces: int) -> str:
    made_of = [RECIPE, side, pieces, corpus.version, len(corpus.pairs), package_version("sentencepiece")]
    return hashlib.blake2b(json.dumps(made_of).encode(), digest_size=8).hexdigest()


def _learn(corpus: Corpus, side: Side, pieces: int) -> bytes:
    sentencepiece = data_package("sentencepiece")
    with_bytes = pieces >= BYTES_FROM_PIECES
    most_characters = (pieces - (BYTE_PIECES if with_bytes else 0)) // 2
    texts = _common_characters(_texts(corpus, side, pieces), most_characters)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=pieces,
        hard_vocab_limit=False,
        byte_fallback=with_bytes,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
        **SPECIAL_IDS,
    )
    return model.getvalue()


def _texts(corpus: Corpus, side: Side, pieces: int) -> list[str]:
    """What a vocabulary is learnt from: every English text once, or a sample over the languages by temperature."""
    pairs = corpus.split("train").pairs
    if side == "target":
        return sorted({pair.target for pair in pairs})
    at_most = max(FEWEST_TEXTS, TEXTS_A_PIECE * pieces)
    chosen = sample_without_repeats(pairs, temperature=TRAIN_TEMPERATURE, seed=SEED, at_most=at_most)
    return [pairs[position].source for position in chosen]


def _common_characters(texts: Sequence[str], most_characters: int) -> list[str]:
    """The texts with a space for every character that is not among the ``most_characters`` commonest.

    Scores of scripts have more characters than a small vocabulary has room for, each of which would take a piece;
    the rarer ones are spelt in bytes, or are unk where the vocabulary is too small to hold the bytes.
    """
    normal = [unicodedata.normalize("NFKC", text) for text in texts]
    counts = Counter("".join(normal)).most_common()
    blanks = str.maketrans({character: " " for character, _ in counts[most_characters:]})
    return [text.translate(blanks) for text in normal]


def _write_whole(path: Path, content: bytes) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        raise PlanError([problem("MW503", folder=path.parent, reason=error.strerror)]) from error
    finally:
        with suppress(OSError):
            part.unlink()
