"""How often an equation stands for others like it, told by its name stack, which lowering keeps."""

from __future__ import annotations

import re

from jax.extend.core import JaxprEqn

MARK = "meshwright.repeats:"

_MARKED = re.compile(rf"/?{re.escape(MARK)}(\d+)")


def repeated(equation: JaxprEqn, times: int) -> JaxprEqn:
    """The equation, said to stand for so many."""
    info = equation.source_info
    stack = info.name_stack.extend(f"{MARK}{times}")
    return equation.replace(source_info=info.replace(name_stack=stack))  # type: ignore[no-any-return]


def repeats_of(scope: str) -> tuple[str, int]:
    """A name stack without what says for how many an operation stands, and that number."""
    found = _MARKED.search(scope)
    return (scope, 1) if found is None else (_MARKED.sub("", scope), int(found[1]))
