"""Loops that operations share, and the choices of layouts that they leave: all that are legal and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.planner.graph import Factors, Graph, Op, Sharding, Value
from meshwright.planner.program.pricing.choices import choices
from meshwright.planner.program.step.atoms import Atom, leaves, unify
from meshwright.planner.program.step.nest import Nest, nest_of
from small_graphs import Drawing, parts, shardings, steps

MESHES = [{"x": 2}, {"x": 2, "y": 2}, {"x": 4, "y": 2}, {"x": 3}, {"x": 2, "y": 1, "z": 2}]


def sizes_of(atoms: list[Atom]) -> list[int]:
    return [atom.size for atom in leaves(atoms)]


def test_loops_of_one_size_become_one() -> None:
    a, b = Atom(8), Atom(8)
    unify([a], [b])
    assert a.leaves() == b.leaves()


def test_a_loop_that_two_make_up_is_cut() -> None:
    whole, major, minor = Atom(12), Atom(3), Atom(4)
    unify([whole], [major, minor])
    assert sizes_of([whole]) == [3, 4]
    assert leaves([whole]) == leaves([major, minor])


def test_loops_whose_sizes_do_not_come_out_even_are_blocked() -> None:
    one, other = [Atom(4), Atom(3)], [Atom(6), Atom(2)]
    unify(one, other)
    assert all(atom.blocked for atom in (*leaves(one), *leaves(other)))


def test_what_is_blocked_stays_so_when_it_turns_out_to_be_another() -> None:
    free, blocked = Atom(8), Atom(8, blocked=True)
    unify([free], [blocked])
    assert all(atom.blocked for atom in leaves([free]))


@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4), st.data())
def test_rows_of_loops_of_one_product_become_one_row_or_are_blocked(sizes: list[int], data: st.DataObject) -> None:
    """However the same loops are gathered into dims, both rows consist of the same loops in the end."""
    cuts = st.sets(st.integers(1, max(1, len(sizes) - 1)))
    rows = []
    for _ in range(2):
        ends = [*sorted(c for c in data.draw(cuts) if c < len(sizes)), len(sizes)]
        row, begin = [], 0
        for end in ends:
            size = 1
            for own in sizes[begin:end]:
                size *= own
            row.append(Atom(size))
            begin = end
        rows.append(row)
    unify(*rows)
    one, other = leaves(rows[0]), leaves(rows[1])
    assert one == other or any(atom.blocked for atom in (*one, *other))


def laid(nest: Nest, mesh: Mapping[str, int], *values: int, quiet: bool = False) -> set[tuple[Sharding, ...]]:
    """The layouts of some values under each choice; ``quiet`` ones are those where no operation asks others."""
    found = [choice for choice in choices(nest, mesh) if not (quiet and choice.asking)]
    return {tuple(choice.layouts[nest.form_of[value]] for value in values) for choice in found}


def one_op(drawing: Drawing, result: int) -> tuple[Graph, Nest]:
    graph = drawing.graph(result)
    return graph, nest_of(graph, range(len(graph.ops)))


def every(graph: Graph, mesh: Mapping[str, int], *values: int, padded: bool = True) -> list[tuple[Sharding, ...]]:
    """All layouts of some values, each dim over axes in the mesh's order, ``padded`` where it does not divide."""
    found: list[tuple[Sharding, ...]] = [()]
    for value in values:
        found = [(*before, own) for before in found for own in shardings(graph.shape(value), mesh, padded=padded)]
    return found


def test_rows_of_which_the_largest_are_looked_for_ask_others_where_they_are_split() -> None:
    """A device may have to rank all of them: the partitioner says which."""
    rows = Factors(
        sizes=(64, 4096), operands=(((0,), (1,)),), results=(((0,), (1,)),) * 2, replicated=(1,), blocked=(1,)
    )
    values = (Value((64, 4096), "f32"), Value((64, 4), "f32"), Value((64, 4), "s32"))
    op = Op(kind="top_k", operands=(0,), results=(1, 2), attributes={"k": 4}, factors=rows)
    nest = nest_of(Graph(values=values, ops=(op,), arguments=(0,), results=(1, 2)), [0])
    mesh = {"x": 2, "y": 2}
    assert laid(nest, mesh, 0, quiet=True) == {(((), ()),)}
    assert laid(nest, mesh, 0) == {((axes, ()),) for axes in ((), ("x",), ("y",), ("x", "y"))}


@pytest.mark.parametrize(("gap", "made"), [(2, {(), ("x",)}), (3, {(), ("x",)}), (1, {()})])
def test_a_convolution_over_gaps_is_split_along_its_image_and_each_device_makes_what_its_part_makes(
    gap: int, made: set[tuple[str, ...]]
) -> None:
    """As the gradient of one that moves on by so many places, by Shardy's rule for it; of one without gaps whose result
    is larger the ends belong to no device's part.
    """
    places = 16 * max(gap, 2)
    values = (Value((8, 16, 4), "f32"), Value((3, 6, 4), "f32"), Value((8, places, 6), "f32"))
    along = Factors(
        sizes=(8, 16, 4, 6, 3),
        operands=(((0,), (1,), (2,)), ((4,), (3,), (2,))),
        results=(((0,), (1,), (3,)),),
        reduction=(2,),
        permutation=(1, 4),
    )
    attributes = {"lhs_dilation": (gap,)}
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=attributes, factors=along)
    nest = nest_of(Graph(values=values, ops=(op,), arguments=(0, 1), results=(2,)), [0])
    lies = laid(nest, {"x": 4}, 0, 2)
    assert {image[1] for image, _ in lies} == made
    assert all(image[1] == result[1] for image, result in lies if not image[2])  # else what is added up may be split


def homes(layout: Sharding, axis: str) -> set[int]:
    return {dim for dim, axes in enumerate(layout) if axis in axes}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("sizes", [(4, 8, 6), (6, 4, 12)])
def test_the_choices_of_a_product_are_those_of_its_loops(mesh: dict[str, int], sizes: tuple[int, int, int]) -> None:
    """An axis splits nothing, the rows, the columns, or the sum, whose result is then whole or split either way."""
    rows, columns, inner = sizes
    drawing = Drawing()
    a, b = drawing.arg(rows, inner), drawing.arg(inner, columns)
    graph, nest = one_op(drawing, c := drawing.dot(a, b))
    real = {axis: size for axis, size in mesh.items() if size > 1}
    legal_ways = {(None, None, None), (0, None, 0), (None, 1, 1), (1, 0, None), (1, 0, 0), (1, 0, 1)}

    def way(layouts: tuple[Sharding, ...], axis: str) -> tuple[int | None, ...]:
        return tuple(next(iter(homes(layout, axis)), None) for layout in layouts)

    legal = {
        layouts for layouts in every(graph, real, a, b, c) if all(way(layouts, axis) in legal_ways for axis in real)
    }
    assert laid(nest, mesh, a, b, c) == legal


def test_what_a_view_joins_to_another_dim_is_gathered_behind_a_product() -> None:
    """The minor half of the columns is a dim by itself behind the view, the major one goes on with the rows."""
    drawing = Drawing()
    a, b = drawing.arg(16, 4), drawing.arg(4, 64)
    made = drawing.dot(a, b)
    viewed = drawing.reshape(made, (16, 2, 32), ((0,), (1, 2)), ((0, 1), (2,)))
    _, nest = one_op(drawing, viewed)
    lies = laid(nest, {"x": 2}, b, made, viewed)
    gathered, whole = (((), ("x",)), ((), ("x",))), ((), ())
    assert {behind for *before, behind in lies if tuple(before) == gathered} == {whole, (("x",), ()), ((), ("x",))}


def test_heads_that_a_view_joins_pass_on_how_they_are_split_and_nothing_is_gathered() -> None:
    drawing = Drawing()
    a, b = drawing.arg(16, 4), drawing.arg(4, 64)
    made = drawing.dot(a, b)
    viewed = drawing.reshape(made, (16, 2, 32), ((0,), (1, 2)), ((0,), (1,), (2,)))
    _, nest = one_op(drawing, viewed)
    assert not nest.gathers


@pytest.mark.parametrize("mesh", MESHES)
def test_the_choices_of_a_transpose_are_those_that_move_nothing(mesh: dict[str, int]) -> None:
    drawing = Drawing()
    a = drawing.arg(4, 6)
    graph, nest = one_op(drawing, b := drawing.turn(a))
    real = {axis: size for axis, size in mesh.items() if size > 1}
    still = {(one, other) for one, other in every(graph, real, a, b) if other == (one[1], one[0])}
    assert laid(nest, mesh, a, b) == still


RESHAPES = {
    "dims become one": ((4, 6), ((0,), (1,)), ((0, 1),)),
    "a dim becomes two": ((4, 6), ((0, 1),), ((0,), (1,))),
    "a dim moves over": ((2, 4, 3), ((0, 1), (2,)), ((0,), (1, 2))),
}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", RESHAPES)
def test_the_choices_of_a_reshape_are_those_where_each_device_has_its_numbers(name: str, mesh: dict[str, int]) -> None:
    sizes, operand, result = RESHAPES[name]
    drawing = Drawing()
    shape = [1] * len(operand)
    for dim, factors in enumerate(operand):
        for factor in factors:
            shape[dim] *= sizes[factor]
    a = drawing.arg(*shape)
    graph, nest = one_op(drawing, b := drawing.reshape(a, sizes, operand, result))
    real = {axis: size for axis, size in mesh.items() if size > 1}

    def is_still(one: Sharding, other: Sharding) -> bool:
        return parts(graph.shape(a), one, real) == parts(graph.shape(b), other, real)

    found = laid(nest, mesh, a, b, quiet=True)
    assert all(is_still(one, other) for one, other in found), "a choice moves numbers and asks nobody for them"
    assert {layouts for layouts in every(graph, real, a, b, padded=False) if is_still(*layouts)} <= found


@pytest.mark.parametrize("mesh", MESHES)
def test_the_choices_of_a_sum_are_all_that_its_operand_allows(mesh: dict[str, int]) -> None:
    drawing = Drawing()
    a = drawing.arg(4, 6, 8)
    graph, nest = one_op(drawing, b := drawing.total(a, 1))
    real = {axis: size for axis, size in mesh.items() if size > 1}
    kept = {0: 0, 2: 1}

    def legal(one: Sharding, other: Sharding) -> bool:
        return all(
            homes(other, axis) <= {0, 1}
            if homes(one, axis) == {1}
            else homes(other, axis) == {kept[dim] for dim in homes(one, axis)}
            for axis in real
        )

    wanted = {(one, other) for one, other in every(graph, real, a, b) if legal(one, other)}
    assert laid(nest, mesh, a, b) == wanted


def test_a_product_behind_which_others_add_has_sums_split_anew_for_all_of_them() -> None:
    """What is added to a sum lies as the sum does after it is made whole or scattered."""
    drawing = Drawing()
    a, b, d = drawing.arg(4, 8), drawing.arg(8, 4), drawing.arg(4, 4)
    c = drawing.dot(a, b)
    graph, nest = one_op(drawing, e := drawing.each("add", c, d))
    for choice in choices(nest, {"x": 2, "y": 2}):
        own = [choice.layouts[nest.form_of[value]] for value in (c, d, e)]
        assert own[0] == own[1] == own[2]
    assert len(graph.ops) == 2


def test_a_matrix_times_itself_is_not_split_along_what_are_two_loops_of_it() -> None:
    drawing = Drawing()
    a = drawing.arg(8, 8)
    _, nest = one_op(drawing, drawing.dot(a, a, 1, 0))
    for choice in choices(nest, {"x": 2}):
        layout = choice.layouts[nest.form_of[a]]
        assert all(len(homes(layout, axis)) <= 1 for axis in ("x",))


def test_what_most_is_cut_out_of_lies_as_the_rest_does_and_asks_neighbours() -> None:
    drawing = Drawing()
    a = drawing.arg(2, 8)
    graph, nest = one_op(drawing, b := drawing.cut(a, 1, 7))
    assert laid(nest, {"x": 4}, a, b) == {(((), ()), ((), ())), (((), ("x",)), ((), ("x",)))}
    assert laid(nest, {"x": 4}, a, b, quiet=True) == {(((), ()), ((), ()))}
    assert graph.shape(b) == (2, 7)


def test_what_less_than_most_is_cut_out_of_is_split_before_and_behind_that_as_two_dims() -> None:
    """Devices that have parts of the dim send each other the parts that they go on with."""
    drawing = Drawing()
    a = drawing.arg(2, 8)
    _, nest = one_op(drawing, b := drawing.cut(a, 1, 4))
    whole, split = ((), ()), ((), ("x",))
    assert laid(nest, {"x": 4}, a, b) == {(whole, whole), (whole, split), (split, split)}
    assert laid(nest, {"x": 4}, a, b, quiet=True) == {(whole, whole)}


def test_a_loop_that_is_cut_makes_up_no_dim_with_others() -> None:
    """A device's rows of the whole are not those of the rest."""
    drawing = Drawing()
    a = drawing.arg(36)
    b = drawing.reshape(a, (9, 4), ((0, 1),), ((0,), (1,)))
    _, nest = one_op(drawing, c := drawing.cut(b, 0, 8))
    assert {layouts[0] for layouts in laid(nest, {"x": 3}, a, b, c)} == {((),)}


def test_what_has_places_left_out_between_is_split_before_and_behind_that_as_two_dims() -> None:
    drawing = Drawing()
    a = drawing.arg(5, 4)
    drawing.cut(a, 0, 3)
    drawing.ops[-1] = replace(drawing.ops[-1], attributes={**drawing.ops[-1].attributes, "strides": (2, 1)})
    _, nest = one_op(drawing, b := drawing.ops[-1].results[0])
    rows, columns, whole = (("x",), ()), ((), ("x",)), ((), ())
    assert laid(nest, {"x": 2}, a, b) == {(whole, whole), (whole, rows), (rows, rows), (columns, columns)}
    assert laid(nest, {"x": 2}, a, b, quiet=True) == {(whole, whole), (columns, columns)}


def test_dims_that_several_loops_make_up_are_never_padded() -> None:
    drawing = Drawing()
    a = drawing.arg(5, 3)
    _, nest = one_op(drawing, b := drawing.reshape(a, (5, 3), ((0,), (1,)), ((0, 1),)))
    assert laid(nest, {"x": 2}, a, b) == {(((), ()), ((),))}


def test_an_operation_of_which_nothing_is_known_is_whole() -> None:
    drawing = Drawing()
    a = drawing.arg(8, 8)
    drawing.ops.append(Op(kind="custom_call", operands=(a,), results=(b := drawing.arg(8, 8),)))
    drawing.arguments.pop()
    _, nest = one_op(drawing, b)
    assert laid(nest, {"x": 2}, a, b) == {(((), ()), ((), ()))}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MESHES), st.data())
def test_no_choice_leaves_devices_without_a_part_or_splits_twice(mesh: dict[str, int], data: st.DataObject) -> None:
    graph, _ = data.draw(steps(most=3))
    nest = nest_of(graph, range(len(graph.ops)))
    for choice in choices(nest, mesh):
        for value, form in nest.form_of.items():
            layout, shape = choice.layouts[form], graph.shape(value)
            used = [axis for axes in layout for axis in axes]
            assert len(used) == len(set(used))
            for size, axes in zip(shape, layout, strict=True):
                ways = 1
                for axis in axes:
                    ways *= mesh[axis]
                assert size % ways == 0 or size > ways
