"""The mesh over the machine: for each axis its devices, coloured by their position along it."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from html import escape

import numpy as np

from ...estimate.figures import Estimate
from ...network import Network
from ..communication import axis_seconds, axis_table
from . import svg

SHOWN = 16
CELL = 14
COLORS = "a colour is a position along the axis, a bar how long its traffic takes"


def torus(estimate: Estimate, network: Network) -> str:
    """A panel an axis; of a large machine its first corner, which repeats."""
    rows = {row[0]: row for row in axis_table(estimate).rows}
    carried_s = {axis: axis_seconds(estimate, axis) for axis in rows}
    most_s = max(carried_s.values(), default=0.0)
    shares = {axis: took_s / most_s if most_s else 0.0 for axis, took_s in carried_s.items()}
    panels = (_panel(axis, rows[axis], shares[axis], network) for axis in network.mesh if axis in rows)
    return f'<div class="panels">{"".join(panels)}</div><p class="note">{escape(_caption(network))}</p>'


def positions(network: Network, axis: str) -> np.ndarray:
    """Each device's position along the axis, in the machine's own dims (one of size 1 is added to a single dim)."""
    along = list(network.mesh).index(axis)
    shape = network.numbers.shape
    where = np.empty(network.numbers.size, dtype=np.int64)
    spread = np.broadcast_to(
        np.arange(shape[along]).reshape([-1 if i == along else 1 for i in range(len(shape))]), shape
    )
    where[network.numbers.ravel()] = spread.ravel()
    sizes = network.machine.sizes
    return where.reshape(sizes if len(sizes) > 1 else (1, *sizes))


def _panel(axis: str, row: tuple[str, ...], traffic: float, network: Network) -> str:
    """One axis on the machine, and a bar as long as its traffic takes beside the busiest axis's."""
    _, devices, lies_on, _, carried, took = row
    plane = _plane(positions(network, axis))[:SHOWN, :SHOWN]
    count = network.mesh[axis]
    cells = "".join(
        svg.rect(
            x * CELL, y * CELL, CELL - 1, CELL - 1, color="cell", corner=2,
            title=f"position {plane[y, x]} along {axis}", style=f"fill:{_shade(int(plane[y, x]), count)}",
        )
        for y in range(plane.shape[0])
        for x in range(plane.shape[1])
    )  # fmt: skip
    height, width = plane.shape[0] * CELL, plane.shape[1] * CELL
    scale = 2 if max(plane.shape) <= SHOWN // 2 else 1
    size = f' style="width:{width * scale}px;height:{height * scale}px"'
    picture = svg.drawing(cells, width, height, name=f"axis {axis} on the machine", more=size)
    said = f"{devices} devices on {lies_on}; carries {carried} a device in {took}, predicted"
    bar = f'<div class="bar"><div class="axis-0" style="width:{traffic:.1%}"></div></div>'
    return f"<figure><figcaption><b>{escape(axis)}</b>: {escape(said)}</figcaption>{bar}{picture}</figure>"


def _plane(where: np.ndarray) -> np.ndarray:
    """The two longest dims of the machine, the others at their first position."""
    rows, columns = _drawn(where.shape)
    index = tuple(slice(None) if i in (rows, columns) else 0 for i in range(where.ndim))
    return np.asarray(where[index])


def _drawn(sizes: tuple[int, ...]) -> tuple[int, int]:
    largest = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))[:2]
    return min(largest), max(largest)


def _caption(network: Network) -> str:
    dims: Mapping[str, int] = dict(network.machine.dims)
    sizes = tuple(dims.values())
    if len(sizes) == 1:
        first = f"The first {SHOWN} of {sizes[0]} devices" if sizes[0] > SHOWN else f"All {sizes[0]} devices"
        return f"{first}; {COLORS}."
    rows, columns = _drawn(sizes)
    names = list(dims)
    others = [f"{name} 0" for i, name in enumerate(names) if i not in (rows, columns)]
    part = [f"{min(SHOWN, sizes[i])} of {sizes[i]} positions of {names[i]}" for i in (rows, columns)]
    at = f" at {', '.join(others)}" if others else ""
    return f"Down {part[0]}, across {part[1]}{at}; {COLORS}."


def _shade(position: int, count: int) -> str:
    red, green, blue = colorsys.hls_to_rgb(0.75 * position / max(1, count), 0.55, 0.55)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
