"""Memory over the program: bytes live at each point, stacked by kind, and the limit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...estimate.figures import Estimate, MemoryPoint
from ..rows import binary
from . import svg

POINTS = 300
HEIGHT = 260
COLORS = 12
MAX_LIMIT_SHARE = 4


def memory(estimate: Estimate) -> str:
    """The picture, and its colours."""
    points = thinned(estimate.memory.timeline, POINTS)
    if not points:
        return "<p>Nothing lives.</p>"
    kinds = _kinds(points)
    top = _top(estimate)
    marks = [*_areas(points, kinds, top), *_limit(estimate, top), *_hovers(points)]
    picture = svg.drawing("".join(marks), svg.WIDTH, HEIGHT, name="memory over the program")
    legend = svg.legend([(f"kind-{i % COLORS}", kind) for i, kind in enumerate(kinds)])
    scale = f'<div class="scale"><span>the step begins</span><span>{_said(estimate)}</span><span>and ends</span></div>'
    return picture + scale + legend


def thinned(points: Sequence[MemoryPoint], count: int) -> list[MemoryPoint]:
    """At most ``count`` points, of each stretch the one where most is live: the peak stays."""
    edges = [len(points) * i // count for i in range(count + 1)] if len(points) > count else range(len(points) + 1)
    stretches = (points[a:b] for a, b in pairwise(edges))
    return [max(stretch, key=lambda point: point.num_bytes) for stretch in stretches]


def _kinds(points: Sequence[MemoryPoint]) -> list[str]:
    """All kinds, those that change least at the bottom."""
    kinds = dict.fromkeys(kind for point in points for kind in point.by_kind)
    held = {kind: [point.by_kind.get(kind, 0) for point in points] for kind in kinds}
    return sorted((kind for kind in kinds if max(held[kind])), key=lambda kind: max(held[kind]) - min(held[kind]))


def _top(estimate: Estimate) -> float:
    """The bytes at the top of the picture: a little over the peak, and over the limit where that is near."""
    limit = estimate.limit_bytes or 0
    shown = max(estimate.peak_bytes, limit if limit <= MAX_LIMIT_SHARE * estimate.peak_bytes else 0)
    return 1.08 * max(1, shown)


def _areas(points: Sequence[MemoryPoint], kinds: Sequence[str], top: float) -> list[str]:
    below = [0] * len(points)
    made = []
    for i, kind in enumerate(kinds):
        above = [low + point.by_kind.get(kind, 0) for low, point in zip(below, points, strict=True)]
        most = binary(max(point.by_kind.get(kind, 0) for point in points))
        made.append(svg.path(_outline(below, above, top), f"kind-{i % COLORS}", f"{kind}: at most {most}"))
        below = above
    return made


def _outline(below: Sequence[int], above: Sequence[int], top: float) -> str:
    """The area between two heights, in steps."""
    wide = svg.WIDTH / len(above)
    over = [f"{wide * i:.5g},{_y(h, top):.5g} {wide * (i + 1):.5g},{_y(h, top):.5g}" for i, h in enumerate(above)]
    under = [f"{wide * (i + 1):.5g},{_y(h, top):.5g} {wide * i:.5g},{_y(h, top):.5g}" for i, h in enumerate(below)]
    return f"M{' L'.join([*over, *reversed(under)])} Z"


def _limit(estimate: Estimate, top: float) -> list[str]:
    if estimate.limit_bytes is None:
        return []
    said = f"limit {binary(estimate.limit_bytes)} ({estimate.limit_of})"
    if estimate.limit_bytes > top:
        return [svg.label(svg.WIDTH - 8, 16, f"{said}, far above", anchor="end")]
    y = _y(estimate.limit_bytes, top)
    return [svg.line(0, y, svg.WIDTH, y, "limit"), svg.label(svg.WIDTH - 8, y - 5, said, anchor="end")]


def _hovers(points: Sequence[MemoryPoint]) -> list[str]:
    wide = svg.WIDTH / len(points)
    return [
        svg.rect(wide * i, 0, wide, HEIGHT, color="over", title=_point(point)) for i, point in enumerate(points)
    ]  # fmt: skip


def _point(point: MemoryPoint) -> str:
    kinds = "\n".join(f"{kind}: {binary(held)}" for kind, held in point.by_kind.items() if held)
    return f"{point.label}\n{binary(point.num_bytes)} live, predicted\n{kinds}"


def _y(num_bytes: float, top: float) -> float:
    return HEIGHT * (1 - num_bytes / top)


def _said(estimate: Estimate) -> str:
    return f"peak {binary(estimate.peak_bytes)}, predicted"
