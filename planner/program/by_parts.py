"""Meshes of several axes, whose kernels have thousands of choices: programs of few of these find solutions first.

First axes are split along together, as if they were one or two: of each such program the best is found as on a mesh of
two axes. Then every kernel may choose what one axis splits, the others as in what was found, which is the middle of the
next such program, until nothing better comes. All choices prove how good that is, and may find better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...dsl.plan import Mesh
from ..graph import Sharding
from .pricing.choices import Among, Bundled, Near, Split
from .program import Program
from .solving.found import Beyond, Found, Status, Tell
from .solving.solutions import ENOUGH, NEAREST

FEW_AXES = 2
"""Programs of meshes with so many axes are solved as they are."""
FEW_CHOICES = 5_000
"""So are programs of so many choices, but for one part of very few, which tells how many there are."""
DEARER = 3
"""Times as long as to bound all choices it takes at least to look at them."""
TURNS = 4
"""How often choices near what was found are looked at, at most."""

Asked = Among | Mapping[int, Among] | None

Make = Callable[[Asked, Program | None], Program]
"""Builds the program of some choices, or of all, with what another one had worked out before."""

Bound = Callable[[float, float], Found]
"""Says what all choices cost at least, as far as that is below so many seconds, in so much time: sooner than they are
all built.
"""


@dataclass(slots=True, kw_only=True)
class Parts:
    """A search of a program in parts, which may take until the ``deadline``; ``best`` is what was found among the
    choices of one of them, ``program`` the last that was built. Of what they find ``tell`` hears, better and better.

    Before all choices are looked at, if they are many, ``bound`` is asked what they cost at least.
    One that is done ``partly`` leaves it to others to bound all choices, unless these are few (it ``is_small``) or
    nothing fits that was found.

    What was found took up to ``credit_s`` less than its costs say: others may as well. ``least`` is what took least
    memory where nothing fitted, ``near`` what took a little more than the limit.
    """

    make: Make
    deadline: float
    cutoff_s: float = math.inf
    seed: int = 0
    stop: Callable[[], bool] | None = None
    tell: Tell | None = None
    best: Found | None = None
    best_program: Program | None = None
    program: Program | None = None
    credit_s: float = 0.0
    told_s: float = math.inf
    least: Found | None = None
    near: list[Beyond] = field(default_factory=list)
    partly: bool = False
    bound: Bound | None = None
    is_small: bool = False

    def solve(self, mesh: Mesh) -> Found:
        """What is found among all choices on a mesh."""
        return replace(self._solve(mesh), near=nearest(self.near))

    def _solve(self, mesh: Mesh) -> Found:
        count = sum(1 for size in mesh.sizes.values() if (size or 1) > 1)
        if count <= FEW_AXES:
            return self._solved(None)
        for among in self._parts(count):
            found = self._solved(among)
            if found.least and (self.least is None or found.peak_bytes < self.least.peak_bytes):
                self.least = found
            if self.program is not None and found.layouts is not None:
                less_s = self.program.promised_s(found.choices) - found.objective_s
                self.credit_s = max(self.credit_s, found.credit_s, less_s)
                if found.objective_s < self._best_s:
                    self.best, self.best_program = found, self.program
                    self._tell_better(found.objective_s, found.layouts)
        is_unknown = self.best is None and self.least is not None
        if not self._ended and (self.is_small or is_unknown or not self.partly):
            left_s = self._left_s
            known = self._bounded()
            is_in_time = DEARER * (left_s - self._left_s) < self._left_s
            if known is not None and (known.status == "optimal" or not is_in_time or self._ended):
                return known
            whole = self._of_all(self._solved(None))
            return whole if known is None else bounded_by(whole, known)
        best = self.best or self.least or Found(status="unknown", objective_s=math.inf, bound_s=0.0)
        status: Status = "unknown" if self.best is None else "feasible"
        return replace(best, status=status, bound_s=0.0, floor_s=0.0)

    def _bounded(self) -> Found | None:
        """What was found with what all choices cost at least, where these are many."""
        if self.bound is None or self.is_small or self.best is None:
            return None
        return self._of_all(self.bound(min(self._best_s, self.cutoff_s) + self.credit_s, self._left_s))

    def _parts(self, count: int) -> Iterator[Asked]:
        """Which choices are looked at, one part after the other."""
        for groups in _bundles(count):
            self.is_small = self.program is not None and _all_choices(self.program, count) <= FEW_CHOICES
            if self._ended or self.is_small:
                return
            yield Bundled(groups)
        before_s = math.inf
        for _ in range(TURNS):
            if self.best is None or self.best_program is None or self._best_s > before_s * (1 - ENOUGH) or self._ended:
                return
            before_s = self._best_s
            yield _near(self.best, self.best_program)

    def _solved(self, among: Asked) -> Found:
        """What is found among some choices, that is better than what is known."""
        self.program = self.make(among, self.program)
        found = self.program.solve(
            time_limit_s=self._left_s,
            seed=self.seed,
            stop=self.stop,
            cutoff_s=min(self._best_s, self.cutoff_s) + self.credit_s,
            tell=self._tell_better,
        )
        self.near += found.near
        return found

    def _tell_better(self, seconds: float, layouts: Mapping[str, Sharding]) -> None:
        if self.tell is not None and seconds < self.told_s:
            self.told_s = seconds
            self.tell(seconds, layouts)

    def _of_all(self, whole: Found) -> Found:
        """What is known of all choices, with what was found among some."""
        found, credit_s = self.best, max(self.credit_s, whole.credit_s)
        if whole.layouts is not None and whole.objective_s < self._best_s:
            found = whole
        if found is None:
            seen = whole.least is not None and (self.least is None or whole.peak_bytes <= self.least.peak_bytes)
            least = whole if seen or self.least is None else self.least
            return replace(whole, least=least.least, peak_bytes=least.peak_bytes)
        more_s = credit_s - whole.credit_s
        bounds_s = (whole.bound_s - more_s, whole.floor_s - more_s)
        if whole.status == "infeasible":  # and is not: the program counts more memory than there is
            bounds_s = (0.0, 0.0)
        bound_s, floor_s = (min(max(each, 0.0), found.objective_s) for each in bounds_s)
        proven = bound_s >= found.objective_s * (1 - ENOUGH)
        status: Status = "optimal" if proven else "feasible"
        return replace(found, status=status, bound_s=bound_s, floor_s=floor_s, credit_s=credit_s)

    @property
    def _left_s(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def _best_s(self) -> float:
        return math.inf if self.best is None else self.best.objective_s

    @property
    def _ended(self) -> bool:
        return time.monotonic() > self.deadline or (self.stop is not None and self.stop())


def bounded_by(found: Found, known: Found) -> Found:
    """What was found, by the better of two bounds."""
    credit_s = max(found.credit_s, known.credit_s)
    bound_s, floor_s = (
        min(max(one + found.credit_s, other + known.credit_s) - credit_s, found.objective_s)
        for one, other in ((found.bound_s, known.bound_s), (found.floor_s, known.floor_s))
    )
    proven = bound_s >= found.objective_s * (1 - ENOUGH)
    status: Status = "optimal" if proven else found.status
    return replace(found, status=status, bound_s=bound_s, floor_s=floor_s, credit_s=credit_s)


def nearest(several: Iterable[Beyond]) -> tuple[Beyond, ...]:
    """Those nearest to the limit of which none takes both more memory and more time than another."""
    found: list[Beyond] = []
    for each in sorted(several, key=lambda each: each[:2]):
        if not found or each.seconds < found[-1].seconds:
            found.append(each)
    return tuple(found[:NEAREST])


def _bundles(count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """So many axes as one group, then each way to have them as two, those of neighbours first."""

    def breaks(inside: int) -> int:
        return sum((inside >> axis & 1) != (inside >> axis + 1 & 1) for axis in range(count - 1))

    yield (tuple(range(count)),)
    for inside in sorted(range(1, 2 ** (count - 1)), key=lambda inside: (breaks(inside), inside)):
        yield tuple(tuple(axis for axis in range(count) if bool(inside >> axis & 1) is side) for side in (True, False))


def _all_choices(program: Program, count: int) -> float:
    """About how many choices there are on a mesh of so many axes, by those that there are where these are bundled."""
    wiring, among = program.wiring, program.wiring.strategies.prices.among
    groups = len(among.groups) if isinstance(among, Bundled) else count
    nodes = (node for level in wiring.levels for node in level.kernels.values())
    return sum(math.pow(len(wiring.nodes[node].costs), count / groups) for node in nodes)


def _near(found: Found, program: Program) -> dict[int, Among]:
    """The choices near a solution, by the blueprints of kernels; alike kernels have each other's."""
    wiring = program.wiring
    centres: dict[int, dict[tuple[Split, ...], None]] = {}
    for level in wiring.levels:
        for position, node in level.kernels.items():
            kernel = level.program.kernels[position]
            blueprint, splits = wiring.strategies.splits(level.graph, kernel, found.choices[node])
            if splits is not None:
                centres.setdefault(blueprint, {})[splits] = None
    return {blueprint: Near(tuple(several)) for blueprint, several in centres.items()}
