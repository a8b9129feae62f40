"""Immutable values of which a price makes thousands: frozen to the type checker alone.

A frozen dataclass sets each of its fields by a call, so that making one takes five times as long as where they are
assigned: a tenth of the time of a search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    def record(*, frozen, **options):
        """``dataclass`` that compares and hashes by fields as a frozen one does."""
        return dataclass(unsafe_hash=frozen, **options)


__all__ = ["record"]
