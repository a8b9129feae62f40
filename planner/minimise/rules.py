"""The rules that give a step's tensors chosen layouts, as few and as short as patterns make them.

A plan's own rules stay as they are and in their order; its ``auto`` rules give way. What is written stands behind
them, or, where one of them would take what it must not, just before that one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from ...dsl.follow import by_path
from ...dsl.notation import NAMELESS
from ...dsl.patterns import compile_pattern, literal
from ...dsl.plan import Assignment, Auto, Dim, Dims, Plan, Rest, Rule
from ...dsl.resolve import key_of, resolve
from ...dsl.rule_matches import match_rules, without_turn
from ...dsl.tensors import Layout, Tensor
from ..graph import Sharding
from .cover import Covering, Labels, cover
from .dims import Classes
from .labels import INFER, REPLICATE, Form, Likeness, forms, layout_of
from .names import Names

VALUES = ("tagged", "op")
AUTO = Auto()


class Writer:
    """Writes plans for one step, one set of layouts and one partial plan."""

    def __init__(self, layouts: Mapping[str, Sharding], plan: Plan, tensors: Sequence[Tensor], dims: Classes):
        self.plan = plan
        self.pins = tuple(rule for rule in plan.rules if not isinstance(rule.assignment, Auto))
        self.tensors = tensors
        self.dims = dims
        self.pinned = match_rules(self.pins, tensors).deciding
        deciding = match_rules(plan.rules, tensors).deciding
        self.free = {t.path: t for t in tensors if isinstance(getattr(deciding[t.path], "assignment", AUTO), Auto)}
        self.turns = Counter(without_turn(t.path) for t in tensors if t.role == "op")
        self.layouts = self._layouts(layouts)
        self.likeness = Likeness(tensors, self.layouts)
        self.known: dict[Hashable, list[Covering]] = {}  # the lines for these and those values
        self.drafted: dict[str, tuple[int, Hashable]] = {}
        self.edges = [self._edge_lines(slot) for slot in range(len(self.pins) + 1)]

    def _layouts(self, chosen: Mapping[str, Sharding]) -> dict[str, Layout]:
        """The layouts of pinned tensors, and those that were chosen for the others."""
        given = resolve(replace(self.plan, rules=self.pins), self.tensors).layouts if self.pins else {}
        found = {t.path: given[key_of(t)] for t in self.tensors if t.path not in self.free and key_of(t) in given}
        sizes = self.plan.mesh.sizes
        for path, tensors in by_path(t for t in self.tensors if t.path in self.free and t.path in chosen).items():
            legal = all(fits(tensor, chosen[path], sizes) for tensor in tensors)
            layouts = {layout_of(tensor, chosen[path], sizes) for tensor in tensors} if legal else set()
            if len(layouts) == 1:
                found[path] = layouts.pop()
        return found

    @property
    def values(self) -> list[Tensor]:
        """The tagged and the computed values that are open and have a layout: a plan need not speak of them."""
        return [t for path, t in self.free.items() if t.role in VALUES and path in self.layouts]

    def plan_of(self, values: Collection[str], *, wider: bool = False) -> Plan:
        """The plan that annotates arguments, results, and of the step's values those at these paths.

        ``wider`` lets a pattern give other values too what they are to have, where that makes fewer lines.
        """
        slots = [[*lines, *self._value_lines(slot, values, wider)] for slot, lines in enumerate(self.edges)]
        return self._written(slots, self._names(list(chain(*slots))))

    def draft_of(self, values: Collection[str]) -> Plan:
        """A plan that means the same as ``plan_of``'s, written in no time: a line for each value, or for all turns."""
        slots = [list(lines) for lines in self.edges]
        for whole, paths in _by_whole(values).items():
            kinds = {self._said_of(path) for path in paths} if len(paths) == self.turns[whole] else ()
            for pattern, held in [(whole, paths)] if len(kinds) == 1 else [(path, [path]) for path in paths]:
                slot, label = self._said_of(held[0])
                slots[slot].append(Covering(pattern=literal(pattern), label=label, paths=tuple(held)))
        return self._written(slots, None)

    def _said_of(self, path: str) -> tuple[int, Hashable]:
        """Before which pin the line of a draft stands that speaks of a value, and what it says."""
        found = self.drafted.get(path)
        if found is None:
            found = self.drafted[path] = self._slot(path), forms(self.layouts[path])[0]
        return found

    def lines_of(self, values: Collection[str]) -> list[tuple[str, ...]]:
        """The values that each line of ``plan_of``'s annotates."""
        slots = (self._value_lines(slot, values, wider=False) for slot in range(len(self.edges)))
        return [line.paths for line in chain(*slots)]

    @property
    def spare(self) -> list[tuple[int, int]]:
        """The lines for arguments and results that later lines could stand in for: slot and number, the last first."""
        places = [(slot, i) for slot, lines in enumerate(self.edges) for i in range(len(lines))]
        return [place for place in reversed(places) if self.without(*place) is not None]

    def saying(self, layouts: Mapping[str, Sharding]) -> Writer:
        """A writer of other layouts for the step's values, with the same lines for arguments and results."""
        other = copy(self)
        other.layouts, other.known, other.drafted = self._layouts(layouts), {}, {}
        return other

    def bytes_at(self, slot: int, number: int) -> int:
        """The bytes of what a line for arguments and results decides."""
        return sum(self.free[path].num_bytes for path in self.edges[slot][number].paths)

    def without(self, slot: int, number: int) -> Writer | None:
        """A writer whose plans do without a line; None where no later line fits all that it decides."""
        gone, *later = self.edges[slot][number:]
        patterns = [compile_pattern(line.pattern) for line in later]
        for path in gone.paths:
            i = next((i for i, pattern in enumerate(patterns) if pattern.matches(path)), None)
            if i is None or not self._bears(later[i].label, self.free[path]):
                return None
            later[i] = replace(later[i], paths=(*later[i].paths, path))
        other = copy(self)
        other.edges = [*self.edges]
        other.edges[slot] = [*self.edges[slot][:number], *later]
        return other

    def _bears(self, label: Hashable, tensor: Tensor) -> bool:
        """Whether a tensor of this shape can have what a line gives."""
        if not isinstance(label, Form):
            return True
        shape, count = tensor.shape, len(label.axes)
        dims = shape[len(shape) - count :] if label.from_back else shape[:count]
        sizes = self.plan.mesh.sizes
        parts = [math.prod(sizes[axis] or 1 for axis in axes) for axes in label.axes]
        return len(dims) == count and all(size % n == 0 for size, n in zip(dims, parts, strict=True))

    def _written(self, slots: Sequence[Sequence[Covering]], names: Names | None) -> Plan:
        rules: list[Rule] = []
        for slot, lines in enumerate(slots):
            rules += [Rule(pattern=x.pattern, assignment=_assignment(x.label, self._held(x), names)) for x in lines]
            rules += self.pins[slot : slot + 1]
        if not rules and any(tensor.role not in VALUES for tensor in self.tensors):
            rules = [Rule(pattern="**", assignment=REPLICATE)]  # numbers alone: a plan without rules is one with holes
        return replace(self.plan, rules=tuple(rules), result=None)

    def _names(self, lines: Sequence[Covering]) -> Names:
        names = Names(self.dims.copy(), self.tensors, tuple(self.plan.mesh.sizes))
        for tensor in self.tensors:
            rule = self.pinned[tensor.path]
            if rule and tensor.path not in self.free:
                names.learn(rule, tensor)
        for line in lines:
            _meet(line, self._held(line), names)
        return names

    def _held(self, line: Covering) -> list[Tensor]:
        return [self.free[path] for path in line.paths]

    def _edge_lines(self, slot: int) -> list[Covering]:
        """The lines for arguments and results that stand just before the pin of this number, or behind all pins."""
        edges = [t for t in self.tensors if t.role not in VALUES]
        wanted, optional, others = self._asked(slot, edges, lambda tensor: self._need(tensor.path))
        apart = {path.split("/")[0] for path in wanted} - set(self.likeness.heads)
        return cover(wanted, optional=optional, others=others, apart=apart) if wanted else []

    def _value_lines(self, slot: int, values: Collection[str], wider: bool) -> list[Covering]:
        """The lines for these of the step's values."""
        key = slot, frozenset(values), wider
        if key not in self.known:
            self.known[key] = self._made_lines(slot, values, wider)
        return self.known[key]

    def _made_lines(self, slot: int, values: Collection[str], wider: bool) -> list[Covering]:

        def need(tensor: Tensor) -> bool | None:
            return True if tensor.path in values else False if wider and tensor.path in self.layouts else None

        wanted, optional, others = self._asked(slot, [t for t in self.tensors if t.role in VALUES], need)
        return cover(wanted, optional=optional, others=others) if wanted else []

    def _asked(
        self, slot: int, tensors: Sequence[Tensor], need: Callable[[Tensor], bool | None]
    ) -> tuple[dict[str, Labels], dict[str, Labels], list[str]]:
        """What needs a line before this pin, what may have one, and what must not. ``need`` is None for the last."""
        wanted: dict[str, Labels] = {}
        optional: dict[str, Labels] = {}
        others: list[str] = []
        for path, (tensor, *_) in by_path(tensors).items():
            before = self._slot(path)
            if before < slot:
                continue
            needed = need(tensor) if path in self.free and before == slot else None
            if needed is None:
                others.append(path)
            else:
                (wanted if needed else optional)[path] = self._labels(path)
        return wanted, optional, others

    def _slot(self, path: str) -> int:
        """The first pin that matches the path: what is said of it has to stand before that one."""
        rule = self.pinned[path]
        return next((i for i, pin in enumerate(self.pins) if pin is rule), len(self.pins))

    def _need(self, path: str) -> bool:
        """Whether an argument or result that is open needs a line: not what the language itself says right."""
        tensor = self.free[path]
        if not tensor.shape or tensor.returns is None:
            return bool(tensor.shape)
        source = self.layouts.get(tensor.returns)
        return path in self.layouts and source is not None and self.layouts[path] != source

    def _labels(self, path: str) -> list[Hashable]:
        """All that can be said of a tensor to give it its layout."""
        tensor, layout = self.free[path], self.layouts.get(path)
        if not tensor.shape:
            return [*self.likeness.labels(tensor), REPLICATE]
        if layout is None and tensor.role == "result" and tensor.returns is None:
            return [INFER]
        if layout is None and tensor.returns is not None:
            layout = self.layouts.get(tensor.returns)
        if layout is None or layout.how != "split":
            return [REPLICATE]
        return [*self.likeness.labels(tensor), *forms(layout)]


def is_value(path: str) -> bool:
    """Whether a path is that of a tagged or a computed value."""
    return path.split("/")[0] in ("acts", "ops")


def _by_whole(values: Collection[str]) -> dict[str, list[str]]:
    """The paths by what they are without their turns."""
    found: dict[str, list[str]] = {}
    for path in values:
        found.setdefault(without_turn(path), []).append(path)
    return found


def fits(tensor: Tensor, sharding: Sharding, sizes: Mapping[str, int | None]) -> bool:
    """Whether a plan can say that ``tensor`` lies so: a list of the mesh's own axes for each dim."""
    return len(sharding) == len(tensor.shape) and all(sizes.get(axis) for axes in sharding for axis in axes)


def _meet(line: Covering, tensors: Sequence[Tensor], names: Names) -> None:
    """Notes which logical dims a line splits."""
    if isinstance(line.label, Form):
        for i, axes in enumerate(line.label.axes):
            if axes:
                names.meet(tensors, i - len(line.label.axes) if line.label.from_back else i)


def _assignment(label: Hashable, tensors: Sequence[Tensor], names: Names | None) -> Assignment:
    """The assignment that gives these tensors what the label says; dims have no names where there are none."""
    if not isinstance(label, Form):
        return label  # type: ignore[return-value]
    count, called = len(label.axes), list[str]()
    if names is not None:
        for i in range(count):
            called.append(names.of(tensors, i - count if label.from_back else i, called))
    has_rest = any(len(t.shape) > count for t in tensors)
    return _dims(label, tuple(called), has_rest=has_rest)


@lru_cache(maxsize=4096)
def _dims(label: Form, called: tuple[str, ...], *, has_rest: bool) -> Dims:
    """A form as it is written, with the dims' names if it has some."""
    named = zip(called or (NAMELESS,) * len(label.axes), label.axes, strict=True)
    dims: list[Dim | Rest] = [Dim(name=name, axes=axes, pad=i in label.padded) for i, (name, axes) in enumerate(named)]
    rest: list[Dim | Rest] = [Rest()] if has_rest else []
    return Dims(dims=tuple([*rest, *dims] if label.from_back else [*dims, *rest]))
