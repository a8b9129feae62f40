"""What can be said of a plan's rules without any tensors: unknown axes, unused axes, cycles of ``like``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .errors import FlawError, Problem, problem, suggest
from .follow import cycle
from .patterns import compile_pattern
from .plan import Assignment, Dim, Dims, Like, Mesh, Place, Plan, Remat, Shard, Split
from .tensors import Tensor


def axes_of(assignment: Assignment) -> tuple[str, ...]:
    """The mesh axes that an assignment names, in order."""
    if isinstance(assignment, Dims):
        return tuple(axis for dim in assignment.dims if isinstance(dim, Dim) for axis in dim.axes)
    if isinstance(assignment, Split):
        return tuple(axis for split in assignment.splits for axis in split.axes)
    return ()


def unknown_axes(plan: Plan) -> Iterator[Problem]:
    """A problem for each axis that a rule names and the mesh does not have; none while the mesh is ``auto``."""
    for rule in plan.rules:
        yield from unknown_axes_of(plan.mesh, rule.assignment, rule.place)


def unknown_axes_of(mesh: Mesh, assignment: Assignment, place: Place | None) -> Iterator[Problem]:
    """A problem for each axis that the assignment names and the mesh does not have."""
    if mesh.axes is None:
        return
    for axis in axes_of(assignment):
        if axis not in mesh.sizes:
            yield problem("MW106", place, axis=axis, suggestion=suggest(axis, mesh.sizes))


def unused_axes(plan: Plan) -> Iterator[Problem]:
    """A note for each mesh axis of more than one device that no rule uses, in a plan that leaves nothing open."""
    used = {axis for rule in plan.rules for axis in axes_of(rule.assignment)}
    if any(isinstance(rule.assignment, Shard) for rule in plan.rules) or not plan.rules:
        return
    for axis in plan.mesh.axes or ():
        if axis.name not in used and axis.size != 1:
            yield problem("MW120", axis.place, severity="note", axis=axis.name, size=axis.size or "auto")


def unknown_saved(plan: Plan, tensors: Sequence[Tensor]) -> Iterator[Problem]:
    """A problem for each value that the remat policy keeps and the model does not tag."""
    tagged = [tensor.path.removeprefix("acts/") for tensor in tensors if tensor.role == "tagged"]
    remat = plan.remat or Remat(policy="none")
    for name in remat.names:
        if name not in tagged:
            yield problem("MW117", remat.place, name=name, suggestion=suggest(name, set(tagged)))


def like_cycles(plan: Plan) -> Iterator[Problem]:
    """A problem for each cycle of ``like`` that a made-up tensor under the targets would run into."""
    try:
        compiled = [(rule, compile_pattern(rule.pattern)) for rule in plan.rules]
    except FlawError:
        return
    successor: dict[str, str] = {}
    for rule in plan.rules:
        if isinstance(rule.assignment, Like):
            target = rule.assignment.target
            following = next((r for r, pattern in compiled if pattern.matches(f"{target}/\0")), None)
            following = following or next((r for r in plan.rules if r.pattern == target), None)
            if following and isinstance(following.assignment, Like):
                successor[rule.pattern] = following.pattern
    yield from _cycles(plan, successor)


def _cycles(plan: Plan, successor: dict[str, str]) -> Iterator[Problem]:
    done: set[str] = set()
    for rule in plan.rules:
        chain = [rule.pattern]
        while chain[-1] in successor and chain[-1] not in done and chain.count(chain[-1]) == 1:
            chain.append(successor[chain[-1]])
        if chain.count(chain[-1]) > 1 and chain[-1] not in done:
            yield problem("MW116", rule.place, cycle=" -> ".join(cycle(chain)))
        done.update(chain)
