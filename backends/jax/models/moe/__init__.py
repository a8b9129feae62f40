"""Mixture-of-experts layers as one family: gate x dispatch x exchange x experts."""

from __future__ import annotations

from .capacity import Capacity
from .layer import moe_layer
from .report import MoeReport, joined, silent_report
from .routing import Routing, Rules
from .settings import MoeSettings

__all__ = ["Capacity", "MoeReport", "MoeSettings", "Routing", "Rules", "joined", "moe_layer", "silent_report"]
