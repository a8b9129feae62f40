"""However tokens travel to their experts, what they say is what the annotated exchange says, forward and gradient."""

from __future__ import annotations

import functools
import importlib.util
import re

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from meshwright.backends.jax.models.moe import Capacity, MoeSettings, moe_layer
from meshwright.backends.jax.models.moe.dispatch.sorted import Sorted, SortedDispatch
from meshwright.backends.jax.models.moe.exchange.annotated import AnnotatedExchange
from meshwright.backends.jax.models.moe.exchange.manual import ManualExchange
from meshwright.backends.jax.models.moe.exchange.routes import Direct, TwoLevel
from meshwright.backends.jax.models.moe.exchange.sharing import shared
from meshwright.backends.jax.models.moe.exchange.uneven import Uneven
from meshwright.backends.jax.models.moe.exchange.uneven_levels import UnevenLevels
from meshwright.backends.jax.models.moe.experts import FeedForward
from meshwright.backends.jax.overlap import SCOPE, compiler_options

G, C, M, H = 8, 3, 6, 16
WORK = FeedForward(kernel="ragged_dot")


def work(weights, arrived, key):
    return WORK(weights, arrived, key=key)


def weights(experts: int) -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 2)
    return {
        "wi": jax.random.normal(keys[0], (experts, M, H)),
        "wo": jax.random.normal(keys[1], (experts, H, M)),
    }


def slots(experts: int, capacity: int = C) -> jax.Array:
    return jax.random.normal(jax.random.key(1), (experts, G, capacity, M))


def rows(sizes: np.ndarray, room: int) -> Sorted:
    """Rows of experts in turn; those behind the last are garbage that must go nowhere."""
    return Sorted(jax.random.normal(jax.random.key(2), (len(sizes), room, M)), jnp.asarray(sizes, jnp.int32))


def mesh(**sizes: int) -> tuple[tuple[str, int], ...]:
    return tuple(sizes.items())


def run(exchange, params, sent, **sizes: int):
    """What returns, what is refused, and the gradients of a sum of squares, on a mesh of these sizes or one device."""

    def loss(params, values):
        given = sent._replace(rows=values) if isinstance(sent, Sorted) else values
        found = exchange(work, params, given, key=None)
        returned = _valid(found.returned) if isinstance(sent, Sorted) else found.returned
        return (returned**2).sum(), (returned, found.refused)

    devices = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))
    values = sent.rows if isinstance(sent, Sorted) else sent
    whole = NamedSharding(devices, PartitionSpec()) if sizes else None
    lowered = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True), in_shardings=whole).lower(params, values)
    fast = lowered.compile({"xla_backend_optimization_level": "0"})
    if whole is not None:
        params, values = jax.device_put((params, values), whole)
    (_, found), gradients = fast(params, values)
    return jax.device_get((*found, gradients))


def _valid(sent: Sorted) -> jax.Array:
    number = jnp.arange(sent.rows.shape[1])
    return jnp.where((number < sent.sizes.sum(axis=1)[:, None])[..., None], sent.rows, 0)


@functools.cache
def expected_of_slots(experts: int, capacity: int):
    return run(AnnotatedExchange(), weights(experts), slots(experts, capacity))


def assert_same(exchange, sent, experts: int, **sizes: int) -> None:
    returned, refused, gradients = run(exchange, weights(experts), sent, **sizes)
    if isinstance(sent, Sorted):
        expected, _, expected_gradients = run(AnnotatedExchange(), weights(experts), sent)
    else:
        expected, _, expected_gradients = expected_of_slots(experts, sent.shape[2])
    assert refused == 0
    assert np.abs(returned).max() > 1
    for found, wanted in zip(
        jax.tree.leaves((returned, gradients)), jax.tree.leaves((expected, expected_gradients)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


DIRECT = Direct(axes=("x",))


def test_one_all_to_all_with_one_expert_a_device():
    assert_same(ManualExchange(mesh=mesh(x=8), owners=("x",), route=DIRECT), slots(8), 8, x=8)


def test_several_experts_a_device_and_another_axis_stays_automatic():
    assert_same(ManualExchange(mesh=mesh(x=4, y=2), owners=("x",), route=DIRECT), slots(8), 8, x=4, y=2)


@pytest.mark.parametrize("split_over", [2, 1, 0])
def test_every_replica_of_the_experts_has_tokens_of_its_own(split_over):
    sharing, route = shared({"a": 2}, split_over), None if split_over == 0 else DIRECT
    exchange = ManualExchange(mesh=mesh(d=2, x=2, a=2), owners=("x",), route=route, sharing=sharing, replicas=("d",))
    assert_same(exchange, slots(8), 8, d=2, x=2, a=2)


def test_owners_over_two_axes_are_counted_major_first():
    exchange = ManualExchange(mesh=mesh(y=2, x=4), owners=("x", "y"), route=Direct(axes=("x", "y")))
    assert_same(exchange, slots(8), 8, y=2, x=4)


@pytest.mark.parametrize(("outer", "inner"), [(2, 4), (4, 2)])
def test_two_levels_are_one_all_to_all(outer, inner):
    route = TwoLevel(outer="o", inner="i", outer_size=outer, inner_size=inner)
    exchange = ManualExchange(mesh=mesh(o=outer, i=inner), owners=("o", "i"), route=route)
    assert_same(exchange, slots(8), 8, o=outer, i=inner)


@pytest.mark.parametrize("chunks", [2, 8])  # 3 slots in chunks of 2 and 1, and of one each
def test_chunks_say_the_same(chunks):
    assert_same(ManualExchange(mesh=mesh(x=8), owners=("x",), route=DIRECT, chunks=chunks), slots(8), 8, x=8)
    assert_same(AnnotatedExchange(chunks=chunks), slots(8), 8)


@pytest.mark.parametrize(("chunks", "asked"), [(1, {}), (2, {"xla_tpu_enable_async_all_to_all": "true"})])
def test_a_step_asks_the_compiler_that_chunks_may_overlap(chunks, asked):
    exchange = AnnotatedExchange(chunks=chunks)
    gradients = jax.grad(lambda params, sent: (exchange(work, params, sent, key=None).returned ** 2).sum())
    traced = jax.make_jaxpr(jax.jit(gradients))(weights(2), slots(2))
    assert compiler_options(traced) == asked


def test_a_step_with_a_scope_of_a_name_alike_asks_the_compiler_nothing():
    for name in ("in_chunks", f"not_{SCOPE}", f"{SCOPE}_too"):
        assert compiler_options(jax.make_jaxpr(jax.named_scope(name)(jnp.sin))(1.0)) == {}
    assert compiler_options(jax.make_jaxpr(jax.named_scope(SCOPE)(jnp.sin))(1.0))


@pytest.mark.parametrize("split_over", [1, 2, 4, 0])
def test_an_expert_is_shared_by_devices_whatever_r_is(split_over):
    sharing = shared({"a": 2, "b": 2}, split_over)
    route = None if split_over == 0 else DIRECT
    exchange = ManualExchange(mesh=mesh(x=2, a=2, b=2), owners=("x",), route=route, sharing=sharing)
    assert_same(exchange, slots(8), 8, x=2, a=2, b=2)


SKEWED = np.array([[5, 0, 0, 0, 0, 0, 0, 1], [0] * 8, [0, 0, 0, 0, 0, 0, 0, 7]] + [[1, 0, 2, 0, 1, 1, 0, 0]] * 5)


def test_uneven_counts_go_first_then_the_rows_that_there_are():
    route = Uneven(axes=("x",), devices=8)
    sent = rows(np.tile(SKEWED, (2, 2)), 18)
    assert_same(ManualExchange(mesh=mesh(x=8), owners=("x",), route=route), sent, 16, x=8)


def test_uneven_rows_find_experts_that_devices_split():
    route, sharing = Uneven(axes=("x",), devices=4), shared({"a": 2}, 2)
    exchange = ManualExchange(mesh=mesh(x=4, a=2), owners=("x",), route=route, sharing=sharing)
    assert_same(exchange, rows(SKEWED, 8), 8, x=4, a=2)


@pytest.mark.parametrize(("outer", "inner"), [(2, 4), (4, 2)])
def test_uneven_rows_go_in_two_levels(outer, inner):
    route = UnevenLevels(levels=TwoLevel(outer="o", inner="i", outer_size=outer, inner_size=inner))
    exchange = ManualExchange(mesh=mesh(o=outer, i=inner), owners=("o", "i"), route=route)
    assert_same(exchange, rows(np.tile(SKEWED, (2, 2)), 18), 16, o=outer, i=inner)


def test_what_either_level_has_no_room_for_is_refused():
    sizes = np.zeros((8, 8), int)
    sizes[:, 3] = 100  # to one device: 64 of each come through the first level, 128 rows in all through the second
    route = UnevenLevels(levels=TwoLevel(outer="o", inner="i", outer_size=4, inner_size=2), bound=1.0)
    exchange = ManualExchange(mesh=mesh(o=4, i=2), owners=("o", "i"), route=route)
    params, sent = weights(8), rows(sizes, 128)
    returned, refused, _ = run(exchange, params, sent, o=4, i=2)
    expected, _, _ = run(AnnotatedExchange(), params, sent)
    assert refused == 8 * 100 - 128
    taken = np.abs(returned).max(axis=-1) > 0
    assert taken.sum() == 128
    np.testing.assert_allclose(returned[taken], expected[taken], rtol=1e-5, atol=1e-4)


def test_what_finds_no_room_is_refused_and_told():
    room, sizes = 128, np.zeros((8, 8), int)
    sizes[:, 3] = 40  # all on one device, which has room for three devices' and a bit
    exchange = ManualExchange(mesh=mesh(x=8), owners=("x",), route=Uneven(axes=("x",), devices=8, bound=1.5))
    params, sent = weights(8), rows(sizes, 64)
    returned, refused, _ = run(exchange, params, sent, x=8)
    expected, _, _ = run(AnnotatedExchange(), params, sent)
    assert refused == 8 * 40 - room
    taken = np.arange(64) < np.array([40, 40, 40, 8, 0, 0, 0, 0])[:, None]
    np.testing.assert_allclose(returned[taken], expected[taken], rtol=1e-5, atol=1e-4)
    assert not returned[~taken].any()


def test_an_experts_rows_are_one_product_whatever_the_number_of_devices():
    """Tutel's flexible all-to-all: what arrives is [E/W, G, C, M], not W times [E/W, G/W, C, M]."""
    seen = []

    def watched(weights, arrived, key):
        seen.append((weights["wi"].shape, arrived.shape))
        return arrived

    for devices in (2, 8):
        exchange = ManualExchange(mesh=mesh(x=devices), owners=("x",), route=DIRECT)
        jax.eval_shape(lambda p, x, exchange=exchange: exchange(watched, p, x, key=None), weights(8), slots(8))
    assert seen == [((4, M, H), (4, G, C, M)), ((1, M, H), (1, G, C, M))]


def test_devices_and_chunks_draw_dropout_of_their_own():
    def noise(weights, arrived, key):
        return jax.random.uniform(key, arrived.shape)

    exchange = ManualExchange(mesh=mesh(x=8), owners=("x",), route=DIRECT, chunks=C)
    whole = NamedSharding(jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,)), PartitionSpec())
    fast = jax.jit(lambda p, x, key: exchange(noise, p, x, key=key).returned, in_shardings=whole)
    drawn = jax.device_get(fast(weights(8), slots(8), jax.random.key(0)))
    assert len(np.unique(drawn)) == drawn.size


def test_a_layer_reports_what_found_no_room():
    settings = MoeSettings(
        experts=8,
        groups=8,
        capacity=Capacity(slots=64),
        dispatch=SortedDispatch(),
        exchange=ManualExchange(mesh=mesh(x=8), owners=("x",), route=Uneven(axes=("x",), devices=8, bound=1.0)),
        work=WORK,
    )
    x = jnp.abs(jax.random.normal(jax.random.key(3), (8, 64, M)))
    wg = jnp.zeros((M, 8)).at[:, 2].set(5.0)  # all choose expert 2, and 0 by the tie rule
    whole = NamedSharding(jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,)), PartitionSpec())
    layer = jax.jit(lambda p, x: moe_layer(p, x, jnp.ones((8, 64), bool), settings, key=None)[1], in_shardings=whole)
    report = layer({**weights(8), "wg": wg}, x)
    assert float(report.refused) == float(report.dropped) == 1 - 2 * 128 / (8 * 64 * 2)


def ahead_of_time(exchange, sent) -> str:
    """The TPU's program of the gradients, for eight v5e."""
    devices = np.array(mw.topology("v5e:2x4").devices()).reshape([size for _, size in exchange.mesh])
    placed = Mesh(devices, [name for name, _ in exchange.mesh], axis_types=(AxisType.Auto,) * len(exchange.mesh))
    of_weights = NamedSharding(placed, PartitionSpec(exchange.owners))
    tokens = PartitionSpec(exchange.axes) if isinstance(sent, Sorted) else PartitionSpec(None, exchange.axes)

    def loss(params, values):
        given = sent._replace(rows=values) if isinstance(sent, Sorted) else values
        return (jax.tree.leaves(exchange(work, params, given, key=None).returned)[0] ** 2).sum()

    fast = jax.jit(jax.grad(loss, (0, 1)), in_shardings=(of_weights, NamedSharding(placed, tokens)))
    shapes = jax.eval_shape(lambda: (weights(8), sent.rows if isinstance(sent, Sorted) else sent))
    return fast.lower(*shapes).compile().as_text()


@pytest.mark.tpu_compiler
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
def test_tpus_have_a_program_of_each_way():
    route = TwoLevel(outer="o", inner="i", outer_size=2, inner_size=4)
    two = ahead_of_time(ManualExchange(mesh=mesh(o=2, i=4), owners=("o", "i"), route=route), slots(8))
    assert len(re.findall(r" all-to-all(?:-start)?\(", two)) == 8
    sharing, rows_go = shared({"a": 2, "b": 2}, 2), Uneven(axes=("x",), devices=2)
    uneven = ManualExchange(mesh=mesh(x=2, a=2, b=2), owners=("x",), route=rows_go, sharing=sharing)
    assert len(re.findall(r" ragged-all-to-all(?:-start)?\(", ahead_of_time(uneven, rows(SKEWED, 128)))) == 4
