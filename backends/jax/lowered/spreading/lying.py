"""How values lie over one mesh, by the numbers of layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jaxlib.mlir.dialects import sdy

from .....planner.graph import Factors, Sharding, Value
from .axes import Axis, name_of
from .dot import resharded
from .rounds import Layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Lying:
    """Layouts over one mesh: what attributes say of them, and values that lie so."""

    mesh: Mapping[str, int]
    layouts: Layouts
    said: dict[Any, int] = field(default_factory=dict)
    shardings: dict[int, Sharding] = field(default_factory=dict)
    values: dict[tuple[int, int], tuple[Value, Value]] = field(default_factory=dict)
    products: dict[tuple[int, tuple[int, ...]], tuple[Factors, int]] = field(default_factory=dict)

    @property
    def used(self) -> list[str]:
        """The axes of more than one device."""
        return [name for name, size in self.mesh.items() if size > 1]

    def number(self, attribute: Any) -> int:
        """The layout's number that a ``sdy.sharding`` says; 0 of None. Axes of one device are left out."""
        if attribute is None:
            return 0
        found = self.said.get(attribute)
        if found is None:
            found = self.said[attribute] = self.layouts.number(tuple(self._dims(attribute)))
        return found

    def open(self, rank: int) -> int:
        """The number of the layout of a tensor of this rank that is open to be split."""
        return self.layouts.number((((), False),) * rank)

    def _dims(self, attribute: Any) -> Iterator[tuple[tuple[Axis, ...], bool]]:
        for each in sdy.TensorShardingAttr(attribute).dimension_shardings:
            dim = sdy.DimensionShardingAttr(each)
            names = [sdy.AxisRefAttr(axis).name for axis in dim.axes]
            yield tuple([Axis(name, 1, self.mesh[name]) for name in names if self.mesh[name] > 1]), dim.is_closed

    def sharding(self, number: int) -> Sharding:
        """The sharding of a layout of which something is said."""
        found = self.shardings.get(number)
        if found is None:
            layout = self.layouts.of(number) or ()
            found = tuple([tuple([name_of(axis, self.mesh) for axis in axes]) for axes, _ in layout])
            self.shardings[number] = found
        return found

    def value(self, whole: Value, number: int) -> Value:
        """A value, ``whole`` as it is read, in a layout."""
        if not number:
            return whole
        key = id(whole), number
        found = self.values.get(key)
        if found is None:
            found = self.values[key] = whole, replace(whole, sharding=self.sharding(number))
        return found[1]

    def product(self, own: Factors, numbers: tuple[int, ...]) -> int:
        """The layout in which a product of these operands and result is made, where it is another; else 0."""
        key = id(own), numbers
        found = self.products.get(key)
        if found is None:
            made = resharded(own, [self.layouts.of(number) for number in numbers])
            found = self.products[key] = own, self.layouts.number(made)
        return found[1]
