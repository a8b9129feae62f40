"""Lines of text go in, as many translations come out; they are scored by language, from rich to poor."""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import sacrebleu
from meshwright.backends.jax.data.corpus import Corpus, Pair
from meshwright.backends.jax.decoding.beam import BeamSearch
from meshwright.backends.jax.decoding.scores import kept_scores, sample, score, scores_of
from meshwright.backends.jax.decoding.texts import Translator
from meshwright.backends.jax.decoding.translate import translate
from meshwright.backends.jax.decoding.translation import Translation, translate_rows
from meshwright.backends.jax.models.family import configure, gshard
from meshwright.backends.jax.training.train import run
from meshwright.cli import main
from meshwright.dsl.errors import PlanError
from meshwright.dsl.plan import Plan
from meshwright.dsl.reader import loads
from meshwright.score_display import grouped, score_table
from rich.console import Console

# A codec of letters: 'a' is piece 4.


@dataclass(frozen=True)
class Letters:
    fingerprint: str = "letters"
    num_pieces: int = 30

    def encode(self, texts: Any) -> list[list[int]]:
        return [[*(4 + (ord(letter) - ord("a")) % 26 for letter in text), 2] for text in texts]

    def decode(self, ids: Any) -> str:
        return "".join(chr(ord("a") + i - 4) for i in ids if i >= 4)


SETTINGS: dict[str, Any] = {"experts": 4, "layers": 4, "model_dim": 16, "hidden_dim": 16, "heads": 2, "head_dim": 8}
SETTINGS |= {"source_vocab": 30, "target_vocab": 30, "batch": 8, "length": 8, "capacity": 32, "groups": 8}
PAIRS = tuple(Pair(f"l{i % 3}", f"text{i}", f"name {i}", "names") for i in range(400))
PLAN = """\
meshwright: 1
model: test_translate:letters
topology: cpu:8
mesh: {expert: 8}
tensors:
  batch/**: B@expert T
  params/**: replicate
  opt/**: like params
  acts/moe/combined: G@expert S M
"""


def letters(**settings: Any) -> Any:
    """The tiny Transformer, which translates letters into letters."""
    config, made = configure(None, {**SETTINGS, **settings}), gshard(**{**SETTINGS, **settings})

    def decode(search: BeamSearch) -> Callable[..., Any]:
        def spoken(params: Any, batch: Any) -> Any:
            return translate_rows(config, search, params, batch, num_pieces=30)

        return spoken

    made.translation = lambda: Translation(
        source=Letters(), target=Letters(), corpus=Corpus(pairs=PAIRS, version="1"), decode=decode
    )
    return made


def dense_letters() -> Any:
    """The same without experts; it learns to say the same letters again."""
    made = letters(experts=0, layers=2)
    made.evaluate = None
    made.batches = lambda seed, split: itertools.repeat(letters_to_repeat())
    return made


def letters_to_repeat() -> dict[str, Any]:
    tokens = np.arange(64, dtype=np.int32).reshape(8, 8) % 26 + 4
    ones, positions = np.ones_like(tokens), np.tile(np.arange(8, dtype=np.int32), (8, 1))
    sides = [{side: tokens, f"{side}_segments": ones, f"{side}_positions": positions} for side in ("source", "target")]
    return {**sides[0], **sides[1]}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return loads(PLAN)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def translator(plan: Plan) -> Translator:
    workload = letters()
    search = BeamSearch(beams=2, max_tokens=6)
    return Translator(plan, workload, workload.translation(), jax.devices(), search)


@pytest.fixture(scope="module")
def params() -> Any:
    return letters().init(0)[0]


def test_every_text_is_translated_by_itself_and_in_its_place(translator: Translator, params: Any) -> None:
    assert translator.arguments == ("params",)
    texts = ["abc", "", "z", "hello", " ", "abc", *(["q" * n for n in range(1, 8)])]
    told = translator([params], texts)
    assert len(told) == len(texts)
    assert (told[1].text, told[4].text) == ("", "")
    assert told[0] == told[5]
    for text, found in zip(texts, told, strict=True):
        if text.strip():
            (alone,) = translator([params], [text])
            assert (alone.text, alone.tokens) == (found.text, found.tokens)
            assert alone.score == pytest.approx(found.score, rel=1e-4)


def test_texts_longer_than_a_row_are_told_together(translator: Translator, params: Any) -> None:
    assert not translator.fits("a" * 8)
    with pytest.raises(PlanError, match=r"MW523 .*of 8 tokens: line 2 \(9\), 3 \(11\)"):
        translator([params], ["a", "a" * 8, "a" * 10])


def test_one_device_and_the_plans_mesh_say_the_same(translator: Translator, params: Any) -> None:
    workload = letters()
    alone = loads(PLAN.replace("cpu:8", "cpu:1").replace("expert: 8", "expert: 1"))
    single = Translator(alone, workload, workload.translation(), jax.devices()[:1], BeamSearch(beams=2, max_tokens=6))
    texts = ["abc", "hello", "z"]
    for one, two in zip(translator([params], texts), single([params], texts), strict=True):
        assert one.text == two.text
        assert one.score == pytest.approx(two.score, rel=1e-4)


def test_held_out_pairs_are_translated_and_scored(translator: Translator, params: Any) -> None:
    corpus = Corpus(pairs=(*PAIRS, Pair("l0", "much too long", "name 7", "names")), version="1")
    held_out = corpus.split("held-out")
    found = score(translator, [params], corpus, pairs_a_language=50)
    assert found is not None
    assert found.pairs + found.too_long_pairs == len(held_out.pairs)
    texts = {pair.source: pair.target for pair in held_out.pairs}
    assert all(example["reference"] == texts[example["source"]] for example in found.examples)
    assert score(translator, [params], corpus, pairs_a_language=50, stop=lambda: True) is None


def test_scores_are_sacrebleus_by_language_the_richest_first() -> None:
    pairs = [Pair("poor", "x", "the republic of somewhere", "d"), Pair("rich", "y", "the old town", "d")]
    pairs.append(Pair("rich", "z", "an island", "d"))
    texts = ["the republic of nowhere", "the old town", "no island"]
    found = scores_of(pairs, texts, {"rich": 90, "poor": 2})
    assert [(language.language, language.train_pairs, language.pairs) for language in found.languages] == [
        ("rich", 90, 2),
        ("poor", 2, 1),
    ]
    rich = sacrebleu.corpus_bleu(texts[1:], [["the old town", "an island"]]).score
    assert found.languages[0].bleu == pytest.approx(rich)
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(texts, [[pair.target for pair in pairs]]).score)
    assert found.languages[1].copied_bleu == 0
    perfect = scores_of(pairs, [pair.target for pair in pairs], {})
    assert [perfect.bleu, perfect.chrf] == pytest.approx([100, 100])


def test_a_sample_is_the_same_each_time_and_of_every_language() -> None:
    corpus = Corpus(pairs=PAIRS, version="1")
    drawn = sample(corpus, 5)
    assert drawn == sample(corpus, 5)
    assert sorted(pair.language for pair in drawn) == ["l0"] * 5 + ["l1"] * 5 + ["l2"] * 5
    assert set(drawn) < set(sample(corpus, 9)) or len(set(drawn) - set(sample(corpus, 9))) == 0
    assert sample(corpus, 10**6) == sorted(PAIRS, key=lambda pair: pair.language)


COPIED = {"copied_bleu": 3.0, "copied_chrf": 7.0}


def record(offset: float) -> dict[str, Any]:
    names = [f"l{i:02}" for i in range(20)]
    languages = [
        {"language": name, "train_pairs": 1000 - 10 * i, "pairs": 3, "bleu": 10.0 + offset * i, "chrf": 20.0, **COPIED}
        for i, name in enumerate(names)
    ]
    whole = {"bleu": 12.0 + offset, "chrf": 21.0, "pairs": 60, "step": 7, "sacrebleu": "2", "beams": 4}
    return {"kind": "scores", "languages": languages, "examples": [], **whole, **COPIED}


def test_the_table_has_differences_to_another_runs_scores(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in ({"kind": "run"}, record(9.0), record(0.0))))
    out = io.StringIO()
    Console(file=out, width=150).print(score_table({**record(1.0), "against": kept_scores(path)}))
    rows = [line for line in out.getvalue().splitlines() if line.startswith("│")]
    assert len(rows) == 10
    assert "+9.5" in rows[-2]  # 0 to 19 better
    assert "+0.5" in rows[0]  # of two languages, 0 and 1 better
    assert "+1.0" in rows[-1]
    assert "1,000 to 990" in rows[0]
    assert "3.0, 7.0" in rows[0]


def test_groups_hold_every_language_once() -> None:
    names = [{"language": str(i)} for i in range(19)]
    found = list(grouped(names, 8))
    assert [language for group in found for language in group] == names
    assert {len(group) for group in found} == {2, 3}
    assert list(grouped([], 8)) == []


@pytest.mark.parametrize(("text", "words"), [(None, "No such file"), ("{", "no metrics file"), ("{}", "none in it")])
def test_scores_that_cannot_be_read_are_told(text: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PlanError, match=f"MW526 .*{words}"):
        kept_scores(path)


def test_numbers_out_of_range_are_told_together(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"--beams is 0[\s\S]*--max-tokens is 9[\s\S]*from 1 to 8[\s\S]*-1"):
        translate(plan, ["a"], folder=tmp_path, beams=0, max_tokens=9, length_penalty=-1.0)


def test_what_a_run_keeps_translates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    text = PLAN.replace("letters", "dense_letters").replace("  acts/moe/combined: G@expert S M\n", "")
    plan_file, kept, metrics = tmp_path / "plan.yaml", tmp_path / "kept", tmp_path / "run.jsonl"
    plan_file.write_text(text.replace("cpu:8", "cpu:1").replace("expert: 8", "expert: 1"))
    plan = loads(plan_file.read_text())
    summary = run(plan, steps=2, save=kept, score=True, pairs_a_language=9, metrics_path=metrics)
    scores = kept_scores(metrics)
    assert (summary.kept_in, summary.bleu, summary.chrf) == (str(kept), scores["bleu"], scores["chrf"])
    assert scores["pairs"] == sum(language["pairs"] for language in scores["languages"]) > 3
    assert scores["step"] == 2
    said = [example for example in scores["examples"] if len(example["source"]) < 8]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{said[0]['source']}\n\nz\n".encode())))
    assert main(["translate", str(plan_file), "--from", str(kept), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["translations"]
    assert [found["source"] for found in told] == [said[0]["source"], "", "z"]
    assert told[0]["translation"] == said[0]["translation"]
    assert main(["translate", str(plan_file), "--from", str(tmp_path / "none"), "--text", "a"]) == 2
    assert "MW516" in capsys.readouterr().err
