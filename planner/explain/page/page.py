"""The page: the answer, the pictures, the tables, and the same figures as JSON for who wants to read them again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from ...estimate.as_json import summary, tensor_json
from ...estimate.figures import Estimate
from ...network import Network
from ..rows import Rows, binary, duration, share
from ..text import headline, notes, tables
from .memory import memory
from .timeline import timeline
from .torus import torus

MAX_TENSORS = 2000


def page(estimate: Estimate, network: Network, *, name: str) -> str:
    """One page of HTML that loads nothing from elsewhere; ``name`` is the plan's."""
    fits = "fits" if estimate.fits else "misfits"
    sections = [
        f'<h1>{escape(name)}</h1><p class="verdict {fits}">{escape(headline(estimate, name))}</p>',
        *(f'<p class="note">{escape(note)}</p>' for note in notes(estimate)),
        _cards(estimate),
        _section("The timeline of a step, predicted", timeline(estimate), ZOOM),
        _section("Memory over the program, predicted", memory(estimate)),
        _section("The mesh over the machine", torus(estimate, network)),
        _section("A tensor's layout", _layouts(estimate)),
        "<h2>Tables</h2>",
        *map(_table, tables(estimate)),
    ]
    title = f"<title>{escape(name)}: what it takes, predicted</title>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}'
    data = f'<script type="application/json" id="data">{_embedded(_data(estimate))}</script>'
    body = f"<main>{''.join(sections)}</main>{data}<script>{_asset('script.js')}</script>"
    head += f"<style>{_asset('style.css')}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


ZOOM = "Point at something to read what it is. The wheel zooms, dragging moves, a double click shows the whole step."


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _data(estimate: Estimate) -> dict[str, Any]:
    """What the script draws from, and the figures."""
    devices = 1
    for size in estimate.mesh.values():
        devices *= size
    tensors = [tensor_json(tensor) for tensor in estimate.tensors[:MAX_TENSORS]]
    return summary(estimate) | {"num_devices": devices, "parts": dict(estimate.parts), "tensors": tensors}


def _embedded(value: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    return json.dumps(value).replace("<", "\\u003c")


def _cards(estimate: Estimate) -> str:
    limit = (
        f"of {binary(estimate.limit_bytes)} ({estimate.limit_of})"
        if estimate.limit_bytes is not None
        else "no limit known"
    )
    figures = [
        ("step, nothing overlapped", duration(estimate.step_time_s)),
        ("compute", duration(estimate.compute_s)),
        ("communication", duration(estimate.comm_s)),
        ("with full overlap", duration(estimate.overlapped_s)),
        (f"peak of a device, {limit}", binary(estimate.peak_bytes)),
        (
            f"roofline bound of the step: {share(estimate.bound_s, estimate.step_time_s)} of it",
            duration(estimate.bound_s),
        ),
    ]
    cards = (
        f'<div class="card"><b>{escape(said)}</b><span>{escape(what)}; predicted</span></div>' for what, said in figures
    )
    return f'<div class="cards">{"".join(cards)}</div>'


def _section(title: str, content: str, note: str = "") -> str:
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{said}{content}</section>"


def _layouts(estimate: Estimate) -> str:
    if not estimate.tensors:
        return "<p>The step has no arguments.</p>"
    options = "".join(
        f'<option value="{i}">{escape(f"{t.path}  {t.dtype}[{_listed(t.shape)}]")}</option>'
        for i, t in enumerate(estimate.tensors[:MAX_TENSORS])
    )
    return (
        f'<label for="tensor">Choose a tensor: </label><select id="tensor">{options}</select>'
        '<div id="layout"></div><p class="note" id="said"></p>'
    )


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _table(table: Rows) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.headers)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.title)}</caption>"
    return f'<div class="scroll"><table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
