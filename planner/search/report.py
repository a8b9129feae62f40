"""The result of a search in a sentence and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..explain.rows import Rows, binary, duration, first, share
from .combination import written
from .result import Misfit, PricedPlan, Row, SearchResult
from .settings_rows import SettingsTried


def headline(result: SearchResult) -> str:
    """One sentence: what was found and what is proven."""
    took = f"in {result.search_s:.1f} s"
    if result.step_time_s is None:
        return {
            "infeasible": f"infeasible: no plan fits, which is proven, {took}",
            "unknown": f"nothing was found {took}, and nothing is proven",
        }.get(result.status, f"{result.status}, {took}")
    if result.status == "infeasible":
        needs = binary(result.peak_bytes or 0)
        given = f"as given, a step would take {duration(result.step_time_s)}, and a device would need {needs}"
        return f"infeasible: the plan does not fit; {given}; {took}. Predicted."
    gap = "not known" if result.gap is None else f"{result.gap:.2%}"
    time = f"a step takes {duration(result.step_time_s)}, bound {duration(result.bound_s)}, gap {gap}"
    return f"{result.status}: {time}; a device needs {binary(result.peak_bytes or 0)}; {took}. Predicted."


def notes(result: SearchResult) -> Iterator[str]:
    """What a reader must know besides."""
    count = result.meshes
    yield from _settings_notes(result.settings)
    if result.interrupted:
        yield "The search was interrupted: this is the best so far."
    if count.left_out:
        yield (
            f"{count.tried} of {count.distinct} meshes were looked at; {count.covered} are covered by finer ones, "
            f"{count.left_out} were left out: of these the bound counts computing alone, "
            "unless there was time to bound all that have axes of the same sizes together."
        )
        if result.tried_bound_s is not None:
            yield f"On the meshes looked at no plan takes less than {duration(result.tried_bound_s)}."
    if count.impossible:
        yield f"The pins rule out {count.impossible} of {count.distinct} meshes."
    if result.optimum is not None and result.optimum.step_time_s is not None:
        yield f"The plan leaves nothing open. Without its pins: {headline(result.optimum)}"
    if result.status == "infeasible" and result.plan is not None and not count.tried:
        yield "There was no time to look for plans without its pins."
    yield from _compiled(result)
    if result.misfit is not None:
        yield misfit_text(result.misfit)


def _compiled(result: SearchResult) -> Iterator[str]:
    """What the compiler said of plans near the limit."""
    for said in result.compiled:
        predicted = f"{binary(said.predicted_bytes)} predicted"
        if said.fits is None:
            is_safer = result.peak_bytes is not None and result.peak_bytes < said.predicted_bytes
            safer = "; another plan, further below and hardly slower, was taken" if is_safer else ""
            yield (
                f"Near the limit, {predicted}, of which the compiler said nothing: {said.why}{safer}. "
                "One step in thirty takes a tenth more than is predicted; 'meshwright verify' asks about the plan."
            )
            continue
        takes = "too much" if said.compiled_bytes is None else binary(said.compiled_bytes)
        then = "it fits" if said.fits else "the plan was not taken"
        yield f"Near the limit, {predicted}, {takes} compiled: {then}."


def _settings_notes(settings: SettingsTried | None) -> Iterator[str]:
    if settings is None:
        return
    searched = sum(row.how == "searched" for row in settings.rows)
    rest = f"; {settings.not_looked_at} were not looked at: the time was over" if settings.not_looked_at else ""
    yield f"Of {len(settings.rows) + settings.not_looked_at} combinations of settings {searched} were searched{rest}."
    if settings.weighty:
        names = ", ".join(settings.weighty)
        yield f"Settings are chosen by predicted time alone; {names} may change what is computed, which is not weighed."
    if settings.table_priced < settings.table_total:
        yield (
            f"The table is of {settings.table_priced} of {settings.table_total} combinations: the time was over; "
            "others may be better."
        )


def misfit_text(misfit: Misfit) -> str:
    """Why nothing fits, in a few sentences."""
    limit = f"The limit is {binary(misfit.limit_bytes)} ({misfit.limit_bytes:,} bytes, of {misfit.limit_of})"
    if misfit.least_bytes is None and misfit.by_compiler:
        return f"{limit}; the compiler did not say by how much the plans that were found are above it."
    proven = misfit.proven_bytes
    none_less = f"no plan takes less than {binary(proven)} ({proven:,} bytes)" if proven else ""
    if misfit.least_bytes is None:
        nothing = f"{limit}; no plan was found beyond it either in the time left"
        return f"{nothing}; {none_less}." if none_less else f"{nothing}."
    marks = "" if misfit.marks_blocks else " The step marks no blocks that may be computed again (meshwright.remat)."
    least = "the least that a plan was found to need" + (", compiled," if misfit.by_compiler else ", predicted,")
    return f"{limit}; {least} is {misfit.missing_bytes:,} bytes more{'; ' if none_less else ''}{none_less}.{marks}"


def tables(result: SearchResult) -> list[Rows]:
    """What was looked at, the other plans, what would help; a table with nothing to say is left out."""
    made = [
        *_settings(result),
        _candidates("Meshes looked at", result.candidates),
        _plans("Other plans", result.alternatives, result.step_time_s, 2),
        _plans("Memory against time", result.frontier, result.step_time_s, 1),
    ]
    if result.misfit is not None:
        made += [_kinds(result.misfit), _largest(result.misfit), _remedies(result.misfit)]
    return [table for table in made if table.rows]


def _settings(result: SearchResult) -> Iterator[Rows]:
    """The combinations of settings, and what is best at run time."""
    if result.settings is None:
        return
    rows = result.settings.rows
    names = list(dict.fromkeys(name for row in rows for name in row.settings))
    listed = (
        (
            *(written(row.settings[name]) if name in row.settings else "-" for name in names),
            duration(row.step_time_s),
            binary(row.peak_bytes) if row.peak_bytes is not None else "-",
            duration(row.bound_s),
            row.how or "-",
            row.why,
        )
        for row in rows
    )
    headers = (*names, "a step", "a device", "bound", "how", "why not")
    yield Rows(title="Settings looked at, predicted", headers=headers, rows=first(listed))
    entries = result.plan.result.at_run_time if result.plan and result.plan.result else ()
    if entries:
        by, names = list(entries[0].when), list(entries[0].settings)
        best = (
            (
                *(written(one.when[name]) for name in by),
                *(written(one.settings[name]) for name in names),
                duration(one.step_time_s),
                binary(one.peak_bytes),
            )
            for one in entries
        )
        heads = (*by, *names, "a step", "a device")
        yield Rows(title="Best at run time, with the plan's layouts, predicted", headers=heads, rows=first(best))


def _candidates(title: str, rows: Sequence[Row]) -> Rows:
    listed = ((*_place(row), duration(_finite(row.bound_s)), *_price(row), row.why) for row in rows)
    headers = ("mesh", "over", "remat", "bound", "a step", "a device", "why not")
    return Rows(title=title, headers=headers, rows=first(listed))


def _place(row: Row) -> tuple[str, str, str]:
    mesh = " ".join(f"{name}={size}" for name, size in row.mesh.items())
    return mesh, " ".join(f"{name}:[{over}]" for name, over in row.device_order.items()), row.remat


def _price(row: Row) -> tuple[str, str]:
    time = duration(row.step_time_s if row.step_time_s is not None else _finite(row.objective_s))
    return time, binary(row.peak_bytes) if row.peak_bytes is not None else "-"


def _finite(seconds: float | None) -> float | None:
    return None if seconds is None or seconds == float("inf") else seconds


def _plans(title: str, plans: Sequence[PricedPlan], best_s: float | None, number: int) -> Rows:
    """Plans with the numbers that their files have, beside the answer's time."""
    rows = (
        (str(i), _mesh(one), duration(one.step_time_s), share(one.step_time_s, best_s), binary(one.peak_bytes))
        for i, one in enumerate(plans, number)
    )
    return Rows(title=title, headers=("", "mesh", "a step", "of the best", "a device"), rows=first(rows))


def _mesh(one: PricedPlan) -> str:
    remat = f", remat {one.plan.remat.policy}" if one.plan.remat else ""
    return " ".join(f"{name}={size}" for name, size in one.plan.mesh.sizes.items()) + remat


def _kinds(misfit: Misfit) -> Rows:
    by_size = sorted(misfit.bytes_by_kind.items(), key=lambda item: -item[1])
    rows = ((kind, binary(num_bytes), share(num_bytes, misfit.least_bytes)) for kind, num_bytes in by_size)
    title = "What the plan that needs least takes of a device, predicted"
    return Rows(title=title, headers=("what", "a device", "of it"), rows=first(rows))


def _largest(misfit: Misfit) -> Rows:
    rows = ((path, binary(num_bytes), f"{num_bytes:,}") for path, num_bytes in misfit.tensors)
    return Rows(title="The largest tensors of that plan", headers=("tensor", "a device", "bytes"), rows=first(rows))


def _remedies(misfit: Misfit) -> Rows:
    rows = ((r.change, duration(r.step_time_s), binary(r.peak_bytes), _said(r.compiled_bytes)) for r in misfit.remedies)
    headers = ("change", "a step", "a device, predicted", "compiled")
    return Rows(title="What makes it fit, each tried", headers=headers, rows=first(rows))


def _said(num_bytes: int | None) -> str:
    return "-" if num_bytes is None else binary(num_bytes)
