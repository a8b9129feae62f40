"""Where the operations of a compiled program were written: the tables at the head of its text.

An instruction's metadata names a stack frame; a frame is a place in a file and its caller's frame. Older texts have
``source_file`` and ``source_line`` in the metadata itself; both are read.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import PurePath

_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_PACKAGE = PurePath(__file__).parents[3]
_ROOMS = ("backends", "commands", "dsl", "planner")
_MODELS = _PACKAGE / "backends" / "jax" / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A place in a source file, and the function that it stands in where known."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """The frames of a program by number: each its place and the number of its caller's frame (0 for none)."""

    frames: Mapping[int, tuple[SourceLine, int]] = field(default_factory=dict)

    def stack(self, attributes: str) -> list[SourceLine]:
        """The places that an instruction with these attributes comes from, innermost first."""
        frame = re.search(r"stack_frame_id=(\d+)", attributes)
        if frame:
            return list(islice(self._up(int(frame[1])), 1000))
        place = re.search(r'source_file="([^"]+)" source_line=(\d+)', attributes)
        return [SourceLine(file=place[1], line=int(place[2]))] if place else []

    def user_line(self, attributes: str) -> SourceLine | None:
        """The innermost place in the user's own model that an instruction with these attributes comes from."""
        return user_line(self.stack(attributes))

    def _up(self, frame: int) -> Iterator[SourceLine]:
        while frame in self.frames:
            place, frame = self.frames[frame]
            yield place


def user_line(stack: Sequence[SourceLine]) -> SourceLine | None:
    """The innermost place in the user's own model: not in a library, nor in Meshwright, whose models do count.

    ``stack`` is innermost first. Where all is library code, the innermost place outside JAX; None where it is empty.
    """
    own = (place for place in stack if is_own(place.file))
    outside = (place for place in stack if not is_internal(place.file))
    return next(own, None) or next(outside, None) or next(iter(stack), None)


def read_source_table(lines: Sequence[str]) -> SourceTable:
    """The tables at the head of a program's text; empty where it has none."""
    tables = {title: dict(_rows(lines, title)) for title in _TABLES}
    files = {number: text.strip('"') for number, text in tables["FileNames"].items()}
    functions = {number: text.strip('"') for number, text in tables["FunctionNames"].items()}
    places = {}
    for number, text in tables["FileLocations"].items():
        said = _numbers(text)
        function = functions.get(said.get("function_name_id", 0), "")
        places[number] = SourceLine(
            file=files.get(said.get("file_name_id", 0), "?"), line=said["line"], function=function
        )
    return SourceTable(frames=_frames(tables["StackFrames"], places))


def _frames(rows: Mapping[int, str], places: Mapping[int, SourceLine]) -> dict[int, tuple[SourceLine, int]]:
    """The frames. The first has no caller; texts that say it is its own caller number callers from one."""
    said = {number: _numbers(text) for number, text in rows.items()}
    shift = said[1].get("parent_frame_id", 0) if 1 in said else 0
    return {
        number: (places[row["file_location_id"]], row.get("parent_frame_id", 0) - shift)
        for number, row in said.items()
        if row.get("file_location_id") in places
    }


def _rows(lines: Sequence[str], title: str) -> Iterator[tuple[int, str]]:
    """The numbered rows under a title, up to the blank line that ends them."""
    start = next((i for i, line in enumerate(islice(lines, 1_000_000)) if line == title), None)
    if start is None:
        return
    for line in islice(lines, start + 1, None):
        number, _, text = line.partition(" ")
        if not number.isdigit():
            return
        yield int(number), text


def _numbers(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text)}


@lru_cache(maxsize=1024)
def is_own(file: str) -> bool:
    """Whether a file is the user's own: no library's, nor Meshwright's, whose models do count."""
    return not _is_library(file) and not is_internal(file)


@lru_cache(maxsize=1024)
def is_internal(file: str) -> bool:
    """Whether a file belongs to JAX, or to Meshwright apart from its models."""
    path = PurePath(os.path.normpath(file))
    if path.parent == _PACKAGE or any(path.is_relative_to(_PACKAGE / room) for room in _ROOMS):
        return not path.is_relative_to(_MODELS)
    return any(part in ("jax", "jaxlib") for part in path.parts) and _is_library(file)


def _is_library(file: str) -> bool:
    path = PurePath(file)
    if path.is_relative_to(_MODELS):
        return False
    roots = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib", "scripts")}
    installed = any(path.is_relative_to(root) for root in roots if root)
    return installed or "site-packages" in path.parts or "dist-packages" in path.parts
