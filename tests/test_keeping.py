"""What a run keeps on disk: it goes on as if it had never ended, under other layouts too; what is amiss says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from meshwright.backends.jax.training.checkpoint import keep, kept_in, require_same_vocabularies, restore
from meshwright.backends.jax.training.train import run
from meshwright.dsl.errors import PlanError
from meshwright.dsl.plan import Axis, Dim, Dims, Plan, Replicate, Rest, Rule, Topology
from meshwright.dsl.plan import Mesh as PlanMesh

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def _toy_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS))


def toy_plan(weights: Dims | Replicate | None = None, **parts: str) -> Plan:
    split = Dims(dims=(Dim(name="B", axes=("data",)), Rest()))
    return Plan(
        name="toy",
        model="toy:workload",
        settings=parts,
        topology=Topology(kind="cpu", dims=(8,)),
        mesh=PlanMesh(axes=(Axis(name="data", size=8),)),
        rules=(
            Rule(pattern="batch/**", assignment=split),
            Rule(pattern="params/w", assignment=weights or Replicate()),
            *(Rule(pattern=f"{rest}/**", assignment=Replicate()) for rest in ("params", "opt", "out/2")),
        ),
    )


SPLIT = Dims(dims=(Dim(name="_", axes=("data",)), Dim(name="_")))


def records(path: Path, kind: str = "step") -> list[dict[str, Any]]:
    return [record for record in map(json.loads, path.read_text().splitlines()) if record["kind"] == kind]


def losses(path: Path) -> list[tuple[int, float]]:
    return [(record["step"], record["loss"]) for record in records(path)]


def test_a_run_goes_on_as_if_it_had_never_ended_under_other_layouts_too(tmp_path: Path) -> None:
    run(toy_plan(), steps=7, seed=3, metrics_path=tmp_path / "whole")
    first = run(toy_plan(), steps=4, seed=3, save=tmp_path / "kept", metrics_path=tmp_path / "first")
    then = run(
        toy_plan(SPLIT), steps=3, resume=tmp_path / "kept", save=tmp_path / "kept", metrics_path=tmp_path / "then"
    )
    steps, wanted = zip(*losses(tmp_path / "whole"), strict=True)
    told, found = zip(*losses(tmp_path / "first"), *losses(tmp_path / "then"), strict=True)
    assert told == steps
    assert found == pytest.approx(wanted, rel=1e-5)
    assert (first.kept_in, first.steps_before) == (str(tmp_path / "kept"), 0)
    assert (then.seed, then.steps, then.steps_before) == (3, 3, 4)
    assert kept_in(tmp_path / "kept").step == 7
    assert records(tmp_path / "then", "held-out")[0]["step"] == 4


def test_the_state_is_kept_every_so_many_steps_and_the_newest_alone_stays(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run(toy_plan(), steps=5, save=tmp_path / "kept", save_every=2, metrics_path=path)
    assert [record["step"] for record in records(path, "kept")] == [2, 4, 5]
    assert kept_in(tmp_path / "kept").step == 5
    assert [folder.name for folder in (tmp_path / "kept").iterdir()] == ["5"]


def test_a_state_that_diverged_is_not_kept(tmp_path: Path) -> None:
    summary = run(toy_plan(step="diverging_step"), steps=9, save=tmp_path / "kept", save_every=2)
    assert summary.status == "diverged"
    assert kept_in(tmp_path / "kept").step == 2


def tree() -> dict[str, Any]:
    mesh = Mesh(np.array(jax.devices()), ("x",))
    split = NamedSharding(mesh, PartitionSpec("x"))
    params = {"a": [jax.device_put(jnp.arange(16.0), split)], "b": jnp.ones((2, 3), jnp.bfloat16)}
    return {"params": params, "opt": jnp.int32(4), "nothing": ()}


ABOUT = {"seed": 0, "vocabularies": {"source": "a", "target": "b"}, "versions": {"jax": "1"}}


def test_parts_come_back_alone_and_where_they_are_asked_for(tmp_path: Path) -> None:
    keep(tmp_path / "kept", 3, tree(), ABOUT)
    whole = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec())
    wanted = {name: part for name, part in jax.eval_shape(tree).items() if name != "opt"}
    found = restore(kept_in(tmp_path / "kept"), wanted, jax.tree.map(lambda _: whole, wanted))
    assert str(jax.tree.structure(found)) == str(jax.tree.structure(wanted))
    assert found["params"]["a"][0].sharding == whole
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves({**tree(), "opt": ()}), strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.dtype == two.dtype


def a_run(folder: Path) -> None:
    run(toy_plan(), steps=2, save=folder)


def damage(folder: Path) -> None:
    a_run(folder)
    shutil.rmtree(folder / "2" / "about")


def another_model(folder: Path) -> None:
    about = {**ABOUT, "vocabularies": {}}
    state = {"params": {"w": jnp.zeros((8, 4)), "u": jnp.zeros(3)}, "opt": {"count": jnp.int32(0)}}
    keep(folder, 5, state, about)


@pytest.mark.parametrize(
    ("before", "option", "code", "words"),
    [
        (None, "resume", "MW516", "there is no such folder"),
        (Path.mkdir, "resume", "MW516", "nothing in it"),
        (damage, "resume", "MW517", "about"),
        (another_model, "resume", "MW518", r"w is float32\[8,4\] instead of float32\[8,16\], params/v is missing"),
        (a_run, "save", "MW519", "after step 2"),
        (Path.touch, "save", "MW520", "kept"),
    ],
)
def test_what_is_kept_amiss_says_why(
    before: Callable[[Path], object] | None, option: str, code: str, words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    if before:
        before(folder)
    with pytest.raises(PlanError, match=words) as caught:
        run(toy_plan(), steps=1, **{option: folder})
    assert [problem.code for problem in caught.value.problems] == [code]
    assert caught.value.problems[0].remedy


def test_other_vocabularies_than_those_it_learnt_with_are_refused(tmp_path: Path) -> None:
    keep(tmp_path / "kept", 1, tree(), ABOUT)
    kept = kept_in(tmp_path / "kept")
    require_same_vocabularies(kept, {"source": "a", "target": "b"})
    require_same_vocabularies(kept, {})
    with pytest.raises(PlanError, match=r"MW521 .*target vocabulary .*b, not c"):
        require_same_vocabularies(kept, {"source": "a", "target": "c"})


def test_options_of_no_use_are_refused_together() -> None:
    with pytest.raises(PlanError, match=r"MW525 --save-every[\s\S]*MW525 --against"):
        run(toy_plan(), steps=1, save_every=2, against="scores.jsonl")


def test_a_model_that_does_not_translate_is_told_so_before_it_trains() -> None:
    with pytest.raises(PlanError, match="MW522"):
        run(replace(toy_plan(), name="other"), steps=1, score=True)
