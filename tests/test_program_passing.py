"""What products compute in passing and what ends them, in the program and priced whole."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from meshwright.planner.graph import Factors, Graph, Sharding
from meshwright.planner.program.step.around import Around
from meshwright.planner.program.step.fused import Fused, fused
from meshwright.planner.program.step.known import Known
from meshwright.planner.solver.solve import solve
from small_graphs import Drawing, exact_of, nothing, program_of, promised_s
from small_steps import program_of as program_of_step
from small_steps import shape, trained


def test_what_is_computed_in_passing_for_products_is_sent_rounded() -> None:
    """A gradient's two readers want it whole: it is gathered as bfloat16, after what is computed of it in passing."""
    drawing = Drawing()
    x, w = drawing.arg(65536, 512), drawing.arg(512, 8192)
    v, u = drawing.arg(65536, 8192), drawing.arg(65536, 8192)
    made = drawing.dot(x, w)
    passing = drawing.each("multiply", made, drawing.each("tanh", made))
    graph = drawing.graph(drawing.dot(passing, v, 0, 0), drawing.dot(passing, u, 0, 0))
    pins: dict[str, Sharding] = {"a0": (("x",), ()), "a1": ((), ()), "a2": ((), ("x",)), "a3": ((), ("x",))}
    pins |= {"out/0": ((), ("x",)), "out/1": ((), ("x",))}
    program = program_of(graph, "v3:2x2", {"x": 8}, pins=pins)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    took = exact_of(program, choices).estimate
    assert [each.num_bytes for each in took.collectives if each.kind == "all-gather"] == [65536 * 8192 * 2]
    assert promised_s(program, choices) == pytest.approx(took.step_time_s, rel=0.02)


def test_numbers_that_fill_arrays_bind_nothing_that_reads_them() -> None:
    """One array of zeros is met by what a product reads and by what ends it: these may be split along other dims."""
    drawing = Drawing()
    x, w, other = drawing.arg(4096, 1024), drawing.arg(1024, 1024), drawing.arg(4096, 1024)
    zeros = drawing.fill(4096, 1024)
    made = drawing.dot(drawing.each("maximum", x, zeros), w)
    graph = drawing.graph(drawing.each("multiply", drawing.each("maximum", made, zeros), other))
    known = Known()
    program, values = known.program(graph)
    assert len(values) == len(program.graph.values) == len(graph.values) + 1
    assert len(known.ended) == 1
    assert not known.within
    laid = program_of(graph, "v3:2x2", {"x": 8})
    (product,) = (node for node in laid.wiring.nodes if node.ended is not None)
    lies = set(zip(product.layouts[x], product.layouts[made], strict=True))
    assert {(((), ("x",)), ((), ())), (((), ("x",)), (("x",), ())), (((), ()), ((), ("x",)))} <= lies


def test_what_several_read_by_way_of_one_layout_is_brought_there_and_on_once() -> None:
    """One product reads what another makes along both axes, two read it whole: an exchange, and one gather."""
    drawing = Drawing()
    x, w, a, b, c = (drawing.arg(4096, 4096) for _ in range(5))
    made = drawing.dot(x, w)
    graph = drawing.graph(*(drawing.dot(made, each) for each in (a, b, c)))
    rows: Sharding = (("x", "y"), ())
    columns: Sharding = ((), ("x", "y"))
    pins: dict[str, Sharding] = {"a0": (("x",), ()), "a1": ((), ("y",)), "a2": ((), ()), "a3": columns, "a4": columns}
    pins |= {"out/0": rows, "out/1": columns, "out/2": columns}
    program = program_of(graph, "v3:2x2", {"x": 2, "y": 4}, pins=pins)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    took = exact_of(program, choices)
    assert [each.kind for each in took.estimate.collectives] == ["all-to-all", "all-gather"]
    assert promised_s(program, choices) == pytest.approx(took.estimate.step_time_s, rel=0.002)
    assert max(abs(each.seconds) for each in took.missed) < 0.002 * took.estimate.step_time_s


@pytest.mark.parametrize(("batch", "kept"), [(64, True), (4, False)])
def test_a_comparison_is_priced_as_bits_where_the_compiler_keeps_it_so(batch: int, kept: bool) -> None:
    """Of the part that one device has, with the dims that it has there."""
    drawing = Drawing()
    x, w, dy = drawing.arg(batch, 512, 1024), drawing.arg(1024, 8192), drawing.arg(batch, 512, 8192)
    factors = Factors(
        sizes=(batch, 512, 8192, 1024),
        operands=(((0,), (1,), (3,)), ((3,), (2,))),
        results=(((0,), (1,), (2,)),),
        reduction=(3,),
    )
    said = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (0,)}
    made = drawing._op("dot_general", (x, w), (batch, 512, 8192), factors, said)
    mask = drawing.each("compare", made, made)
    graph = drawing.graph(drawing.each("select", mask, dy, dy), drawing.each("exponential", made))
    pins: dict[str, Sharding] = dict.fromkeys(("a0", "a2", "out/0", "out/1"), (("x",), (), ()))
    program = program_of(graph, "v3:2x1", {"x": 4}, pins=pins | {"a1": ((), ())})
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    took = exact_of(program, choices).estimate
    assert any(kernel.label == "compare" for kernel in took.kernels) == kept
    assert promised_s(program, choices) == pytest.approx(took.step_time_s, rel=0.05)


def test_what_ends_a_product_ends_the_last_that_it_reads() -> None:
    """A gate's gradient reads what products made before and what one makes of that: written, it is beside the last."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.mean(((jax.nn.silu(x @ params["gate"]) * (x @ params["up"])) @ params["down"]) ** 2)

    params = {"gate": shape(1024, 4096), "up": shape(1024, 4096), "down": shape(4096, 1024)}
    found = program_of_step(trained(loss, params, shape(8192, 1024)), "v3:2x2", "{a: 2, b: 4}").solve()
    assert found.credit_s < 0.002 * found.objective_s


def test_what_several_compute_in_passing_is_written_for_the_one_that_cuts_a_part_out_of_it() -> None:
    """One product takes rows of it, one all: the compiler computes nothing anew for a slice."""
    drawing = Drawing()
    x, w, v = drawing.arg(8192, 2048), drawing.arg(2048, 512), drawing.arg(2048, 512)
    passing = drawing.each("multiply", x, drawing.each("tanh", x))
    graph = drawing.graph(drawing.dot(passing, w), drawing.dot(passing, v))
    pins: dict[str, Sharding] = {"a0": (("x",), ()), "a1": ((), ()), "a2": ((), ("y",))}
    pins |= {"out/0": (("x", "y"), ()), "out/1": (("x",), ("y",))}
    program = program_of(graph, "v5e:2x4", {"x": 2, "y": 4}, pins=pins)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    assert promised_s(program, choices) == pytest.approx(exact_of(program, choices).estimate.step_time_s, rel=0.005)


def test_what_several_compute_in_passing_is_not_written_where_nobody_cuts_a_part_out_of_it() -> None:
    """What takes long to compute, as random bits do, both products compute for themselves."""
    drawing = Drawing()
    x, w, v = drawing.arg(8192, 2048), drawing.arg(2048, 512), drawing.arg(2048, 512)
    passing = x
    for _ in range(40):
        passing = drawing.each("multiply", x, drawing.each("tanh", passing))
    graph = drawing.graph(drawing.dot(passing, w), drawing.dot(passing, v))
    rows: Sharding = (("x", "y"), ())
    pins: dict[str, Sharding] = {"a0": rows, "a1": ((), ()), "a2": ((), ()), "out/0": rows, "out/1": rows}
    program = program_of(graph, "v5e:2x4", {"x": 2, "y": 4}, pins=pins)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    assert promised_s(program, choices) == pytest.approx(exact_of(program, choices).estimate.step_time_s, rel=0.02)


def test_a_gradient_is_resharded_once_before_the_update_that_ends_it() -> None:
    """The weight and what else is read of its size stay where they are: nothing but the product moves."""
    drawing = Drawing()
    w, x, dy = drawing.arg(4096, 4096), drawing.arg(16384, 4096), drawing.arg(16384, 4096)
    graph = drawing.graph(drawing.each("subtract", w, drawing.each("multiply", w, drawing.dot(x, dy, 0, 0))))
    pins: dict[str, Sharding] = {"a0": (("x",), ()), "a1": ((), ()), "a2": ((), ("x",)), "out/0": (("x",), ())}
    program = program_of(graph, "v3:2x2", {"x": 8}, pins=pins)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    took = exact_of(program, choices).estimate
    assert [(each.kind, each.num_bytes) for each in took.collectives] == [("all-to-all", 4096 * 4096 * 4 // 8)]
    assert promised_s(program, choices) == pytest.approx(took.step_time_s, rel=0.05)


def test_sums_over_devices_of_what_is_only_rounded_leave_bfloat16() -> None:
    """A product's reader rounds it and a mask is all that comes between: as compiled for v3, v4 and v5e."""
    drawing = Drawing()
    dy, w, h, x = drawing.arg(512, 8192), drawing.arg(4096, 8192), drawing.arg(512, 4096), drawing.arg(512, 8192)
    made = drawing.dot(dy, w, 1, 1)
    graph = drawing.graph(drawing.dot(drawing.each("select", drawing.each("compare", h, h), made, made), x, 0, 0))
    pins: dict[str, Sharding] = {"a0": ((), ("x",)), "a1": ((), ("x",)), "a2": ((), ("x",)), "a3": ((), ())}
    program = program_of(graph, "v3:2x2", {"x": 8}, pins=pins | {"out/0": (("x",), ())})
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    took = exact_of(program, choices).estimate
    assert [each.num_bytes for each in took.collectives] == [512 * 4096 * 2]
    assert promised_s(program, choices) == pytest.approx(took.step_time_s, rel=0.05)


def test_no_product_is_done_sooner_than_it_multiplies_for_being_handed_what_it_would_compute() -> None:
    """With what ends it, it would compute that again and again: being handed it spares less where it ends by itself."""
    drawing = Drawing()
    x, up, down = drawing.arg(4096, 2048), drawing.arg(2048, 8192), drawing.arg(8192, 2048)
    hidden = drawing.dot(x, up)
    rectified = drawing.each("maximum", hidden, drawing.fill(4096, 8192))
    made = drawing.dot(rectified, down)
    passing = drawing.each("multiply", drawing.each("multiply", made, drawing.fill(4096, 2048)), made)
    ended = drawing.each("multiply", drawing.dot(passing, down, 1, 1), hidden)
    squares = drawing.total(drawing.each("multiply", made, made), 1)
    graph = drawing.graph(drawing.dot(x, ended, 0, 0), drawing.dot(rectified, passing, 0, 0), squares)
    program = program_of(graph, "v5p:2x2x4", {"x": 4, "y": 4})
    peak = program.machine.chip.peak_flops_per_s("bfloat16")
    assert peak is not None
    whole = [
        seconds
        for node in program.wiring.nodes
        if node.ended is not None
        for choice, seconds in enumerate(node.costs)
        if not any(axes for layouts in node.layouts.values() for axes in layouts[choice])
    ]
    assert whole
    assert min(whole) > 0.99 * 2 * 4096 * 2048 * 8192 / peak


def fused_alone(own: Graph, around: Around) -> Fused:
    return fused(own, lambda value, _: own.values[value], {}, {}, frozenset(), 0, around)


def test_parts_of_kernels_that_are_alike_are_one_and_what_stands_elsewhere_becomes_the_same_kernels() -> None:
    drawing = Drawing()
    made = [drawing.dot(drawing.arg(256, 256), drawing.arg(256, 256)) for _ in range(2)]
    graph = drawing.graph(drawing.each("exponential", made[0]), drawing.each("tanh", made[1]))
    known = Known()
    program, _ = known.program(graph)
    kernels = [each for each in program.kernels if any(program.graph.ops[n].kind == "dot_general" for n in each.ops)]
    wholes = [known.ended.get(id(each), (each, each))[1] for each in kernels]
    (one, its), (other, theirs) = (known.blueprint(program.graph, each) for each in wholes)
    parts = [each.until(numbers.index(v)) for each, numbers, v in ((one, its, made[0]), (other, theirs, made[1]))]
    assert one is not other
    assert parts[0].blueprint is parts[1].blueprint
    elsewhere = one.reading_far(one.own.arguments[0])
    assert elsewhere.reading_far(one.own.arguments[0]).like is one
    assert elsewhere.nest is one.nest
    first = one.becomes("form", frozenset(), lambda own, around: fused_alone(own.own, around))
    second = elsewhere.becomes("form", frozenset(), lambda own, around: pytest.fail("fused once more"))
    assert second.program is first.program
    assert (second.around.far, first.around.far) == (elsewhere.around.far, frozenset())
    assert second.took is not first.took
