"""What a plain YAML scalar means: YAML 1.2's core schema. Where YAML 1.1 reads it otherwise, it is refused.

Editors and other tools follow either version; a plan must say the same to all of them.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from .errors import Flaw, shorten

Scalar = str | int | float | bool | None

MAX_INTEGER = 2**63 - 1
_LONGEST_SPECIAL = 64  # no number that fits in 64 bits, and no special word, is longer

_CONSTANTS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class Surprise(NamedTuple):
    """A way of writing that the two versions of YAML read differently."""

    looks: re.Pattern[str]
    old: str
    new: str


_SURPRISES = (
    Surprise(re.compile(r"(?i:yes|no|on|off)"), "a boolean", "a word"),
    Surprise(re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"), "a number in base 60", "a word"),
    Surprise(re.compile(r"[-+]?0[0-9_]+"), "an octal number", "a decimal number"),
    Surprise(re.compile(r"[-+]?0o[0-7]+"), "a word", "an octal number"),
    Surprise(re.compile(r"[-+]?0b[01_]+"), "a binary number", "a word"),
    Surprise(re.compile(r"[-+]0x[0-9a-fA-F_]+|0x[0-9a-fA-F]*_[0-9a-fA-F_]*"), "a number", "a word"),
    Surprise(re.compile(r"[-+]?\.?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?"), "a number", "a word"),
    Surprise(re.compile(r"[-+]?[0-9]+\.[0-9]*_[0-9_]*(?:[eE][-+]?[0-9]+)?"), "a number", "a word"),
    Surprise(re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t][0-9:.+\-Zz \t]*)?"), "a date", "a word"),
    Surprise(re.compile(r"="), "a special value", "a word"),
)


class Resolved(NamedTuple):
    """What a plain scalar means, and what is wrong with it."""

    value: Scalar
    flaw: Flaw | None = None


def resolve_scalar(text: str) -> Resolved:
    """The meaning of a plain scalar; with a flaw where YAML's versions disagree or a number has no end."""
    if text in _CONSTANTS:
        return Resolved(_CONSTANTS[text])
    if len(text) > _LONGEST_SPECIAL:
        return Resolved(text, _too_large(text) if text.isdecimal() else None)
    for surprise in _SURPRISES:
        if surprise.looks.fullmatch(text):
            numbers = {"text": text, "old": surprise.old, "new": surprise.new}
            return Resolved(text, Flaw(code="MW018", numbers=numbers))
    return _number(text)


def is_plain_word(text: str) -> bool:
    """Whether every version of YAML reads ``text``, written plain, as the word that it is."""
    return resolve_scalar(text) == Resolved(text) and len(text) <= _LONGEST_SPECIAL * 4


def _number(text: str) -> Resolved:
    if _NOT_FINITE.fullmatch(text):
        return Resolved(text, Flaw(code="MW019", numbers={"text": text}))
    if _INTEGER.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        integer = int(text, 0)
        return Resolved(integer) if abs(integer) <= MAX_INTEGER else Resolved(text, _too_large(text))
    if _FLOAT.fullmatch(text):
        value = float(text)
        return Resolved(value) if math.isfinite(value) else Resolved(text, _too_large(text))
    return Resolved(text)


def _too_large(text: str) -> Flaw:
    return Flaw(code="MW020", numbers={"text": shorten(text), "digits": len(text)})
