"""The text of a compiled program (HLO) as plain data: computations, instructions, shapes.

The text is read once, line by line; what few readers ask for (shapes, cycles, metadata) is worked out when asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .hlo_source import SourceTable, read_source_table

_UNKNOWN_CYCLES = 2**62
_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,<=? ]*)\]")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r" ([a-z][a-z0-9\-]*)\(")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|true_computation|false_computation|branch_computations|called_computations|"
    r"async_computation)=(\{[^}]*\}|%?[\w.\-]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """An array's dtype, in HLO's spelling (``bf16``), and its dims; bounded dims stand at their bound."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes without the padding of tiles; numbers of less than a byte are packed."""
        bits = _bits(self.dtype)
        for size in self.dims:
            bits *= size
        return -(-bits // 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction. ``operands`` are names of the same computation; ``attributes`` is the text after them."""

    name: str
    opcode: str
    is_root: bool
    shape_text: str
    operands: tuple[str, ...]
    literal: str
    attributes: str

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The arrays of the result, those within tuples in order."""
        return tuple(
            Shape(dtype=dtype, dims=tuple(int(d.strip("<=? ")) for d in dims.split(",") if d.strip("<=? ")))
            for dtype, dims in _SHAPE.findall(self.shape_text)
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of the result."""
        return sum(shape.num_bytes for shape in self.shapes)

    @property
    def called(self) -> Mapping[str, tuple[str, ...]]:
        """The computations that it calls, by attribute (``calls``, ``body``, ``branch_computations``, ...)."""
        if "=" not in self.attributes:
            return {}
        return {how: tuple(re.findall(r"[\w.\-]+", names)) for how, names in _CALLED.findall(self.attributes)}

    @property
    def estimated_cycles(self) -> int | None:
        """The TPU compiler's estimate; None where it gives none, or the largest number there is instead of one."""
        said = self._number(r'"estimated_cycles":"(\d+)"')
        return None if said is not None and said >= _UNKNOWN_CYCLES else said

    @property
    def known_trip_count(self) -> int | None:
        """How often a loop turns, where the compiler says it outright."""
        return self._number(r'"known_trip_count":\{"n":"(\d+)"\}')

    @property
    def op_name(self) -> str | None:
        """The name stack of the operation that it comes from: ``jit(step)/jvp()/dot_general``."""
        found = re.search(r'op_name="((?:[^"\\]|\\.)*)"', self.attributes)
        return found[1] if found else None

    def attribute(self, name: str) -> str | None:
        """The text of a simple attribute (``index=0``, ``direction=LT``); None if it has none such."""
        found = re.search(rf"\b{name}=([^,\s]+)", self.attributes)
        return found[1] if found else None

    def _number(self, pattern: str) -> int | None:
        found = re.search(pattern, self.attributes)
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """A function of the program: its instructions by name, in order."""

    name: str
    instructions: Mapping[str, Instruction]

    @property
    def root(self) -> Instruction | None:
        """The instruction whose value it returns."""
        listed = list(self.instructions.values())
        return next((i for i in reversed(listed) if i.is_root), listed[-1] if listed else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled program: its computations by name, the one that is entered, where its operations were written."""

    name: str
    entry: str
    computations: Mapping[str, Computation]
    sources: SourceTable = field(repr=False)
    num_partitions: int = 1

    def operand_bytes(self, computation: str, instruction: Instruction) -> int:
        """Bytes of the operands of an instruction of this computation."""
        known = self.computations[computation].instructions
        return sum(known[name].num_bytes for name in instruction.operands if name in known)


def parse(text: str) -> Program:
    """Reads a program's text, as ``compiled.as_text()`` gives it. Raises ``ValueError`` if nothing is entered."""
    lines = text.splitlines()
    head = lines[0] if lines else ""
    computations: dict[str, Computation] = {}
    entry, current, body = None, None, dict[str, Instruction]()
    for line in lines:
        if current is None:
            header = _HEADER.match(line)
            if header:
                current, body = header[2], {}
                entry = current if header[1] else entry
        elif line.startswith("}"):
            computations[current], current = Computation(name=current, instructions=body), None
        else:
            instruction = _instruction(line)
            if instruction:
                body[instruction.name] = instruction
    if entry is None:
        raise ValueError("the text holds no ENTRY computation")
    partitions = re.search(r"num_partitions=(\d+)", head)
    return Program(
        name=head.removeprefix("HloModule ").partition(",")[0],
        entry=entry,
        computations=computations,
        sources=read_source_table(lines),
        num_partitions=int(partitions[1]) if partitions else 1,
    )


def _instruction(line: str) -> Instruction | None:
    start = _INSTRUCTION.match(line)
    opcode = start and _OPCODE.search(line, start.end() - 1)
    if not start or not opcode:
        return None
    end = _closing(line, opcode.end() - 1)
    inside = line[opcode.end() : end]
    literal = opcode[1] in ("constant", "parameter", "iota")
    return Instruction(
        name=start[2],
        opcode=opcode[1],
        is_root=start[1] is not None,
        shape_text=line[start.end() : opcode.start()],
        operands=() if literal else tuple(_NAME.findall(inside)),
        literal=inside if literal else "",
        attributes=line[end + 1 :],
    )


def _closing(line: str, opening: int) -> int:
    """Where the parenthesis that opens at ``opening`` closes."""
    depth, at = 0, opening
    while True:
        closing = line.find(")", at)
        if closing < 0:
            return len(line)
        depth += line.count("(", at, closing) - 1
        if depth == 0:
            return closing
        at = closing + 1


def _bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    width = re.match(r"[a-z]+(\d+)", dtype)
    return int(width[1]) if width else 32
