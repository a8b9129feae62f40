"""YAML text to a tree, strictly: no key twice, no anchors, tags or second documents, no value that YAML's versions read
differently, bounded in depth and size. Reports every problem and goes on; only a syntax error ends the reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from .errors import Problem, problem, shorten
from .plan import Place
from .scalars import resolve_scalar
from .tree import Branch, Entry, Items, Leaf, Node

MAX_DEPTH = 32
MAX_NODES = 100_000

PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""LibYAML's where it is installed: it is ten times as fast."""

Span = tuple[int, int, int, int]  # first line and column, last line and column; from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A text's tree (None without one), its problems, whether it was read to its end, and where its scalars stand.

    ``last`` is the place of the last scalar, which a syntax error may have cut short.
    """

    root: Node | None
    problems: tuple[Problem, ...]
    whole: bool
    spans: tuple[Span, ...]
    last: Place | None = None


def compose(text: str, file: str | None = None) -> Composed:
    """The tree of a cleaned text. Never raises: what is wrong is among the problems."""
    builder = _Builder(file=file)
    whole = builder.read(text)
    return Composed(
        root=builder.finish(),
        problems=tuple(builder.problems),
        whole=whole,
        spans=tuple(builder.spans),
        last=builder.last,
    )


class _StopError(Exception):
    """Ends the reading at something that cannot be read past; its problem is already noted."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """A mapping or sequence that is being read."""

    place: Place
    is_mapping: bool
    flow: bool = False
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    key: Entry | None = None
    expects_value: bool = False

    def closed(self) -> Node:
        """What has been read of it."""
        if self.is_mapping:
            return Branch(entries=self.entries, place=self.place, flow=self.flow)
        return Items(items=tuple(self.items), place=self.place)


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Makes a tree of PyYAML's events."""

    file: str | None
    problems: list[Problem] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    root: Node | None = None
    documents: int = 0
    nodes: int = 0
    last: Place | None = None

    def read(self, text: str) -> bool:
        """Reads the text as far as it goes; whether that was to its end."""
        try:
            for event in _events(text):
                self._handle(event)
        except _StopError:
            return False
        except yaml.YAMLError as error:
            self.problems.append(self._syntax_problem(error))
            return False
        return True

    def finish(self) -> Node | None:
        """The root, closing what a syntax error left open."""
        while self.stack:
            self._add(self.stack.pop().closed())
        return self.root

    def _handle(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._start_document(event)
        elif isinstance(event, yaml.NodeEvent):
            self._start_node(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._add(self.stack.pop().closed())

    def _start_document(self, event: yaml.Event) -> None:
        self.documents += 1
        if self.documents > 1:
            self._stop("MW008", event)

    def _start_node(self, event: Any) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self._stop("MW006", event, most=MAX_NODES)
        if isinstance(event, yaml.AliasEvent):
            self._note("MW007", event, what=f"The alias '*{shorten(event.anchor or '')}'")
            self._add(Leaf(value=None, place=self._place(event), flawed=True))
            return
        if event.anchor is not None:
            self._note("MW007", event, what=f"The anchor '&{shorten(event.anchor)}'")
        if event.tag is not None:
            self._note("MW007", event, what=f"The tag '{shorten(event.tag)}'")
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        else:
            self._open(event)

    def _open(self, event: Any) -> None:
        if len(self.stack) >= MAX_DEPTH:
            self._stop("MW005", event, most=MAX_DEPTH)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        self.stack.append(_Open(place=self._place(event), is_mapping=is_mapping, flow=bool(event.flow_style)))

    def _scalar(self, event: Any) -> None:
        start, end = event.start_mark, event.end_mark
        if event.style and event.style in "|>":  # a comment may stand beside the mark
            self.spans.append((start.line + 1, 0, end.line, end.column))
        else:
            self.spans.append((start.line, start.column, end.line, end.column))
        place = self.last = self._place(event)
        if event.style:
            quote = 1 if event.style in "'\"" else 0
            verbatim = start.line == end.line and end.column - start.column == len(event.value) + 2 * quote
            flawed = event.tag is not None
            self._add(Leaf(value=event.value, place=place, quote=quote, flawed=flawed, verbatim=verbatim))
            return
        value, flaw = resolve_scalar(event.value)
        flawed = flaw is not None or event.tag is not None
        if flaw:
            self.problems.append(flaw.at(place))
        self._add(Leaf(value=value, place=place, flawed=flawed, verbatim=start.line == end.line))

    def _add(self, node: Node) -> None:
        """Puts a finished node where it belongs: into the open mapping or sequence, or at the root."""
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if not parent.is_mapping:
            parent.items.append(node)
        elif parent.expects_value:
            self._add_entry(parent, node)
        else:
            parent.key = self._key(node)
            parent.expects_value = True

    def _add_entry(self, parent: _Open, node: Node) -> None:
        parent.expects_value = False
        if parent.key is None:
            return
        entry = replace(parent.key, value=node)
        first = parent.entries.setdefault(entry.key, entry)
        if first is not entry:
            self.problems.append(problem("MW010", entry.place, key=shorten(entry.key), line=first.place.line))

    def _key(self, node: Node) -> Entry | None:
        """The entry of a key, itself for a value; None, with a problem, where it is no word."""
        if isinstance(node, Leaf) and node.flawed:
            return None
        if isinstance(node, Leaf) and node.value == "<<" and not node.quote:
            self.problems.append(problem("MW007", node.place, what="The merge key '<<'"))
            return None
        if isinstance(node, Leaf) and isinstance(node.value, str):
            return Entry(key=node.value, place=node.place, value=node, quote=node.quote)
        self.problems.append(problem("MW012", node.place, key=_shown(node)))
        return None

    def _place(self, event: Any) -> Place:
        return Place(file=self.file, line=event.start_mark.line + 1, column=event.start_mark.column + 1)

    def _note(self, code: str, event: Any, **numbers: Any) -> None:
        self.problems.append(problem(code, self._place(event), **numbers))

    def _stop(self, code: str, event: Any, **numbers: Any) -> None:
        self._note(code, event, **numbers)
        raise _StopError

    def _syntax_problem(self, error: yaml.YAMLError) -> Problem:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        place = Place(file=self.file, line=mark.line + 1, column=mark.column + 1) if mark else Place(file=self.file)
        reason = ", ".join(part for name in ("context", "problem") if (part := getattr(error, name, None)))
        return problem("MW013", place, reason=shorten(reason or str(error), limit=160))


def _events(text: str) -> Iterator[yaml.Event]:
    """PyYAML's events, one at a time: reading stops where the builder stops asking."""
    parser = PARSER(text)
    try:
        while parser.check_event():
            yield parser.get_event()
    finally:
        parser.dispose()


def _shown(node: Node) -> str:
    if isinstance(node, Leaf):
        return shorten("null" if node.value is None else str(node.value))
    return "a mapping" if isinstance(node, Branch) else "a list"
