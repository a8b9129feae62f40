"""``meshwright convert``: what a team lays out by logical axis rules today, as a plan, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import logical_models
import meshwright as mw
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec
from meshwright import cli
from meshwright.backends.jax.trace import trace
from meshwright.dsl import notation
from meshwright.dsl.logical.dim_names import DimNames
from meshwright.dsl.logical.rules import TensorNames
from meshwright.dsl.resolve import resolve
from meshwright.dsl.tensors import Tensor

MAXTEXT = """
run_name: ours
mesh_axes: ['data', 'stage', 'fsdp', 'tensor']
logical_axis_rules: [
    ['activation_batch', ['data', 'fsdp']],
    ['mlp', ['tensor']],
    ['embed', ['fsdp', 'stage']],
    ['embed', ['fsdp']],
    ['norm', []],
]
dcn_data_parallelism: -1
ici_pipeline_parallelism: 1
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 2
"""
WRONG_TWICE = (
    "['embed', ['fsdp']],\n    ['norm', []],\n]\ndcn_data_parallelism: -1\nici_pipeline_parallelism: 1\nici_fsdp",
    "['embed', ['fspd']],\n    ['norm', []],\n]\ndcn_data_parallelism: -1\nici_pipeline_parallelism: 3\nici_fsdp",
)
LINEN_RULES = (("batch", "data"), ("embed", "fsdp"), ("mlp", ("fsdp", "data")), ("mlp", "tensor"), ("norm", None))
FIRST = (("fsdp",), ("tensor",))
NAMES = "batch/x: [batch, null]\n"


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def convert(*arguments: object) -> int:
    return cli.main(["convert", *map(str, arguments)])


def layouts(plan: mw.Plan, model: Any) -> dict[str, tuple[tuple[str, ...], ...]]:
    step, args = model()
    resolution = resolve(plan, trace(step, args).tensors)
    assert not resolution.problems
    return {path: layout.axes for (path, _), layout in resolution.layouts.items()}


def entries(spec: PartitionSpec, rank: int) -> tuple[tuple[str, ...], ...]:
    found = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in spec]
    return (*found, *[()] * (rank - len(found)))


def test_a_file_of_maxtext_becomes_a_short_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, names = write(tmp_path, "base.yml", MAXTEXT), write(tmp_path, "n.yml", "batch/x: [activation_batch, null]\n")
    code = convert(rules, "--model", "logical_models:linen", "--topology", "2*v5e:4x4", "--names", names)
    streams = capsys.readouterr()
    assert code == 0
    plan = mw.loads(streams.out)
    assert [(axis.name, axis.size) for axis in plan.mesh.axes] == [("data", 2), ("fsdp", 8), ("tensor", 2)]
    lines = [" ".join(line.split()) for line in streams.out.splitlines()]
    assert lines[:3] == ["meshwright: 1", "model: logical_models:linen", "topology: 2*v5e:4x4"]
    assert lines[-2:] == ["opt/**: like params", "batch/x: activation_batch@data+fsdp ..."]
    assert len(plan.rules) == 5
    found = layouts(plan, logical_models.linen)
    assert found["params/params/wi_1/kernel/value"] == found["opt/0/mu/params/wi_1/kernel/value"] == FIRST
    assert found["params/params/wo_1/kernel/value"] == found["opt/0/nu/params/wo_1/kernel/value"] == FIRST[::-1]
    assert "MW681 note: Axes of one device are left out: stage." in streams.err


def test_linen_models_get_what_flax_gives_them(tmp_path: Path) -> None:
    rules = write(tmp_path, "rules.py", repr(LINEN_RULES))
    names, out = write(tmp_path, "names.yml", NAMES), tmp_path / "plan.yaml"
    mesh = "data=2,fsdp=2,tensor=2"
    options = ["--mesh", mesh, "--topology", "cpu:8", "--names", names, "-o", out]
    assert convert(rules, "--model", "logical_models:linen", *options) == 0
    plan = mw.load(out)
    found = layouts(plan, logical_models.linen)
    _, (params, opt, _) = logical_models.linen()
    for name, tree in (("params", params), ("opt", opt)):
        specs = nn.logical_to_mesh(nn.get_partition_spec(tree), LINEN_RULES)
        unboxed = nn.meta.unbox(tree)
        for (path, spec), leaf in zip(
            jax.tree_util.tree_flatten_with_path(specs, is_leaf=lambda x: isinstance(x, PartitionSpec))[0],
            jax.tree.leaves(unboxed),
            strict=True,
        ):
            at = "/".join([name, *(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)])
            own = found.get(f"{at}/value", found.get(at))
            assert own == entries(spec, len(leaf.shape)), at
    assert found["batch/x"] == (("data",), ())


def test_a_converted_plan_runs_as_the_plain_step(tmp_path: Path) -> None:
    rules = write(tmp_path, "rules.py", repr(LINEN_RULES))
    names, out = write(tmp_path, "names.yml", NAMES), tmp_path / "plan.yaml"
    options = ["--mesh", "data=2,fsdp=2,tensor=2", "--topology", "cpu:8", "--names", names, "-o", out]
    assert convert(rules, "--model", "logical_models:linen", *options) == 0
    step, (_, _, batch) = logical_models.linen()
    params = logical_models.Mlp().init(jax.random.key(0), np.zeros((64, 32), np.float32))
    args = (params, logical_models.TX.init(params), {"x": jax.random.normal(jax.random.key(1), batch["x"].shape)})
    expected = jax.jit(step)(*args)
    got = mw.apply(mw.load(out), step, args)(*mw.place(mw.load(out), args, step, args))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert mw.estimate(mw.load(out), step, args).fits


def test_nnx_models_get_what_flax_gives_them(tmp_path: Path) -> None:
    """A name without a rule is a mesh axis in NNX, and of two rules the last counts."""
    pairs = [("embed", "tensor"), ("embed", "fsdp"), ("mlp", None)]
    rules, out = write(tmp_path, "rules.py", repr(pairs)), tmp_path / "plan.yaml"
    options = ["--mesh", "fsdp=4,tensor=2", "--topology", "cpu:8", "-o", out]
    assert convert(rules, "--model", "logical_models:of_nnx", *options) == 0
    found = layouts(mw.load(out), logical_models.of_nnx)
    _, (params, *_) = logical_models.of_nnx()
    with nnx.logical_axis_rules(pairs):
        specs = nnx.get_partition_spec(params)
    for which in ("wi", "wo"):
        spec = specs[which]["kernel"].get_value()
        assert found[f"params/{which}/kernel/value"] == entries(spec, 2)
    assert found["params/wi/kernel/value"] == (("fsdp",), ())
    assert found["params/wo/kernel/value"] == (("tensor",), ("fsdp",))
    assert found["opt/0/mu/wo/kernel/value"] == (("tensor",), ("fsdp",))


def test_a_plan_and_its_rules_say_the_same(tmp_path: Path) -> None:
    names, first = write(tmp_path, "names.yml", NAMES), write(tmp_path, "rules.py", repr(LINEN_RULES))
    plan, back, again = tmp_path / "plan.yaml", tmp_path / "rules.yml", tmp_path / "again.yaml"
    common = ["--model", "logical_models:linen", "--names", names]
    mesh = ["--mesh", "data=2,fsdp=2,tensor=2", "--topology", "cpu:8"]
    assert convert(first, *common, *mesh, "-o", plan) == 0
    assert convert(plan, "--names", names, "-o", back) == 0
    assert convert(back, *common, *mesh, "-o", again) == 0
    assert again.read_text() == plan.read_text()
    assert convert(plan, "--names", names, "--to", "maxtext", "-o", back) == 0
    assert convert(back, *common, "--topology", "cpu:8", "-o", again) == 0
    assert again.read_text() == plan.read_text()


@pytest.mark.parametrize("topology", ["4*v5e:2x2", "v5e:4x4"])
def test_slices_survive_the_way_there_and_back(tmp_path: Path, topology: str) -> None:
    text = MAXTEXT if topology.startswith("v5e") else MAXTEXT.replace("dcn_data", "dcn_fsdp")
    names = write(tmp_path, "n.yml", "batch/x: [activation_batch, null]\n")
    common = ["--model", "logical_models:linen", "--names", names, "--topology", topology]
    plan, back, again = tmp_path / "plan.yaml", tmp_path / "rules.yml", tmp_path / "again.yaml"
    assert convert(write(tmp_path, "base.yml", text), *common, "-o", plan) == 0
    assert convert(plan, "--names", names, "--to", "maxtext", "-o", back) == 0
    assert convert(back, *common, "-o", again) == 0
    assert again.read_text() == plan.read_text()


def codes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    words = capsys.readouterr().err.split()
    return [word for word in words if word.startswith("MW") and word.isalnum()]


@pytest.mark.parametrize(
    ("edit", "options", "expected"),
    [
        (("['tensor']", "['model']"), ["--topology", "v5e:4x4"], ["MW652"]),
        ((", 'tensor'", ""), ["--topology", "v5e:4x4"], ["MW652", "MW666"]),
        (("ici_tensor_parallelism: 2", "ici_tensor_parallelism: 3"), ["--topology", "v5e:4x4"], ["MW660"]),
        (WRONG_TWICE, ["--topology", "v5e:4x4"], ["MW652", "MW660"]),
        (("ici_tensor_parallelism: 2", "ici_tensor_parallelism: -1"), ["--topology", "v5e:4x4"], ["MW661"]),
        (("dcn_data_parallelism: -1", "dcn_data_parallelism: 2"), [], ["MW662"]),
        (("", ""), ["--mesh", "data=2;fsdp=4"], ["MW554"]),
        (("", ""), ["--set", "layers"], ["MW556"]),
        (("", ""), ["--to", "flax"], ["MW665"]),
    ],
)
def test_mistakes_in_rules_are_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: tuple[str, str], options: list[str], expected: list[str]
) -> None:
    rules = write(tmp_path, "base.yml", MAXTEXT.replace(*edit))
    out = tmp_path / "plan.yaml"
    assert convert(rules, "--model", "logical_models:linen", *options, "-o", out) == 2
    assert codes(capsys) == expected
    assert not out.exists()


def test_an_axis_that_crosses_slices_in_the_middle_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MAXTEXT.replace("dcn_data_parallelism: -1", "dcn_tensor_parallelism: 2")
    rules = write(tmp_path, "base.yml", text)
    assert convert(rules, "--model", "logical_models:linen", "--topology", "2*v5e:4x4") == 2
    assert codes(capsys) == ["MW663"]


def test_a_dim_that_does_not_divide_is_refused_at_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = write(tmp_path, "r.yml", "- [embed, data]\n- [mlp, fsdp]\n")
    assert convert(rules, "--model", "logical_models:linen", "--mesh", "data=3,fsdp=2") == 2
    err = capsys.readouterr().err
    assert "MW105" in err
    assert f"{rules.name}:1:3" in err.replace("\n", "")


@pytest.mark.parametrize(("model", "expected"), [("unnamed", "MW659"), ("own_rules", "MW658")])
def test_models_without_usable_names_are_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, expected: str
) -> None:
    rules = write(tmp_path, "r.yml", "- [embed, data]\n")
    assert convert(rules, "--model", f"logical_models:{model}") == 2
    assert expected in codes(capsys)


def test_a_file_names_what_the_model_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = write(tmp_path, "r.yml", "- [embed, data]\n- [mlp, model]\n")
    names = write(tmp_path, "n.yml", "params/wi: [embed, mlp]\nparams/wo: [mlp, embed]\nopt/0/*/wi: [embed, mlp]\n")
    options = ["--model", "logical_models:unnamed", "--names", names, "--topology", "cpu:8"]
    assert convert(rules, *options, "--mesh", "data=4,model=2") == 0
    streams = capsys.readouterr()
    assert "params/wi: embed@data mlp@model" in " ".join(streams.out.split())
    assert "opt/**:    like params" not in streams.out  # opt/0/*/wo has no names: whole, as in Flax
    assert "MW680 note: Tensors under 'batch' that have no logical names: 1;" in streams.err


def test_without_a_mesh_sizes_stay_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = write(tmp_path, "r.yml", "- [embed, data]\n- [mlp, model]\n")
    assert convert(rules, "--model", "logical_models:linen", "--topology", "v5e:4x4") == 0
    assert "mesh: {data: auto, model: auto}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("mesh: {data: auto}\ntensors: {params/**: replicate}", [], ["MW674"]),
        ("mesh: {x: 2}\ntensors: {'**': replicate}", ["--to", "maxtext"], ["MW675"]),
        ("mesh: {x: 2}\ntensors: {'**': replicate}", ["--mesh", "x=2", "--topology", "cpu:8"], ["MW665", "MW665"]),
        (
            "mesh: {x: 2}\ntensors: {params/**/wi_0/kernel/**: E@x ..., batch/**: B@x ..., '**': replicate}",
            [],
            ["MW672", "MW670"],
        ),
    ],
)
def test_what_rules_cannot_say_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, options: list[str], expected: list[str]
) -> None:
    plan = write(tmp_path, "plan.yaml", f"meshwright: 1\nmodel: logical_models:linen\n{text}\n")
    assert convert(plan, *options) == 2
    assert codes(capsys) == expected


def test_what_is_lost_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "meshwright: 1\nmodel: logical_models:linen\ntopology: v5e:2x2\nmesh: {data: {size: 4, over: [x, y]}}\n"
    plan = write(tmp_path, "plan.yaml", text + "tensors: {'**': replicate}\nlimits: {hbm: 1 GiB}\n")
    assert convert(plan) == 0
    streams = capsys.readouterr()
    assert streams.out == "- [embed, []]\n- [mlp, []]\n- [norm, []]\n"
    assert streams.err.count("MW683 note") == 3


def test_a_searched_plan_has_rules_though_it_speaks_of_computed_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "meshwright: 1\nmodel: logical_models:linen\nmesh: {x: 2}\ntensors:\n  ops/step/relu.max.0/0: A@x ...\n"
    plan = write(tmp_path, "plan.yaml", text + "  '**': replicate\n")
    assert convert(plan) == 0
    said = capsys.readouterr()
    assert said.out == "- [embed, []]\n- [mlp, []]\n- [norm, []]\n"
    assert "plan.yaml:5:3: MW683 note: Rules cannot say how computed values lie" in said.err


def test_no_model_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(write(tmp_path, "r.yml", "- [embed, data]\n")) == 2
    assert codes(capsys) == ["MW677"]


def test_dims_are_called_by_their_logical_names() -> None:
    def tensor(path: str, *shape: int) -> Tensor:
        return Tensor(path=path, shape=shape, dtype="float32", role="argument")

    table = [tensor("a", 8, 4), tensor("b", 16, 4), tensor("c", 4, 4, 4), tensor("d", 4, 4)]
    names = {
        "a": TensorNames(names=("embed", "kv heads")),
        "b": TensorNames(names=("embed", "kv heads")),
        "c": TensorNames(names=(None, "like")),
        "d": TensorNames(names=(None, ("x",))),
    }
    dims = DimNames.of(table, names)

    def written(number: int, *axes: tuple[str, ...]) -> str:
        return notation.write(dims.assignment(table[number], names[table[number].path].names, axes))

    assert written(0, ("x",), ("y",)) == "embed_8@x kv_heads@y"
    assert written(1, (), ("y",)) == "embed_16 kv_heads@y"
    assert written(2, ("x",), ("y",), ()) == "_@x _like@y ..."
    assert written(3, (), ("x",)) == "_ _@x"
    assert written(3, (), ()) == "replicate"
