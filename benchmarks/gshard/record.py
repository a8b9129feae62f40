"""What the TPU compiler said, kept in a file: some of the programs take it minutes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Answer = Mapping[str, Any]
KEPT = Path(__file__).with_name("compiled.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Answers by question, each with the versions that gave it.

    With ``ask`` the compiler is asked again and its answers are kept; else what is kept is told.
    """

    ask: bool
    path: Path = KEPT
    fresh: set[str] = field(default_factory=set)

    def get(self, question: str, compile_it: Callable[[], Answer]) -> Answer | None:
        """The answer to a question; None where nobody has asked yet."""
        if self.ask and question not in self.fresh:
            answers = self._answers() | {question: {**compile_it(), "versions": versions()}}
            self.path.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
            self.fresh.add(question)
        return self._answers().get(question)

    @property
    def said(self) -> str:
        """Where the compiled figures come from, in words."""
        if self.ask:
            return f"Compiled figures were asked for in this run ({versions()}), ahead of time, on no TPU."
        known = sorted({str(answer["versions"]) for answer in self._answers().values()})
        kept = f"those kept in {self.path.name} ({'; '.join(known)})" if known else "none: no answers are kept"
        return f"Compiled figures are {kept}; --compile asks the compiler anew."

    def _answers(self) -> dict[str, Answer]:
        return dict(json.loads(self.path.read_text())) if self.path.exists() else {}


def versions() -> str:
    """The versions of what compiles."""
    return ", ".join(f"{name} {_version(name)}" for name in ("jax", "libtpu"))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
