"""How a plan names a machine (``4*v5e:16x16``) and the physical dims that an axis lies on (``y``, ``x:4``).

Only the writing is checked here: which machines there are is the planner's catalogue.
"""

from __future__ import annotations

import re

from .errors import FlawError, PlanError, flaw, shorten
from .plan import OverDim, Place, Topology

TOPOLOGY = r"^([1-9][0-9]{0,5}\*)?[0-9]*[A-Za-z][A-Za-z0-9_.-]*:[1-9][0-9]{0,5}(x[1-9][0-9]{0,5})*$"
MACHINE = r"^[0-9]*[A-Za-z][A-Za-z0-9_.-]*:[1-9][0-9]{0,5}(x[1-9][0-9]{0,5})*$"
OVER = r"^[A-Za-z_][A-Za-z0-9_]*(:[1-9][0-9]{0,5})?$"
"""The words as regular expressions, for the JSON schema."""

_TOPOLOGY = re.compile(r"(?:(?P<slices>[^*:]*)\*)?(?P<kind>[^*:]*):(?P<dims>[^:]*)")
_KIND = re.compile(r"[0-9]*[A-Za-z][A-Za-z0-9_.-]*")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_OVER = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<size>[1-9][0-9]{0,5}))?")


def parse_topology(text: str, place: Place | None = None) -> Topology:
    """The machine that ``text`` names; ``place`` is where the text begins. Raises ``PlanError``."""
    try:
        return scan_topology(text)
    except FlawError as error:
        raise PlanError(f.at(place) for f in error.flaws) from None


def scan_topology(text: str) -> Topology:
    """The machine that ``text`` names. Raises ``FlawError``."""
    match = _TOPOLOGY.fullmatch(text)
    if not match or not _KIND.fullmatch(match["kind"]):
        raise flaw("MW028", text=shorten(text))
    dims = match["dims"].split("x")
    for group, count in [("slices", match["slices"] or "1"), *(("dims", dim) for dim in dims)]:
        if not _COUNT.fullmatch(count):
            raise flaw("MW029", match.start(group), text=shorten(text), count=shorten(count))
    slices = int(match["slices"] or 1)
    return Topology(kind=match["kind"], dims=tuple(map(int, dims)), num_slices=slices)


def scan_machine(text: str) -> Topology:
    """The machine of one slice that ``text`` names; how many there are stands elsewhere. Raises ``FlawError``."""
    if "*" in text:
        raise flaw("MW037", text.index("*"), text=shorten(text))
    return scan_topology(text)


def scan_over(text: str) -> OverDim:
    """The physical dim, or part of one, that ``text`` names. Raises ``FlawError``."""
    match = _OVER.fullmatch(text)
    if not match:
        raise flaw("MW030", text=shorten(text))
    return OverDim(name=match["name"], size=int(match["size"]) if match["size"] else None)
