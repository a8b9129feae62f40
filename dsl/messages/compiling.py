"""MW4xx: devices, compiling and verifying."""

from __future__ import annotations

from .text import Text

COMPILING: dict[str, Text] = {
    "MW401": Text(
        "Topology {topology} needs {devices} CPU devices; JAX has {here} here.",
        "Set XLA_FLAGS=--xla_force_host_platform_device_count={devices} before JAX starts.",
    ),
    "MW402": Text(
        "Topology {topology} needs {devices} GPUs; JAX has {here} here, and only a GPU's machine compiles for it.",
        "Run this on that machine, or take a TPU topology, which is compiled ahead of time, or cpu:{devices}.",
    ),
    "MW403": Text(
        "Topology {topology} needs the TPU compiler (libtpu), which is not installed.",
        'pip install "meshwright[tpu]" (no TPU is needed to compile for one).',
    ),
    "MW404": Text("The TPU compiler refuses the topology {topology}: {reason}", "Take another size of the machine."),
    "MW405": Text(
        "The program does not compile for {topology}: {reason}",
        "Another layout of the tensors named there, or another topology, may compile.",
    ),
    "MW406": Text(
        "{what} cannot be on devices that are not here: the plan's are for compiling ahead of time only.",
        "Compile with lower(*args).compile() or verify, or give the plan the topology of this machine, such as cpu:8.",
    ),
}
