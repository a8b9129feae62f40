"""What writes the layouts that were found as a plan, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...dsl.plan import Plan
from ..estimate.figures import Estimate


class Written(Protocol):
    """A plan with its price."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def estimate(self) -> Estimate:
        """What it takes."""


Minimise = Callable[..., Written]
"""The plan with layouts: ``minimise(layouts, plan, workload, deadline=..., exact=..., promised_s=..., proven_s=...,
begun=...)``.
"""
