"""Reads the compiler's word that a program does not fit."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIZE = r"([\d.]+)([KMGT]?)(?:i?B)?"
_FORMS = (
    re.compile(rf"required for [\w ]+\({_SIZE}\) exceeds available HBM \({_SIZE}\)"),
    re.compile(rf"Used {_SIZE} of {_SIZE} \w+"),
    re.compile(rf"allocating {_SIZE}.*? of {_SIZE}"),
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """The compiler's numbers (None where it gives none, rounded as it prints them) and its sentence."""

    required_bytes: int | None
    available_bytes: int | None
    reason: str


def read_misfit(message: str) -> Misfit | None:
    """What a compiler's error says of memory; None if it is about something else.

    The TPU compiler says ``RESOURCE_EXHAUSTED: ... CompileTimeHbmOom: ... the total memory required for HLO temporaries
    (19.83G) exceeds available HBM (15.48G)``; older ones ``Used 20.05G of 15.48G hbm``.
    """
    if "RESOURCE_EXHAUSTED" not in message and "CompileTimeHbmOom" not in message:
        return None
    reason = re.sub(r"^RESOURCE_EXHAUSTED: *", "", message.strip().splitlines()[0])
    found = next((match for form in _FORMS if (match := form.search(message))), None)
    if found is None:
        return Misfit(required_bytes=None, available_bytes=None, reason=reason)
    required, required_unit, available, available_unit = found.groups()
    return Misfit(
        required_bytes=round(float(required) * _UNITS[required_unit]),
        available_bytes=round(float(available) * _UNITS[available_unit]),
        reason=reason,
    )
