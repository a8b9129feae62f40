"""A plan against the tensors of a workload: which rule decides each, the layout it gives, and every problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import Problem, listing, problem, shorten
from .follow import best, by_path, counterparts, cycle, inherited, kept_dims
from .holes import holes as holes
from .layout import give, replicated
from .patterns import literal
from .plan import Assignment, Like, Plan, Rule
from .rule_checks import unknown_axes, unknown_axes_of
from .rule_matches import Matches, match_rules, matching_problems
from .tensors import Layout, Tensor
from .yaml_words import key

Key = tuple[str, tuple[int, ...]]
"""A tensor's path and shape: a tagged value may stand at one path in several shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a plan says of a workload's tensors.

    ``layouts`` has every tensor that could be given one, ``rules`` the rule that decided (None: the language's own
    default), both by path and shape; ``dims`` the sizes of the dims that the plan names. With errors among
    ``problems`` some layouts are missing.
    """

    layouts: Mapping[Key, Layout]
    rules: Mapping[Key, Rule | None]
    dims: Mapping[str, int]
    problems: tuple[Problem, ...]

    def layout(self, tensor: Tensor) -> Layout | None:
        """The tensor's layout; None where the plan gives it none."""
        return self.layouts.get(key_of(tensor))


def key_of(tensor: Tensor) -> Key:
    """Under what a resolution keeps a tensor."""
    return tensor.path, tensor.shape


def resolve(plan: Plan, tensors: Sequence[Tensor]) -> Resolution:
    """The layouts that the plan's rules give to ``tensors``. Never raises: what is wrong is among the problems.

    The first pattern that matches decides. Without any rules every tensor is a hole, but for computed values. Without a
    matching rule, tagged and computed values are ``infer``, a result that is an argument's next state keeps its layout,
    a tensor without dims is replicated, and any other tensor is an error.
    """
    matches = match_rules(plan.rules, tensors)
    resolver = _Resolver(plan=plan, tensors=tensors, matches=matches)
    resolver.run()
    problems = [*unknown_axes(plan), *matching_problems(matches, tensors), *resolver.problems]
    return Resolution(
        layouts=resolver.layouts,
        rules={key_of(t): matches.deciding.get(t.path) for t in tensors},
        dims={name: size for name, (size, _) in resolver.dims.items()},
        problems=tuple(problems),
    )


def assign(plan: Plan, assignment: Assignment, tensor: Tensor) -> tuple[Layout | None, list[Problem]]:
    """The layout that an assignment written in a model gives to a value on the plan's mesh, and its problems."""
    given = give(plan.mesh, assignment, tensor, None)
    return given.layout, [*unknown_axes_of(plan.mesh, assignment, None), *given.problems]


@dataclass(slots=True, kw_only=True)
class _Resolver:
    """Works through the tensors, keeping what has been found."""

    plan: Plan
    tensors: Sequence[Tensor]
    matches: Matches
    layouts: dict[Key, Layout] = field(default_factory=dict)
    dims: dict[str, tuple[int, Tensor]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unassigned: list[Tensor] = field(default_factory=list)
    misspelt: set[int] = field(default_factory=set)
    index: dict[str, list[Tensor]] = field(default_factory=dict)
    failed: set[Key] = field(default_factory=set)
    clashes: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Gives every tensor its layout: by rules that need no other tensor, then by ``like``, then by default."""
        self.index = by_path(self.tensors)
        followers = []
        for rule, group in self._groups():
            if isinstance(rule.assignment, Like):
                followers += group
            else:
                self._give(rule, group)
        arguments_first = sorted(self._undecided(), key=lambda tensor: tensor.role == "result")
        for tensor in [t for t in arguments_first if t.returns is None]:
            self._default(tensor)
        for tensor in followers:
            self._follow(tensor)
        for tensor in [t for t in arguments_first if t.returns is not None]:
            self._return(tensor)
        self._report_unassigned()

    def _groups(self) -> list[tuple[Rule, list[Tensor]]]:
        """The tensors of one rule and shape together: what is true of one of them is true of all."""
        groups: dict[tuple[int, tuple[int, ...]], tuple[Rule, list[Tensor]]] = {}
        for tensor in self.tensors:
            rule = self.matches.deciding.get(tensor.path)
            if rule:
                groups.setdefault((id(rule), tensor.shape), (rule, []))[1].append(tensor)
        return list(groups.values())

    def _undecided(self) -> Iterable[Tensor]:
        return (t for t in self.tensors if self.matches.deciding.get(t.path) is None)

    def _give(self, rule: Rule, group: list[Tensor]) -> None:
        first = group[0]
        given = give(self.plan.mesh, rule.assignment, first, rule.place, others=len(group) - 1)
        self.problems += (each for each in given.problems if not self._is_said(rule, each))
        for name, size in given.names.items():
            self._name(rule, name, size, first)
        for tensor in group:
            self._keep(tensor, given.layout)

    def _is_said(self, rule: Rule, found: Problem) -> bool:
        """Whether a rule's word was asked about before, which is misspelt whatever the rank; notes that it is."""
        asks = found.code == "MW104" and bool(found.numbers["hint"])
        is_said = asks and id(rule) in self.misspelt
        self.misspelt.update({id(rule)} if asks else ())
        return is_said

    def _keep(self, tensor: Tensor, layout: Layout | None) -> None:
        if layout is None:
            self.failed.add(key_of(tensor))
        else:
            self.layouts[key_of(tensor)] = layout

    def _name(self, rule: Rule, name: str, size: int, tensor: Tensor) -> None:
        """Notes the size of a named dim; a second size for the same name is a problem, said once a name and size."""
        known, other = self.dims.setdefault(name, (size, tensor))
        if known != size and f"{name}={size}" not in self.clashes:
            self.clashes.add(f"{name}={size}")
            numbers: dict[str, Any] = {"dim": name, "size": size, "other_size": known}
            self.problems.append(problem("MW108", rule.place, **numbers, tensor=str(tensor), other=str(other)))

    def _default(self, tensor: Tensor) -> None:
        """What the language itself says of a tensor that no rule matches."""
        if tensor.role == "op":
            self._keep(tensor, Layout(how="infer"))
        elif not self.plan.rules:
            self._keep(tensor, Layout(how="auto"))
        elif tensor.role == "tagged":
            self._keep(tensor, Layout(how="infer"))
        elif not tensor.shape:
            self._keep(tensor, replicated(()))
        else:
            self.failed.add(key_of(tensor))
            self.unassigned.append(tensor)

    def _return(self, tensor: Tensor) -> None:
        """A result that is an argument's next state keeps the argument's layout."""
        source = self.index.get(tensor.returns or "", [])
        same = [t for t in source if t.shape == tensor.shape]
        if not same:
            self._default(tensor)
        else:
            self._keep(tensor, self.layouts.get(key_of(same[0])))

    def _follow(self, tensor: Tensor) -> None:
        """Follows a chain of ``like`` to a tensor with a layout, and hands it back along the chain."""
        chain: list[Tensor] = []
        current: Tensor | None = tensor
        while current is not None and key_of(current) not in self.layouts and key_of(current) not in self.failed:
            if current in chain:
                self._report_cycle([*chain, current])
                return
            chain.append(current)
            current = self._followed(current)
        for follower in reversed(chain):
            self._inherit(follower)

    def _followed(self, tensor: Tensor) -> Tensor | None:
        """The tensor that ``tensor`` is like; None where it needs none or has none."""
        rule = self.matches.deciding.get(tensor.path)
        if rule is None or not isinstance(rule.assignment, Like) or not tensor.shape:
            return self._returned(tensor) if rule is None else None
        found = counterparts(tensor, rule.assignment.target, self.index)
        return best(tensor, found) if found else None

    def _returned(self, tensor: Tensor) -> Tensor | None:
        found = self.index.get(tensor.returns or "", [])
        return next((t for t in found if t.shape == tensor.shape), None)

    def _inherit(self, tensor: Tensor) -> None:
        rule = self.matches.deciding.get(tensor.path)
        if rule is None:
            self._return(tensor)
            return
        if not tensor.shape:
            self._keep(tensor, replicated(()))
            return
        source = self._followed(tensor)
        if source is None:
            self._report_orphan(tensor, rule)
        else:
            self._keep(tensor, self._inherited(tensor, source, rule))

    def _inherited(self, tensor: Tensor, source: Tensor, rule: Rule) -> Layout | None:
        """What a tensor takes over of another; that their shapes disagree is told even of one without a layout."""
        kept, lies = kept_dims(tensor.shape, source.shape), self.layouts.get(key_of(source))
        layout = None if kept is None or lies is None else inherited(lies, kept, source.shape)
        if kept is None or (lies is not None and layout is None):
            self._report_mismatch(tensor, source, rule)
        return layout

    def _report_mismatch(self, tensor: Tensor, source: Tensor, rule: Rule) -> None:
        numbers: dict[str, Any] = {"pattern": rule.pattern, "path": tensor.path}
        self.problems.append(problem("MW115", rule.place, **numbers, tensor=str(tensor), source=str(source)))

    def _report_orphan(self, tensor: Tensor, rule: Rule) -> None:
        self.failed.add(key_of(tensor))
        target = rule.assignment.target if isinstance(rule.assignment, Like) else ""
        under = [path for path in self.index if path == target or path.startswith(f"{target}/")]
        known = listing(under, limit=4) if under else "no tensor"
        numbers: dict[str, Any] = {"tensor": str(tensor), "target": target, "known": known, "path": tensor.path}
        self.problems.append(problem("MW114", rule.place, **numbers))

    def _report_cycle(self, chain: list[Tensor]) -> None:
        """One problem a cycle; the tensors that lead into it fail with it."""
        self.failed |= {key_of(tensor) for tensor in chain}
        rule = self.matches.deciding.get(chain[-1].path)
        names = list(cycle([tensor.path for tensor in chain]))
        self.problems.append(
            problem("MW116", rule.place if rule else None, cycle=shorten(" -> ".join(names), limit=300))
        )

    def _report_unassigned(self) -> None:
        """One problem for the tensors without a rule, by the argument or result that they belong to."""
        heads: dict[str, list[Tensor]] = {}
        for tensor in self.unassigned:
            heads.setdefault(tensor.path.split("/")[0], []).append(tensor)
        place = self.plan.places.get("tensors")
        for head, group in heads.items():
            pattern = f"{literal(head)}/**" if len(group) > 1 else literal(group[0].path)
            line = f"{key(pattern)}: replicate"
            numbers: dict[str, Any] = {"tensors": listing(group, limit=5), "count": len(group), "line": line}
            self.problems.append(problem("MW103", place, **numbers))
