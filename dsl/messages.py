"""Every text that Meshwright says of something wrong, by its stable code.

``message`` says what is wrong, with the numbers; ``remedy`` says what to do now. Codes are never used again for
something else. MW0xx: the file. MW1xx: assignments against tensors. MW2xx: mesh, topology and device order.
MW3xx: workloads and applying. MW4xx: compiling and verifying. MW5xx: running and data. MW6xx: models.
"""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """A message and its remedy, with ``{names}`` for the numbers."""

    message: str
    remedy: str = ""


# MW0xx: the file
FILE: dict[str, Text] = {}

# MW1xx: assignments against tensors
ASSIGNMENTS: dict[str, Text] = {}

# MW2xx: mesh, topology and device order
MACHINE: dict[str, Text] = {}

# MW3xx: workloads and applying
WORKLOAD: dict[str, Text] = {
    "MW301": Text("The plan names no model.", "Add 'model: package.module:callable', or pass the step and its arguments."),
}

# MW4xx: compiling and verifying
COMPILING: dict[str, Text] = {}

# MW5xx: running and data
RUNNING: dict[str, Text] = {}

# MW6xx: models
MODELS: dict[str, Text] = {}

MESSAGES: dict[str, Text] = {**FILE, **ASSIGNMENTS, **MACHINE, **WORKLOAD, **COMPILING, **RUNNING, **MODELS}
