"""The devices of a topology, in the order of Meshwright's device numbers: those that are here, or ahead-of-time ones.

Ahead-of-time devices come from the TPU compiler itself (libtpu), which needs no TPU. Programs can be compiled for
them; nothing can be run on them. JAX is imported when devices are asked for, so that ``simulate_cpu`` can come first.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...dsl.errors import PlanError, problem
from ...dsl.machine import parse_topology
from ...dsl.plan import Topology
from ...planner.catalogue import canonical
from ...planner.topology import Machine, physical
from .search_options import is_whole

_LIBTPU = {"TPU_SKIP_MDS_QUERY": "1", "TPU_MIN_LOG_LEVEL": "3", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
"""What libtpu reads when it loads: ask no metadata server, log errors only, let two processes have it."""

_QUIET = {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": "v3-8"}
"""Without these libtpu prints at load that it could not find out on which TPU it runs; there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTopology:
    """A machine and the JAX devices that stand for it."""

    machine: Machine

    def devices(self) -> list[Any]:
        """The JAX devices; the one at position ``n`` has device number ``n``.

        Real ones where this process has the machine, else (TPUs) ahead-of-time ones. Raises ``PlanError`` (MW40x)
        where neither can be had.
        """
        finders = {"tpu": _tpu_devices, "gpu": _gpu_devices, "cpu": _cpu_devices}
        return finders[self.machine.platform](self.machine)

    def __str__(self) -> str:
        return str(self.machine.topology)


def topology(name: str | Topology, num_slices: int | None = None) -> DeviceTopology:
    """The machine that ``name`` stands for: ``"v3:4x4"``, ``"4*v5e:16x16"``, or a plan's topology.

    ``num_slices`` says how many slices there are where the name does not. Raises ``PlanError`` for a machine that
    there is not.
    """
    named = parse_topology(name) if isinstance(name, str) else name
    if num_slices is not None:
        named = replace(named, num_slices=_number_of_slices(num_slices))
    return DeviceTopology(machine=physical(named))


def _number_of_slices(given: Any) -> int:
    if not is_whole(given) or given < 1:
        expected = "a whole number above 0"
        raise PlanError([problem("MW553", option="num_slices", value=repr(given), expected=expected)])
    return int(given)


def simulate_cpu(num_devices: int) -> None:
    """Makes JAX see this many CPU devices. To be called before JAX is first used; other XLA flags are kept.

    ``JAX_PLATFORMS`` becomes ``cpu`` unless it is set.
    """
    flag = "--xla_force_host_platform_device_count"
    kept = [word for word in os.environ.get("XLA_FLAGS", "").split() if word.partition("=")[0] != flag]
    os.environ["XLA_FLAGS"] = " ".join([*kept, f"{flag}={num_devices}"])
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def prepare(machine: Machine | None) -> None:
    """Makes JAX, which must not have been used yet, see the devices that work on this machine's plans needs.

    CPU devices are simulated. Where no TPU is attached, JAX is kept from looking for one, which is slow and loud.
    What the user set in ``JAX_PLATFORMS`` stays.
    """
    if machine is not None and machine.platform == "cpu":
        simulate_cpu(machine.num_devices)
    elif not _attached("/dev/accel*", "/dev/vfio/[0-9]*") and importlib.util.find_spec("libtpu"):
        gpu = _attached("/dev/nvidia[0-9]*")
        os.environ.setdefault("JAX_PLATFORMS", "cuda,cpu" if gpu else "cpu")


def are_here(devices: Iterable[Any]) -> bool:
    """Whether programs can run on these devices; on ahead-of-time ones they cannot."""
    import jax

    first = next(iter(devices))
    try:
        return first in jax.devices(first.platform)
    except RuntimeError:
        return False


def _attached(*patterns: str) -> bool:
    return any(glob.glob(pattern) for pattern in patterns)


def _cpu_devices(machine: Machine) -> list[Any]:
    import jax

    here = jax.devices("cpu")
    if len(here) < machine.num_devices:
        raise PlanError([problem("MW401", machine.topology.place, **_shortage(machine, here))])
    return here[: machine.num_devices]


def _gpu_devices(machine: Machine) -> list[Any]:
    import jax

    try:
        here = jax.devices("gpu")
    except RuntimeError:
        here = []
    if len(here) < machine.num_devices:
        raise PlanError([problem("MW402", machine.topology.place, **_shortage(machine, here))])
    return sorted(here, key=lambda device: device.id)[: machine.num_devices]


def _shortage(machine: Machine, here: Sequence[Any]) -> dict[str, Any]:
    return {"topology": str(machine.topology), "devices": machine.num_devices, "here": len(here)}


def _tpu_devices(machine: Machine) -> list[Any]:
    import jax

    here = jax.devices() if jax.default_backend() == "tpu" else []
    if _are(here, machine):
        return _in_order(here)
    return _in_order(_described(machine))


def _are(devices: Sequence[Any], machine: Machine) -> bool:
    """Whether these devices are this machine: its kind of chip, and as many devices along each dim."""
    if len(devices) != machine.num_devices or devices[0].device_kind != machine.jax_kind:
        return False
    places = [_place(device) for device in devices]
    extents = [len(set(column)) for column in zip(*places, strict=True) if len(set(column)) > 1]
    return extents == [size for size in machine.sizes if size > 1]


def _in_order(devices: Sequence[Any]) -> list[Any]:
    return sorted(devices, key=_place)


def _place(device: Any) -> tuple[int, ...]:
    """Slice, x, y, z, core. Devices of a single slice have no ``slice_index`` and say so by an AttributeError."""
    return (getattr(device, "slice_index", 0) or 0, *device.coords, device.core_on_chip)


def _described(machine: Machine) -> list[Any]:
    """Ahead-of-time devices of this machine, from libtpu."""
    if importlib.util.find_spec("libtpu") is None:
        raise PlanError([problem("MW403", machine.topology.place, topology=str(machine.topology))])
    from jax.experimental import topologies

    asked = machine.topology
    name = f"{canonical(asked.kind)}:{'x'.join(map(str, asked.dims))}"
    with _libtpu_environment():
        try:
            slices = {"num_slices": asked.num_slices} if asked.num_slices > 1 else {}
            described = topologies.get_topology_desc(platform="tpu", topology_name=name, **slices)
        except Exception as error:  # libtpu's own: RuntimeError, JaxRuntimeError, NotImplementedError by version
            reason = short_reason(error)
            raise PlanError([problem("MW404", asked.place, topology=str(asked), reason=reason)]) from error
    return list(described.devices)


@contextmanager
def _libtpu_environment() -> Iterator[None]:
    """The variables that libtpu reads when it loads; what only keeps it quiet is taken away again."""
    for name, value in _LIBTPU.items():
        os.environ.setdefault(name, value)
    quiet = {name: value for name, value in _QUIET.items() if name not in os.environ}
    os.environ.update(quiet)
    try:
        yield
    finally:
        for name in quiet:
            os.environ.pop(name, None)


def short_reason(error: BaseException) -> str:
    """The first line of a compiler's error, without its status code and what follows about its own sources."""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"^[A-Z_]{4,}: ", "", first.strip())[:400]
