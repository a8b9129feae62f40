"""``meshwright diff``: what changes from one plan to another, and what that costs or saves."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..dsl.errors import PlanError, problem
from .command import NO, YES, Command, json_option
from .plan_file import load
from .streams import write, write_json

if TYPE_CHECKING:
    from ..dsl.plan import Plan
    from ..planner.estimate.figures import Estimate


def run(arguments: argparse.Namespace) -> int:
    """Says what changes and, where both plans can be priced, what that costs or saves."""
    from ..dsl.diff import diff as changes_between

    if arguments.before == arguments.after == "-":
        raise PlanError([problem("MW070")])
    before, after = load(arguments.before), load(arguments.after)
    changes = changes_between(before, after)
    if arguments.json:
        cost = _cost_json(before, after) if changes else {}
        write_json("diff", same=not changes, changes=[change.as_json() for change in changes], **cost)
        return NO if changes else YES
    write("".join(f"{change}\n" for change in changes))
    if changes:
        _show_cost(before, after)
    return NO if changes else YES


def _show_cost(before: Plan, after: Plan) -> None:
    """Shows on stderr what the change costs or saves, or why that cannot be said."""
    from ..planner.explain.difference import difference_table
    from ..planner.explain.text import headline
    from ..render import show_note, show_tables

    priced = _priced(before, after)
    if isinstance(priced, str):
        show_note(priced)
        return
    table = difference_table(*priced)
    show_tables(
        [table] if table.rows else [], [], headline(priced[1], "after the change, the plan"), good=priced[1].fits
    )


def _cost_json(before: Plan, after: Plan) -> dict[str, Any]:
    from ..planner.explain.difference import difference_json

    priced = _priced(before, after)
    if isinstance(priced, str):
        return {"cost": None, "no_cost_because": priced}
    return {"cost": difference_json(*priced), "no_cost_because": None}


def _priced(before: Plan, after: Plan) -> tuple[Estimate, Estimate] | str:
    """Both plans' estimates, or why there are none."""
    from .pricing import estimate_of

    try:
        return estimate_of(before), estimate_of(after)
    except PlanError as error:
        first, *more = error.problems
        others = f" (and {len(more)} more)" if more else ""
        return f"What the change costs cannot be predicted: {first.code} {first.message}{others}"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="a plan file, or - for the standard input")
    parser.add_argument("after", metavar="B", help="another")
    json_option(parser)


COMMAND = Command(
    name="diff",
    summary="what changes from one plan to another, and what that is predicted to cost or save",
    arguments=_arguments,
    run=run,
)
