"""Every text that Meshwright says of something wrong, by its stable code.

``message`` says what is wrong, with the numbers; ``remedy`` says what to do now. Codes are never used again for
something else. MW0xx: the file. MW1xx: assignments against tensors. MW2xx: mesh, topology and device order.
MW3xx: workloads and applying. MW4xx: compiling, verifying, predicting. MW5xx: running and data, from MW550 on
searching. MW6xx: models, from MW650 on logical axis rules. MW8xx: problems for the solver.
"""

from __future__ import annotations

from .assignments import ASSIGNMENTS
from .compiling import COMPILING
from .converting import CONVERTING
from .file import FILE
from .machine import MACHINE
from .models import MODELS
from .pricing import PRICING
from .running import RUNNING
from .searching import SEARCHING
from .solving import SOLVING
from .text import Text
from .workload import WORKLOAD

MESSAGES: dict[str, Text] = {
    **FILE,
    **ASSIGNMENTS,
    **MACHINE,
    **WORKLOAD,
    **COMPILING,
    **PRICING,
    **RUNNING,
    **SEARCHING,
    **MODELS,
    **CONVERTING,
    **SOLVING,
}
