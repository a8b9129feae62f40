"""Where the equations of a jaxpr are written: in which function of the user's, on which lines, called from where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from jax._src.lib import xla_client  # type: ignore[attr-defined]
from jax.extend.core import Jaxpr, JaxprEqn

from .program.hlo_source import is_internal, is_own

MATHEMATICS = frozenset(("numpy", "nn", "lax", "scipy"))
"""The folders of JAX's own code in which a line stands for what it computes."""

INTERNAL = 2
TRACER = str(PurePath(__file__).with_name("trace.py"))
"""What calls the user's step: who calls that in turn says nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where equations are written: the user's function; its line and column, the libraries' lines that it calls, and
    the user's own lines that call it.
    """

    function: str
    frames: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _File:
    """Whose a file is: ``rank`` 0 the user's own, 1 another library's, ``INTERNAL`` of JAX and this package.

    ``tells`` is whether its lines say what is computed. Those of JAX's machinery do not: its caches make them differ.
    """

    rank: int
    tells: bool


class Written:
    """Where equations are written; each traceback and each file is looked at once."""

    def __init__(self) -> None:
        self._places: dict[Any, Place | None] = {}
        self._files: dict[str, _File] = {}
        self._lines: dict[Any, tuple[int, int]] = {}

    def place(self, equation: JaxprEqn) -> Place | None:
        """Where an equation is written; None where nothing but JAX's own code is known of it."""
        traceback: Any = equation.source_info.traceback
        if traceback is None:
            return None
        if traceback not in self._places:
            self._places[traceback] = self._read(traceback)
        return self._places[traceback]

    def is_library(self, jaxpr: Jaxpr) -> bool:
        """Whether nothing in a jaxpr is known to be written anywhere: a function of JAX's own."""
        return all(self.place(equation) is None for equation in jaxpr.eqns)

    def _read(self, traceback: Any) -> Place | None:
        codes, at = traceback.raw_frames()
        files = [self._file(code.co_filename) for code in codes]
        last = min(range(len(codes)), key=lambda i: (files[i].rank, i), default=0)
        if not codes or files[last].rank == INTERNAL:
            return None
        telling = [i for i in range(last) if files[i].tells]
        lines = [(codes[i].co_qualname, self._at(codes[i], at[i])[0]) for i in telling]
        outside = next((i for i, code in enumerate(codes) if code.co_filename == TRACER), len(codes))
        callers = [self._at(codes[i], at[i]) for i in range(last + 1, outside) if not files[i].rank]
        return Place(function=word(codes[last].co_name), frames=(*lines, self._at(codes[last], at[last]), *callers))

    def _at(self, code: Any, instruction: int) -> tuple[int, int]:
        """Line and column of an instruction."""
        key = code, instruction
        if key not in self._lines:
            self._lines[key] = xla_client.Traceback.code_addr2location(code, instruction)[:2]
        return self._lines[key]

    def _file(self, file: str) -> _File:
        if file not in self._files:
            internal = is_internal(file)
            tells = not internal or not MATHEMATICS.isdisjoint(PurePath(file).parts)
            self._files[file] = _File(rank=0 if is_own(file) else INTERNAL if internal else 1, tells=tells)
        return self._files[file]


def word(text: str) -> str:
    """The text as part of a path: letters, digits, underscores and dashes."""
    return re.sub(r"[^A-Za-z0-9_-]", "", text) or "value"
