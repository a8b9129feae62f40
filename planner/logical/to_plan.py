"""A plan of logical axis rules: each named tensor gets the axes that Flax would give it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from ...dsl.errors import Problem, listing, problem, raise_errors, suggest
from ...dsl.follow import best, by_path, counterparts, inherited, kept_dims
from ...dsl.layout import replicated
from ...dsl.logical.dim_names import DimNames
from ...dsl.logical.lookup import decisions
from ...dsl.logical.rules import LogicalRules, TensorNames
from ...dsl.logical.tensor_names import name_problems
from ...dsl.patterns import literal
from ...dsl.plan import Assignment, Auto, Infer, Like, Mesh, Place, Plan, Replicate, Rule
from ...dsl.resolve import resolve
from ...dsl.tensors import Layout, Tensor
from ..minimise.cover import cover
from .mesh import unknown_axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A plan, and what it is worth knowing of how it came about."""

    plan: Plan
    notes: tuple[Problem, ...]


def plan_of(
    rules: LogicalRules, mesh: Mesh, tensors: Sequence[Tensor], names: Mapping[str, TensorNames], *, frame: Plan
) -> Converted:
    """The plan that ``rules`` give to ``tensors`` with these logical names, on ``mesh``; the rest is ``frame``'s.

    As in Flax, a tensor without names is whole where others of its argument have some; an argument without any is left
    open, with a note, and results are left to propagation. Raises ``PlanError`` (MW652, MW654 to MW659) with every
    problem, those of the finished plan among them (a dim that does not divide), at the rule that asked for it.
    """
    builder = _Builder(rules=rules, mesh=mesh, tensors=tensors, names=names)
    builder.layouts_of_named()
    raise_errors(builder.problems)
    plan = replace(frame, mesh=builder.kept_mesh(), rules=tuple(builder.plan_rules()))
    raise_errors(_placed(p, plan) for p in resolve(plan, tensors).problems)
    return Converted(plan=plan, notes=(*rules.notes, *builder.notes()))


def _placed(found: Problem, plan: Plan) -> Problem:
    return found if found.place else replace(found, place=plan.mesh.place)


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Works out the layouts, then writes them as few rules."""

    rules: LogicalRules
    mesh: Mesh
    tensors: Sequence[Tensor]
    names: Mapping[str, TensorNames]
    problems: list[Problem] = field(default_factory=list)
    layouts: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)

    def layouts_of_named(self) -> None:
        """The axes of each dim of each named tensor."""
        if not self.names:
            self.problems.append(problem("MW659"))
        self.problems += unknown_axes(self.rules, self.mesh.sizes)
        for tensor in self.tensors:
            named = self.names.get(tensor.path)
            if named is None:
                continue
            found = list(name_problems(tensor, named))
            self.problems += found
            if not found:
                self.layout(tensor, named)

    def layout(self, tensor: Tensor, named: TensorNames) -> None:
        found = decisions(named, self.rules.rules)
        known = {axis.name for axis in self.mesh.axes or ()}
        for dim, (axes, rule) in enumerate(found):
            if rule is None and (unknown := [axis for axis in axes if axis not in known]):
                self.unknown_name(tensor, named, unknown[0])
            elif rule is not None and axes:
                self.places.setdefault(tensor.path, rule.place)
            for earlier, (others, _) in enumerate(found[:dim]):
                if shared := set(axes) & set(others):
                    self.taken_twice(tensor, named, earlier, dim, min(shared))
        axes_of_dims = [tuple(axis for axis in axes if self.mesh.sizes.get(axis) != 1) for axes, _ in found]
        self.layouts[tensor.path] = (*axes_of_dims, *[()] * (len(tensor.shape) - len(found)))

    def unknown_name(self, tensor: Tensor, named: TensorNames, name: str) -> None:
        choices = [*dict.fromkeys(rule.name for rule in self.rules.rules), *self.mesh.sizes]
        hint = suggest(name, choices)
        self.problems.append(problem("MW657", named.place, name=name, tensor=str(tensor), suggestion=hint))

    def taken_twice(self, tensor: Tensor, named: TensorNames, first: int, second: int, axis: str) -> None:
        both = f"'{named.names[first]}' and '{named.names[second]}'"
        where = self.places.get(tensor.path)
        self.problems.append(
            problem("MW656", where, first=first, second=second, tensor=str(tensor), axis=axis, names=both)
        )

    def kept_mesh(self) -> Mesh:
        """The mesh without axes of one device, which split nothing."""
        axes = self.mesh.axes or ()
        kept = tuple(axis for axis in axes if axis.size != 1)
        return replace(self.mesh, axes=kept or axes[:1])

    def notes(self) -> Iterable[Problem]:
        """What was left out or left open, and what of the rules this model does not need."""
        left_out = [axis for axis in self.mesh.sizes if axis not in self.kept_mesh().sizes]
        if left_out:
            yield problem("MW681", self.mesh.place, severity="note", axes=listing(left_out, limit=24))
        for head, tensors in self.heads().items():
            if self.is_open(tensors):
                line = f"{_pattern(head, tensors)}: auto"
                yield problem("MW680", severity="note", count=len(tensors), head=head, line=line)
        used = {name for named in self.names.values() for name in named.names}
        idle = [name for name in dict.fromkeys(rule.name for rule in self.rules.rules) if name not in used]
        if idle:
            yield problem("MW684", severity="note", count=len(idle), names=listing(idle))

    def heads(self) -> dict[str, list[Tensor]]:
        """The tensors that need a rule, by their first segment."""
        heads: dict[str, list[Tensor]] = {}
        for tensor in self.tensors:
            if tensor.role != "result" or tensor.returns is None:
                heads.setdefault(tensor.path.split("/")[0], []).append(tensor)
        return heads

    def is_open(self, tensors: Sequence[Tensor]) -> bool:
        """Whether nothing is said of an argument."""
        if tensors[0].role != "argument" or not any(tensor.shape for tensor in tensors):
            return False
        return not any(tensor.path in self.layouts for tensor in tensors)

    def plan_rules(self) -> list[Rule]:
        """The plan's rules: of each argument, of tagged values with names, of results."""
        rules: list[Rule] = []
        for head, tensors in self.heads().items():
            if self.is_open(tensors):
                rules.append(Rule(pattern=_pattern(head, tensors), assignment=Auto(), place=self.mesh.place))
            elif tensors[0].role == "result":
                shaped = any(tensor.shape for tensor in tensors)
                rules += [Rule(pattern=_pattern(head, tensors), assignment=Infer())] if shaped else []
            else:
                rules += self.followed(head, tensors) or self.covered(tensors)
        return rules

    def covered(self, tensors: Sequence[Tensor]) -> list[Rule]:
        """The fewest patterns that give these tensors their assignments, and nothing to any other."""
        dims = DimNames.of(self.tensors, self.names)
        labels: dict[str, list[Assignment]] = {}
        for tensor in tensors:
            named, axes = self.names.get(tensor.path), self.layouts.get(tensor.path)
            if named is not None and axes is not None:
                labels[tensor.path] = [dims.assignment(tensor, named.names, axes)]
            elif tensor.role == "argument":
                labels[tensor.path] = [Replicate()]
        scalars = {tensor.path: labels.pop(tensor.path, []) for tensor in tensors if not tensor.shape}
        found = cover(labels, optional=scalars, others=[tensor.path for tensor in self.tensors])
        places = [[self.places[path] for path in line.paths if path in self.places] for line in found]
        return [
            Rule(pattern=line.pattern, assignment=cast(Assignment, line.label), place=[*where, self.mesh.place][0])
            for line, where in zip(found, places, strict=True)
        ]

    def followed(self, head: str, tensors: Sequence[Tensor]) -> list[Rule]:
        """``head/**: like other`` where that gives each of these tensors what it is to have; else nothing."""
        if len(tensors) < 2 or self.is_open(tensors):
            return []
        before = [h for h in self.heads() if h != head]
        for other in before[: list(self.heads()).index(head)]:
            index = by_path([t for t in self.heads()[other] if t.role == "argument"])
            if all(self.follows(tensor, other, index) for tensor in tensors if tensor.shape):
                return [Rule(pattern=_pattern(head, tensors), assignment=Like(target=other))]
        return []

    def follows(self, tensor: Tensor, other: str, index: Mapping[str, Sequence[Tensor]]) -> bool:
        found = counterparts(tensor, other, index)
        source = best(tensor, found) if found else None
        kept = kept_dims(tensor.shape, source.shape) if source else None
        if source is None or kept is None:
            return False
        given = inherited(self.whole_or_split(source), kept, source.shape)
        return given is not None and given.axes == self.whole_or_split(tensor).axes

    def whole_or_split(self, tensor: Tensor) -> Layout:
        axes = self.layouts.get(tensor.path)
        return replicated(tensor.shape) if axes is None else Layout(axes=axes)


def _pattern(head: str, tensors: Sequence[Tensor]) -> str:
    """The pattern of everything under a head, or of the head itself where it is a single tensor."""
    alone = len(tensors) == 1 and tensors[0].path == head
    return literal(head) if alone else f"{literal(head)}/**"
