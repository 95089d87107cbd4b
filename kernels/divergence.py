"""A warp whose lanes go different ways: what it costs, in which order it runs, who waits for whom.

The costs are here; the order is in `kernels.course`, the waiting in `kernels.waiting`.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from kernels import ptx
from kernels.compat import SIMULATOR, argument, jit, on_host
from kernels.course import COURSE
from kernels.instructions import chain
from kernels.paths import PATHS, switch, switch_reference
from kernels.spec import (
    Bound,
    Family,
    Kernel,
    Launch,
    Machine,
    Params,
    Work,
    WrongAnswer,
    relative_error,
)
from kernels.waiting import WAITING

ROUNDS = 2 if SIMULATOR else 16
A, B = np.float32(0.999), np.float32(0.001)
CHAIN = 4 if SIMULATOR else 256
TURNS = 2 if SIMULATOR else 64
"""x CHAIN dependent FMAs a lane: 16,384, some 130,000 cycles on an SM with 32 warps."""
RESIDENT = 32
"""Warps an SM with which dependent FMAs saturate its four schedulers twice over: 8 for each,
where 4 would do."""

_after = ptx.clock_after("f32")
_fma = chain("fma.f32", CHAIN)


@jit
def paths(which, rounds, x, a, out, start, stop):
    """Each thread goes down its path of a switch, `rounds` times, after one round to warm up."""
    thread = cuda.threadIdx.x
    path = which[thread]
    value = x[thread]
    begin = end = ptx.clock64() * 0
    turns = 1
    while turns <= rounds:
        cuda.syncthreads()
        begin = ptx.clock64()
        for _ in range(turns):
            value = switch(path, value, a)
            cuda.syncwarp()
        end = _after(value)
        turns *= rounds
    out[thread] = value
    start[thread] = begin
    stop[thread] = end


@jit
def lanes(staying, active, turns, x, a, b, out, start, stop, sm):
    """Blocks of one warp: lanes from `staying` on return at once, of the others only those
    below `active` take the branch with the work."""
    lane = cuda.threadIdx.x
    if lane >= staying:
        return
    if lane == 0:
        start[cuda.blockIdx.x] = ptx.clock64()
        sm[cuda.blockIdx.x] = ptx.smid()
    if lane < active:
        value = x[lane]
        for _ in range(turns):
            value = _fma(value, a, b)
        out[32 * cuda.blockIdx.x + lane] = value
        if lane == 0:
            stop[cuda.blockIdx.x] = _after(value)


def _bind_paths(which: np.ndarray, machine: Machine) -> Bound:
    """`which` gives each thread of one block its path."""
    xp, threads = machine.xp, len(which)
    x = machine.uniform("divergence", threads, "float32")
    out = xp.empty(threads, np.float32)
    start, stop = xp.zeros(threads, np.int64), xp.zeros(threads, np.int64)
    expected = switch_reference(which, 1 + ROUNDS, on_host(x), A)

    def check() -> float:
        return relative_error(on_host(out), lambda part: expected[part], 1e-4, np)

    def reading() -> dict[str, float]:
        cycles = float(on_host(stop).max() - on_host(start).min())
        return {"branch_cycles": cycles / ROUNDS}

    return Bound(
        Launch.linear(1, threads),
        Work(),
        check=check,
        poison=lambda: out.fill(np.nan),
        function=paths,
        arguments=(
            argument(xp.asarray(which.astype(np.int32))),
            ROUNDS,
            argument(x),
            A,
            *map(argument, (out, start, stop)),
        ),
        reading=reading,
        cache_resident=True,
    )


def _bind_ways(params: Params, machine: Machine) -> Bound:
    count = params["paths"]
    if not 1 <= count <= PATHS:
        raise ValueError(f"{count} paths: 1 to {PATHS}")
    return _bind_paths(np.arange(32) % count, machine)


def _bind_stripes(params: Params, machine: Machine) -> Bound:
    return _bind_paths(np.arange(params["block"]) // params["stripe"] % 2, machine)


OFF = ("branch", "return", "partial")
"""Why lanes have nothing to do: they skip a branch, have returned, or the block has no more."""


def _bind_lanes(params: Params, machine: Machine) -> Bound:
    count, off = params["lanes"], params["off"]
    if off not in OFF or not 1 <= count <= 32:
        raise ValueError(f"{count} lanes, the others off by '{off}': 1 to 32, {', '.join(OFF)}")
    xp = machine.xp
    each = min(RESIDENT, machine.max_blocks_per_sm)
    blocks = 2 if machine.simulator else machine.sms * each
    staying, active = (count if off == "return" else 32), (count if off == "branch" else 32)
    x = machine.uniform("divergence", 32, "float32")
    out = xp.empty(32 * blocks, np.float32)
    log = [xp.zeros(blocks, np.int64), xp.zeros(blocks, np.int64), xp.zeros(blocks, np.int32)]
    power = float(A) ** (CHAIN * TURNS)
    expected = on_host(x).astype(np.float64) * power + float(B) * (1 - power) / (1 - float(A))

    def check() -> float:
        seen = on_host(out).reshape(blocks, 32)
        if not np.isnan(seen[:, count:]).all():
            raise WrongAnswer(f"lanes from {count} on should have done nothing")
        ends = seen[:, :count].ravel()
        wanted = np.tile(expected[:count], blocks)
        return relative_error(ends, lambda part: wanted[part], 1e-4, np)

    def reading() -> dict[str, float]:
        start, stop, sm = (on_host(part) for part in log)
        rates = []
        for one in np.unique(sm):
            here = sm == one
            cycles = stop[here].max() - start[here].min()
            rates.append(here.sum() * count * CHAIN * TURNS / cycles)
        return {"operations_per_clock_per_sm": float(np.median(rates))}

    return Bound(
        Launch.linear(blocks, count if off == "partial" else 32),
        Work(operations=2 * blocks * count * CHAIN * TURNS),
        check=check,
        poison=lambda: out.fill(np.nan),
        function=lanes,
        arguments=(staying, active, TURNS, argument(x), A, B, argument(out), *map(argument, log)),
        reading=reading,
        cache_resident=True,
    )


_PATHS_SIGNATURE = (
    "void(int32[::1], int64, float32[::1], float32, float32[::1], int64[::1], int64[::1])"
)
_LANES_SIGNATURE = (
    "void(int64, int64, int64, float32[::1], float32, float32, float32[::1], int64[::1], "
    "int64[::1], int32[::1])"
)

FAMILY = Family(
    "divergence",
    "warps whose lanes go different ways",
    (
        Kernel(
            "paths",
            "One warp on 1 to 32 paths of a switch, each as long as the others",
            _bind_ways,
            examples=({"paths": 1}, {"paths": 32}),
            source=paths,
            compiled=((paths, _PATHS_SIGNATURE),),
        ),
        Kernel(
            "stripes",
            "Threads in stripes on two paths: on warp edges, or inside warps",
            _bind_stripes,
            examples=({"block": 96, "stripe": 32}, {"block": 96, "stripe": 48}),
            source=paths,
        ),
        Kernel(
            "lanes",
            "A full SM of warps with 1 to 32 active lanes",
            _bind_lanes,
            examples=tuple({"lanes": 5, "off": off} for off in OFF),
            source=lanes,
            compiled=((lanes, _LANES_SIGNATURE),),
        ),
        COURSE,
        *WAITING,
    ),
)
