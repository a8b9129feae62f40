"""The layouts of a function's arguments and results, and its other attributes of each, as MLIR has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jax.sharding import NamedSharding
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy


def sharding_attribute(sharding: NamedSharding) -> Any:
    """A sharding as Shardy's attribute, on the mesh that the module has."""
    entries = (e if isinstance(e, tuple) else () if e is None else (e,) for e in sharding.spec)
    dims = [sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(a) for a in axes], is_closed=True) for axes in entries]
    return sdy.TensorShardingAttr.get("mesh", dims)


def sharding_attributes(shardings: Mapping[int, NamedSharding]) -> dict[int, Any]:
    """The same of many by their numbers; equal ones, as most are, made once."""
    known = {sharding: sharding_attribute(sharding) for sharding in set(shardings.values())}
    return {number: known[sharding] for number, sharding in shardings.items()}


def ranked(attribute: Any, made: Any) -> Any:
    """A sharding's attribute for a value of the type ``made``: what one element of a random key is made of is whole."""
    missing = ir.RankedTensorType(made).rank - len(attribute.dimension_shardings)
    if missing <= 0:
        return attribute
    whole = [sdy.DimensionShardingAttr.get([], is_closed=True)] * missing
    return sdy.TensorShardingAttr.get("mesh", [*attribute.dimension_shardings, *whole])


def integer(value: int) -> Any:
    """A number as an attribute."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)


def set_edges(main: Any, table: str, shardings: Sequence[NamedSharding | None]) -> None:
    """Lays out the arguments (``arg_attrs``) or the results (``res_attrs``) of a function; None leaves one open."""
    update(main, table, laid(main, table, shardings))


def laid(main: Any, table: str, shardings: Sequence[NamedSharding | None]) -> dict[str, list[Any]]:
    """The attribute that says of a function's arguments or results how they lie, for ``update``."""
    made = ir.FunctionType(main.attributes["function_type"].value)
    edges = list(zip(shardings, made.inputs if table == "arg_attrs" else made.results, strict=True))
    known = {s: sharding_attribute(s) for s in set(shardings) if s is not None}
    alike: dict[Any, Any] = {(s, kind): ranked(known[s], kind) for s, kind in set(edges) if s is not None}
    return {"sdy.sharding": [alike.get(edge) for edge in edges]}


def update(main: Any, table: str, attributes: Mapping[str, Sequence[Any]]) -> None:
    """Sets attributes of each argument or result of a function, by name; None takes one away."""
    said = [{each.name: each.attr for each in given} for given in main.attributes[table]]
    for name, values in attributes.items():
        for given, attribute in zip(said, values, strict=True):
            if attribute is None:
                given.pop(name, None)
            else:
                given[name] = attribute
    main.attributes[table] = ir.ArrayAttr.get([ir.DictAttr.get(given) for given in said])
