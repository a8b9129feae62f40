"""Writes single values as YAML, so that every YAML version reads the same: plain where that is safe, else in quotes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from .errors import PlanError, problem, shorten
from .scalars import MAX_INTEGER, is_plain_word
from .text import is_writable

MAX_KEY = 1000  # YAML itself ends at 1024
_PLAIN = re.compile(
    r"[A-Za-z0-9_./($][A-Za-z0-9_./*?@+!=()<>$%~|&^;{}\[\],-]*(?:[: ][A-Za-z0-9_./*?@+!=()<>$%~|&^;{}\[\],-]+)*"
)
_FLOW_CHARACTERS = re.compile(r"[{}\[\],?]")
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def word(text: str, *, flow: bool = False, what: str = "A text") -> str:
    """A text as YAML; ``flow`` says that it stands within braces. Raises ``PlanError`` for half characters."""
    if not is_writable(text):
        raise unwritable(what, "it holds half of a surrogate pair")
    safe = _PLAIN.fullmatch(text) and is_plain_word(text) and not (flow and _FLOW_CHARACTERS.search(text))
    return text if safe else _quoted(text)


def key(text: str, *, flow: bool = False) -> str:
    """A key as YAML. Raises ``PlanError`` for one that is too long."""
    written = word(text, flow=flow, what="A key")
    if len(written) > MAX_KEY:
        raise unwritable(f"The key '{shorten(text)}'", f"it takes {len(written)} characters; {MAX_KEY} are the most")
    return written


def value(item: Any, what: str = "A value") -> str:
    """A value as YAML on one line: mappings and lists in braces and brackets. Raises ``PlanError`` for other types."""
    if item is None:
        return "null"
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str):
        return word(item, flow=True, what=what)
    if isinstance(item, int):
        return _integer(item, what)
    if isinstance(item, float):
        return _float(item, what)
    if isinstance(item, Mapping):
        return mapping({_text_key(k, what): value(v, what) for k, v in item.items()})
    if isinstance(item, (list, tuple)):
        return listed([value(v, what) for v in item])
    raise unwritable(what, f"it is a {type(item).__name__}")


def mapping(entries: Mapping[str, str]) -> str:
    """A mapping in braces of values that are YAML already."""
    return "{" + ", ".join(f"{key(k, flow=True)}: {v}" for k, v in entries.items()) + "}"


def listed(items: list[str]) -> str:
    """A list in brackets of values that are YAML already."""
    return f"[{', '.join(items)}]"


def unwritable(what: str, reason: str) -> PlanError:
    """The error of a value that no plan can hold."""
    return PlanError([problem("MW061", what=what, reason=reason)])


def _text_key(item: Any, what: str) -> str:
    if not isinstance(item, str):
        raise unwritable(what, f"it has the key {item!r}, which is no text")
    return item


def _integer(number: int, what: str) -> str:
    if abs(number) > MAX_INTEGER:
        raise unwritable(what, "it has a number of more than 64 bits")
    return str(int(number))


def _float(number: float, what: str) -> str:
    """A float with a point and, in an exponent, a sign: so that YAML 1.1 reads no word."""
    if not math.isfinite(number):
        raise unwritable(what, f"it has the number {number}")
    mantissa, exponent, power = repr(float(number)).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}{exponent}{power}"


def _quoted(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"\\u{ord(match.group()):04x}", json.dumps(text, ensure_ascii=False))
