"""What the compiler says of a plan, told as an answer."""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from meshwright.backends.jax import verify as verify_module
from meshwright.backends.jax.comparison import pairs
from meshwright.backends.jax.compiled import Argument
from meshwright.backends.jax.misfit import read_misfit
from meshwright.backends.jax.program import program_text as program_text_module
from meshwright.backends.jax.program.program_text import program_text
from meshwright.backends.jax.report import tables
from meshwright.backends.jax.verify import Verification, verify
from meshwright.dsl.errors import PlanError
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Dim, Dims, Infer, Like, Limits, Mesh, Plan, Rest, Rule
from meshwright.planner.estimate.limit import memory_limit
from meshwright.planner.explain.rows import binary
from meshwright.planner.memory.kinds import ALIASED
from meshwright.planner.topology import physical

needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
LAYERS = 3


def step(params: Any, opt: Any, batch: Any) -> Any:
    def loss(params: Any) -> jax.Array:
        def layer(x: jax.Array, w: Any) -> tuple[jax.Array, None]:
            return x + jnp.maximum(x @ w["wi"], 0) @ w["wo"], None

        x, _ = jax.lax.scan(layer, batch["x"], params)
        return jnp.mean((x - batch["y"]) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    opt = jax.tree.map(lambda m, g: 0.9 * m + g, opt, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, opt), opt, value


def arguments(width: int = 256) -> tuple[Any, Any, Any]:
    def weights() -> dict[str, jax.ShapeDtypeStruct]:
        return {
            "wi": jax.ShapeDtypeStruct((LAYERS, width, 4 * width), jnp.float32),
            "wo": jax.ShapeDtypeStruct((LAYERS, 4 * width, width), jnp.float32),
        }

    batch = {name: jax.ShapeDtypeStruct((256, width), jnp.float32) for name in "xy"}
    return weights(), weights(), batch


def split(text: str) -> Dims:
    words = [word.partition("@") for word in text.split()]
    dims = (
        Rest() if name == "..." else Dim(name=name, axes=tuple(a for a in axes.split("+") if a))
        for name, _, axes in words
    )
    return Dims(dims=tuple(dims))


def plan(topology: str, **limits: int) -> Plan:
    named = parse_topology(topology)
    count = physical(named).num_devices
    model = 2 if count > 1 else 1
    return Plan(
        name="mlp",
        topology=named,
        mesh=Mesh(axes=(Axis(name="data", size=count // model), Axis(name="model", size=model))),
        rules=(
            Rule(pattern="batch/**", assignment=split("B@data D")),
            Rule(pattern="params/wi", assignment=split("L D@data F@model")),
            Rule(pattern="params/wo", assignment=split("L F@model D@data")),
            Rule(pattern="opt/**", assignment=Like(target="params")),
            Rule(pattern="out/**", assignment=Infer()),
        ),
        limits=Limits(**limits),
    )


Verify = Callable[..., Verification]


@pytest.fixture(scope="module")
def verified() -> Verify:
    """Verifies the step above on a topology, each once; what JAX traced for others, of their lines, is none of it."""
    jax.clear_caches()
    known: dict[str, Verification] = {}

    def once(topology: str) -> Verification:
        if topology not in known:
            known[topology] = verify(plan(topology), jax.jit(step, donate_argnums=(0, 1)), arguments())
        return known[topology]

    return once


TPUS = [
    pytest.param(name, marks=[pytest.mark.tpu_compiler, needs_libtpu]) for name in ("v3:2x2", "v5e:2x2", "2*v5e:2x2")
]


@pytest.mark.parametrize("topology", ["cpu:8", *TPUS])
def test_bytes_by_kind_are_the_shards_and_add_up_to_the_peak(verified: Verify, topology: str) -> None:
    compiled = verified(topology).compiled
    devices = physical(parse_topology(topology)).num_devices
    weights = LAYERS * 2 * 256 * 1024 * 4 // devices
    kinds = dict(compiled.bytes_by_kind)
    assert kinds["weights"] == kinds["optimiser state"] == weights
    assert kinds["batch"] == 2 * 256 * 256 * 4 // (devices // 2)
    aliased = kinds.pop(ALIASED)
    assert aliased == compiled.alias_bytes
    assert aliased >= 2 * weights
    assert sum(kinds.values()) == compiled.peak_bytes
    assert compiled.bytes_by_argument == {"params": weights, "opt": weights, "batch": kinds["batch"]}


@pytest.mark.parametrize("topology", ["cpu:8", *TPUS])
def test_the_program_keeps_the_plans_layouts_and_communicates(verified: Verify, topology: str) -> None:
    verification = verified(topology)
    compiled = verification.compiled
    assert verification.fits
    assert compiled.shardings_kept
    assert (
        compiled.matrix_flops
        == 3 * 2 * (2 * 256 * 256 * 1024) * LAYERS // physical(parse_topology(topology)).num_devices
    )
    assert {"data", "model"} <= {axis.name for c in compiled.collectives for axis in c.axes}
    assert all(c.source and c.source.file == __file__ for c in compiled.collectives)


@pytest.mark.parametrize("topology", ["cpu:8", *TPUS])
def test_every_collective_has_a_predicted_time_that_adds_up(verified: Verify, topology: str) -> None:
    verification = verified(topology)
    compiled = verification.compiled
    assert all(c.predicted_s > 0 for c in compiled.collectives)
    total_s = sum(c.predicted_s * c.times for c in compiled.collectives)
    assert compiled.predicted_communication_s == pytest.approx(total_s)
    assert verification.as_json()["predicted"]["communication_s"] == compiled.predicted_communication_s
    assert f"communication, predicted from the network model, nothing overlapped  {total_s * 1e3:.3f} ms" in str(
        verification
    )


@pytest.mark.parametrize("topology", ["cpu:8", *TPUS])
def test_what_was_predicted_stands_beside_it_with_its_error(verified: Verify, topology: str) -> None:
    verification = verified(topology)
    predicted, compiled = verification.predicted, verification.compiled
    said = json.loads(json.dumps(verification.as_json()))["predicted"]
    assert said["what"] == "predicted"
    assert said["peak_bytes"] == predicted.peak_bytes
    assert said["errors"]["peak_bytes"] == pytest.approx(predicted.peak_bytes / compiled.peak_bytes - 1)
    assert "Predicted beside compiled" in str(verification)
    assert f"{said['errors']['peak_bytes']:+.1%}" in str(verification)


def test_without_a_topology_nothing_is_predicted() -> None:
    nowhere = verify(replace(plan("cpu:8"), topology=None), step, arguments())
    assert nowhere.predicted is None
    assert nowhere.as_json()["predicted"] == {"communication_s": None}


def test_cpus_have_no_cycles_and_no_limit(verified: Verify) -> None:
    compiled = verified("cpu:8").compiled
    assert (compiled.cycles, compiled.compute_s, compiled.limit_bytes) == (None, None, None)


@pytest.mark.tpu_compiler
@needs_libtpu
def test_cycles_over_the_clock_are_seconds(verified: Verify) -> None:
    compiled = verified("v3:2x2").compiled
    assert compiled.cycles
    assert compiled.compute_s == pytest.approx(compiled.cycles / 0.94e9)
    ideal_s = compiled.matrix_flops / 61.5e12
    assert ideal_s < compiled.compute_s < 100 * ideal_s


@pytest.mark.tpu_compiler
@needs_libtpu
def test_a_chip_whose_program_cannot_be_read_is_compiled_so_that_it_can(verified: Verify) -> None:
    compiled = verified("tpu7x:2x2x1").compiled
    assert compiled.note
    assert "TensorCores" in compiled.note
    assert compiled.collectives
    assert compiled.cycles
    assert compiled.compute_s is None  # its clock is not published


@pytest.mark.tpu_compiler
@needs_libtpu
def test_a_program_that_does_not_fit_is_an_answer_with_the_compilers_numbers() -> None:
    verification = verify(plan("v3:1x1"), step, arguments(width=16384))
    compiled = verification.compiled
    assert not verification.fits
    assert compiled.peak_bytes is not None
    assert compiled.peak_bytes > compiled.limit_bytes == pytest.approx(15.48 * 2**30, rel=1e-3)
    assert compiled.bytes_by_kind["weights"] == LAYERS * 2 * 4 * 16384**2 * 4 // 2
    assert "does not fit v3:1x1" in str(verification)
    assert "exceeds available HBM" in str(verification)
    assert json.loads(json.dumps(verification.as_json()))["fits"] is False


def test_the_plans_own_limit_decides_too() -> None:
    verification = verify(plan("cpu:8", hbm_bytes=2**20), step, arguments())
    assert not verification.fits
    assert verification.compiled.limit_bytes == 2**20
    assert "of 1.00 MiB (the plan)" in str(verification)


def test_arguments_that_the_step_does_not_use_take_no_bytes() -> None:
    bare = replace(plan("cpu:8"), rules=(Rule(pattern="**", assignment=split("...")),))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    compiled = verify(bare, lambda params, unused: params + 1, (x, x)).compiled
    assert compiled.bytes_by_argument == {"params": 64 * 64 * 4}
    assert compiled.argument_bytes == 64 * 64 * 4


def test_nothing_among_arguments_and_results_is_no_tensor() -> None:
    bare = replace(plan("cpu:8"), rules=(Rule(pattern="**", assignment=split("...")),))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    compiled = verify(bare, lambda params, nothing, unused, y: (None, params + y), (x, None, x, x)).compiled
    assert compiled.bytes_by_argument == {"params": 64 * 64 * 4, "y": 64 * 64 * 4}


def test_what_is_donated_takes_no_room_twice(verified: Verify) -> None:
    donated = verify(plan("cpu:8"), step, arguments(), donate_argnums=(0, 1)).compiled
    kept = verify(plan("cpu:8"), step, arguments()).compiled
    state = kept.bytes_by_kind["weights"] + kept.bytes_by_kind["optimiser state"]
    assert donated.alias_bytes == state
    assert kept.alias_bytes == 0
    assert kept.peak_bytes > donated.peak_bytes


def test_another_failure_of_the_compiler_is_a_problem_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise jax.errors.JaxRuntimeError("INTERNAL: Mosaic failed\nat a.cc:1\nat b.cc:2")

    real = verify_module.apply
    monkeypatch.setattr(
        verify_module,
        "apply",
        lambda *said, **more: SimpleNamespace(
            layouts=(applied := real(*said, **more)).layouts,
            traced=applied.traced,
            placed=applied.placed,
            notes=applied.notes,
            lower=lambda *args: SimpleNamespace(compile=fail),
        ),
    )
    with pytest.raises(PlanError) as refused:
        verify(plan("cpu:8"), step, arguments())
    (problem,) = refused.value.problems
    assert problem.code == "MW405"
    assert problem.message == "The program does not compile for cpu:8: Mosaic failed"


def test_a_text_that_cannot_be_had_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: Any) -> Any:
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: No such compile option")

    broken = SimpleNamespace(as_text=fail, compile=fail)
    found = program_text(broken, broken, physical(parse_topology("v3:2x2")))
    assert found.text is None
    assert found.note
    assert "No such compile option" in found.note
    assert program_text_module.ProgramText(text="x").note is None


def test_of_a_program_that_cannot_be_read_no_collective_is_compared(
    verified: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = verified("v3:2x2")
    assert any(pair.name.startswith("collective_bytes") for pair in pairs(said.compiled, said.predicted))
    unread = replace(said.compiled, matrix_flops=None, collectives=(), cycles=None, compute_s=None)
    assert [pair.name for pair in pairs(unread, said.predicted)] == ["peak_bytes"]


@pytest.mark.tpu_compiler
@needs_libtpu
def test_where_gathers_are_offloaded_all_the_same_the_text_is_the_one_the_compiler_wrote() -> None:
    def next_words(table: Any, tokens: Any) -> Any:
        def loss(table: Any) -> jax.Array:
            said = jax.nn.log_softmax(jnp.tanh(table[tokens]) @ table.T)
            return -jnp.mean(jnp.take_along_axis(said, tokens[:, None], -1))

        return jax.grad(loss)(table)

    asked = Plan(
        name="words",
        topology=parse_topology("v5p:2x2x1"),
        mesh=Mesh(axes=(Axis(name="model", size=4),)),
        rules=(
            Rule(pattern="table", assignment=split("V M@model")),
            Rule(pattern="**", assignment=Infer()),
        ),
    )
    arrays = jax.ShapeDtypeStruct((8000, 512), jnp.float32), jax.ShapeDtypeStruct((8192,), jnp.int32)
    compiled = verify(asked, next_words, arrays).compiled
    assert compiled.collectives
    assert compiled.cycles
    assert compiled.note
    assert "SparseCores" in compiled.note


@pytest.mark.parametrize(
    ("message", "required", "available"),
    [
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (19.83G) exceeds available HBM (15.48G). HLO module: jit_step.\nSee https://openxla.org",
            19.83 * 2**30,
            15.48 * 2**30,
        ),
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 512.5M of 128.0M hbm. Exceeded by 384.5M.",
            512.5 * 2**20,
            128 * 2**20,
        ),
    ],
)
def test_the_compilers_numbers_are_read(message: str, required: float, available: float) -> None:
    said = read_misfit(message)
    assert said is not None
    assert (said.required_bytes, said.available_bytes) == (round(required), round(available))
    assert "\n" not in said.reason


def test_a_misfit_without_numbers_is_still_one_and_other_errors_are_none() -> None:
    said = read_misfit("RESOURCE_EXHAUSTED: no room")
    assert said is not None
    assert (said.required_bytes, said.reason) == (None, "no room")
    assert read_misfit("INTERNAL: no idea") is None


@pytest.mark.parametrize(
    ("path", "returned", "kind"),
    [
        ("params/wi", True, "weights"),
        ("params/attention/v", True, "weights"),
        ("params/option", True, "weights"),
        ("opt_state/0/mu/wi", True, "optimiser state"),
        ("mu/wi", True, "optimiser state"),
        ("v", True, "optimiser state"),
        ("state/opt_state/0", True, "optimiser state"),
        ("state/params/wi", True, "weights"),
        ("batch/x", False, "batch"),
        ("opt", False, "batch"),
    ],
)
def test_arguments_are_told_by_whether_they_return_and_by_name(path: str, returned: bool, kind: str) -> None:
    assert Argument(path=path, num_bytes=1, returned=returned).kind == kind


def test_the_tighter_limit_counts() -> None:
    v3 = physical(parse_topology("v3:2x2"))
    assert memory_limit(v3, 2**30) == (2**30, "the plan")
    assert memory_limit(v3, 2**40) == (v3.hbm_bytes, "the chip (v3)")
    assert memory_limit(None, None) == (None, "none")


def test_tables_and_text_say_the_same(verified: Verify) -> None:
    verification = verified("cpu:8")
    shown = tables(verification)
    assert [table.title.split()[0] for table in shown] == ["Memory", "Work", "Collectives", "Predicted"]
    for table in shown:
        assert all(len(row) == len(table.headers) for row in table.rows)
        assert all(cell in str(verification) for row in table.rows for cell in row)
    assert str(verification).startswith("mlp fits cpu:8: a device needs")


def test_bytes_are_shown_as_people_read_them() -> None:
    assert [binary(n) for n in (0, 1023, 1536, 15 * 2**30)] == ["0 B", "1023 B", "1.50 KiB", "15.00 GiB"]
