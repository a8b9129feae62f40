"""Numbers on operations of what they say: equal for those that differ in nothing but their layouts."""

from jax._src.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir
from meshwright.backends.jax.lowered.attributes import FORM, LIES
from meshwright.backends.jax.lowered.forms import Forms
from meshwright.backends.jax.lowered.places import operations
from meshwright.backends.jax.lowered.reading import Reading

TEXT = """
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.add %a, %a : tensor<8x8xf32>
  %1 = stablehlo.add %0, %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : tensor<8x8xf32>
  %2 = stablehlo.add %1, %a {other = true} : tensor<8x8xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = stablehlo.transpose %3, dims = [0, 1] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %5 = sdy.sharding_constraint %4 <@mesh, [{"x"}, {}]> : tensor<8x8xf32>
  return %5 : tensor<8x8xf32>
}
"""


def module(context):
    with context:
        return ir.Module.parse(TEXT).operation


def made(parsed):
    return [op for op in operations(parsed) if op.name.startswith(("stablehlo.", "sdy.sharding"))]


def test_operations_that_differ_in_their_layouts_alone_have_one_number() -> None:
    parsed, again = module(where := make_ir_context()), module(where)
    forms = Forms()
    with where:
        for each in (parsed, again):
            forms.write(each)
        numbers = [op.attributes.get(FORM) for op in made(parsed)]
        assert numbers[0] == numbers[1]
        assert len({number.value for number in numbers[:5]}) == 4
        assert numbers[5] is None
        assert numbers == [op.attributes.get(FORM) for op in made(again)]


def test_what_is_read_by_number_is_what_is_read_without() -> None:
    numbered, plain = module(where := make_ir_context()), module(where)
    with where:
        Forms().write(numbered)
        one, other = Reading({"x": 2}), Reading({"x": 2})
        for left, right in zip(made(numbered), made(plain), strict=True):
            here, there = one.form(left), other.form(right)
            assert (here.kind, here.plain, here.shardings) == (there.kind, there.plain, there.shardings)
            assert here.factors == there.factors
            assert (LIES in left.attributes) == any(here.shardings) or left.name == "sdy.sharding_constraint"
