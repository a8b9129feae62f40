"""Where tasks are solved: in this process, or in processes beside it that know only the planner."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, NoReturn, Protocol

from ..graph import Graph
from .task import First, Found, Solve, Solver, Task, Tell

WORKERS = 2
PATIENCE_S = 5.0  # for a worker that was asked to stop
KEPT = 16  # graphs that a worker keeps for tasks that come without
UNCOLLECTED = 1_000_000
"""How many objects more a worker makes than go before Python searches them for cycles: what is solved leaves none, and
looking through all that it keeps for every few hundred takes a fifth of the time.
"""
BLAS = "scipy.linalg.cython_blas"
"""Where numba looks for what multiplies matrices, which nothing that is compiled does: a worker is there 0.1 s sooner
without.
"""


class Pool(Protocol):
    """Solves tasks, ``workers`` at a time."""

    @property
    def workers(self) -> int:
        """How many tasks are solved at once."""

    @property
    def compiling(self) -> bool:
        """Whether what is being solved waits for the solver to be compiled, the first time on a machine."""

    def submit(self, task: Task, tell: Tell | None = None) -> Future[Found]:
        """Begins a task, or queues it. ``tell`` may hear, in another thread, of what was found first."""

    def hurry(self) -> None:
        """Asks all that is being solved to end with the best so far."""

    def close(self) -> None:
        """Ends the workers."""


class Here:
    """Solves each task in this process when it is submitted."""

    workers = 1
    compiling = False

    def __init__(self, stop: Callable[[], bool], solver: Solve | None = None) -> None:
        self._stop, self._solver = stop, solver or Solver()

    def submit(self, task: Task, tell: Tell | None = None) -> Future[Found]:
        """Solves a task; by then nobody needs to be told anything."""
        del tell
        future: Future[Found] = Future()
        future.set_result(self._solver(task, self._stop))
        return future

    def hurry(self) -> None:
        """Nothing runs between calls."""

    def close(self) -> None:
        """There is nothing to end."""


class Processes:
    """Solves tasks in processes of their own, which import the planner and nothing else, and stay warm.

    They are started afresh and not forked: JAX's threads do not survive a fork, and the user's script is not run again.
    The first is started at once, a second one when a second task comes while the first is being solved.
    """

    def __init__(self, workers: int = WORKERS) -> None:
        self.workers = workers
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._all: list[_Worker] = []
        self._closed = False
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="meshwright-search")
        self._all.append(_Worker())
        self._idle.put(self._all[0])

    @property
    def compiling(self) -> bool:
        """Whether a worker that has a task says that it compiles."""
        return any(worker.compiling for worker in self._all)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, task: Task, tell: Tell | None = None) -> Future[Found]:
        """Begins a task, or queues it."""
        return self._threads.submit(self._solve, task, tell)

    def hurry(self) -> None:
        """Asks all that is being solved to end with the best so far."""
        for worker in self._all:
            worker.send(None)

    def close(self) -> None:
        """Ends the workers."""
        self._closed = True
        for worker in self._all:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _solve(self, task: Task, tell: Tell | None) -> Found:
        worker = self._next()
        try:
            return worker.solve(task, tell)
        finally:
            self._idle.put(worker)

    def _next(self) -> _Worker:
        """A worker with nothing to do: no more tasks are begun at once than there may be workers."""
        try:
            return self._idle.get_nowait()
        except Empty:
            worker = _Worker()
            self._all.append(worker)
            if self._closed:
                worker.kill()
            return worker


class Lent:
    """Workers of another's, who ends them: a search among several that have the same workers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @property
    def workers(self) -> int:
        """How many tasks are solved at once."""
        return self._pool.workers

    @property
    def compiling(self) -> bool:
        """Whether what is being solved waits for the solver to be compiled."""
        return self._pool.compiling

    def submit(self, task: Task, tell: Tell | None = None) -> Future[Found]:
        """Begins a task, or queues it."""
        return self._pool.submit(task, tell)

    def hurry(self) -> None:
        """Asks all that is being solved to end with the best so far."""
        self._pool.hurry()

    def close(self) -> None:
        """They live on."""


class WorkerError(RuntimeError):
    """A worker failed; the text is its traceback."""


class _Worker:
    """A process that reads tasks and writes answers, pickled. It is a session of its own: Ctrl-C does not reach it."""

    def __init__(self) -> None:
        uncollected = f"import gc, sys; gc.set_threshold({UNCOLLECTED}); sys.path[:] = {sys.path!r}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"{uncollected}; from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._sending = threading.Lock()
        self._graphs: list[Graph] = []  # that it has
        self.compiling = False

    def send(self, message: _Message | None) -> None:
        """A task to solve, or None: end what is being solved."""
        with self._sending, suppress(BrokenPipeError, ValueError):
            pickle.dump(message, _open(self._process.stdin), pickle.HIGHEST_PROTOCOL)
            _open(self._process.stdin).flush()

    def solve(self, task: Task, tell: Tell | None = None) -> Found:
        """Solves a task; ``tell`` hears of what is found first.

        Raises ``WorkerError`` with the worker's traceback where it fails.
        """
        self.send(self._message(task))
        try:
            while isinstance(answer := pickle.load(_open(self._process.stdout)), bool | First):
                if isinstance(answer, bool):
                    self.compiling = answer
                elif tell is not None:
                    tell(answer)
        except EOFError:
            raise WorkerError(f"a worker of the search ended ({self._process.poll()})") from None
        finally:
            self.compiling = False
        if isinstance(answer, Found):
            return answer
        raise WorkerError(str(answer))

    def _message(self, task: Task) -> _Message:
        """A task with its graph, or without it where the worker has the same operations already."""
        known = next((i for i, graph in enumerate(self._graphs) if graph.ops is task.graph.ops), None)
        if known is None:
            _keep(self._graphs, task.graph)
            return _Message(task=task, known=None)
        return _Message(task=replace(task, graph=replace(task.graph, values=(), ops=())), known=known)

    def kill(self) -> None:
        """Ends the process, and a fork of it that works beside it."""
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "linux":
                os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session, so a group
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError, ValueError):
                _open(stream).close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A task; ``known`` is the position of an earlier one with the same operations, which then do not come again."""

    task: Task
    known: int | None


def _open(stream: Any) -> Any:
    if stream is None:
        raise ValueError("the process has no such stream")
    return stream


def main() -> NoReturn:
    """A worker: solves the tasks that come on the standard input, one after the other; ends with it.

    Before its first answer it says whether it compiles, and before each what it found first.
    """
    sys.modules[BLAS] = None  # type: ignore[assignment]
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints goes to the standard error
    tasks: SimpleQueue[_Message] = SimpleQueue()
    graphs: list[Graph] = []
    hurry = threading.Event()
    threading.Thread(target=_read, args=(sys.stdin.buffer, tasks, hurry), daemon=True).start()

    def answer(found: Found | First | str | bool) -> None:
        try:
            pickle.dump(found, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:
            os._exit(0)

    solver = Solver(may_fork=True)
    solver.prepare(hurry.is_set, compiling=answer)
    while True:
        answer(_answer(_task(tasks.get(), graphs), solver, hurry, answer))


def _keep(graphs: list[Graph], graph: Graph) -> None:
    """Keeps a graph, here and in the worker alike; where these are many, all before it are forgotten."""
    if len(graphs) >= KEPT:
        graphs.clear()
    graphs.append(graph)


def _task(message: _Message, graphs: list[Graph]) -> Task:
    """The task with its whole graph, which is kept for those that come without."""
    task = message.task
    if message.known is None:
        _keep(graphs, task.graph)
        return task
    kept = graphs[message.known]
    return replace(task, graph=replace(task.graph, values=kept.values, ops=kept.ops))


def _read(stream: Any, tasks: SimpleQueue[_Message], hurry: threading.Event) -> None:
    """Queues the tasks that come. When nobody sends any more, nobody waits for an answer: the process ends."""
    while True:
        try:
            message = pickle.load(stream)
        except (EOFError, OSError, pickle.UnpicklingError):  # of a message, if any, only the beginning came
            os._exit(0)
        if message is None:
            hurry.set()
        else:
            hurry.clear()
            tasks.put(message)


def _answer(task: Task, solver: Solver, hurry: threading.Event, tell: Tell) -> Found | str:
    import traceback

    try:
        return solver(task, hurry.is_set, tell)
    except Exception:
        return traceback.format_exc()
