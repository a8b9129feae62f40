"""Reads values and attributes off a propagated module, each distinct one once: MLIR's bindings are slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from jaxlib.mlir import ir

from ....planner.graph import Factors, Sharding, Value
from .attributes import FORM, LEFT_OUT, LIES, REDUCERS, plain, reducers_of, splat, spread, value_of
from .device_groups import axes_of_groups, axes_of_pairs
from .origins import Origins
from .regions import BUILDERS
from .shardings import RESHARD, RESHARDS, axes_by_dim, each_sharding, factors
from .value_names import reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """An operation's name, its ``kind`` (that without its dialect), its attributes, as MLIR has them and as ``plain``
    values, and what else they say.

    ``shardings`` are those of its results, ``reads`` the paths of its operands where others than its
    value's own are noted.
    ``names_devices`` says that ``plain`` hangs on the mesh, ``is_plain`` that there is one result, and nothing else to
    be read of such an operation, its regions included.
    """

    name: str
    kind: str
    attributes: Mapping[str, Any]
    plain: Mapping[str, Any]
    shardings: tuple[Sharding | None, ...]
    factors: Factors | None
    reads: tuple[str, ...]
    names_devices: bool
    is_plain: bool
    made: dict[Any, Value] = field(default_factory=dict)
    """What is known of the only value that such an operation makes, by its MLIR type, as far as it was asked for."""
    reducing: dict[Any, Mapping[str, Any]] = field(default_factory=dict)
    """``plain`` with what the regions of such an operation do, as far as it was asked for."""

    def with_reducers(self, reducers: Mapping[str, Any]) -> Mapping[str, Any]:
        """The plain values with what an operation's regions do: one mapping for all alike."""
        key = tuple(reducers.items())
        if key not in self.reducing:
            self.reducing[key] = {**self.plain, **reducers}
        return self.reducing[key]


class Reading:
    """What was read of one module so far. ``mesh`` has the sizes of the axes that devices are numbered by."""

    def __init__(self, mesh: Mapping[str, int]):
        self.mesh = mesh
        self.is_named = True
        self.origins = Origins()
        self._nameless = Origins(named=False)
        self._attributes: dict[tuple[str, Any], Mapping[str, Any]] = {}
        self._constants: dict[Any, Mapping[str, Any]] = {}
        self._factors: dict[Any, Factors] = {}
        self._shardings: dict[Any, Sharding] = {}
        self._per_value: dict[Any, tuple[Sharding, ...]] = {}
        self._types: dict[Any, tuple[tuple[int, ...], str]] = {}
        self._edges: dict[Any, Mapping[str, Any]] = {}
        self._values: dict[tuple[Any, Sharding | None], Value] = {}
        self._plains: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        self.forms: dict[tuple[Any, Any], Form] = {}
        """What was read of operations, by the number of what they say (``forms``) and how their results lie; without a
        number by what they say.
        """
        self._alike: dict[Any, Form] = {}
        """The last of these by what they say."""

    def over(self, mesh: Mapping[str, int], *, named: bool = True) -> Reading:
        """The same, for a module of the same context over another mesh: what is read of either is known to both.

        Unless ``named``, no operation has the names of the values that it makes.
        """
        other = copy(self)
        other.mesh = mesh
        other.is_named = named
        other.origins = self.origins if named else self._nameless
        return other

    def edge(self, attributes: Any) -> Mapping[str, Any]:
        """The attributes of an argument or a result, by name."""
        return _once(self._edges, attributes, lambda said: {each.name: each.attr for each in said})  # type: ignore[no-any-return]

    def value(self, kind: Any, sharding: Sharding | None) -> Value:
        """A value of this MLIR type; without a sharding it is whole everywhere."""
        key = kind, sharding
        found = self._values.get(key)
        if found is None:
            shape, dtype = _once(self._types, kind, _tensor)
            found = self._values[key] = Value(shape=shape, dtype=dtype, sharding=sharding or ((),) * len(shape))
        return found

    def sharding(self, attribute: Any) -> Sharding:
        """A ``sdy.sharding``."""
        return _once(self._shardings, attribute, axes_by_dim)  # type: ignore[no-any-return]

    def per_value(self, attribute: Any) -> tuple[Sharding, ...]:
        """A ``sdy.sharding_per_value``."""
        read = lambda a: tuple(self.sharding(each) for each in each_sharding(a))  # noqa: E731
        return _once(self._per_value, attribute, read)  # type: ignore[no-any-return]

    def form(self, operation: Any, results: int | None = None) -> Form:
        """What an operation of so many results says of itself; read once for all that say the same."""
        attributes, count = operation.attributes, len(operation.results) if results is None else results
        number, lies = attributes.get(FORM), attributes.get(LIES)
        if number is None:
            number = operation.name, count, items_of(attributes)
        found = self.forms.get((number, lies))
        if found is None:
            alike = self._alike.get(number)
            found = self._form(operation, lies, count) if alike is None else self._laid(alike, lies, count)
            if not found.names_devices:
                self.forms[number, lies] = self._alike[number] = found
        return found

    def _laid(self, alike: Form, lies: Any, count: int) -> Form:
        """What an operation says that differs from one read before in how its results lie, and in nothing else."""
        return Form(
            name=alike.name,
            kind=alike.kind,
            attributes=alike.attributes,
            plain=alike.plain,
            shardings=self._stated(alike.name, alike.attributes, lies, count),
            factors=alike.factors,
            reads=alike.reads,
            names_devices=alike.names_devices,
            is_plain=alike.is_plain,
            reducing=alike.reducing,
        )

    def _form(self, operation: Any, lies: Any, count: int) -> Form:
        name, attributes = operation.name, dict(items_of(operation.attributes))
        names_devices = "replica_groups" in attributes or "source_target_pairs" in attributes
        return Form(
            name=name,
            kind=name.partition(".")[2],
            attributes=attributes,
            plain=self._plain(attributes) if names_devices else self._plain_once(attributes),
            shardings=self._stated(name, attributes, lies, count),
            factors=None if name == RESHARD else self._rule(attributes),
            reads=reads(attributes),
            names_devices=names_devices,
            is_plain=self._is_plain(operation, name, attributes),
        )

    @staticmethod
    def _is_plain(operation: Any, name: str, attributes: Mapping[str, Any]) -> bool:
        has_more = name in BUILDERS or bool(reads(attributes))
        is_told = not len(operation.regions) or REDUCERS in attributes
        return is_told and not has_more and len(operation.results) == 1

    def results(self, made: Iterable[Any], form: Form) -> list[Value]:
        """What is known of the values that an operation makes, by MLIR's own."""
        return [self.value(result.type, sharding) for result, sharding in zip(made, form.shardings, strict=True)]

    def _stated(self, name: str, attributes: Mapping[str, Any], lies: Any, count: int) -> tuple[Sharding | None, ...]:
        """The sharding of each of so many results, which ``lies`` says of most; None where nothing is said."""
        said: tuple[Sharding | None, ...] = (None,) * count
        if name in RESHARDS:
            said = (self.sharding(attributes["sharding"]),)
        elif "out_shardings" in attributes:
            said = self.per_value(attributes["out_shardings"])
        elif lies is not None:
            said = self.per_value(lies)
        return said[:count]  # a callback that gives nothing has one all the same

    def _rule(self, attributes: Mapping[str, Any]) -> Factors | None:
        """The loop nest of an operation with these attributes; None where Shardy has no rule for it."""
        rule = attributes.get("sdy.sharding_rule")
        return None if rule is None else _once(self._factors, rule, factors)

    def _plain_once(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same for operations that differ in their layouts alone, one mapping for all."""
        said = tuple((name, attribute) for name, attribute in attributes.items() if name not in LEFT_OUT)
        if said not in self._plains:
            self._plains[said] = self._plain(dict(said))
        return self._plains[said]

    def _plain(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """An operation's attributes as plain values."""
        found: dict[str, Any] = {}
        for name, attribute in attributes.items():
            if name in LEFT_OUT or name == REDUCERS:
                continue
            key = name, attribute
            if key not in self._attributes:
                self._attributes[key] = spread(name, attribute)
            found |= self._attributes[key]
        if "replica_groups" in attributes:
            found |= axes_of_groups(attributes["replica_groups"], self.mesh)
        if "source_target_pairs" in found:
            found["axes"] = axes_of_pairs(found["source_target_pairs"], self.mesh)
        if REDUCERS in attributes:
            found |= reducers_of(plain(attributes[REDUCERS]))
        return found

    def constant(self, operation: Any) -> Mapping[str, Any]:
        """What is known of a constant."""
        value = value_of(operation)
        return {} if value is None else _once(self._constants, value, lambda _: splat(operation))


def _once(known: dict[Any, Any], key: Any, read: Callable[[Any], Any]) -> Any:
    if key not in known:
        known[key] = read(key)
    return known[key]


def _tensor(kind: Any) -> tuple[tuple[int, ...], str]:
    """The shape and the HLO dtype of an MLIR type."""
    if not isinstance(kind, ir.RankedTensorType):
        return (), "token" if "token" in str(kind) else str(kind)
    return tuple(kind.shape), hlo_dtype(str(kind.element_type))


def hlo_dtype(name: str) -> str:
    """HLO's name of an MLIR dtype: ``pred`` of ``i1``, ``s32`` of ``i32``, ``u8`` of ``ui8``, ``c64``, ``f8e4m3fn``."""
    if name == "i1":
        return "pred"
    if name.startswith("complex"):
        return f"c{2 * int(name[9:-1])}"
    if name.startswith(("i", "ui")):
        return name.removeprefix("i").removeprefix("ui").join(("u" if name[0] == "u" else "s", ""))
    return name.lower()


def items_of(attributes: Any) -> tuple[tuple[str, Any], ...]:
    """An operation's attributes, how its results lie aside; of a constant of complex numbers the bindings read none."""
    try:
        return tuple([item for item in attributes.items() if item[0] != LIES])
    except TypeError:
        return ()
