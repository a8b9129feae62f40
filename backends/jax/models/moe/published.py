"""What each system's paper and code has for the settings of a gate, where they differ: a table, by gate and by system.

``paper`` is the gate as it was published; a setting that is not named is the one in ``BASE``.
"""

from __future__ import annotations

from typing import Any

BASE: dict[str, Any] = {
    "top_k": 2,
    "capacity_rule": "gshard",
    "capacity_factor": 1.0,
    "order": "choice",
    "normalise": "before",
    "random_threshold": 0.0,
    "dropped_uses_slot": True,
    "lost_slots": 0,
    "counted": "first",
    "second_place": False,
    "sampled": False,
    "uniform": False,
    "jitter": 0.0,
    "jitter_on": "input",
    "noise_floor": 0.0,
    "unbiased": False,
}

_LINGVO = {"capacity_rule": "lingvo", "capacity_factor": 2.0, "dropped_uses_slot": False}
_MTF = {"capacity_rule": "mtf", "capacity_factor": 1.25, "random_threshold": 0.2, "dropped_uses_slot": False}
_SWITCH = {"top_k": 1, "capacity_rule": "switch", "capacity_factor": 1.25, "normalise": "never", "jitter": 0.01}
_FLAXFORMER = {"capacity_rule": "flaxformer", "counted": "all", "normalise": "never"}
_SPARSE = {"top_k": 4, "normalise": "never"}

PUBLISHED: dict[str, dict[str, dict[str, Any]]] = {
    "gshard": {
        "paper": {"random_threshold": 0.5},
        "lingvo": _LINGVO,
        "lingvo-after": {**_LINGVO, "normalise": "after"},
        "lingvo-sampling": {**_LINGVO, "sampled": True},
        "mtf": _MTF,
        "mtf-second-place": {**_MTF, "second_place": True},
        "fastmoe": {"capacity_rule": "fastmoe", "capacity_factor": 1.2, "order": "token", "random_threshold": 0.5},
        "tutel": {"capacity_rule": "tutel"},
    },
    "switch": {
        "paper": _SWITCH,
        "pseudo-code": {**_SWITCH, "jitter_on": "logits", "lost_slots": 1},
        "flaxformer": {**_SWITCH, **_FLAXFORMER},
        "fastmoe": {**_SWITCH, "capacity_rule": "fastmoe", "capacity_factor": 1.2, "jitter_on": "logits"},
    },
    "top_k": {
        "paper": {"counted": "all"},
        "flaxformer": {**_FLAXFORMER, "capacity_factor": 2.0},
        "tutel": {"capacity_rule": "tutel"},
        "megablocks": {"counted": "mean", "normalise": "never"},
        "uniform": {"uniform": True},
    },
    "noisy_top_k": {
        "paper": _SPARSE,
        "t2t": {**_SPARSE, "noise_floor": 0.01},
        "fastmoe": {**_SPARSE, "noise_floor": 0.01, "unbiased": True},
        "tutel": {**_SPARSE, "noise_floor": 0.01, "unbiased": True, "capacity_rule": "tutel"},
    },
    "hierarchical": {"paper": _SPARSE, "t2t": {**_SPARSE, "noise_floor": 0.01}},
    "expert_choice": {"paper": {"capacity_factor": 1.0}},
    "batchwise": {"paper": {"top_k": 4}},
}
"""Settings by gate and system.

- ``lingvo``: second choices are all kept, capacity is rounded up to a multiple of 4; ``lingvo-after`` is its code
  without legacy behaviour, whose gates are normalised after what overflows is dropped; ``lingvo-sampling`` draws second
  choices.
- ``mtf``: Mesh TensorFlow; a second choice is kept with chance g2/0.2, and takes no slot otherwise.
- ``fastmoe``: token by token; what overflows is dropped before the random test, which comes to the same.
- ``pseudo-code``: Switch's appendix F, which adds jitter to the logits and leaves a slot of each buffer empty.
- ``megablocks``, ``flaxformer``: gates are not normalised, and the balance loss counts all choices.
- ``uniform``: choices in turn, for measurements.
"""
