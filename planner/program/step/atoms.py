"""Factors of several operations brought together: which of their loops are one loop."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Atom:
    """A loop that tensors share. Once it turned out to be another one, or a product of smaller ones, ``parts`` says so.

    ``blocked`` loops must not be split: some operation needs all of it on each device. Of ``overlaid`` ones some dims
    have a part only: they cannot make up a dim with others, and of what they are made of only the major one is split.
    """

    size: int
    blocked: bool = False
    overlaid: bool = False
    parts: tuple[Atom, ...] = field(default=())

    def leaves(self) -> list[Atom]:
        """The loops that it consists of now, major first."""
        if not self.parts:
            return [self]
        found = [leaf for part in self.parts for leaf in part.leaves()]
        self.parts = tuple(found)  # the way is short the next time
        return found


def leaves(atoms: Iterable[Atom]) -> list[Atom]:
    """The loops that these consist of, major first; those of size one are left out."""
    return [leaf for atom in atoms for leaf in atom.leaves() if leaf.size > 1]


def unify(left: Sequence[Atom], right: Sequence[Atom]) -> None:
    """Makes two rows of loops, of the same product, one. Where their sizes do not come out even they are blocked, but
    for a loop that is larger because something longer lies along it.
    """
    ours, theirs = leaves(left), leaves(right)
    if len(ours) == len(theirs) == 1 and (ours[0].overlaid or theirs[0].overlaid):
        overlay(ours[0], theirs[0])
        return
    while ours and theirs:
        a, b = ours.pop(0), theirs.pop(0)
        if a is b:
            continue
        if a.size == b.size:
            _become(b, a)
        elif a.size % b.size == 0:
            theirs.insert(0, b)
            ours[:0] = _cut(a, b.size)
        elif b.size % a.size == 0:
            ours.insert(0, a)
            theirs[:0] = _cut(b, a.size)
        else:
            for atom in (a, b, *ours, *theirs):
                atom.blocked = True
            return


def overlay(left: Atom, right: Atom) -> None:
    """Makes two loops one where one goes through most of the other: what is cut off lies with the rest."""
    if left is not right:
        left.size = max(left.size, right.size)
        left.overlaid = True
        _become(right, left)


def lay_out_along(one: Atom, row: Sequence[Atom]) -> None:
    """Makes a dim of one place, which is cut out of a row of loops, lie along all of it: one device has the number."""
    known, ours = leaves([one]), leaves(row)
    if not known:
        one.parts = tuple(ours)
    elif math.prod(atom.size for atom in known) == math.prod(atom.size for atom in ours):
        unify(known, ours)
    else:
        for atom in (*known, *ours):
            atom.blocked = True


def _become(gone: Atom, kept: Atom) -> None:
    kept.blocked |= gone.blocked
    kept.overlaid |= gone.overlaid
    gone.parts = (kept,)


def _cut(atom: Atom, major: int) -> tuple[Atom, Atom]:
    atom.parts = (Atom(major, atom.blocked), Atom(atom.size // major, atom.blocked or atom.overlaid))
    return atom.parts
