"""Times the programs that ``export.py`` wrote, on this machine's GPU: ``python measure.py FOLDER OUT [SECONDS]``.

Needs JAX and NumPy alone, of a version that reads what was exported. Writes ``OUT/measured.jsonl``, a line a program as
soon as it is known, and ``OUT/programs.zip``, the compiled programs' text; what ``$STATE`` has of a call before is not
done again. Times are of a call among many that are sent one after the other and waited for together, per call: medians
and least over batches, after calls that do not count. Programs of few bytes are timed twice: over one set of arguments
(``hot``) and over so many in turn that no cache holds them (``cold``). Whole steps go on from
their own results. Then each runs three times more under the profiler, for the seconds of its kernels.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")

import jax
import numpy as np
from jax import export

BEGAN = time.perf_counter()
MIB = 2**20
CACHED = 384 * MIB
THREADS = int(os.environ.get("THREADS", "4"))
SCALE = 0.03
POOL = 2**24


def since() -> float:
    return time.perf_counter() - BEGAN


class Pool:
    """Random numbers on the host, of which arguments are made."""

    def __init__(self) -> None:
        self.numbers = np.random.default_rng(0).standard_normal(POOL, dtype=np.float32) * np.float32(SCALE)
        self.by_dtype: dict[Any, np.ndarray] = {}

    def array(self, aval: Any, high: int, positive: bool, shift: int) -> Any:
        count = int(np.prod(aval.shape))
        if np.issubdtype(aval.dtype, np.integer):
            drawn = np.random.default_rng(shift).integers(0, max(high, 1), count, dtype=np.int64)
            return jax.device_put((drawn if aval.shape else drawn * 0).astype(aval.dtype).reshape(aval.shape))
        if aval.dtype not in self.by_dtype:
            self.by_dtype[aval.dtype] = self.numbers.astype(aval.dtype)
        pool = self.by_dtype[aval.dtype]
        begin = (shift * 7919) % max(1, POOL - count) if count < POOL else 0
        made = pool[begin : begin + count] if count <= POOL else np.resize(pool, count)
        return jax.device_put((np.abs(made) if positive else made).reshape(aval.shape))


def arguments(case: dict[str, Any], exported: Any, pool: Pool, number: int) -> list[Any]:
    positive = set(case["positive"])
    return [
        pool.array(aval, case["high"], i in positive, number * 1009 + i) for i, aval in enumerate(exported.in_avals)
    ]


def compiled(case: dict[str, Any], folder: Path) -> tuple[Any, Any, dict[str, Any]]:
    began = time.perf_counter()
    exported = export.deserialize(bytearray((folder / case["file"]).read_bytes()))
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in exported.in_avals]

    def program(*args: Any) -> Any:
        return exported.call(*args)

    program.__name__ = "p" + case["file"].partition(".")[0]
    run = jax.jit(program, donate_argnums=tuple(range(case["donated"]))).lower(*shapes).compile()
    memory = run.memory_analysis()
    names = [n for n in dir(memory) if n.endswith(("_bytes", "_in_bytes"))]
    cost = run.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    said = {
        "memory": {n: getattr(memory, n) for n in names},
        "cost": {n: cost[n] for n in ("flops", "bytes accessed", "transcendentals") if n in (cost or {})},
        "compile_s": time.perf_counter() - began,
    }
    return run, exported, said


def batches(call: Any, enough_s: float, most: int = 40) -> dict[str, Any]:
    """Seconds of a call, by batches of calls that are waited for together."""
    call(1), call(2)
    began = time.perf_counter()
    call(1)
    one = max(time.perf_counter() - began, 1e-6)
    count = max(1, min(2000, int(0.02 / one)))
    if one > 1e-3:
        count = max(3, count)
    found: list[float] = []
    began = time.perf_counter()
    while len(found) < 3 or (time.perf_counter() - began < enough_s and len(found) < most):
        at = time.perf_counter()
        call(count)
        found.append((time.perf_counter() - at) / count)
    return {"median_s": statistics.median(found), "least_s": min(found), "batches": len(found), "calls": count}


def timed(case: dict[str, Any], run: Any, exported: Any, pool: Pool) -> dict[str, Any]:
    donated = case["donated"]
    if donated:
        state = [arguments(case, exported, pool, 0)]

        def step(count: int) -> None:
            for _ in range(count):
                args = state[0]
                out = run(*args)
                state[0] = [*out[:donated], *args[donated:]]
            jax.block_until_ready(out)

        found = {"hot": batches(step, 0.8)}
    else:
        size = sum(int(np.prod(a.shape)) * a.dtype.itemsize for a in (*exported.in_avals, *exported.out_avals))
        count = max(1, min(24, -(-CACHED // size))) if case["kind"] == "small" else 1
        sets = [arguments(case, exported, pool, i) for i in range(count)]

        def over(sets: list[Any]) -> Any:
            def calls(count: int) -> None:
                for i in range(count):
                    out = run(*sets[i % len(sets)])
                jax.block_until_ready(out)

            return calls

        found = {"hot": batches(over(sets[:1]), 0.25 if case["kind"] == "small" else 0.8)}
        if count > 1:
            found["cold"] = batches(over(sets), 0.25)
        out = run(*sets[0])
        state = [out]
    last = jax.tree.leaves(state[0])[:: max(1, len(jax.tree.leaves(state[0])) // 4)]
    found["finite"] = all(bool(np.isfinite(np.asarray(a.ravel()[:64], dtype=np.float32)).all()) for a in last)
    return found


def profiled(case: dict[str, Any], run: Any, exported: Any, pool: Pool) -> list[Any]:
    """Name, runs of three calls and seconds of each kernel."""
    args = arguments(case, exported, pool, 0)
    donated = case["donated"]
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.python_tracer_level = 1, 0
    with tempfile.TemporaryDirectory() as folder:
        for part in range(2):
            if part:
                jax.profiler.start_trace(folder, profiler_options=options)
            for _ in range(3 if part else 1):
                out = run(*args)
                args = [*out[:donated], *args[donated:]] if donated else args
            jax.block_until_ready(out)
        jax.profiler.stop_trace()
        (file,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(file))
        return kernels(data) or [[plane.name, line.name, 0, 0.0] for plane in data.planes for line in plane.lines]


def kernels(data: Any) -> list[Any]:
    found: dict[tuple[str, str], list[float]] = {}
    for plane in data.planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        for line in plane.lines:
            if not line.name.startswith("Stream"):
                continue
            for event in line.events:
                stats = {k: v for k, v in event.stats if k in ("hlo_op", "name")}
                key = (str(stats.get("hlo_op", "")), event.name)
                kept = found.setdefault(key, [0, 0.0])
                kept[0] += 1
                kept[1] += event.duration_ns * 1e-9
    return [[*key, int(count), seconds] for key, (count, seconds) in sorted(found.items(), key=lambda i: -i[1][1])][
        :400
    ]


class Clocks:
    """Clocks, power and temperature four times a second, in a thread of its own; nothing where they are not told."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, ...]] = []
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        try:
            import pynvml as nv

            nv.nvmlInit()
            card = nv.nvmlDeviceGetHandleByIndex(0)
            while True:
                clocks = [nv.nvmlDeviceGetClockInfo(card, kind) for kind in (nv.NVML_CLOCK_SM, nv.NVML_CLOCK_MEM)]
                watts, celsius = nv.nvmlDeviceGetPowerUsage(card) / 1e3, nv.nvmlDeviceGetTemperature(card, 0)
                self.seen.append((since(), *clocks, watts, celsius))
                time.sleep(0.25)
        except Exception as error:
            print("no clocks:", repr(error), flush=True)

    def between(self, begin: float) -> list[float]:
        """Medians of what was seen since then: SM and memory clock in MHz, watts, degrees."""
        rows = [row[1:] for row in self.seen if row[0] >= begin]
        return [statistics.median(column) for column in zip(*rows, strict=True)] if rows else []


def smi() -> str:
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu,memory.used,memory.total"
    try:
        return subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv"], capture_output=True, text=True, timeout=10
        ).stdout
    except Exception as error:
        return repr(error)


class Record:
    """What is known, written as soon as it is; kept in a folder between calls."""

    def __init__(self, out: Path, state: Path) -> None:
        self.file, self.zip, self.state = out / "measured.jsonl", out / "programs.zip", state / "measured.jsonl"
        state.mkdir(parents=True, exist_ok=True)
        self.done: dict[str, dict[str, Any]] = {}
        if self.state.exists():
            self.done = {row["name"]: row for row in map(json.loads, self.state.read_text().splitlines())}

    def put(self, name: str, **said: Any) -> None:
        row = self.done.setdefault(name, {"name": name})
        row.update(said)
        text = "".join(json.dumps(row) + "\n" for row in self.done.values())
        for file in (self.file, self.state):
            file.write_text(text)
        print(f"{since():6.1f} {name}: {str({k: v for k, v in said.items() if k != 'kernels'})[:300]}", flush=True)

    def program(self, name: str, text: str) -> None:
        with zipfile.ZipFile(self.zip, "a", zipfile.ZIP_DEFLATED) as kept:
            kept.writestr(name, text)


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    most_s = float((sys.argv[3:] or ["400"])[0])
    out.mkdir(parents=True, exist_ok=True)
    record = Record(out, Path(os.environ.get("STATE", "/tmp/measured-state")))
    jax.config.update("jax_compilation_cache_dir", "/tmp/measured-compiled")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    device = jax.devices()[0]
    record.put(
        "machine",
        device=device.device_kind,
        platform=device.platform,
        jax=jax.__version__,
        version=str(getattr(device.client, "platform_version", "")),
        smi=smi(),
        date=time.strftime("%Y-%m-%d %H:%M:%S"),
    )
    pool, clocks = Pool(), Clocks()
    cases = json.loads((folder / "cases.json").read_text())
    made: dict[str, tuple[Any, Any]] = {}
    lock = threading.Lock()
    deadline = [0.0]

    def make(case: dict[str, Any]) -> None:
        if since() > deadline[0]:
            return
        try:
            run, exported, said = compiled(case, folder)
            with lock:
                made[case["name"]] = run, exported
                record.put(case["name"], kind=case["kind"], donated=case["donated"], **said)
                if "kernels" not in record.done[case["name"]]:
                    record.program(case["file"], run.as_text())
        except Exception as error:
            with lock:
                record.put(case["name"], failed=repr(error)[:500])

    def measure(case: dict[str, Any]) -> None:
        name = case["name"]
        if name not in made or "hot" in record.done[name]:
            return
        try:
            began = since()
            found = timed(case, *made[name], pool)
            stats = device.memory_stats() or {}
            kept = {k: stats.get(k) for k in ("bytes_in_use", "peak_bytes_in_use", "largest_alloc_size")}
            record.put(name, **found, clocks=clocks.between(began), stats=kept)
        except Exception as error:
            record.put(name, failed=repr(error)[:500])

    def see(case: dict[str, Any]) -> None:
        name = case["name"]
        if name not in made or "kernels" in record.done[name]:
            return
        try:
            record.put(name, kernels=profiled(case, *made[name], pool))
        except Exception as error:
            record.put(name, profile_failed=repr(error)[:500])

    pending = [c for c in cases if "failed" not in record.done.get(c["name"], {})]
    small, whole = ([c for c in pending if c["kind"] == kind] for kind in ("small", "whole"))
    for some, compile_until, time_until in ((small, 0.28, 0.45), (whole, 0.75, 0.88)):
        deadline[0] = compile_until * most_s
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(make, [c for c in some if "kernels" not in record.done.get(c["name"], {})]))
        for case in some:
            if since() < time_until * most_s:
                measure(case)
    for case in (*whole, *small):
        if since() < most_s - 10:
            see(case)
    record.put("machine", smi_after=smi(), took_s=since())


if __name__ == "__main__":
    main()
