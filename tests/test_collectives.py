"""The collectives of compiled programs: kinds, bytes, turns, axes, lines."""

import importlib.util
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from meshwright.backends.jax.devices import topology
from meshwright.backends.jax.program.collectives import Collective, collectives, total_bytes_by_kind
from meshwright.backends.jax.program.hlo import parse
from meshwright.backends.jax.program.hlo_loops import Runs
from meshwright.backends.jax.program.replica_groups import AxisUse, axes_of_groups, replica_groups, source_target_pairs

needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")


def found(lines: list[str], before: str = "", **mesh: int) -> tuple[Collective, ...]:
    """The collectives of a program whose entry has these lines; ``%x`` is f32[4,8], ``%big`` f32[16,8]."""
    head = ["HloModule m, num_partitions=8", before, "ENTRY %main (x: f32[4,8], big: f32[16,8]) -> f32[] {"]
    rows = ["  %x = f32[4,8]{1,0:T(8,128)} parameter(0)", "  %big = f32[16,8]{1,0} parameter(1)"]
    text = "\n".join([*head, *rows, *(f"  {line}" for line in lines), "}"])
    return collectives(Runs(program=parse(text)), mesh or {"a": 2, "b": 4})


@pytest.mark.parametrize(
    ("line", "kind", "num_bytes", "size"),
    [
        ("%r = f32[16,8]{1,0} all-gather(%x), replica_groups=[2,4]<=[8], dimensions={0}", "all-gather", 512, 4),
        ("%r = f32[4,8]{1,0} reduce-scatter(%big), replica_groups=[2,4]<=[8]", "reduce-scatter", 512, 4),
        ("%r = f32[4,8]{1,0} all-reduce(%x), replica_groups={{0,4},{1,5},{2,6},{3,7}}", "all-reduce", 128, 2),
        ("%r = bf16[4,8]{1,0} all-reduce(%x), replica_groups={{0,4},{1,5},{2,6},{3,7}}", "all-reduce", 64, 2),
        ("%r = f32[4,8]{1,0} all-to-all(%x), replica_groups={}, dimensions={0}", "all-to-all", 128, 8),
        ("%r = f32[4,8]{1,0} ragged-all-to-all(%x), replica_groups=[1,8]<=[8]", "ragged-all-to-all", 128, 8),
        ("%r = f32[4,8]{1,0} collective-broadcast(%x), replica_groups=[1,8]<=[8]", "collective-broadcast", 128, 8),
        ("%r = f32[4,8]{1,0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}", "collective-permute", 128, 2),
        (
            "%r = (f32[4,8]{1,0}, f32[16,8]{1,0}) all-gather-start(%x), replica_groups=[2,4]<=[8]",
            "all-gather",
            512,
            4,
        ),
        (
            "%r = (f32[4,8], f32[4,8], u32[], u32[]) collective-permute-start(%x), source_target_pairs={{0,4}}",
            "collective-permute",
            128,
            2,
        ),
    ],
)
def test_bytes_are_the_larger_of_operands_and_results(line: str, kind: str, num_bytes: int, size: int) -> None:
    (only,) = found([line])
    assert (only.kind, only.num_bytes, only.group_size, only.times) == (kind, num_bytes, size, 1)


def test_a_collective_is_priced_where_the_mesh_lies() -> None:
    """Positions in a program are of the mesh's order; prices are of the machine's devices."""
    from networks import net

    line = "%r = f32[16,8]{1,0} all-gather(%x), replica_groups=[2,4]<=[8], dimensions={0}"
    text = "\n".join(
        [
            "HloModule m, num_partitions=8",
            "ENTRY %main (x: f32[4,8]) -> f32[] {",
            f"  %x = f32[4,8]{{1,0}} parameter(0)\n  {line}",
            "  %p = f32[4,8] collective-permute(%x), source_target_pairs={{0,1},{1,0}}",
            "}",
        ]
    )
    mesh = {"a": 2, "b": 4}
    runs = Runs(program=parse(text))
    along, woven = (
        collectives(runs, mesh, network=net("v5e:2x4", a=a, b=b)) for a, b in [(2, 4), ((2, "y:2"), (4, "x y:2"))]
    )
    assert [c.predicted_s for c in collectives(runs, mesh)] == [None, None]
    assert along[0].predicted_s == pytest.approx(3e-6)
    assert woven[0].predicted_s == pytest.approx(2e-6)
    assert along[1].predicted_s == woven[1].predicted_s == pytest.approx(1e-6)


def test_an_asynchronous_pair_counts_once() -> None:
    assert (
        len(
            found(
                [
                    "%s = f32[4,8] all-reduce-start(%x), replica_groups=[2,4]<=[8]",
                    "%d = f32[4,8] all-reduce-done(%s)",
                    "%w = ((f32[4,8]), f32[4,8]) async-start(%x), calls=%wrapped",
                    "%v = f32[4,8] async-done(%w)",
                ],
                before="%wrapped (p: f32[4,8]) -> f32[4,8] {\n  %p = f32[4,8] parameter(0)\n"
                "  ROOT %q = f32[4,8] all-to-all(%p), replica_groups=[2,4]<=[8]\n}\n",
            )
        )
        == 2
    )


CHAIN = "\n\n".join(
    f"%part{i} (p: f32[4,8]) -> f32[16,8] {{\n  %p = f32[4,8] parameter(0)\n"
    f"  %g = f32[16,8] all-gather(%p), channel_id=15, replica_groups=[2,4]<=[8], "
    f'frontend_attributes={{chain_id="0"}}\n  ROOT %t = f32[16,8] {root}\n}}'
    for i, root in enumerate(['custom-call(%g), custom_call_target="AsyncCollectiveStart"', "add(%g, %g)", "copy(%g)"])
)


def test_a_collective_spread_over_fusions_counts_once() -> None:
    lines = [f"%f{i} = f32[16,8] fusion(%x), kind=kCustom, calls=%part{i}" for i in range(3)]
    assert [c.kind for c in found(lines, before=CHAIN)] == ["all-gather"]


def test_a_fused_reduce_scatter_is_one_and_its_caller_says_where_from() -> None:
    (only,) = found(
        [
            "%f = f32[4,8] fusion(%big), calls=%all-reduce-scatter.1, "
            'metadata={op_name="jit(s)/dot" source_file="m.py" source_line=4}'
        ],
        before="%all-reduce-scatter.1 (p: f32[16,8]) -> f32[4,8] {\n  %p = f32[16,8] parameter(0)\n"
        "  %r = f32[16,8] all-reduce(%p), replica_groups={{0,1,2,3},{4,5,6,7}}\n"
        "  ROOT %s = f32[4,8] dynamic-slice(%r)\n}\n",
    )
    assert (only.kind, only.num_bytes, only.op_name, str(only.source)) == (
        "reduce-scatter",
        512,
        "jit(s)/dot",
        "m.py:4",
    )


def test_collectives_of_one_device_are_none() -> None:
    assert found(["%r = f32[4,8] all-reduce(%x), replica_groups={{0},{1},{2},{3}}"]) == ()


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("replica_groups=mesh['a'=2,'b'=4] {'b':(1)2}, x", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("replica_groups=mesh['a'=2,'b'=4] {'b':(2)2}, x", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("replica_groups=mesh['a'=2,'b'=4] {'a','b':(2)2}", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("replica_groups=mesh['a'=4,'b'=1,'c'=2], device_ids=([2,4]T(1,0)) {'a'}, y", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("replica_groups=[4,2]<=[2,4]T(1,0), dimensions={0}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("replica_groups=[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("replica_groups={{0,1},{2,3}}, to_apply=%add", [[0, 1], [2, 3]]),
        ("replica_groups={}", [[0, 1, 2, 3, 4, 5, 6, 7]]),
    ],
)
def test_groups_are_read_in_every_notation(text: str, groups: list[list[int]]) -> None:
    read = replica_groups(f"channel_id=1, {text}", 8)
    assert read is not None
    assert read.tolist() == groups


def test_what_has_no_groups_has_none() -> None:
    assert replica_groups("dimensions={0}", 8) is None
    assert source_target_pairs("dimensions={0}") is None


@given(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=4), st.data())
def test_the_axes_of_a_group_are_those_that_vary_in_it(sizes: list[int], data: st.DataObject) -> None:
    used = data.draw(st.sets(st.integers(0, len(sizes) - 1)))
    mesh = {f"a{i}": size for i, size in enumerate(sizes)}
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    order = [i for i in range(len(sizes)) if i not in used] + sorted(used)
    groups = grid.transpose(order).reshape(-1, math.prod(sizes[i] for i in used))
    whole = tuple(AxisUse(name=f"a{i}", extent=sizes[i], size=sizes[i]) for i in sorted(used))
    assert axes_of_groups(groups, mesh) == whole


def test_a_part_of_an_axis_says_how_much_of_it() -> None:
    (use,) = axes_of_groups(np.array([[0, 2], [1, 3]]), {"x": 1, "y": 8})
    assert str(use) == "y (2 of 8)"


def test_the_local_compilers_collectives_are_found_with_turns_axes_and_line() -> None:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(x @ w), None  # this line

        return jax.lax.scan(layer, x, w)[0].sum()

    shardings = [NamedSharding(mesh, PartitionSpec(*s)) for s in (("data", "model"), (None, "model", None))]
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((32, 64), (5, 64, 64))]
    compiled = jax.jit(step, in_shardings=shardings).lower(*shapes).compile()
    runs = Runs(program=parse(compiled.as_text()))
    listed = collectives(runs, {"data": 2, "model": 4})
    inner = [c for c in listed if c.times == 5]
    assert inner
    assert {str(axis) for c in inner for axis in c.axes} == {"model"}
    line = step.__code__.co_firstlineno + 2
    assert {str(c.source) for c in inner} == {f"{__file__}:{line}"}
    assert sum(total_bytes_by_kind(inner).values()) == sum(5 * c.num_bytes for c in inner)
    assert inner[0].as_json()["axes"] == [{"name": "model", "extent": 4, "size": 4}]


@pytest.mark.tpu_compiler
@needs_libtpu
@pytest.mark.parametrize("name", ["v3:2x2", "v5e:2x4"])
def test_the_tpu_compilers_fully_sharded_layer_gathers_and_scatters(name: str) -> None:
    mesh = Mesh(np.array(topology(name).devices()), ("data",), axis_types=(AxisType.Auto,))

    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        def loss(w: jax.Array) -> jax.Array:
            return (jax.lax.scan(lambda x, w: (jnp.maximum(x @ w, 0), None), x, w)[0] ** 2).mean()

        return w - 0.1 * jax.grad(loss)(w)

    split = NamedSharding(mesh, PartitionSpec(None, "data")), NamedSharding(mesh, PartitionSpec("data"))
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((3, 512, 512), (1024, 512))]
    compiled = jax.jit(step, in_shardings=split, out_shardings=split[0]).lower(*shapes).compile()
    runs = Runs(program=parse(compiled.as_text()))
    totals = total_bytes_by_kind(collectives(runs, {"data": 8}))
    weights = 3 * 512 * 512
    assert totals.get("reduce-scatter", 0) + totals.get("all-reduce", 0) == 4 * weights  # v3 keeps this one whole
    assert totals["all-gather"] in (2 * 2 * weights, 2 * 4 * weights)  # forward and backward; gathered as bfloat16
    assert runs.estimated_cycles


SEND = (
    "%s = (f32[4,8]{1,0}, u32[], token[]) send(%x), channel_id=5, is_host_transfer=true, frontend_attributes="
    '{_xla_host_transfer_rendezvous="g_0",_xla_megascale_target=TARGET,_xla_megascale_transfer_type="ALL_GATHER"}'
)
RECV = (
    "%v = (f32[16,8]{1,0}, u32[], token[]) recv(%t), channel_id=4, "
    'frontend_attributes={_xla_host_transfer_rendezvous="g_0"}'
)


@pytest.mark.parametrize(
    ("target", "axes"),
    [
        ('"{1,2,3,4}x{0:3}"', ["slice"]),
        ("{{100000,300000},{100001,300001},{200000,400000},{200001,400001}}", ["slice (2 of 4)"]),
        ("{{100000,100001,300000,300001},{200000,200001,400000,400001}}", ["slice (2 of 4)", "model"]),
    ],
)
def test_transfers_between_slices_are_collectives_too(target: str, axes: list[str]) -> None:
    text = "\n".join(
        ["HloModule m, num_partitions=2", "ENTRY %m (x: f32[4,8]) -> f32[] {", "  %x = f32[4,8] parameter(0)"]
        + [f"  {line}" for line in (SEND.replace("TARGET", target), RECV)]
        + ["  %r = f32[4,8] all-reduce(%x), replica_groups={{0,1}}", "}"]
    )
    slices = np.arange(8).reshape(4, 2)
    between, within = collectives(Runs(program=parse(text)), {"slice": 4, "model": 2}, slices)
    assert (between.kind, between.num_bytes, between.across_slices) == ("all-gather", 512, True)
    assert [str(axis) for axis in between.axes] == axes
    assert (within.across_slices, [str(axis) for axis in within.axes]) == (False, ["model"])


def test_a_collective_without_metadata_asks_its_neighbours() -> None:
    said = 'metadata={op_name="jit(f)/dot" source_file="m.py" source_line=LINE}'
    reduce, gather = found(
        [
            f"%y = f32[4,8] negate(%x), {said.replace('LINE', '1')}",
            "%z = f32[4,8] copy(%y)",
            "%r = f32[4,8] all-reduce(%z), replica_groups=[2,4]<=[8]",
            "%g = f32[16,8] all-gather(%z), replica_groups=[2,4]<=[8]",
            "%c = f32[16,8] copy(%g)",
            f"%u = f32[16,8] negate(%c), {said.replace('LINE', '2')}",
        ]
    )
    assert (str(reduce.source), str(gather.source)) == ("m.py:1", "m.py:2")
