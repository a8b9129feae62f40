"""The few marks that the pictures are made of, as text."""

from __future__ import annotations

from html import escape

WIDTH = 1000


def rect(
    x: float, y: float, width: float, height: float, *, color: str, title: str = "", corner: float = 0, style: str = ""
) -> str:
    """A rectangle; ``color`` is a class of the style sheet, ``title`` what a reader sees who points at it."""
    said = f"<title>{escape(title)}</title>" if title else ""
    more = (f' rx="{corner:g}"' if corner else "") + (f' style="{style}"' if style else "")
    place = f'x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}"'
    return f'<rect class="{color}" {place}{more}>{said}</rect>'


def path(points: str, color: str, title: str = "") -> str:
    """A filled outline."""
    return f'<path class="{color}" d="{points}"><title>{escape(title)}</title></path>'


def line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    """A line."""
    return f'<line class="{color}" x1="{x1:.6g}" y1="{y1:.6g}" x2="{x2:.6g}" y2="{y2:.6g}"/>'


def label(x: float, y: float, text: str, *, anchor: str = "start", color: str = "note") -> str:
    """A line of text."""
    return f'<text class="{color}" x="{x:.6g}" y="{y:.6g}" text-anchor="{anchor}">{escape(text)}</text>'


def drawing(content: str, width: float, height: float, *, name: str, stretched: bool = False, more: str = "") -> str:
    """A picture of this size; ``name`` says what it shows to who cannot see it, ``stretched`` fills its frame."""
    ratio = ' preserveAspectRatio="none"' if stretched else ""
    box = f'viewBox="0 0 {width:g} {height:g}"'
    return f'<svg role="img" aria-label="{escape(name)}" {box}{ratio}{more}>{content}</svg>'


def legend(entries: list[tuple[str, str]]) -> str:
    """Colours and what they stand for."""
    items = (f'<li><span class="swatch {color}"></span>{escape(said)}</li>' for color, said in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'
