"""Reads logical axis rules: MaxText's YAML, or a list of pairs as YAML, JSON or Python write it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import PlanError, Problem, problem, raise_errors, shorten
from ..notation import NAME
from ..plan import Place
from ..strict_yaml import Composed, compose
from ..text import clean
from ..tree import Branch, Items, Leaf, Node
from .python_literal import tree_of
from .rules import LogicalRule, LogicalRules

RULES, MESH_AXES, BASE = "logical_axis_rules", "mesh_axes", "base_config"
FIELD = re.compile(r"(ici|dcn)_([a-z_]+)_parallelism")
AXIS_OF_FIELD = {"pipeline": "stage"}  # MaxText names this axis after what it holds, its field after what it does


def is_plan(text: str) -> bool:
    """Whether a text that a user gives is a plan, and not rules."""
    return re.search(r"^meshwright[ \t]*:", text, re.MULTILINE) is not None


def loads(text: str, file: str | None = None) -> LogicalRules:
    """The rules that ``text`` writes. Raises ``PlanError`` (MW650, MW651, MW653, the file's own) with every problem."""
    text = clean(text, file)
    python = tree_of(text, file)
    composed = None if python else compose(text, file)
    root = python or (composed.root if composed else None)
    fields = {entry.key: entry.value for entry in root.entries.values()} if isinstance(root, Branch) else {}
    used = {key: node for key, node in fields.items() if key in (RULES, MESH_AXES, BASE) or FIELD.fullmatch(key)}
    reading = _Reading(problems=_refused(composed, root, used) if composed else [])
    listed = used.get(RULES) if isinstance(root, Branch) else root
    if listed is None or (isinstance(listed, Leaf) and listed.value is None):
        raise PlanError([*reading.problems, problem("MW651", root.place if root else Place(file=file))])
    rules = reading.rules(listed)
    mesh = reading.mesh_axes(used)
    sizes = {kind: reading.sizes(used, kind) for kind in ("ici", "dcn")}
    raise_errors(reading.problems)
    return LogicalRules(
        rules=rules,
        mesh_axes=mesh,
        ici=sizes["ici"],
        dcn=sizes["dcn"],
        places={key: node.place for key, node in used.items()},
        notes=tuple(_notes(used)),
    )


def _refused(composed: Composed, root: Node | None, used: Mapping[str, Node]) -> list[Problem]:
    """What the YAML reader refuses in what is used; a file of settings may hold what it likes elsewhere."""
    if not composed.whole or not isinstance(root, Branch):
        return list(composed.problems)
    keys = {entry.place for entry in root.entries.values() if entry.key in used}
    places = keys.union(*map(_places, used.values()))
    return [found for found in composed.problems if found.place in places]


def _places(node: Node) -> set[Place]:
    inner: list[Node] = []
    if isinstance(node, Branch):
        inner = [entry.value for entry in node.entries.values()]
    elif isinstance(node, Items):
        inner = list(node.items)
    return {node.place}.union(*map(_places, inner))


def _notes(used: Mapping[str, Node]) -> Iterator[Problem]:
    base = used.get(BASE)
    if isinstance(base, Leaf) and base.value:
        yield problem("MW682", base.place, severity="note", base=shorten(str(base.value)))


@dataclass(slots=True, kw_only=True)
class _Reading:
    """Goes through the nodes and keeps what is wrong with them."""

    problems: list[Problem] = field(default_factory=list)

    def refuse(self, node: Node, what: str, expected: str) -> None:
        self.problems.append(problem("MW650", node.place, what=what, got=shown(node), expected=expected))

    def rules(self, node: Node) -> tuple[LogicalRule, ...]:
        if not isinstance(node, Items):
            self.refuse(node, "What stands for the rules", "a list of pairs, such as [[embed, [fsdp]], [mlp, tensor]]")
            return ()
        return tuple(rule for item in node.items if (rule := self.rule(item)))

    def rule(self, node: Node) -> LogicalRule | None:
        if not isinstance(node, Items) or len(node.items) != 2:
            self.refuse(node, "A rule", "a pair of a logical name and its mesh axes, such as [embed, [fsdp]]")
            return None
        name, axes = node.items
        if not (isinstance(name, Leaf) and isinstance(name.value, str)):
            self.refuse(name, "A logical name", "a text")
            return None
        return LogicalRule(name=name.value, axes=self.axes(axes, name.value), place=node.place)

    def axes(self, node: Node, name: str) -> tuple[str, ...]:
        """The axes of a rule: a name, a list of names, or null for none."""
        if isinstance(node, Leaf) and node.value is None:
            return ()
        given = node.items if isinstance(node, Items) else (node,)
        axes: list[str] = []
        for item in given:
            if not is_axis(item):
                self.refuse(item, f"An axis in the rule of '{shorten(name)}'", "a mesh axis, a list of them, or null")
            elif isinstance(item, Leaf) and item.value in axes:
                self.problems.append(problem("MW653", item.place, name=shorten(name), axis=item.value))
            elif isinstance(item, Leaf):
                axes.append(str(item.value))
        return tuple(axes)

    def mesh_axes(self, used: Mapping[str, Node]) -> tuple[str, ...] | None:
        node = used.get(MESH_AXES)
        if node is None:
            return None
        if not isinstance(node, Items) or not all(map(is_axis, node.items)):
            self.refuse(node, f"'{MESH_AXES}'", "a list of names, such as [data, fsdp, tensor]")
            return None
        return tuple(dict.fromkeys(str(item.value) for item in node.items if isinstance(item, Leaf)))

    def sizes(self, used: Mapping[str, Node], kind: str) -> dict[str, int]:
        """The sizes of the axes inside slices (``ici``) or across them (``dcn``)."""
        found: dict[str, int] = {}
        for key, node in used.items():
            match = FIELD.fullmatch(key)
            if not match or match[1] != kind:
                continue
            value = node.value if isinstance(node, Leaf) else None
            if isinstance(value, int) and not isinstance(value, bool) and (value == -1 or value >= 1):
                found[AXIS_OF_FIELD.get(match[2], match[2])] = value
            else:
                self.refuse(node, f"'{key}'", "a whole number of 1 or more, or -1 for what is left")
        return found


def is_axis(node: Node) -> bool:
    """Whether a node names a mesh axis."""
    return isinstance(node, Leaf) and isinstance(node.value, str) and re.fullmatch(NAME, node.value) is not None


def shown(node: Node) -> str:
    """A node, in an error."""
    if isinstance(node, Leaf):
        return "nothing" if node.value is None else f"'{shorten(str(node.value))}'"
    if isinstance(node, Items):
        return f"a list of {len(node.items)}"
    return "a mapping"
