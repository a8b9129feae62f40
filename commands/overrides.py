"""What options say in the place of a plan's own keys: ``--topology``, ``--mesh``, ``--set``, ``--limit``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..dsl.errors import FlawError, PlanError, Problem, problem, raise_errors, shorten

if TYPE_CHECKING:
    from ..dsl.plan import Limits, Mesh, Place, Plan, Topology

AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<size>[1-9][0-9]{0,6}|auto)")
SETTING = re.compile(r"[A-Za-z_]\w*=.+")
PLAIN = re.compile(r"[0-9]{1,30}")


def set_option(parser: argparse.ArgumentParser) -> None:
    """``--set K=V``, as often as wanted."""
    parser.add_argument(
        "--set", dest="settings", action="append", metavar="K=V", help="a setting of the model; may be repeated"
    )


def overridden(plan: Plan, arguments: argparse.Namespace) -> Plan:
    """The plan with what the options say in its own place. Raises ``PlanError`` for all that is written wrong."""
    read: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "settings": ("settings", lambda texts: {**plan.settings, **settings_of(texts)}),
        "topology": ("topology", _topology),
        "mesh": ("mesh", mesh_of),
        "limit": ("limits", _limits),
    }
    said: dict[str, Any] = {}
    problems: list[Problem] = []
    for option, (key, reader) in read.items():
        try:
            given = getattr(arguments, option, None)
            if given is not None:
                said[key] = reader(given)
        except PlanError as error:
            problems += error.problems
    raise_errors(problems)
    return replace(plan, **said)


def _topology(text: str) -> Topology:
    from ..dsl.machine import parse_topology
    from ..planner.topology import physical

    place = _option("--topology")
    try:
        found = parse_topology(text)
        physical(found)
    except PlanError as error:
        raise PlanError([replace(each, place=place) for each in error.problems]) from None
    return replace(found, place=place)


def settings_of(texts: Sequence[str]) -> dict[str, Any]:
    """Settings of a model from ``name=value``, values as a plan has them. Raises ``PlanError`` for all that is written
    wrong (MW556), said more than once (MW577) or no value.
    """
    from ..dsl.reader import loads

    wrong = [text for text in texts if not SETTING.fullmatch(text)]
    problems = [problem("MW556", _option("--set"), text=shorten(text)) for text in wrong]
    said: dict[str, list[str]] = {}
    for name, _, value in (text.partition("=") for text in texts if text not in wrong):
        said.setdefault(name, []).append(value)
    found: dict[str, Any] = {}
    for name, value in ((name, value) for name, values in said.items() for value in values):
        try:
            found |= loads(f"meshwright: 1\nwith:\n  {name}: {value}\n").settings
        except PlanError as error:
            problems += [replace(each, place=_option(f"--set {name}")) for each in error.problems]
    for name, values in said.items():
        if len(values) > 1:
            shown = " and ".join(shorten(value) for value in values)
            problems.append(problem("MW577", _option(f"--set {name}"), name=name, values=shown))
    raise_errors(problems)
    return found


def mesh_of(text: str) -> Mesh:
    """The mesh of ``x=4,y=8``; ``auto`` is a hole, alone or as a size. Raises ``PlanError`` (MW554)."""
    from ..dsl.plan import Axis, Mesh

    if text == "auto":
        return Mesh(axes=None)
    found = [AXIS.fullmatch(part.strip()) for part in text.split(",")]
    sizes = {match["name"]: None if match["size"] == "auto" else int(match["size"]) for match in found if match}
    if len(sizes) < len(found):
        raise PlanError([problem("MW554", _option("--mesh"), text=shorten(text))])
    return Mesh(axes=tuple(Axis(name=name, size=size) for name, size in sizes.items()), place=_option("--mesh"))


def _limits(text: str) -> Limits:
    from ..dsl.plan import Limits
    from ..dsl.units import parse_bytes, plain_bytes

    amount = text.strip()
    try:
        hbm_bytes = plain_bytes(int(amount)) if PLAIN.fullmatch(amount) else parse_bytes(amount)
        return Limits(hbm_bytes=hbm_bytes, place=_option("--limit"))
    except FlawError as error:
        raise PlanError([flaw.at(_option("--limit")) for flaw in error.flaws]) from None


def _option(name: str) -> Place:
    from ..dsl.plan import Place

    return Place(file=name, line=0, column=0)
