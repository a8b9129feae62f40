"""Where an operation was written, from its MLIR location: the user's own line, and JAX's name stack."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from ....planner.graph import Origin
from ..program.hlo_source import SourceLine, user_line
from ..repeats.scope import repeats_of
from .value_names import all_names, value_names, without_names


class Origins:
    """Reads locations; equal ones once. MLIR's bindings tell them apart by their attributes only.

    Unless ``named``, the names of values that stand on them are left out.
    """

    def __init__(self, *, named: bool = True) -> None:
        self._named = named
        self.known: dict[Any, Origin] = {}
        """What was read so far, by the attribute of the location."""
        self._read: dict[Any, tuple[str, tuple[SourceLine, ...]]] = {}
        self._stacks: dict[Any, tuple[SourceLine, ...]] = {}
        self._lines: dict[tuple[SourceLine, ...], str | None] = {}

    def of(self, location: Any, num_results: int = 1) -> Origin:
        """The origin of an operation at this location; of several results each may have a name of its own."""
        key = location.attr
        if key not in self.known:
            said, stack = self._parts(without_names(location))
            scope, repeats = repeats_of(said)
            every = all_names(location) if self._named else ()
            names = value_names(location) if self._named else {}
            self.known[key] = Origin(
                source=self._line(stack),
                scope=scope or None,
                value=names.get(0) if num_results == 1 else None,
                values=tuple(sorted(names.items())) if num_results > 1 else (),
                also=tuple(name.path for name in every if name.path != names[name.number]) if num_results == 1 else (),
                swapped=tuple(name.path for name in every if name.is_swapped),
                repeats=repeats,
            )
        return self.known[key]

    def _line(self, stack: tuple[SourceLine, ...]) -> str | None:
        if stack not in self._lines:
            line = user_line(stack)
            self._lines[stack] = None if line is None else str(line)
        return self._lines[stack]

    def _parts(self, location: Any) -> tuple[str, tuple[SourceLine, ...]]:
        """The name stack and the frames, innermost first; of what was inlined, with its caller's."""
        key = location.attr
        if key not in self._read:
            self._read[key] = self._parted(location)
        return self._read[key]

    def _parted(self, location: Any) -> tuple[str, tuple[SourceLine, ...]]:
        if isinstance(location, ir.CallSiteLoc):
            (inner, frames), (outer, callers) = self._parts(location.callee), self._parts(location.caller)
            return "/".join(part for part in (outer, inner) if part), frames + callers
        if not isinstance(location, ir.NameLoc):
            return "", self._stack(location)
        name, child = location.name_str, location.child_loc
        if name.endswith(":") and isinstance(child, ir.NameLoc):  # a note of JAX's on the location inside
            return self._parts(child)
        return name, self._stack(child)

    def _stack(self, location: Any) -> tuple[SourceLine, ...]:
        """The frames of a location below its name, innermost first."""
        key = location.attr
        if key not in self._stacks:
            self._stacks[key] = self._frames(location)
        return self._stacks[key]

    def _frames(self, location: Any) -> tuple[SourceLine, ...]:
        if isinstance(location, ir.CallSiteLoc):
            return self._stack(location.callee) + self._stack(location.caller)
        if isinstance(location, ir.NameLoc):
            return tuple(_named(frame, location.name_str) for frame in self._stack(location.child_loc))
        if isinstance(location, ir.FileLineColLoc):
            return (SourceLine(file=location.filename, line=location.start_line),)
        if isinstance(location, ir.FusedLoc):
            return tuple(frame for each in location.locations for frame in self._stack(each))
        return ()


def _named(frame: SourceLine, function: str) -> SourceLine:
    return SourceLine(file=frame.file, line=frame.line, function=frame.function or function)
