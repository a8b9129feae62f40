"""A best plan of fewer lines, where that takes hardly longer."""

from __future__ import annotations

from dataclasses import replace

from .ahead import READABLE, Ahead
from .board import AGAIN
from .pen import Pen

FEW_LINES, SHORTER = 15, 4  # what all can read, and how many times fewer lines than another has are few beside it
MOST_PRICED = 40  # times that a plan of many lines is priced without some of them
COMPUTED = "ops/"


def prefer_readable(pen: Pen, ahead: Ahead) -> None:
    """Gives up a long step's best plan of many lines for one of few that takes little longer, where such a one was
    written.
    """
    board, settings = pen.board, pen.settings
    best = next(iter(board.ranked), None)
    if best is None or best.priced is None or settings.exact or settings.top_k > 1 or not board.is_large:
        return
    took_s, lines = best.step_time_s, len(best.priced.plan.rules)
    short = [
        (priced.step_time_s, one.candidate.index, one, priced)
        for one, priced in ahead.fitting()
        if priced.step_time_s <= took_s * (1 + READABLE) and len(priced.plan.rules) <= max(FEW_LINES, lines // SHORTER)
    ]
    if lines > FEW_LINES and short:
        seconds, _, one, priced = min(short)
        best.priced, best.why = None, f"its plan has {lines} lines, and takes {1 - took_s / seconds:.1%} less"
        one.priced, one.why = priced, ""


def shorten(pen: Pen) -> None:
    """Leaves those lines on computed values out of a best plan of many lines without which it takes no longer:
    half of them at once, and halves of what cannot go together, ``MOST_PRICED`` times in all. Of a plan that is
    proven to be nearly the best there is nothing to gain.
    """
    board, settings = pen.board, pen.settings
    best = next(iter(board.ranked), None)
    if best is None or best.priced is None or settings.exact or settings.top_k > 1 or board.is_large:
        return
    if board.bound_s >= best.step_time_s * (1 - AGAIN):
        return
    asked = {rule.pattern for rule in best.candidate.plan.rules}
    rules = best.priced.plan.rules
    left = [rule for rule in rules if rule.pattern.startswith(COMPUTED) and rule.pattern not in asked]
    waiting = [left] if len(rules) > FEW_LINES else []
    for _ in range(MOST_PRICED):
        if not waiting or pen.clock.over or pen.clock.left_s < board.writing_s:
            break
        several = waiting.pop(0)
        kept = tuple(rule for rule in best.priced.plan.rules if rule not in several)
        shorter = pen.priced(replace(best.priced.plan, rules=kept))
        if shorter is not None and shorter.step_time_s <= best.step_time_s:
            best.priced = shorter
        elif len(several) > 1:
            half = len(several) // 2
            waiting += [several[half:], several[:half]]
