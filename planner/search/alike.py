"""Meshes whose axes have the same sizes, and those that they cover: what a step takes at least on all of them is one
question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from ...dsl.plan import Axis, Mesh
from .meshes import NAMES
from .tried import Tried

Sizes = tuple[int, ...]

AXES = 3
"""Meshes of fewer axes are asked for with those that cover them, and soon solved one by one."""


@dataclass(slots=True, kw_only=True)
class Alike:
    """Candidates with one policy on meshes of these ``sizes``, or of products of them, and those of these meshes that
    are ``unlisted``: no candidate is on them. What is asked of them is asked for ``like``, one with that policy.
    ``begun`` says that they were bounded, or will be, ``given_s`` is the time that they were not bounded in, 0 where
    they were; ``bound_s`` is what plans on all of them take at least, as far as is known.
    """

    sizes: Sequence[int]
    like: Tried
    members: Sequence[Tried]
    unlisted: Sequence[Mesh]
    begun: bool = False
    given_s: float = 0.0
    bound_s: float = 0.0

    @property
    def mesh(self) -> Mesh:
        """A mesh of these sizes that lies nowhere, for what names no axis."""
        return Mesh(axes=tuple(Axis(name=name, size=size) for name, size in zip(NAMES, self.sizes, strict=True)))

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        """All of them."""
        return (*(one.candidate.plan.mesh for one in self.members), *self.unlisted)

    def __str__(self) -> str:
        return f"{len(self.meshes)} meshes of {' by '.join(map(str, self.sizes))}"

    def bound(self, bound_s: float, credit_s: float) -> None:
        """Says of all of them what they take at least, which allows for some credit."""
        self.bound_s = max(bound_s - credit_s, 0.0)
        for one in self.members:
            if not one.infeasible and self.bound_s > one.bound_s:
                one.credit_s = credit_s
                one.bound_s = max(one.bound_s, self.bound_s)
                one.floor_s = max(one.floor_s, self.bound_s)


def alike(tried: Sequence[Tried], unlisted: Sequence[Mesh]) -> list[Alike]:
    """Those that are several; none where pins say something."""
    if any(one.candidate.pins for one in tried):
        return []
    first = {one.candidate.policy: one for one in reversed(tried)}
    every = [(one.candidate.policy, _sizes(one.candidate.plan.mesh), one) for one in tried]
    found: dict[tuple[int, Sizes], tuple[list[Tried], list[Mesh]]] = {}
    for policy, sizes, one in every:
        if len(sizes) == AXES == len(NAMES):
            found.setdefault((policy, sizes), ([], []))[0].append(one)
    for mesh in unlisted if all(len(mesh.sizes) == AXES == len(NAMES) for mesh in unlisted) else ():
        for policy in first:
            found.setdefault((policy, _sizes(mesh)), ([], []))[1].append(mesh)
    for policy, sizes, one in every:
        covering = (own for (other, fine), own in found.items() if other == policy and _covers(fine, sizes))
        members, _ = next(covering, ([], [])) if len(sizes) < AXES else ([], [])
        members.append(one)
    return [
        Alike(sizes=sizes, like=members[0] if members else first[policy], members=members, unlisted=others)
        for (policy, sizes), (members, others) in found.items()
        if len(members) > 1 or others
    ]


def unlisted_s(several: Sequence[Alike], policy: int) -> float:
    """What a policy's plans take at least on meshes that no candidate is on, as far as all of these were bounded."""
    own = [each for each in several if each.unlisted and each.like.candidate.policy == policy]
    return min((each.bound_s for each in own), default=math.inf)


def _sizes(mesh: Mesh) -> Sizes:
    return tuple(sorted((size or 1 for size in mesh.sizes.values()), reverse=True))


def _covers(fine: Sizes, coarse: Sizes) -> bool:
    """Whether the coarse sizes are products of the fine ones, each used once."""
    if not coarse:
        return math.prod(fine) == 1
    several = (some for count in range(len(fine) + 1) for some in combinations(range(len(fine)), count))
    return any(
        math.prod(fine[place] for place in some) == coarse[0]
        and _covers(tuple(size for place, size in enumerate(fine) if place not in some), coarse[1:])
        for some in several
    )
