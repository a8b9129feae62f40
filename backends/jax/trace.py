"""Reads a step: its arguments, results and tagged values as the plan language sees them, and its jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, subjaxprs

from ...dsl.errors import PlanError, listing, problem, raise_errors
from ...dsl.plan import Assignment, Plan, Remat
from ...dsl.rule_matches import named_values, names_values
from ...dsl.tensors import Tensor
from .annotate import Marks, mark_p, remat_context
from .named_meshes import explicit_problems
from .paths import argument_names, leaf_paths
from .search_options import is_whole
from .state import returned_state
from .taken_over import taking_over
from .unshared import unshared
from .values import Values
from .workload import PyTree, Step, arguments_of
from .written import word

RESERVED = ("out", "acts", "ops")
IN_PLACE = "acts/<in place>"
_INSIDE: WeakKeyDictionary[Jaxpr, tuple[Jaxpr, ...]] = WeakKeyDictionary()  # of jaxprs that are still there


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A step as traced for a plan's remat policy.

    ``arguments`` and ``results`` are in the order of the flattened pytrees; ``tagged`` holds one tensor for each name
    and shape; ``in_place`` the assignments that the model itself gives, with the tensors that they are given to;
    ``values`` what the step computes, looked at where a plan names some of it.
    """

    step: Step
    jaxpr: ClosedJaxpr
    in_tree: Any
    out_tree: Any
    names: tuple[str, ...]
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    tagged: tuple[Tensor, ...]
    in_place: tuple[tuple[Tensor, Assignment], ...]
    donated: tuple[int, ...]
    num_remat_blocks: int
    values: Values

    def donates(self, said: Any) -> tuple[int, ...]:
        """The numbers of the donated arguments: of those that the step itself lends, or ``said``, one or several, as
        JAX counts them.

        Raises ``PlanError`` for what is no argument's number (MW553).
        """
        if said is None:
            return self.donated
        given: list[Any] = [said] if isinstance(said, str) or not isinstance(said, Iterable) else list(said)
        count = len(self.names)
        wrong = [each for each in given if not (is_whole(each) and -count <= each < count)]
        if wrong:
            expected = f"numbers of arguments: {', '.join(map(str, range(count))) or 'the step has none'}"
            raise PlanError([problem("MW553", option="donate_argnums", value=listing(wrong), expected=expected)])
        return tuple(int(each) % count for each in given)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that a plan can name but for ``values``."""
        return self.arguments + self.results + self.tagged

    def named_by(self, plan: Plan) -> tuple[Tensor, ...]:
        """Everything that a plan has to do with: ``tensors``, and of ``values`` what its rules name.

        All of ``values`` where a rule for them names none, so that the problem can say what there is.
        """
        if not names_values(plan.rules):
            return self.tensors
        return self.tensors + named_values(plan.rules, self.values.paths)


def trace(step: Step, args: Sequence[PyTree], remat: Remat | None = None, marks: Marks | None = None) -> Traced:
    """Traces ``step`` on abstract arguments; nothing is compiled, nothing runs. ``marks`` are told of marked blocks
    where there is no policy.

    Raises ``PlanError`` where an argument's name is one that the plan language reserves (``out``, ``acts``, ``ops``),
    or the step's values have shardings in their types (MW322).
    """
    args = arguments_of(args)
    names = tuple(argument_names(step, len(args)))
    clash = [name for name in names if name in RESERVED]
    if clash:
        raise PlanError([problem("MW302", name=listing(clash))])
    traceable = step if hasattr(step, "trace") else jax.jit(step)
    with remat_context(marks if remat is None else remat):
        traced = traceable.trace(*jax.tree.map(_unplaced, args))
    given = len(jax.tree.leaves(args))
    if given != len(traced.jaxpr.in_avals):
        raise PlanError([problem("MW317", given=given, traced=len(traced.jaxpr.in_avals))])
    infos = traced.args_info[0]
    arguments = _tensors([p for n, a in zip(names, args, strict=True) for p in leaf_paths(n, a)], traced.jaxpr.in_avals)
    results = _results(traced.out_info, traced.jaxpr.out_avals)
    lent = [leaf.donated for leaf in jax.tree.leaves(infos)]
    takes_over = taking_over(traced.jaxpr.jaxpr, [t.path for t in arguments], [t.path for t in results], lent)
    jaxpr = unshared(traced.jaxpr)
    raise_errors(explicit_problems(equations(jaxpr.jaxpr)))
    tagged, in_place, num_remat_blocks = tagged_in(jaxpr.jaxpr)
    return Traced(
        step=step,
        jaxpr=jaxpr,
        in_tree=jax.tree.structure(args),
        out_tree=jax.tree.structure(traced.out_info),
        names=names,
        arguments=arguments,
        results=returned_state(traced.out_info, names, args, results, takes_over),
        tagged=tagged,
        in_place=in_place,
        donated=tuple(i for i, info in enumerate(infos) if _donated(info)),
        values=Values(jaxpr, word(getattr(step, "__name__", "step"))),
        num_remat_blocks=num_remat_blocks,
    )


def tagged_in(jaxpr: Jaxpr) -> tuple[tuple[Tensor, ...], tuple[tuple[Tensor, Assignment], ...], int]:
    """The tagged values of a jaxpr, those that the model itself assigns, and the number of its blocks of remat."""
    blocks = sum(1 for e in equations(jaxpr) if e.primitive.name in ("checkpoint", "remat2"))
    return _tagged(jaxpr), _in_place(jaxpr), blocks


def _unplaced(leaf: Any) -> Any:
    """The leaf without the sharding that it may have: the plan gives it one."""
    if getattr(leaf, "sharding", None) is None:
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))


def value_names(jaxpr: Jaxpr) -> Callable[[JaxprEqn], str | None]:
    """A function that gives the name of the value that an equation names, or None.

    ``tag`` leaves a ``checkpoint_name`` and a mark with the same name; then only the mark counts. A
    ``checkpoint_name`` of the model's own counts where no mark has its name.
    """
    marked = {e.params["name"] for e in equations(jaxpr) if e.primitive is mark_p}

    def name(equation: JaxprEqn) -> str | None:
        own = equation.primitive.name == "name" and equation.params["name"] not in marked
        return equation.params["name"] if own or equation.primitive is mark_p else None

    return name


def abstract_tensor(path: str, aval: Any, **more: Any) -> Tensor:
    """The tensor at ``path`` with this abstract value's shape and dtype."""
    itemsize = getattr(aval.dtype, "itemsize", 4)
    return Tensor(path=path, shape=tuple(aval.shape), dtype=str(aval.dtype), itemsize=itemsize, **more)


def _tensors(paths: Sequence[str], avals: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(abstract_tensor(p, a, role="argument") for p, a in zip(paths, avals, strict=True))


def _results(out_info: Any, avals: Sequence[Any]) -> tuple[Tensor, ...]:
    paths = leaf_paths("out", out_info)
    return tuple(abstract_tensor(p, a, role="result") for p, a in zip(paths, avals, strict=True))


def _donated(info: Any) -> bool:
    leaves = jax.tree.leaves(info)
    return bool(leaves) and all(leaf.donated for leaf in leaves)


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The equations of a jaxpr and of those inside it; a jaxpr used twice is gone through once."""
    stack, seen = [jaxpr], {id(jaxpr)}
    while stack:
        current = stack.pop()
        yield from current.eqns
        inner = [j for j in _inside(current) if id(j) not in seen]
        seen.update(map(id, inner))
        stack.extend(reversed(inner))


def _inside(jaxpr: Jaxpr) -> tuple[Jaxpr, ...]:
    """The jaxprs of a jaxpr's equations: looked for once, in all that these have."""
    found = _INSIDE.get(jaxpr)
    if found is None:
        found = _INSIDE[jaxpr] = tuple(subjaxprs(jaxpr))
    return found


def _tagged(jaxpr: Jaxpr) -> tuple[Tensor, ...]:
    name = value_names(jaxpr)
    named = ((name(e), e) for e in equations(jaxpr))
    found = (abstract_tensor(f"acts/{n}", e.outvars[0].aval, role="tagged") for n, e in named if n is not None)
    return tuple(dict.fromkeys(found))


def _in_place(jaxpr: Jaxpr) -> tuple[tuple[Tensor, Assignment], ...]:
    marks = (e for e in equations(jaxpr) if e.primitive is mark_p and e.params["assignment"] is not None)
    given = ((abstract_tensor(IN_PLACE, e.outvars[0].aval, role="tagged"), e.params["assignment"]) for e in marks)
    return tuple(dict.fromkeys(given))
