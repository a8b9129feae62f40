"""Amounts of memory as people write them: ``15 GiB``, ``512 MiB``, ``16 GB``, or plain bytes."""

from __future__ import annotations

import re
from fractions import Fraction

from .errors import flaw, shorten, suggest

UNITS = {
    "B": 1,
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", start=1)},
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGTP", start=1)},
}
BYTES = r"^[0-9]+(\.[0-9]+)? ?([KMGTP]i?)?B$"
"""An amount as a regular expression, for the JSON schema; ``parse_bytes`` knows more."""

MAX_BYTES = 2**63 - 1
MIN_PLAIN_BYTES = 2**20
_AMOUNT = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?) ?([A-Za-z]*)")


def parse_bytes(text: str) -> int:
    """The whole bytes within what ``text`` writes: 67.9 MiB are 71198310 and a part of one that nothing can fill.

    Raises ``FlawError``: no amount, no known unit, a number of bytes that is not whole.
    """
    match = _AMOUNT.fullmatch(text)
    if not match:
        raise flaw("MW024", text=shorten(text))
    number, unit = match.groups()
    if unit not in UNITS:
        choice = suggest(unit, UNITS) if unit else f"Did you mean '{number} GiB'?"
        raise flaw(
            "MW025", match.start(2), text=shorten(text), unit=f"'{unit}'" if unit else "nothing", suggestion=choice
        )
    amount = Fraction(number) * UNITS[unit]
    if amount.denominator != 1 and UNITS[unit] == 1:
        raise flaw("MW026", text=shorten(text), amount=float(amount))
    return check_bytes(int(amount))


def plain_bytes(amount: int) -> int:
    """An amount without a unit, in bytes. Raises ``FlawError`` for one so small that its unit was forgotten."""
    if 0 < amount < MIN_PLAIN_BYTES:
        raise flaw("MW025", text=str(amount), unit="nothing", suggestion=f"Did you mean '{amount} GiB'?")
    return check_bytes(amount)


def check_bytes(amount: int) -> int:
    """``amount``, if a device can have so many bytes. Raises ``FlawError``."""
    if not 0 < amount <= MAX_BYTES:
        raise flaw("MW027", amount=amount, most=MAX_BYTES)
    return amount


def write_bytes(amount: int) -> str:
    """The shortest exact way to write an amount, binary units first: ``15 GiB`` for 16106127360."""
    if amount == 0:
        return "0 B"
    candidates = (text for unit, factor in UNITS.items() if (text := _exact(amount, unit, factor)))
    return min(candidates, key=lambda text: (len(text), "i" not in text))


def _exact(amount: int, unit: str, factor: int) -> str | None:
    """``amount`` in this unit with at most three decimals; None where that is not exact or less than one."""
    thousandths = Fraction(amount * 1000, factor)
    if thousandths.denominator != 1 or amount < factor:
        return None
    whole, part = divmod(int(thousandths), 1000)
    decimals = f".{part:03d}".rstrip("0") if part else ""
    return f"{whole}{decimals} {unit}"
