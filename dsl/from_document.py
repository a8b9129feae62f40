"""A validated document as the ``Plan`` that it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from .comments import Comment
from .document import (
    AtRunTimeForm,
    AxisForm,
    Document,
    LimitsForm,
    ResultForm,
    SaveForm,
    ShardForm,
    SplitForm,
    TopologyForm,
)
from .plan import (
    ArgumentPrint,
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
    Topology,
)
from .tree import Branch


def plan_of(document: Document, root: Branch, comments: Mapping[str, Comment], file: str | None) -> Plan:
    """The plan that a document says; ``root`` is the tree it was made from, for the places."""
    places = _places(root)
    whole: Any = document  # the validators have made values of the plan of what the fields declare as texts
    default = Place(file=file)
    return Plan(
        version=document.meshwright,
        name=document.name,
        model=document.model,
        settings=dict(document.settings),
        topology=_topology(whole.topology, places.get("topology", default)),
        mesh=_mesh(whole.mesh, places, default),
        rules=_rules(whole.tensors or {}, places),
        remat=_remat(document.remat, places.get("remat", default)),
        limits=_limits(document.limits, places.get("limits", default)),
        result=_result(document.result, places.get("result", default)),
        file=file,
        comments=comments,
        places=places,
    )


def _places(root: Branch) -> dict[str, Place]:
    """Where each key stands: ``topology``, and ``with.layers`` for the keys inside."""
    places: dict[str, Place] = {}
    for entry in root.entries.values():
        places[entry.key] = entry.place
        if isinstance(entry.value, Branch):
            places.update({f"{entry.key}.{inner.key}": inner.place for inner in entry.value.entries.values()})
    return places


def _topology(form: Topology | TopologyForm | None, place: Place) -> Topology | None:
    if isinstance(form, TopologyForm):
        machine: Topology = cast(Any, form.name)
        return replace(machine, num_slices=form.num_slices, place=place)
    return replace(form, place=place) if form else None


def _mesh(forms: Any, places: Mapping[str, Place], default: Place) -> Mesh:
    place = places.get("mesh", default)
    if forms == "auto":
        return Mesh(axes=None, place=place)
    return Mesh(axes=tuple(_axis(name, form, places[f"mesh.{name}"]) for name, form in forms.items()), place=place)


def _axis(name: str, form: Any, place: Place) -> Axis:
    size = form.size if isinstance(form, AxisForm) else form
    over: Any = form.over if isinstance(form, AxisForm) else None
    return Axis(
        name=name,
        size=None if size == "auto" else size,
        over=tuple(over) if over else None,
        place=place,
    )


def _rules(forms: Mapping[str, Any], places: Mapping[str, Place]) -> tuple[Rule, ...]:
    return tuple(
        Rule(pattern=pattern, assignment=_assignment(form), place=places[f"tensors.{pattern}"])
        for pattern, form in forms.items()
    )


def _assignment(form: Any) -> Assignment:
    if isinstance(form, SplitForm):
        dims: Any = form.split if isinstance(form.split, list) else [form.split]
        return Split(splits=tuple(SplitDim(dim=d.dim, axes=d.axis, pad=d.pad) for d in dims))
    if isinstance(form, ShardForm):
        return Shard(device_assignment=tuple(form.shard.device_assignment))
    parsed: Assignment = form
    return parsed


def _remat(form: Any, place: Place) -> Remat | None:
    if isinstance(form, SaveForm):
        return Remat(policy="save", names=tuple(form.save), place=place)
    return Remat(policy=form, place=place) if form else None


def _limits(form: LimitsForm | None, place: Place) -> Limits:
    hbm: Any = form.hbm if form else None
    return Limits(hbm_bytes=hbm, place=place)


def _result(form: ResultForm | None, place: Place) -> Result | None:
    if form is None:
        return None
    return Result(
        status=form.status,
        step_time_s=form.step_time_s,
        bound_s=form.bound_s,
        gap=form.gap,
        peak_bytes=dict(form.peak_bytes),
        seed=form.seed,
        versions=dict(form.versions),
        pins=tuple(form.pins),
        fingerprint=_fingerprint(form),
        at_run_time=tuple(_at_run_time(one) for one in form.at_run_time),
        place=place,
    )


def _at_run_time(form: AtRunTimeForm) -> AtRunTime:
    return AtRunTime(
        when=dict(form.when),
        settings=dict(form.settings),
        step_time_s=form.step_time_s,
        peak_bytes=form.peak_bytes,
        without=tuple(form.without),
    )


def _fingerprint(form: ResultForm) -> Fingerprint | None:
    if form.fingerprint is None:
        return None
    arguments = {
        name: ArgumentPrint(tensors=a.tensors, elements=a.elements, digest=a.digest)
        for name, a in form.fingerprint.arguments.items()
    }
    return Fingerprint(arguments=arguments, dims=dict(form.fingerprint.dims))
