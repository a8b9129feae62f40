"""Steps and plans of every odd kind: each is priced or refused by a coded problem; and laws that all prices keep."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright import cli
from meshwright.dsl.errors import PlanError
from meshwright.dsl.plan import Plan
from meshwright.dsl.reader import loads
from meshwright.planner.estimate.figures import Estimate

F32 = 4


def shape(*sizes: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def plan(*rules: str, topology: str = "v5e:2x4", mesh: str = "{data: 4, model: 2}", more: str = "") -> Plan:
    lines = "".join(f"  {rule}\n" for rule in rules)
    return loads(f"meshwright: 1\ntopology: {topology}\nmesh: {mesh}\n{more}tensors:\n{lines}")


def split_rows(**more: str) -> Plan:
    return plan("x: B@data ...", "'**': replicate", **more)


def two_layers(params: dict[str, jax.Array], batch: jax.Array) -> dict[str, jax.Array]:
    def loss(weights: dict[str, jax.Array]) -> jax.Array:
        return jnp.sum(jax.nn.gelu(batch @ weights["up"]) @ weights["down"])

    return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params))


LAYERS = ({"up": shape(64, 256), "down": shape(256, 64)}, shape(128, 64))


def layers(batch: str = "B@data D", up: str = "D F@model", down: str = "F@model D", **more: str) -> Estimate:
    return mw.estimate(
        plan(f"params/up: {up}", f"params/down: {down}", f"batch: {batch}", "'**': infer", **more),
        lambda params, batch: two_layers(params, batch),
        LAYERS,
    )


def unknown_turns(x: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda c: jnp.sum(c) > 1, lambda c: jnp.sin(c) * 0.5, x)


def scan_of_scan(x: jax.Array) -> jax.Array:
    def inner(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
        return jnp.tanh(carry), None

    return jax.lax.scan(lambda c, _: jax.lax.scan(inner, c, None, length=3), x, None, length=2)[0]


STEPS: dict[str, Callable[[jax.Array], Any]] = {
    "while": unknown_turns,
    "cond": lambda x: jax.lax.cond(jnp.sum(x) > 0, jnp.sin, jnp.tanh, x),
    "scan of scan": scan_of_scan,
    "sort": lambda x: jnp.sort(x, axis=0),
    "top-k": lambda x: jax.lax.top_k(x, 4),
    "fft": lambda x: jnp.fft.fft(x).real,
    "cholesky": lambda x: jnp.linalg.cholesky(x @ x.T),
    "qr": lambda x: jnp.linalg.qr(x),
    "solve": lambda x: jnp.linalg.solve(x[:, :64], x),
    "threefry": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "rbg": lambda x: x + jax.random.uniform(jax.random.key(0, impl="rbg"), x.shape),
    "complex": lambda x: jax.lax.complex(x, x) * 2,
    "fp8": lambda x: x.astype(jnp.float8_e4m3fn),
    "int4": lambda x: x.astype(jnp.int4),
    "bool": lambda x: x > 0,
    "a row of a number": lambda x: x * jnp.zeros_like(x).at[0].set(1.0),
    "a number of a row": lambda x: x.at[3].set(jnp.arange(128.0)) + jnp.zeros(128).at[3].set(2.0),
    "one number counted": lambda x: x[:, 0][:, None] + jnp.arange(1.0),
    "nothing done": lambda x: x,
}


@pytest.mark.parametrize("name", STEPS)
def test_every_kind_of_step_has_a_price(name: str) -> None:
    estimate = mw.estimate(split_rows(), STEPS[name], (shape(64, 128),))
    assert estimate.peak_bytes >= 64 // 4 * 128 * F32
    assert estimate.step_time_s >= 0


@pytest.mark.parametrize("part", [lambda e, x: e[x], lambda e, x: e[5:7] * 2, lambda e, x: e[x[0]] + e[x[1]]])
def test_the_roofline_moves_what_is_looked_up_and_not_all_of_an_argument(part: Callable[..., jax.Array]) -> None:
    """And all of one of which anything else is read too."""
    args = shape(100_000, 512), shape(64, dtype=jnp.int32)
    found = mw.estimate(plan("'**': replicate"), part, args)
    whole = mw.estimate(plan("'**': replicate"), lambda e, x: part(e, x).sum() + e.sum(), args)
    assert 0 < found.bound_s <= found.step_time_s
    assert whole.bound_s > 100 * found.bound_s


def test_the_memory_of_a_convolution_whose_images_are_fetched_before_their_copy_is_counted() -> None:
    """Group norm behind a large strided kernel, images split by the batch's one image."""

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(x, w, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        z = y.reshape(*y.shape[:3], 16, 3)
        mean, var = (of((1, 2, 4), keepdims=True) for of in (z.mean, z.var))
        return jnp.mean(jax.nn.gelu(((z - mean) * jax.lax.rsqrt(var + 1e-5)).reshape(y.shape)) ** 2)

    args = shape(1, 3, 1, 48), shape(256, 16, 15, 1)
    said = plan("w: replicate", "x: _@a ...", "out: ... _@a", topology="v5p:2x2x2", mesh="{a: 8}")
    found = mw.estimate(said, lambda w, x: w - 0.01 * jax.grad(loss)(w, x), args)
    assert found.peak_bytes > 256 // 8 * 16 * 15 * F32


@pytest.mark.parametrize("topology", ["v3:2x2", "v5e:2x4"])
def test_a_convolution_without_places_is_a_product(topology: str) -> None:
    """Its sum is scattered as a product's is."""
    said = plan("x: B C@x", "w: O C@x", "out: B@x O", topology=topology, mesh="{x: 8}")

    def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (), [])

    found = mw.estimate(said, convolved, (shape(4096, 1024), shape(512, 1024)))
    multiplied = mw.estimate(said, lambda x, w: x @ w.T, (shape(4096, 1024), shape(512, 1024)))
    assert found.collective_bytes == multiplied.collective_bytes


def test_a_print_is_priced_where_jax_lowers_it_and_else_refused_with_a_code() -> None:
    def prints(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", jnp.sum(x))
        return x

    def in_order(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", jnp.sum(x), ordered=True)
        return x

    assert mw.estimate(plan("x: replicate", topology="cpu:1", mesh="{data: 1}"), in_order, (shape(8, 8),)).fits
    assert mw.estimate(plan("x: replicate", topology="cpu:1", mesh="{data: 1}"), prints, (shape(8, 8),)).fits
    with pytest.raises(PlanError, match="MW413"):
        mw.estimate(split_rows(), prints, (shape(64, 128),))


def test_a_region_for_one_device_may_gather_sum_and_pass_on_by_itself() -> None:
    rows = jax.sharding.PartitionSpec("data")

    def region(a: jax.Array) -> jax.Array:
        gathered = jax.lax.all_gather(a, "model").sum(0)
        return gathered + jax.lax.psum(a, "data") + jax.lax.ppermute(a, "data", [(0, 1), (1, 0)])

    def step(x: jax.Array) -> jax.Array:
        mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"))
        return jax.shard_map(region, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)(x)

    said = mw.estimate(plan("x: B@data ...", "'**': infer"), step, (shape(64, 128),)).collective_bytes
    local = 64 // 4 * 128 * F32
    assert said == {"all-gather": 2 * local, "all-reduce": local, "collective-permute": local}


@pytest.mark.filterwarnings("ignore:Using:DeprecationWarning")
def test_a_kernel_for_gpus_is_priced_whatever_bytes_its_code_has() -> None:
    pallas = pytest.importorskip("jax.experimental.pallas")

    def doubled(x: jax.Array) -> jax.Array:
        def kernel(source: Any, target: Any) -> None:
            target[...] = source[...] * 2

        return pallas.pallas_call(kernel, out_shape=shape(64, 128))(x)

    assert mw.estimate(split_rows(topology="h100:8"), doubled, (shape(64, 128),)).peak_bytes > 0
    with pytest.raises(PlanError, match="MW413"):
        mw.estimate(split_rows(), doubled, (shape(64, 128),))


@pytest.mark.parametrize(
    "topology", ["v2:2x2", "v3:2x2", "v4:2x2x1", "v5p:2x2x2", "v6e:2x4", "tpu7x:2x2x1", "2*v5e:2x2", "h100:8", "cpu:8"]
)
def test_every_kind_of_machine_has_a_price(topology: str) -> None:
    estimate = layers(topology=topology)
    assert estimate.comm_s > 0
    assert estimate.peak_bytes >= estimate.memory.argument_bytes > 0


@pytest.mark.parametrize(
    ("step", "out", "shapes", "partitioned", "resharded"),
    [
        (lambda w, x: jnp.tanh(x @ w), "_@a _ F@b", (32, 512, 512), ["collective-permute", "reduce-scatter"], [2, 4]),
        (lambda w, x: jnp.tanh(x) @ w.T, "_ _ M@a", (32, 512, 8192), ["all-gather", "all-reduce"], [2, 8, 8]),
    ],
)
def test_tpu7x_reshards_before_products_what_other_compilers_leave_to_the_partitioner(
    step: Callable[..., Any], out: str, shapes: tuple[int, ...], partitioned: list[str], resharded: list[int]
) -> None:
    """A head's weights are gathered there, and activations sent in all-to-alls; one step is priced for both."""
    x = "_ _ M@a" if shapes[-1] == 512 else "_@a _ F@b"
    made = {
        topology: mw.estimate(
            plan("w: M@a F@b", f"x: {x}", f"out: {out}", topology=topology, mesh="{a: 4, b: 4}"),
            step,
            (shape(512, 8192), shape(*shapes)),
        ).collectives
        for topology in ("v6e:4x4", "tpu7x:2x2x2")
    }
    assert sorted(each.kind for each in made["v6e:4x4"]) == partitioned
    kinds = {each.kind for each in made["tpu7x:2x2x2"]}
    assert {"all-gather", "all-to-all"} <= kinds <= {"all-gather", "all-to-all", "all-reduce"}
    assert sorted(each.num_bytes >> 20 for each in made["tpu7x:2x2x2"]) == resharded


def test_what_is_scattered_as_it_is_added_up_goes_round_on_tpu7x_too() -> None:
    """A gradient made behind a sum, and then resharded, would be a reduce-scatter, and what is gathered for one product
    alone a gather: the compiler's program has permutes alone, 6.375 MiB of them.
    """

    def gradient(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.grad(lambda w: jnp.sum(jax.nn.relu(jnp.sin(x) @ w) * y))(w)

    found = mw.estimate(
        plan("w: M@a F", "x: B@a M", "y: B@a F", "out: M@a F", topology="tpu7x:2x2x2", mesh="{a: 16}"),
        gradient,
        (shape(512, 2048), shape(65536, 512), shape(65536, 2048)),
    )
    assert {each.kind for each in found.collectives} == {"collective-permute"}
    assert sum(each.total_bytes for each in found.collectives) == 51 << 17


@pytest.mark.parametrize(("dtype", "padded_mib"), [(jnp.float32, 70), (jnp.bfloat16, None)])
def test_tpu7x_pads_the_pieces_of_sums_of_32_bits(dtype: Any, padded_mib: int | None) -> None:
    """f32[2048,8192] over four devices has 70 pieces for 64 there, and the permute that sets them right."""
    found = mw.estimate(
        plan("x: B M@a", "w: M@a F@b", "out: B@a F@b", topology="tpu7x:2x2x2", mesh="{a: 4, b: 4}"),
        lambda x, w: x @ w,
        (shape(2048, 8192, dtype=dtype), shape(8192, 32768, dtype=dtype)),
    )
    sent = {each.kind: each.num_bytes >> 20 for each in found.collectives}
    assert sent["reduce-scatter"] == (padded_mib or 32)
    assert ("collective-permute" in sent) == (padded_mib is not None)


def test_a_replicated_plan_communicates_nothing() -> None:
    assert layers(batch="replicate", up="replicate", down="replicate").collectives == ()


@pytest.mark.parametrize("whole", [False, True])
def test_more_devices_for_the_batch_never_compute_longer(whole: bool) -> None:
    weights = {"up": "replicate", "down": "replicate"} if whole else {}
    taken = [
        layers(topology=f"v5e:{dims}", mesh=f"{{data: {data}, model: 2}}", **weights).compute_s
        for dims, data in (("2x2", 2), ("2x4", 4), ("4x4", 8), ("4x8", 16))
    ]
    assert taken == sorted(taken, reverse=True)


def test_the_order_of_devices_changes_no_bytes() -> None:
    estimates = [layers(), layers(mesh="{model: 2, data: 4}")]
    assert estimates[0].collective_bytes == estimates[1].collective_bytes
    assert estimates[0].peak_bytes == estimates[1].peak_bytes


def test_a_limit_decides_whether_it_fits() -> None:
    peak = layers().peak_bytes
    assert layers(more=f"limits: {{hbm: {peak} B}}\n").fits
    assert not layers(more=f"limits: {{hbm: {peak - 1} B}}\n").fits


def test_axes_of_one_device_cost_nothing() -> None:
    estimate = layers(topology="cpu:1", mesh="{data: 1, model: 1}")
    assert (estimate.comm_s, estimate.collectives) == (0, ())


DIGEST = """
import json, sys
sys.path.insert(0, {here!r})
from test_estimate_cases import layers
print(json.dumps(layers().as_json(), sort_keys=True, default=str))
"""


def test_two_calls_and_two_processes_say_the_same() -> None:
    said = [json.dumps(layers().as_json(), sort_keys=True, default=str) for _ in range(2)]
    code = DIGEST.format(here=str(Path(__file__).parent))
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said[0] == said[1] == other.stdout.strip()


def test_json_adds_up() -> None:
    figures = layers().as_json()
    assert figures["step_time_s"] == pytest.approx(figures["compute_s"] + figures["comm_s"])
    assert sum(figures["bytes_by_kind"].values()) == figures["peak_bytes"]


def test_a_page_refers_to_nothing_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mw_cases.py").write_text(
        "import jax\ndef model():\n    s = jax.ShapeDtypeStruct((64, 64), 'float32')\n"
        "    return lambda params, batch: batch @ params, (s, s)\n"
    )
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "plan.yaml"
    file.write_text(
        "meshwright: 1\nmodel: mw_cases:model\ntopology: v5e:2x2\nmesh: {data: 2, model: 2}\n"
        "tensors:\n  params: K@model N\n  batch: B@data K@model\n  '*': infer\n"
    )
    assert cli.main(["explain", str(file), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)|url\(\s*["']?(?!#)|@import""", page)
