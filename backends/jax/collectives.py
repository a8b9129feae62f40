"""The collectives of a compiled program: what each moves, how often, along which mesh axes, and who asked for it.

The names of collectives that Meshwright uses stand here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .hlo import Instruction, Program
from .hlo_loops import Runs
from .hlo_source import SourceLine
from .replica_groups import AxisUse, axes_of_groups, axes_of_pairs, replica_groups, source_target_pairs

ALL_GATHER = "all-gather"
ALL_REDUCE = "all-reduce"
REDUCE_SCATTER = "reduce-scatter"
ALL_TO_ALL = "all-to-all"
COLLECTIVE_PERMUTE = "collective-permute"
RAGGED_ALL_TO_ALL = "ragged-all-to-all"
COLLECTIVE_BROADCAST = "collective-broadcast"
KINDS = (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    COLLECTIVE_PERMUTE,
    RAGGED_ALL_TO_ALL,
    COLLECTIVE_BROADCAST,
)

_FUSED_REDUCE_SCATTER = "all-reduce-scatter"
_CHAIN_START = '"AsyncCollectiveStart"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective of a compiled program.

    ``num_bytes`` is what one device holds of it each time it runs: the larger of its operands and its results, that is
    the gathered result of an all-gather, the unreduced operand of a reduce-scatter. ``times`` is how often it runs in a
    step, ``group_size`` how many devices it joins, ``op_name`` JAX's name stack, ``source`` the line that asked for it.
    """

    kind: str
    name: str
    num_bytes: int
    times: int
    dtype: str
    group_size: int
    axes: tuple[AxisUse, ...]
    op_name: str | None
    source: SourceLine | None

    @property
    def total_bytes(self) -> int:
        """Bytes over a whole step, a device."""
        return self.num_bytes * self.times

    def as_json(self) -> dict[str, Any]:
        """The collective as plain JSON values."""
        return {
            "kind": self.kind,
            "name": self.name,
            "bytes": self.num_bytes,
            "times": self.times,
            "total_bytes": self.total_bytes,
            "dtype": self.dtype,
            "group_size": self.group_size,
            "axes": [{"name": a.name, "extent": a.extent, "size": a.size} for a in self.axes],
            "op_name": self.op_name,
            "source": str(self.source) if self.source else None,
        }


def collectives(runs: Runs, mesh: Mapping[str, int]) -> tuple[Collective, ...]:
    """Every collective that a step runs, in program order; ``mesh`` is its axes' sizes, major first.

    An asynchronous one counts once, wherever its parts stand. Those that join one device alone are left out.
    """
    found = (_collective(runs, mesh, name, i) for name, i in _instructions(runs))
    return tuple(collective for collective in found if collective is not None and collective.group_size > 1)


def total_bytes_by_kind(listed: Iterable[Collective]) -> dict[str, int]:
    """Bytes of a step, a device, by kind; kinds that do not occur are left out."""
    totals: dict[str, int] = {}
    for collective in listed:
        totals[collective.kind] = totals.get(collective.kind, 0) + collective.total_bytes
    return {kind: totals[kind] for kind in KINDS if kind in totals}


def _instructions(runs: Runs) -> Iterator[tuple[str, Instruction]]:
    """The instructions that begin a collective, each with its computation's name."""
    started = {_chain(i) for name in runs.order for i in _chained(runs.program, name) if _starts(runs.program, name)}
    for name in runs.order:
        if not runs.times[name]:
            continue
        for instruction in runs.program.computations[name].instructions.values():
            continued = _chain(instruction) in started and not _starts(runs.program, name)
            if _kind(name, instruction) and not continued:
                yield name, instruction


def _chained(program: Program, name: str) -> list[Instruction]:
    return [i for i in program.computations[name].instructions.values() if _chain(i)]


def _chain(instruction: Instruction) -> tuple[str, str] | None:
    """What the parts of one collective have in common that the TPU compiler spreads over several fusions."""
    if _base(instruction.opcode) not in KINDS:
        return None
    chain = re.search(r'chain_id="(\d+)"', instruction.attributes)
    channel = re.search(r"channel_id=(\d+)", instruction.attributes)
    return (chain[1], channel[1]) if chain and channel else None


def _starts(program: Program, name: str) -> bool:
    root = program.computations[name].root
    return root is not None and _CHAIN_START in root.attributes


def _base(opcode: str) -> str:
    return opcode.removesuffix("-start")


def _kind(computation: str, instruction: Instruction) -> str | None:
    """Its kind, None for what is no collective. A fused reduce-scatter of the TPU compiler holds an all-reduce."""
    base = _base(instruction.opcode)
    if base == ALL_REDUCE and computation.startswith(_FUSED_REDUCE_SCATTER):
        return REDUCE_SCATTER
    return base if base in KINDS else None


def _collective(runs: Runs, mesh: Mapping[str, int], name: str, instruction: Instruction) -> Collective | None:
    kind = _kind(name, instruction)
    shapes = instruction.shapes
    if kind is None or not shapes:
        return None
    group_size, axes = _joined(runs.program, mesh, instruction)
    said = _metadata(runs, name, instruction)
    return Collective(
        kind=kind,
        name=instruction.name,
        num_bytes=_bytes(runs.program, name, instruction),
        times=runs.times[name],
        dtype=shapes[0].dtype,
        group_size=group_size,
        axes=axes,
        op_name=said.op_name,
        source=runs.program.sources.user_line(said.attributes),
    )


def _joined(program: Program, mesh: Mapping[str, int], instruction: Instruction) -> tuple[int, tuple[AxisUse, ...]]:
    """How many devices it joins, and along which axes."""
    pairs = source_target_pairs(instruction.attributes)
    if pairs is not None:
        moved = pairs[pairs[:, 0] != pairs[:, 1]]
        return (2 if len(moved) else 1), axes_of_pairs(moved, mesh)
    groups = replica_groups(instruction.attributes, program.num_partitions)
    if groups is None:
        return program.num_partitions, ()
    return groups.shape[1], axes_of_groups(groups, mesh)


def _bytes(program: Program, computation: str, instruction: Instruction) -> int:
    """The larger of operands and results. What a start returns holds its operands (and counters) beside its results."""
    operands = program.operand_bytes(computation, instruction)
    if instruction.opcode == f"{COLLECTIVE_PERMUTE}-start":
        return operands
    if instruction.opcode == f"{ALL_GATHER}-start":
        return max(operands, instruction.num_bytes - operands)
    return max(operands, instruction.num_bytes)


def _metadata(runs: Runs, name: str, instruction: Instruction) -> Instruction:
    """The instruction that says where it comes from: itself, else the one that calls its computation, and so on up."""
    while "metadata={" not in instruction.attributes and runs.callers[name]:
        caller = runs.callers[name][0]
        if caller.instruction.opcode == "while":
            break
        name, instruction = caller.caller, caller.instruction
    return instruction
