"""The layouts of a function's arguments and results, and its other attributes of each, as MLIR has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jax.sharding import NamedSharding, PartitionSpec
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from .attributes import LIES

ARGUMENTS, RESULTS = "arg_attrs", "res_attrs"
ALIASED, DONATED = "tf.aliasing_output", "jax.buffer_donor"
Given = tuple[tuple[str, Any], ...]
"""Attributes of an argument or a result by name."""


def sharding_attribute(sharding: NamedSharding) -> Any:
    """A sharding as Shardy's attribute, on the mesh that the module has."""
    entries = (e if isinstance(e, tuple) else () if e is None else (e,) for e in sharding.spec)
    dims = [sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(a) for a in axes], is_closed=True) for axes in entries]
    return sdy.TensorShardingAttr.get("mesh", dims)


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


class Edges:
    """What the main function of a module says of its arguments and results, less how they lie: read once for all copies
    of the module.
    """

    def __init__(self, main: Any):
        kinds = ir.FunctionType(main.attributes["function_type"].value)
        self._kinds = {ARGUMENTS: list(kinds.inputs), RESULTS: list(kinds.results)}
        self._said = {table: [_bare(given) for given in main.attributes[table]] for table in self._kinds}
        self._attributes: dict[PartitionSpec, Any] = {}
        self._written: dict[tuple[Any, ...], Any] = {}

    def attribute(self, sharding: NamedSharding) -> Any:
        """A sharding as Shardy's attribute; equal ones, as most are, made once."""
        found = self._attributes.get(sharding.spec)
        if found is None:
            found = self._attributes[sharding.spec] = sharding_attribute(sharding)
        return found

    def attributes(self, shardings: Mapping[int, NamedSharding]) -> dict[int, Any]:
        """The same of many by their numbers."""
        known = {id(sharding): self.attribute(sharding) for sharding in shardings.values()}
        return {number: known[id(sharding)] for number, sharding in shardings.items()}

    def lay(
        self, main: Any, table: str, shardings: Sequence[NamedSharding | None], given: Sequence[Given] | None = None
    ) -> None:
        """Lays out the arguments or the results of a copy's main function; None leaves one open.

        ``given`` is what else is said of each.
        """
        known = {id(s): None if s is None else self.attribute(s) for s in shardings}
        lies = [known[id(s)] for s in shardings]
        more = given if given is not None else [()] * len(lies)
        rows = zip(self._said[table], self._kinds[table], lies, more, strict=True)
        main.attributes[table] = ir.ArrayAttr.get([self._of(*row) for row in rows])

    def _of(self, said: Given, kind: Any, attribute: Any, more: Given) -> Any:
        """All that is said of an argument or a result of the type ``kind``."""
        key = said, kind, attribute, more
        found = self._written.get(key)
        if found is None:
            lies = () if attribute is None else ((LIES, ranked(attribute, kind)),)
            found = self._written[key] = ir.DictAttr.get(dict((*said, *lies, *more)))
        return found


def _bare(given: Any) -> Given:
    return tuple((each.name, each.attr) for each in given if each.name not in (LIES, ALIASED, DONATED))
