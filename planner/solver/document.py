"""The text of a problem's file as JSON values, strictly: each key once, numbers finite."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from ...dsl.errors import PlanError, problem
from ...dsl.plan import Place

GZIP = b"\x1f\x8b"


def read_document(path: str) -> Any:
    """The JSON values in a file, which gzip may have compressed. Raises ``PlanError``."""
    try:
        content = Path(path).read_bytes()
        return parse(gzip.decompress(content) if content.startswith(GZIP) else content, path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlanError([problem("MW801", Place(file=path), reason=reason)]) from None


def parse(content: bytes | str, file: str | None = None) -> Any:
    """The JSON values in a text. Raises ``PlanError``."""
    try:
        return json.loads(content, object_pairs_hook=_object, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = Place(file=file, line=error.lineno, column=error.colno)
        raise PlanError([problem("MW802", place, reason=error.msg)]) from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise PlanError([problem("MW802", Place(file=file), reason=reason)]) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = sorted({key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1})
        raise ValueError(f"{', '.join(map(repr, twice))} stands twice in one object")
    return values


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number in JSON")
