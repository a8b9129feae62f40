"""Work shared with a fork: what comes of it is what one process finds. In processes of their own, which have no JAX."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

SHARED = """
import os, time
files = os.listdir("/proc/self/fd")
from meshwright.planner.program.pricing.beside import shared
here = os.getpid()

def work(number):
    if os.getpid() != here:
        {fails}
    time.sleep(0.02)
    return number, os.getpid()

found = shared(work, 16)
assert [number for number, _ in found] == list(range(16))
print(len({{process for _, process in found}}))
assert os.listdir("/proc/self/fd") == files
assert shared(work, 1) == [(0, here)] and shared(work, 0) == []
"""
HELPED = """
import numpy as np
from small_graphs import program_of
from test_program import blocks

plain, helped = (program_of(blocks(2), "v5e:2x2", {"x": 2, "y": 2}, helped=helped) for helped in (False, True))
assert len(plain.wiring.nodes) == len(helped.wiring.nodes) > 4
for one, other in zip(plain.wiring.nodes, helped.wiring.nodes, strict=True):
    assert one.layouts == other.layouts and np.array_equal(one.costs, other.costs)
assert plain.wiring.tables.keys() == helped.wiring.tables.keys()
assert all(np.array_equal(table, helped.wiring.tables[ends]) for ends, table in plain.wiring.tables.items())
"""
REFUSED = """
def refused():
    raise OSError("no more processes")

os.fork = refused
here = os.getpid()
"""
ALL_S = 60
SLEEPS = f"""
import sys, time
from meshwright.planner.program.pricing.beside import shared

def work(number):
    sys.stdout.write(".")
    sys.stdout.flush()
    time.sleep(0.5)
    return bytes(2**20)  # more than a pipe holds

shared(work, {4 * ALL_S})
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@LINUX
@pytest.mark.parametrize("fails", ["pass", "os._exit(1)", "raise ValueError"])
def test_shared_work_is_all_of_it_in_order_whatever_becomes_of_the_fork(fails: str) -> None:
    assert int(run(SHARED.format(fails=fails))) == (2 if fails == "pass" else 1)


@LINUX
def test_a_fork_that_never_answers_is_not_waited_for() -> None:
    soon = "import meshwright.planner.program.pricing.beside as beside\nbeside.LEAST_S = 0.5\n"
    assert run(soon + SHARED.format(fails="time.sleep(600)").lstrip()) == "1\n"


@LINUX
def test_a_program_built_with_help_is_the_same() -> None:
    run(HELPED)


@LINUX
def test_where_nothing_can_be_forked_all_is_done_here() -> None:
    script = SHARED.format(fails="pass").replace("here = os.getpid()", REFUSED)
    assert run(script) == "1\n"


@LINUX
def test_a_fork_ends_when_its_worker_is_killed() -> None:
    begin_s = time.monotonic()
    command = [sys.executable, "-c", SLEEPS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as worker:
        assert worker.stdout is not None
        assert worker.stdout.read(1) == b"."
        worker.kill()
        worker.stdout.read()  # until the fork, which has the pipe too, has ended
    assert time.monotonic() - begin_s < ALL_S
