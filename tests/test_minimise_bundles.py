"""Plans that say at once all that decides: what is left out of them again, and which operands are a product's."""

import math

import pytest
from meshwright.dsl.tensors import Layout
from meshwright.planner.graph import Graph, Op, Origin, Value
from meshwright.planner.minimise.bundles import Bundles
from meshwright.planner.minimise.dims import logical_dims
from meshwright.planner.minimise.flow import Flow
from meshwright.planner.minimise.groups import Group, grouped
from meshwright.planner.minimise.guide import Guide
from meshwright.planner.minimise.looks import Looks
from meshwright.planner.minimise.prices import Prices
from meshwright.planner.minimise.rules import Writer
from test_minimise import BOTH, COLUMNS, OPEN, ROWS, WHOLE, Dear, tensor

VALUES = [f"ops/f/add.{i}" for i in range(24)]


def bundled(turning, trials=40):
    """The values that are annotated where layouts turn at these, each as one before it unless it is said."""
    kinds = [ROWS, COLUMNS, BOTH, WHOLE]
    best = {"x": ROWS} | {path: kinds[sum(i >= at for at in turning)] for i, path in enumerate(VALUES)}
    chain = Dear([tensor(path) for path in best], best)
    writer = Writer(best, OPEN, chain.tensors, logical_dims(chain.graph(OPEN)))
    prices = Prices(chain, writer, trials=trials, deadline=math.inf)
    everything = prices.of(prices.everything)
    groups = grouped(writer.values, writer.layouts, {}, {})
    guide = Guide(groups, Flow(chain.graph(OPEN)), chain.lies, chain.laid)
    return Bundles(prices, guide, Looks(prices, guide)).run(everything), prices


@pytest.mark.parametrize("turning", [(), (5,), (3, 11, 20)])
def test_only_what_turns_is_said_in_the_end(turning):
    found, prices = bundled(turning)
    assert found is not None
    assert found.values == {VALUES[at] for at in turning}
    assert prices.close(found)


def test_without_trials_nothing_is_left_out_that_matters():
    found, prices = bundled((3, 11), trials=2)
    assert found is not None
    assert prices.close(found)
    assert found.values >= {VALUES[3], VALUES[11]}


def test_what_is_computed_once_is_said_of_all_its_names_at_once() -> None:
    once = Origin(source="model.py:1", scope="norm", value="ops/f/sum.0", also=("ops/g/sum.0",))
    summed = Op(kind="reduce", operands=(0,), results=(1,), origin=once)
    graph = Graph(values=(Value((8, 8), "f32", WHOLE),) * 2, ops=(summed,), arguments=(0,), results=(1,))
    paths = ["ops/f/sum.0", "ops/g/sum.0", "ops/f/sum.0.in0", "ops/g/sum.0.in0", "ops/h/sum.0"]
    layouts = dict.fromkeys(paths, Layout(axes=ROWS))
    groups = grouped([tensor(path) for path in paths], layouts, {}, Flow(graph).same)
    assert [group.paths for group in groups] == [tuple(paths[:2]), tuple(paths[2:4]), (paths[4],)]


def test_what_a_product_reads_is_its_own_where_another_makes_it_transposed() -> None:
    reads = ("ops/f/dot_general.0.in1", "ops/f/dot_general.0.in0")
    place = Origin(source="model.py:1", scope="dot", value="ops/f/transpose.0", reads=reads)
    product = Op(kind="dot_general", operands=(0, 1), results=(2,), origin=place)
    graph = Graph(values=(Value((8, 8), "f32", WHOLE),) * 3, ops=(product,), arguments=(0, 1), results=(2,))
    read = "ops/f/dot_general.0.in1"
    operand = Group(
        stem=read, layout=Layout(axes=ROWS), paths=(read,), makers=("ops/f/dot_general.0",), is_operand=True
    )
    guide = Guide([operand], Flow(graph), lambda plan: None, lambda plan: None)
    assert [cause.group for cause in guide.at({("model.py:1", "dot"): 1.0})] == [operand]
