"""Vocabularies: learnt once, kept in the cache, the same for everyone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from meshwright.backends.jax.data.corpus import Corpus, Pair
from meshwright.backends.jax.data.vocabulary import SPECIAL_IDS, Vocabulary, cache_folder, load_vocabulary
from meshwright.dsl.errors import PlanError

WORDS = ("river", "mountain", "island", "valley", "north", "south", "old", "new", "language", "people")
SOURCES = ("Fluss", "гора", "島", "دره", "nord", "sud", "vanha", "नया", "lingua", "narod")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    pairs = [
        Pair(f"l{i % 7}", f"{SOURCES[i]} {SOURCES[j]} {SOURCES[k]}", f"{WORDS[i]} {WORDS[j]} {WORDS[k]}", "names")
        for i in range(10)
        for j in range(10)
        for k in range(10)
    ]
    return Corpus(pairs=tuple(pairs), version="1")


def learn(corpus: Corpus, folder: Path, pieces: int = 100, side: str = "target") -> Vocabulary:
    return load_vocabulary(corpus, side=side, pieces=pieces, folder=folder)  # type: ignore[arg-type]


def test_special_ids_stand_first(corpus: Corpus, tmp_path: Path) -> None:
    processor = learn(corpus, tmp_path).processor
    found = (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id())
    assert found == tuple(SPECIAL_IDS.values()) == (0, 1, 2, 3)


def test_a_text_ends_with_eos_and_reads_back(corpus: Corpus, tmp_path: Path) -> None:
    vocabulary = learn(corpus, tmp_path)
    (ids,) = vocabulary.encode(["old river north"])
    assert ids[-1] == 2
    assert 0 not in ids
    assert vocabulary.decode([1, *ids, 0, 0]) == "old river north"


def test_the_number_of_pieces_never_exceeds_what_was_asked(corpus: Corpus, tmp_path: Path) -> None:
    assert learn(corpus, tmp_path, pieces=64).num_pieces <= 64
    large = learn(corpus, tmp_path, pieces=30_000)
    assert large.num_pieces < large.requested_pieces == 30_000


def test_characters_never_seen_are_spelt_in_bytes(corpus: Corpus, tmp_path: Path) -> None:
    vocabulary = learn(corpus, tmp_path, pieces=1024)
    (ids,) = vocabulary.encode(["old ጸሓይ"])
    assert 3 not in ids
    assert vocabulary.decode(ids) == "old ጸሓይ"


def test_it_is_learnt_once_and_the_same_each_time(corpus: Corpus, tmp_path: Path) -> None:
    learn(corpus, tmp_path / "a", side="source")
    learn(corpus, tmp_path / "b", side="source")
    (first,), (second,) = (list((tmp_path / name).iterdir()) for name in "ab")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    written = first.stat().st_mtime_ns
    learn(corpus, tmp_path / "a", side="source")
    assert first.stat().st_mtime_ns == written


def test_other_sizes_sides_and_data_have_files_of_their_own(corpus: Corpus, tmp_path: Path) -> None:
    learn(corpus, tmp_path, pieces=100)
    learn(corpus, tmp_path, pieces=101)
    learn(corpus, tmp_path, pieces=100, side="source")
    learn(Corpus(pairs=corpus.pairs, version="2"), tmp_path, pieces=100)
    assert len(list(tmp_path.iterdir())) == 4


def test_learning_says_nothing(corpus: Corpus, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    learn(corpus, tmp_path)
    assert capfd.readouterr() == ("", "")


def test_it_learns_nothing_from_held_out_text(tmp_path: Path) -> None:
    texts = [f"place number {i}" for i in range(2000)]
    marked = tuple(Pair("de", text, text, "names") for text in texts)
    held_out = {pair.target for pair in Corpus(pairs=marked, version="1").split("held-out").pairs}
    secret = tuple(p._replace(source=f"{p.source} ж") if p.target in held_out else p for p in marked)
    with_secret = learn(Corpus(pairs=secret, version="1"), tmp_path, side="source")
    assert held_out
    assert with_secret.encode(["ж"])[0][-2] == 3


def test_a_size_too_small_is_refused_with_the_least(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"MW502 .* 63 .*\n.*64"):
        learn(corpus, tmp_path, pieces=63)


def test_a_folder_that_cannot_be_written_is_named(corpus: Corpus, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(PlanError, match=r"MW503[\s\S]*MESHWRIGHT_CACHE"):
        learn(corpus, blocked / "cache")


def test_a_broken_file_is_named(corpus: Corpus, tmp_path: Path) -> None:
    learn(corpus, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"not a model")
    with pytest.raises(PlanError, match=f"MW504 .*{path.name}"):
        learn(corpus, tmp_path)


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MESHWRIGHT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "meshwright"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "meshwright"
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_two_processes_at_once_end_with_one_whole_file(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from meshwright.backends.jax.data.corpus import Corpus, Pair\n"
        "from meshwright.backends.jax.data.vocabulary import load_vocabulary\n"
        "pairs = tuple(Pair('de', f'Ort {i}', f'place {i}', 'names') for i in range(3000))\n"
        "corpus = Corpus(pairs=pairs, version='1')\n"
        f"found = load_vocabulary(corpus, side='source', pieces=80, folder=Path({str(tmp_path)!r}))\n"
        "print(found.encode(['Ort 7']))\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert told[0] == told[1] != ""
    assert [path.suffix for path in tmp_path.iterdir()] == [".spm"]
