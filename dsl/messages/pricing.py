"""MW41x: predicting what a plan takes."""

from __future__ import annotations

from .text import Text

PRICING: dict[str, Text] = {
    "MW410": Text(
        "The plan names no topology, so there is no machine to price it on.",
        "Add the machine to the plan, such as 'topology: v5e:4x4'.",
    ),
    "MW411": Text(
        "{path} holds no calibration: {reason}.", "Write one with: meshwright calibrate TOPOLOGY --out {path}"
    ),
    "MW412": Text("The page cannot be written to {path}: {reason}.", "Give --html a file that can be written."),
    "MW413": Text(
        "JAX cannot lower the step for {topology}: {reason}.",
        "Price the step without callbacks and prints, and with each Pallas kernel in a shard_map; or take a topology "
        "that has what it uses.",
    ),
    "MW414": Text("The table cannot be written to {path}: {reason}.", "Give --out a file that can be written."),
    "MW415": Text(
        "The calibration is of {learned} (learned on {topology}); the plan's topology is {planned}.",
        "Learn one of that chip with: meshwright calibrate TOPOLOGY. Or leave it out: what ships is taken.",
    ),
    "MW416": Text(
        "{topology} is not of TPUs, and only their compiler says how many cycles a kernel takes.",
        "Take a TPU, such as v5e:2x2; what was measured of GPUs stands in the catalogue (planner/chips.yaml).",
    ),
}
