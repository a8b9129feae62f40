"""Which devices a collective joins: HLO's notations, and the mesh axes that they stand for.

The numbers in a compiled program are positions in the mesh's flat device order, not device numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_GROUPS = re.compile(
    r"\b(?:replica_groups|device_list)=(mesh\[[^\]]*\](?:,? ?device_ids=\([^{]*\))? ?\{[^}]*\}"
    r"|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?|\{\}|\{\{[\d,{} ]*\}\})"
)
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_SLICES = re.compile(r'_xla_megascale_target=(?:"\{([\d,]+)\}x|\{\{([\d,]+)\})')
_SLICE_IDS = 100_000
_PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{} ]*\})?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisUse:
    """A mesh axis that a collective runs along: ``extent`` of its ``size`` positions in each group."""

    name: str
    extent: int
    size: int

    def __str__(self) -> str:
        return self.name if self.extent == self.size else f"{self.name} ({self.extent} of {self.size})"


def replica_groups(attributes: str, num_devices: int) -> np.ndarray | None:
    """The groups of an instruction with these attributes, (groups, devices of each) positions; None if it has none.

    All three notations are read: ``mesh['a'=4,'b'=8] {'b'}``, ``[4,8]<=[8,4]T(1,0)`` and ``{{0,1},{2,3}}``. Groups of
    unlike length are filled up with the last of their devices.
    """
    found = _GROUPS.search(attributes)
    if found is None:
        return None
    text = found[1]
    if text.startswith("mesh"):
        return _mesh_groups(text)
    if text.startswith("["):
        return _iota(text)
    rows = [list(map(int, row.split(","))) for row in re.findall(r"\{([\d, ]+)\}", text)]
    if not rows:
        return np.arange(num_devices).reshape(1, -1)
    longest = max(map(len, rows))
    return np.array([row + row[-1:] * (longest - len(row)) for row in rows])


def source_target_pairs(attributes: str) -> np.ndarray | None:
    """The (pairs, 2) positions of a permute: from, to; None if it has none."""
    found = _PAIRS.search(attributes)
    if found is None:
        return None
    return np.array(list(map(int, re.findall(r"\d+", found[1] or "")))).reshape(-1, 2)


def slices_joined(attributes: str) -> tuple[int, ...]:
    """The slices, from 0, that a transfer between slices joins, in its first group; empty if it is none.

    Two notations: slices from 1 by devices, ``"{1,2}x{0:3}"``, and lists of device numbers, ``{{100000,300000},...}``,
    of which slice ``n`` has those from 100,000 (n + 1).
    """
    found = _SLICES.search(attributes)
    if found is None:
        return ()
    numbers = map(int, (found[1] or found[2]).split(","))
    slices = (number if found[1] else number // _SLICE_IDS for number in numbers)
    return tuple(sorted({number - 1 for number in slices}))


def devices_of_a_slice(attributes: str) -> int:
    """How many devices of each slice stand in the first group of a transfer between slices, where they are listed."""
    found = _SLICES.search(attributes)
    if found is None or found[2] is None:
        return 1
    numbers = [int(number) // _SLICE_IDS for number in found[2].split(",")]
    return len(numbers) // len(set(numbers))


def axes_of_groups(groups: np.ndarray, mesh: Mapping[str, int]) -> tuple[AxisUse, ...]:
    """The axes of the mesh (sizes, major first) whose positions vary within the groups."""
    sizes = tuple(mesh.values())
    places = np.unravel_index(groups[:1].ravel(), sizes) if sizes else ()
    uses = [
        AxisUse(name=name, extent=len(np.unique(place)), size=size)
        for (name, size), place in zip(mesh.items(), places, strict=True)
    ]
    return tuple(use for use in uses if use.extent > 1)


def axes_of_pairs(pairs: np.ndarray, mesh: Mapping[str, int]) -> tuple[AxisUse, ...]:
    """The axes of the mesh along which some source and its target differ."""
    sizes = tuple(mesh.values())
    sources = np.unravel_index(pairs[:, 0], sizes) if sizes else ()
    targets = np.unravel_index(pairs[:, 1], sizes) if sizes else ()
    return tuple(
        AxisUse(name=name, extent=size, size=size)
        for (name, size), source, target in zip(mesh.items(), sources, targets, strict=True)
        if (source != target).any()
    )


def _iota(text: str) -> np.ndarray:
    found = _IOTA.search(text)
    if found is None:
        raise ValueError(f"no iota of devices: {text}")
    shape, source, order = (tuple(map(int, part.split(","))) if part else None for part in found.groups())
    numbers = np.arange(np.prod(source or ())).reshape(source or ())
    return (numbers.transpose(order) if order else numbers).reshape(shape or ())


def _mesh_groups(text: str) -> np.ndarray:
    """``mesh['a'=4,'b'=8] {'b'}``; an axis written ``'b':(2)4`` is the part of size 4 with 2 before it."""
    head, _, used = text.rpartition("{")
    axes = [(name, int(size)) for name, size in re.findall(r"'?([\w.\-]+)'?=(\d+)", head.partition("]")[0])]
    devices = _mesh_devices(head.partition("]")[2], [size for _, size in axes])
    parts = [_part(word) for word in re.findall(r"'?([\w.\-]+)'?(?::\((\d+)\)(\d+))?", used.rstrip("}"))]
    cut = [piece for name, size in axes for piece in _pieces(name, size, parts)]
    grid = devices.reshape([size for _, size in cut])
    inside = [cut.index(piece) for part in parts for piece in cut if _covers(part, piece, dict(axes))]
    outside = [i for i in range(len(cut)) if i not in inside]
    return grid.transpose(outside + inside).reshape(-1, int(np.prod([cut[i][1] for i in inside])))


def _mesh_devices(text: str, sizes: list[int]) -> np.ndarray:
    """The devices of the mesh, in its order: ``device_ids=([2,4]T(1,0))``, a list of them, or 0, 1, 2, ..."""
    permuted = re.search(r"\(\[([\d,]+)\]T(\([\d,]+\))\)", text)
    if permuted:
        return _iota(f"[{int(np.prod(sizes))}]<=[{permuted[1]}]T{permuted[2]}")
    if "<=" in text:
        return _iota(text).ravel()
    listed = re.findall(r"\d+", text)
    return np.array(list(map(int, listed))) if listed else np.arange(int(np.prod(sizes)))


_Part = tuple[str, int, int | None]  # an axis's name, what of it lies before, the size (None: the whole axis)
_Piece = tuple[tuple[str, int], int]  # an axis's name and what lies before, the size


def _part(word: tuple[str, str, str]) -> _Part:
    name, before, size = word
    return (name, int(before), int(size)) if size else (name, 1, None)


def _pieces(name: str, size: int, parts: list[_Part]) -> list[_Piece]:
    """An axis cut where the parts of it that are used begin and end."""
    own = [(before, part) for other, before, part in parts if other == name and part is not None]
    cuts = sorted({1, size, *(before for before, _ in own), *(before * part for before, part in own)})
    if len(cuts) == 1:
        return [((name, 1), size)]
    return [((name, low), high // low) for low, high in itertools.pairwise(cuts)]


def _covers(part: _Part, piece: _Piece, sizes: Mapping[str, int]) -> bool:
    (name, low), size = piece
    whole = part[2] if part[2] is not None else sizes[name] if part[0] == name else 0
    return part[0] == name and part[1] <= low and low * size <= part[1] * whole
