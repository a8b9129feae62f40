"""Which choices of a kernel are worth pricing: of those that send far too much only that is counted, and little else;
and of those that would save more than they can.

What they take is known only at the least then, which bounds all the same. Few are ever chosen: these are priced when a
solution makes them (``solving/learnt``). Where computed values are pinned all are: what parts of kernels take together
is said beyond their prices there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .choices import Choice
from .costs import Costs
from .options import Options

FEW = 32
"""Of a kernel of so many choices at most all are priced, whatever they send."""
FAR = 3.0
"""How many times what the best choice takes in all one has to send to be known roughly."""
FAR_SAVING = 1.2
"""How many times what the best choice takes one has to take at least that would save too much, to be known roughly."""


class Worth(NamedTuple):
    """A choice, and the ``seconds`` that it takes; at least, where it is known ``roughly``: so many more, about."""

    choice: Choice
    seconds: float
    roughly: float | None = None


def worth(costs: Costs, every: Sequence[Choice], edge: Sequence[int], *, exactly: bool = False) -> list[Worth]:
    """The choices of a kernel, of those under which all at its ``edge`` lies alike the one that takes least, and apart
    of those that are deterred; all priced ``exactly``, or only those that may be good.
    """
    found = [Worth(choice, costs.seconds(choice)) for choice in every] if exactly else _priced(costs, every)
    best: dict[tuple[object, ...], Worth] = {}
    for one in found:
        seen = (costs.deterred_s(one.choice) > 0, *(costs.pricing.lies(one.choice.layouts[form]) for form in edge))
        other = best.get(seen)
        if other is not None and one.seconds >= other.seconds and other.roughly is None:
            continue  # it takes no less, even at the least
        if other is not None and (one.roughly, other.roughly) != (None, None):
            one, other = _exactly(costs, one), _exactly(costs, other)
        if other is None or one.seconds < other.seconds:
            best[seen] = one
        else:
            best[seen] = other
    return list(best.values())


def _priced(costs: Costs, every: Sequence[Choice]) -> list[Worth]:
    """All of them, those that send least first: what these take says which of the others are far from it."""
    if len(every) <= FEW or costs.is_sending_all:
        return [Worth(choice, costs.seconds(choice)) for choice in every]
    sent_s = [costs.sent_in_all_s(choice) for choice in every]
    found: list[Worth | None] = [None] * len(every)
    least_s, rest_s = math.inf, 0.0
    for place in sorted(range(len(every)), key=sent_s.__getitem__):
        choice, sent = every[place], sent_s[place]
        if sent > FAR * least_s and not costs.is_passed(choice):
            product_s = costs.multiplying_s(choice)
            found[place] = Worth(choice, sent + product_s, max(rest_s - product_s, 0.0))
            continue
        found[place] = one = Worth(choice, costs.seconds(choice))
        if one.seconds < least_s:
            least_s, rest_s = one.seconds, one.seconds - sent
    return [one for one in found if one is not None]


def saving_too_much(costs: Costs, found: Sequence[Worth], options: Options) -> Iterator[Worth]:
    """The choices, roughly those whose savings are together more than they can be: each by itself spares a product what
    it waits for, and none of them spares it the multiplying. Only those far from the best: what a choice takes that
    saves nothing is lost.
    """
    less = np.sum([*options.savings.values(), *options.rounded.values()], axis=0)
    least_s = min((one.seconds for one in found), default=0.0)
    for one, less_s in zip(found, np.broadcast_to(less, len(found)).tolist(), strict=True):
        product_s = costs.multiplying_s(one.choice) if less_s and one.roughly is None else 0.0
        known_s = one.seconds - costs.computing_s(one.choice) + product_s if product_s else 0.0
        if known_s > max(one.seconds - less_s, FAR_SAVING * least_s):
            yield Worth(one.choice, known_s, one.seconds - known_s)
        else:
            yield one


def _exactly(costs: Costs, one: Worth) -> Worth:
    return one if one.roughly is None else Worth(one.choice, costs.seconds(one.choice))
