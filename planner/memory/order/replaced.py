"""What makes the next value of a donated argument runs after all else that reads the argument: its place is taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from ..flow.flow import Flow


def after_readers(flow: Flow, donated: Mapping[int, int], grouped: Iterable[int] = ()) -> Flow:
    """The flow in which kernels that make ``donated`` results, by which the arguments stand, wait for other readers.

    XLA's schedulers see that as a control dependency: no weight, and no user. Kernels that others wait for, and such as
    are ``grouped``, are left as they are: a copy of the argument is made for them where need be.
    """
    read = set(chain.from_iterable(flow.operands))
    last = {flow.maker[result] for result in donated}
    last = {kernel for kernel in last.difference(grouped) if read.isdisjoint(flow.made[kernel])}
    after: dict[int, list[int]] = {}
    for result, argument in donated.items():
        kernel = flow.maker[result]
        if kernel in last:
            readers = (reader for reader in flow.touches.get(argument, ()) if reader not in last)
            after.setdefault(kernel, []).extend(flow.made[reader][0] for reader in readers if flow.made[reader])
    if not any(after.values()):
        return flow
    return replace(flow, after=tuple([tuple(dict.fromkeys(after.get(k, ()))) for k in range(len(flow.operands))]))
