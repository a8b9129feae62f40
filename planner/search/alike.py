"""Meshes whose axes have the same sizes: what a step takes at least on all of them is one question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...dsl.plan import Axis, Mesh
from .meshes import NAMES
from .tried import Tried

FEWEST_AXES = 3
"""Meshes of fewer axes are soon solved one by one."""


@dataclass(slots=True, kw_only=True)
class Alike:
    """Candidates with one policy on ``meshes`` of the same sizes, and those of these meshes that are ``unlisted``: no
    candidate is on them. What is asked of them is asked for ``like``, one with that policy. ``begun`` says that they
    were bounded, or will be; ``bound_s`` is what plans on all of them take at least, as far as is known.
    """

    like: Tried
    members: Sequence[Tried]
    unlisted: Sequence[Mesh]
    begun: bool = False
    bound_s: float = 0.0

    @property
    def mesh(self) -> Mesh:
        """A mesh of these sizes that lies nowhere, for what names no axis."""
        sizes = sorted((size or 1 for size in self.meshes[0].sizes.values()), reverse=True)
        return Mesh(axes=tuple(Axis(name=name, size=size) for name, size in zip(NAMES, sizes, strict=True)))

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        """All of them."""
        return (*(one.candidate.plan.mesh for one in self.members), *self.unlisted)

    def __str__(self) -> str:
        sizes = " by ".join(str(size) for size in self.mesh.sizes.values())
        return f"{len(self.meshes)} meshes of {sizes}"

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
    found: dict[tuple[int, ...], tuple[list[Tried], list[Mesh]]] = {}
    for one in tried:
        found.setdefault((one.candidate.policy, *_sizes(one.candidate.plan.mesh)), ([], []))[0].append(one)
    for mesh in unlisted:
        for policy in first:
            found.setdefault((policy, *_sizes(mesh)), ([], []))[1].append(mesh)
    return [
        Alike(like=members[0] if members else first[policy], members=members, unlisted=others)
        for (policy, *sizes), (members, others) in found.items()
        if len(sizes) == FEWEST_AXES == len(NAMES) and len(members) + len(others) > 1
    ]


def unlisted_s(several: Sequence[Alike], policy: int) -> float:
    """What a policy's plans take at least on meshes that no candidate is on, as far as all of these were bounded."""
    own = [each for each in several if each.unlisted and each.like.candidate.policy == policy]
    return min((each.bound_s for each in own), default=math.inf)


def _sizes(mesh: Mesh) -> list[int]:
    return sorted(size or 1 for size in mesh.sizes.values())
