"""Rooms of the planner's large folders: each calls only those before it."""

from __future__ import annotations

import re
from pathlib import Path

import meshwright
import pytest

ROOMS = {
    "memory": ("tensors", "flow", "copies", "order", "fast"),
    "program": ("step", "pricing", "wiring", "rows", "solving"),
}


@pytest.mark.parametrize("folder", ROOMS)
def test_a_room_calls_only_those_before_it(folder: str) -> None:
    rooms = ROOMS[folder]
    home = Path(meshwright.__file__).parent / "planner" / folder
    wrong = [
        (f"{room}/{path.name}", called)
        for number, room in enumerate(rooms)
        for path in sorted((home / room).glob("*.py"))
        for called in re.findall(r"^from \.\.([a-z_]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if called not in rooms[:number]
    ]
    assert not wrong
