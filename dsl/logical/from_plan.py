"""Logical axis rules of a plan: the list from which Flax would find the plan's layouts, where there is one.

Rules are a decision list: in each tensor the first one whose axes are free takes its dim. So a rule is safe to say next
if, wherever it would take a dim now, the plan gives that dim just these axes. Saying a safe rule never spoils a later
one: it takes dims and axes as the plan has them. Therefore saying safe rules until there are no more finds a list
whenever there is any.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import Problem, listing, problem, raise_errors
from ..plan import Place, Plan
from ..resolve import Resolution, resolve
from ..tensors import Layout, Tensor
from .lookup import Axes, mesh_axes, outright
from .rules import LogicalRule, TensorNames
from .tensor_names import name_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A tensor, its names, and the axes that the plan gives each of its dims."""

    tensor: Tensor
    named: TensorNames
    axes: Axes
    place: Place | None

    def dim_of(self, name: str) -> int | None:
        return self.named.names.index(name) if name in self.named.names else None


def rules_of(plan: Plan, tensors: Sequence[Tensor], names: Mapping[str, TensorNames]) -> tuple[LogicalRule, ...]:
    """Rules that give every named tensor the plan's layout, by Flax's own lookup.

    Raises ``PlanError`` with everything that rules cannot say: MW670 and MW671 for what is split without a name, MW672
    for names laid out in two ways, MW673 for padding, explicit devices and what is left to propagation; the plan's own
    problems too.
    """
    resolution = resolve(plan, tensors)
    raise_errors(resolution.problems)
    wanted: list[_Wanted] = []
    problems: list[Problem] = []
    for tensor in tensors:
        layout = resolution.layouts[tensor.path, tensor.shape]
        found = list(_tensor_problems(tensor, layout, names.get(tensor.path), resolution))
        problems += found
        if not found and tensor.path in names and layout.how == "split":
            wanted.append(_wanted(tensor, names[tensor.path], layout, resolution))
    search = _Search(wanted=wanted)
    search.run()
    raise_errors([*_said_once(problems), *search.conflicts()])
    return (*search.rules, *_whole(search))


def _said_once(problems: Sequence[Problem]) -> Iterator[Problem]:
    """The problems, one for all tensors of which a line of the plan says the same that no rule can."""
    several: dict[Hashable, list[Problem]] = {}
    for number, found in enumerate(problems):
        key = (found.place, found.numbers["what"]) if found.code == "MW673" else number
        several.setdefault(key, []).append(found)
    for first, *others in several.values():
        more = f"{first.numbers['tensor']} (and {len(others)} more)"
        yield problem(first.code, first.place, **{**first.numbers, "tensor": more}) if others else first


def _wanted(tensor: Tensor, named: TensorNames, layout: Layout, resolution: Resolution) -> _Wanted:
    return _Wanted(tensor=tensor, named=named, axes=layout.axes[: len(named.names)], place=_place(tensor, resolution))


def _tensor_problems(
    tensor: Tensor, layout: Layout, named: TensorNames | None, resolution: Resolution
) -> Iterator[Problem]:
    """What of one tensor no rule can say, whatever the others are."""
    place = _place(tensor, resolution)
    if named is not None and (found := list(name_problems(tensor, named))):
        yield from found
    elif tensor.role == "result" and (tensor.returns is not None or layout.how == "infer"):
        return  # what a step returns, Flax does not lay out by rules
    elif layout.how == "infer" and named is None and tensor.role == "tagged":
        return
    elif layout.how != "split":
        words = {"infer": "left to propagation", "auto": "left open", "assigned": "given explicit devices"}
        yield problem("MW673", place, tensor=str(tensor), what=words[layout.how])
    elif layout.padded:
        yield problem("MW673", place, tensor=str(tensor), what="padded")
    elif named is None and any(layout.axes):
        shown = " ".join(f"@{'+'.join(own)}" if own else "-" for own in layout.axes)
        example = ", ".join(f"dim{i}" for i in range(len(tensor.shape)))
        yield problem("MW670", place, tensor=str(tensor), layout=shown, path=tensor.path, example=example)
    elif named is not None:
        yield from _dim_problems(tensor, layout, named, place)


def _dim_problems(tensor: Tensor, layout: Layout, named: TensorNames, place: Place | None) -> Iterator[Problem]:
    names = [*named.names, *[None] * (len(tensor.shape) - len(named.names))]
    for dim, (name, axes) in enumerate(zip(names, layout.axes, strict=True)):
        if not isinstance(name, str) and axes != outright(name):
            shown = f"@{'+'.join(axes)}" if axes else "nothing"
            yield problem("MW671", place, dim=dim, tensor=str(tensor), axes=shown)


def _place(tensor: Tensor, resolution: Resolution) -> Place | None:
    rule = resolution.rules[tensor.path, tensor.shape]
    return rule.place if rule else None


@dataclass(slots=True, kw_only=True)
class _Search:
    """Says safe rules until there are no more. ``done[i]`` are the dims of the i-th tensor that have been taken."""

    wanted: Sequence[_Wanted]
    rules: list[LogicalRule] = field(default_factory=list)
    done: list[set[int]] = field(default_factory=list)
    taken: list[set[str]] = field(default_factory=list)

    def run(self) -> None:
        self.done = [set() for _ in self.wanted]
        self.taken = [{axis for name in tensor.named.names for axis in outright(name)} for tensor in self.wanted]
        candidates = dict.fromkeys(
            (name, axes)
            for tensor in self.wanted
            for name, axes in zip(tensor.named.names, tensor.axes, strict=True)
            if isinstance(name, str) and axes
        )
        while safe := next((rule for rule in candidates if not self.spoils(*rule)), None):
            del candidates[safe]
            self.say(*safe)

    def fires(self, name: str, axes: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """The tensors, by number, in which the rule would now take a dim, and the dim."""
        for i, tensor in enumerate(self.wanted):
            dim = tensor.dim_of(name)
            if dim is not None and dim not in self.done[i] and self.taken[i].isdisjoint(axes):
                yield i, dim

    def spoils(self, name: str, axes: tuple[str, ...]) -> bool:
        return any(self.wanted[i].axes[dim] != axes for i, dim in self.fires(name, axes))

    def say(self, name: str, axes: tuple[str, ...]) -> None:
        fired = list(self.fires(name, axes))
        for i, dim in fired:
            self.done[i].add(dim)
            self.taken[i].update(axes)
        if fired:
            self.rules.append(LogicalRule(name=name, axes=axes))

    def conflicts(self) -> Iterator[Problem]:
        """A problem for each name that could not be said: two tensors that want it differently."""
        said: set[str] = set()
        for i, tensor in enumerate(self.wanted):
            for dim, (name, axes) in enumerate(zip(tensor.named.names, tensor.axes, strict=True)):
                if isinstance(name, str) and axes and dim not in self.done[i] and name not in said:
                    said.add(name)
                    j, other = next((j, d) for j, d in self.fires(name, axes) if self.wanted[j].axes[d] != axes)
                    yield _conflict(name, tensor, axes, self.wanted[j], self.wanted[j].axes[other])
        if not said:
            yield from self.read_otherwise()

    def read_otherwise(self) -> Iterator[Problem]:
        """Tensors of NNX, which knows one rule a name, that would not get their layout."""
        rules = [*self.rules, *_whole(self)]
        for tensor in self.wanted:
            found = mesh_axes(tensor.named, rules)
            for name, axes, got in zip(tensor.named.names, tensor.axes, found, strict=True):
                if axes != got and isinstance(name, str):
                    other = next(w for w in self.wanted if (d := w.dim_of(name)) is not None and w.axes[d] == got)
                    yield _conflict(name, tensor, axes, other, got)
                    break


def _whole(search: _Search) -> list[LogicalRule]:
    """A rule for each name that is never split: what Flax does without one too, but NNX does not."""
    split = {rule.name for rule in search.rules}
    names = dict.fromkeys(name for tensor in search.wanted for name in tensor.named.names if isinstance(name, str))
    return [LogicalRule(name=name, axes=()) for name in names if name not in split]


def _conflict(name: str, tensor: _Wanted, axes: tuple[str, ...], other: _Wanted, others: tuple[str, ...]) -> Problem:
    first, second = (f"split over {listing(own)}" if own else "whole" for own in (axes, others))
    tensors: dict[str, Any] = {"tensor": str(tensor.tensor), "other": str(other.tensor)}
    return problem("MW672", tensor.place, name=name, first=first, second=second, **tensors)
