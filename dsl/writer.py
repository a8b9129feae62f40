"""Writes plans canonically: what is written reads back equal, and writing it again changes nothing."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import notation
from .comments import END, HEADER, comment_of
from .errors import PlanError, problem
from .given import plan_given
from .plan import (
    Assignment,
    AtRunTime,
    Axis,
    Fingerprint,
    Limits,
    Mesh,
    Place,
    Plan,
    Remat,
    Result,
    Rule,
    Shard,
    Split,
    SplitDim,
)
from .units import write_bytes
from .yaml_words import key, listed, mapping, unwritable, value, word

KEYS = ("meshwright", "name", "model", "with", "topology", "mesh", "tensors", "remat", "limits", "result")
MAX_LINE = 100  # characters of a mapping on one line; a longer one takes a line for each key
MAX_COLUMN = 48  # characters of a pattern that the others' values are aligned to


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A top-level key: a value on its line, or a mapping of values. ``block`` mappings take a line for each key."""

    key: str
    text: str = ""
    entries: Mapping[str, str] | None = None
    block: bool = False
    aligned: bool = False


def dumps(plan: Plan) -> str:
    """The plan's text. Raises ``PlanError`` for settings that no plan can hold."""
    plan_given(plan)
    lines: list[str] = [*comment_of(plan.comments, HEADER).before]
    sections = {section.key: section for section in _sections(plan)}
    for name in KEYS:
        lines += _written(sections[name], plan.comments) if name in sections else _left_over(name, plan.comments)
    lines += comment_of(plan.comments, END).before
    text = "\n".join(lines).strip("\n")
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def _left_over(section: str, comments: Mapping[str, object]) -> list[str]:
    """The comments of a key that says nothing and is not written (``tensors:`` without a rule)."""
    return _gathered(comments, (n for n in comments if n in (section, section + END) or n.startswith(f"{section}.")))


def _homeless(section: _Section, comments: Mapping[str, object]) -> list[str]:
    """The comments of inner keys that the canonical form does without (``topology: {name: ..., num_slices: ...}``)."""
    kept = {f"{section.key}.{name}" for name in section.entries or ()}
    ends = () if section.entries else (section.key + END,)
    inner = (n for n in comments if n in ends or (n.startswith(f"{section.key}.") and n not in kept))
    return [line for line in _gathered(comments, inner) if line]


def _gathered(comments: Mapping[str, object], names: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for name in names:
        comment = comment_of(comments, name)
        lines += [*comment.before, *([comment.beside] if comment.beside else [])]
    return lines


def dump(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Writes the plan to a file, whole or not at all. Raises ``PlanError`` where the file cannot be written."""
    write_file(dumps(plan), os.fspath(path))


def write_file(text: str, path: str) -> None:
    """Replaces a file's content in one step, keeping its permissions. Raises ``PlanError`` where that is impossible."""
    target = os.path.realpath(path)
    try:
        _replace(text, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PlanError([problem("MW062", Place(file=path), reason=reason)]) from error


def _replace(text: str, target: str) -> None:
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        if os.path.exists(target):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _sections(plan: Plan) -> Iterator[_Section]:
    """The plan's keys in their order, those that say something."""
    yield _Section(key="meshwright", text=str(plan.version))
    for name, text in (("name", plan.name), ("model", plan.model)):
        if text is not None:
            yield _Section(key=name, text=word(text, what=f"'{name}'"))
    if plan.settings:
        yield _Section(key="with", entries={k: value(v, f"'with.{k}'") for k, v in plan.settings.items()})
    if plan.topology:
        yield _Section(key="topology", text=word(str(plan.topology)))
    yield _mesh(plan.mesh)
    if plan.rules:
        yield _Section(key="tensors", entries=_rules(plan.rules), block=True, aligned=True)
    if plan.remat:
        yield _remat(plan.remat)
    if plan.limits != Limits():
        yield _Section(key="limits", entries=_limits(plan.limits))
    if plan.result:
        yield _Section(key="result", entries=dict(_result(plan.result)), block=True)


def _written(section: _Section, comments: Mapping[str, object]) -> list[str]:
    """A section's lines with their comments."""
    comment = comment_of(comments, section.key)
    before = [*comment.before, *_homeless(section, comments)]
    beside = f"  {comment.beside}" if comment.beside else ""
    entries = section.entries
    if entries is None:
        return [*before, f"{section.key}: {section.text}{beside}"]
    inline = f"{section.key}: {mapping(entries)}"
    commented = any(f"{section.key}.{name}" in comments for name in entries) or section.key + END in comments
    if not (section.block or commented or len(inline) > MAX_LINE):
        return [*before, inline + beside]
    lines = [*before, f"{section.key}:{beside}"]
    column = _column(entries) if section.aligned else 0
    for name, text in entries.items():
        inner = comment_of(comments, f"{section.key}.{name}")
        first, *more = f"{key(name) + ':':<{column}} {text}".split("\n")
        line = first.rstrip() + (f"  {inner.beside}" if inner.beside else "")
        lines += [*_indented(inner.before), f"  {line}", *more]
    return lines + _indented(comment_of(comments, section.key + END).before)


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]


def _column(entries: Mapping[str, str]) -> int:
    """The width that a pattern and its colon take, so that the assignments stand in one column."""
    widths = [len(key(name)) + 1 for name in entries]
    return max((width for width in widths if width <= MAX_COLUMN), default=0)


def _rules(rules: Sequence[Rule]) -> dict[str, str]:
    for _, pattern in notation.repeats([rule.pattern for rule in rules]):
        raise unwritable("'tensors'", f"it has the pattern '{pattern}' twice")
    return {rule.pattern: assignment(rule.assignment) for rule in rules}


def _mesh(mesh: Mesh) -> _Section:
    if mesh.axes is None:
        return _Section(key="mesh", text="auto")
    return _Section(key="mesh", entries={axis.name: axis_text(axis) for axis in mesh.axes})


def axis_text(axis: Axis) -> str:
    """An axis as it stands after its name: its size, or size and physical dims."""
    size = "auto" if axis.size is None else str(axis.size)
    if axis.over is None:
        return size
    over = [f'"{dim.name}:{dim.size}"' if dim.size else dim.name for dim in axis.over]
    return mapping({"size": size, "over": listed([text if '"' in text else word(text) for text in over])})


def assignment(written: Assignment) -> str:
    """An assignment as it stands after its pattern."""
    if isinstance(written, Split):
        dims = [_split_dim(dim) for dim in written.splits]
        return mapping({"split": dims[0] if len(dims) == 1 else listed(dims)})
    if isinstance(written, Shard):
        return mapping({"shard": mapping({"device_assignment": value(written.device_assignment)})})
    return word(notation.write(written))


def _split_dim(split: SplitDim) -> str:
    entries = {"dim": str(split.dim), "axis": word("+".join(split.axes), flow=True)}
    return mapping({**entries, "pad": "true"} if split.pad else entries)


def remat_text(remat: Remat) -> str:
    """A rematerialisation policy as it stands after ``remat:``."""
    return mapping({"save": value(remat.names)}) if remat.policy == "save" else remat.policy


def _remat(remat: Remat) -> _Section:
    if remat.policy == "save":
        return _Section(key="remat", entries={"save": value(remat.names)})
    return _Section(key="remat", text=remat.policy)


def _limits(limits: Limits) -> dict[str, str]:
    return {"hbm": write_bytes(limits.hbm_bytes)} if limits.hbm_bytes is not None else {}


def _result(result: Result) -> Iterator[tuple[str, str]]:
    yield "status", word(result.status)
    for name in ("step_time_s", "bound_s", "gap"):
        seconds = getattr(result, name)
        if seconds is not None:
            yield name, value(float(seconds))
    if result.peak_bytes:
        yield "peak_bytes", value(result.peak_bytes)
    if result.seed is not None:
        yield "seed", value(result.seed)
    if result.versions:
        yield "versions", value(result.versions)
    if result.pins:
        yield "pins", value(result.pins)
    if result.fingerprint:
        yield "fingerprint", _fingerprint(result.fingerprint)
    if result.at_run_time:
        yield "at_run_time", "".join(f"\n    - {at_run_time_text(one)}" for one in result.at_run_time)


def at_run_time_text(one: AtRunTime) -> str:
    """The settings for one value, as they stand in their list."""
    entries = {
        "when": value(one.when),
        "with": value(one.settings),
        "step_time_s": value(float(one.step_time_s)),
        "peak_bytes": value(one.peak_bytes),
    }
    return mapping({**entries, "without": value(one.without)} if one.without else entries)


def _fingerprint(fingerprint: Fingerprint) -> str:
    arguments = {
        name: value({"tensors": a.tensors, "elements": a.elements, "digest": a.digest})
        for name, a in fingerprint.arguments.items()
    }
    return mapping({"arguments": mapping(arguments), "dims": value(fingerprint.dims)})
