"""A warp whose lanes go different ways: what it costs, in which order it runs, who waits for whom.

The course's if (c) {A; B;} else {X; Y;} P; Q; is written with statements that note the clock of
every lane. Everything that waits is bounded by the clock.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba import cuda

from kernels import ptx
from kernels.compat import SIMULATOR, argument, jit, on_host
from kernels.flags import look, put
from kernels.instructions import chain
from kernels.paths import (
    PATHS,
    STATEMENT_STEPS,
    follow,
    statement,
    switch,
    switch_reference,
)
from kernels.probes import pointer
from kernels.spec import (
    Bound,
    Family,
    Kernel,
    Launch,
    Machine,
    Params,
    Unavailable,
    Work,
    WrongAnswer,
    relative_error,
)

ROUNDS = 2 if SIMULATOR else 16
A, B = np.float32(0.999), np.float32(0.001)
CHAIN = 4 if SIMULATOR else 256
TURNS = 2 if SIMULATOR else 64
"""x CHAIN dependent FMAs a lane: 16,384, some 130,000 cycles on an SM with 32 warps."""
RESIDENT = 32
"""Warps an SM with which dependent FMAs saturate its four schedulers twice over: 8 for each,
where 4 would do."""
LIMIT = 20_000_000
"""SM cycles (some 10 ms) after which whoever waits gives up."""

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


# --- The course's if/else. ---

BEGIN, FIRST, SECOND, JOIN, P, Q, END = range(7)
"""When a lane came to the if, to A or X, to B or Y, to the end of its branch, to P, to Q, and to
the end."""
POINTS = 7


def _course(load: bool, sync: bool) -> Any:
    at_if = statement("begin", 1, 1)
    a, b = statement("A", 3, load=load), statement("B", 5)
    x, y = statement("X", 7, load=load), statement("Y", 9)
    end_then, end_else = statement("then_ends", 11, 1), statement("else_ends", 13, 1)
    p, q, end = statement("P", 15), statement("Q", 17), statement("end", 19, 1)

    def body(goes, v, m, zero, address):
        v, c0, m0 = at_if(v, m, zero, address)
        if goes != 0:
            v, c1, m1 = a(v, m, zero, address)
            v, c2, m2 = b(v, m, zero, address)
            v, c3, m3 = end_then(v, m, zero, address)
        else:
            v, c1, m1 = x(v, m, zero, address)
            v, c2, m2 = y(v, m, zero, address)
            v, c3, m3 = end_else(v, m, zero, address)
        if sync:
            cuda.syncwarp()
        v, c4, m4 = p(v, m, zero, address)
        v, c5, m5 = q(v, m, zero, address)
        v, c6, m6 = end(v, m, zero, address)
        return v, (c0, c1, c2, c3, c4, c5, c6), (m0, m1, m2, m3, m4, m5, m6)

    # Inlined: the branch must be the kernel's own.
    inner = jit(body, device=True, inline="always")

    @jit
    def course(taken, turns, v, m, zero, address, out, clocks, masks):
        """if (taken) {A; B;} else {X; Y;} P; Q; with the clock and the mask of every lane."""
        lane = cuda.threadIdx.x
        own = address + np.uint64(128) * np.uint64(lane)
        for _ in range(turns):  # the first turn fetches instructions and data
            cuda.syncwarp()
            value, seen, active = inner(taken[lane], v[lane], m, zero, own)
            for point in range(POINTS):
                clocks[POINTS * lane + point] = seen[point]
                masks[POINTS * lane + point] = active[point]
            out[lane] = value

    return course


COURSES = {(load, sync): _course(load, sync) for load in (False, True) for sync in (False, True)}


def course_reference(goes: bool, x: int, m: int) -> int:
    """What the statements that a lane goes through make of x."""
    own = [(3, STATEMENT_STEPS), (5, STATEMENT_STEPS), (11, 1)]
    if not goes:
        own = [(7, STATEMENT_STEPS), (9, STATEMENT_STEPS), (13, 1)]
    common = [(15, STATEMENT_STEPS), (17, STATEMENT_STEPS), (19, 1)]
    return int(follow(x, m, [(1, 1), *own, *common]))


def overlap(clocks: np.ndarray, goes: np.ndarray) -> float:
    """Cycles that the two branches were both under way.

    Args:
        clocks: shape (lanes, POINTS), cycles.
        goes: shape (lanes,): who takes the if, who the else.

    From a branch's first statement to the end of its last, over its lanes. Paths that run one
    after another have none.
    """
    if goes.all() or not goes.any():
        return 0.0
    begins = [clocks[side, FIRST].min() for side in (goes, ~goes)]
    ends = [clocks[side, JOIN].max() for side in (goes, ~goes)]
    return float(max(0, min(ends) - max(begins)))


# --- Lanes that wait for lanes of their own warp. ---


@jit
def hand_over(first, second, rounds, limit, flag, done, cycles):
    """Two lanes in two branches hand a flag to and fro: each waits for the other, in turn."""
    lane = cuda.threadIdx.x
    begin = ptx.clock64()
    came = 0
    if lane == first:
        while came < rounds and ptx.clock64() - begin < limit:
            if look(flag, 0) == 2 * came:
                came += 1
                put(flag, 0, 2 * came - 1)
    elif lane == second:
        while came < rounds and ptx.clock64() - begin < limit:
            if look(flag, 0) == 2 * came + 1:
                came += 1
                put(flag, 0, 2 * came)
    done[lane] = came
    cycles[lane] = ptx.clock64() - begin


@jit
def lock_in_loop(limit, lock, counter, done, cycles):
    """Every lane takes a spin lock, adds one and releases it, all inside the loop."""
    lane = cuda.threadIdx.x
    begin = ptx.clock64()
    came = 0
    while came == 0 and ptx.clock64() - begin < limit:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            put(counter, 0, look(counter, 0) + 1)
            cuda.threadfence()
            cuda.atomic.exch(lock, 0, 0)
            came = 1
    done[lane] = came
    cycles[lane] = ptx.clock64() - begin


@jit
def lock_after_loop(limit, lock, counter, done, cycles):
    """Every lane spins until it has the lock, and adds one and releases it after the loop: where
    the holder waits for its warp to leave the loop together, nobody ever does."""
    lane = cuda.threadIdx.x
    begin = ptx.clock64()
    came = 0
    while came == 0 and ptx.clock64() - begin < limit:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            came = 1
    if came == 1:
        put(counter, 0, look(counter, 0) + 1)
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)
    done[lane] = came
    cycles[lane] = ptx.clock64() - begin


# --- Binding. ---


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


PATTERNS = {
    "half": lambda lane: lane < 16,
    "alternate": lambda lane: lane % 2 == 0,
    "one": lambda lane: lane == 0,
    "all": lambda lane: lane >= 0,
}
"""Which lanes take the if."""


def _bind_course(params: Params, machine: Machine) -> Bound:
    if params["taken"] not in PATTERNS:
        raise ValueError(f"taken '{params['taken']}' is none of {', '.join(PATTERNS)}")
    xp, lane = machine.xp, np.arange(32)
    goes = PATTERNS[params["taken"]](lane)
    multiplier = 0x9E3779B1
    x = (lane * 7 + 1).astype(np.uint32)
    zeros = xp.zeros(32 * 32, np.uint32)
    out = xp.empty(32, np.uint32)
    clocks, masks = xp.zeros(32 * POINTS, np.uint32), xp.zeros(32 * POINTS, np.uint32)

    def check() -> float:
        for one in lane:
            wanted = course_reference(bool(goes[one]), int(x[one]), multiplier)
            if int(on_host(out)[one]) != wanted:
                raise WrongAnswer(f"lane {one} did not go A, B, P, Q or X, Y, P, Q")
        return 0.0

    def reading() -> dict[str, Any]:
        raw = on_host(clocks).reshape(32, POINTS)
        # Differences of 32 bits are right even where the clock wrapped in between.
        seen = (raw - raw[0, BEGIN]).astype(np.int32).astype(np.int64)
        seen -= seen.min()
        return {
            "statement_clock": seen.ravel().tolist(),
            "statement_mask": on_host(masks).tolist(),
            "overlap_cycles": overlap(seen, goes),
            "arrivals": float(len(np.unique(seen[:, P]))),
        }

    return Bound(
        Launch.linear(1, 32),
        Work(),
        check=check,
        poison=lambda: out.fill(0),
        function=COURSES[params["load"], params["syncwarp"]],
        arguments=(
            argument(xp.asarray(goes.astype(np.int32))),
            2,
            argument(xp.asarray(x)),
            np.uint32(multiplier),
            np.uint32(0),
            np.uint64(pointer(zeros)),
            *map(argument, (out, clocks, masks)),
        ),
        # It also keeps the zeros alive, of which the kernel knows the address alone.
        reading=lambda: reading() if zeros is not None else {},
        cache_resident=True,
    )


def _waiting(machine: Machine) -> tuple[Any, Any, Any, Any]:
    """The words that lanes wait on, and for each lane how often it came and its cycles."""
    xp = machine.xp
    if machine.cc < (7, 0):
        raise Unavailable("lanes of one warp that wait for each other need a chip since Volta")
    return (
        xp.zeros(1, np.int32),
        xp.zeros(1, np.int32),
        xp.zeros(32, np.int32),
        xp.zeros(32, np.int64),
    )


def _bind_hand_over(params: Params, machine: Machine) -> Bound:
    first, second, rounds = params["first"], params["second"], params["rounds"]
    flag, _, done, cycles = _waiting(machine)

    def poison() -> None:
        flag.fill(0)
        done.fill(-1)

    def check() -> float:
        came = on_host(done)
        if int(on_host(flag)[0]) != int(came[first]) + int(came[second]):
            raise WrongAnswer(f"the flag says {int(flag[0])}, the lanes {came[first]} + others")
        return 0.0

    def reading() -> dict[str, float]:
        came = on_host(done)[[first, second]]
        spent = float(on_host(cycles)[[first, second]].max())
        found = {"completed_lanes": float((came == rounds).sum())}
        if came.sum():
            found["handover_cycles"] = spent / float(came.sum())
        poison()
        return found

    return Bound(
        Launch.linear(1, 32),
        Work(),
        check=check,
        poison=poison,
        function=hand_over,
        arguments=(first, second, rounds, LIMIT, *map(argument, (flag, done, cycles))),
        reading=reading,
        cache_resident=True,
    )


def _bind_lock(function: Any, params: Params, machine: Machine) -> Bound:
    lock, counter, done, cycles = _waiting(machine)

    def poison() -> None:
        lock.fill(0)
        counter.fill(0)
        done.fill(-1)

    def check() -> float:
        came = int((on_host(done) == 1).sum())
        if int(on_host(counter)[0]) != came:
            raise WrongAnswer(f"{came} lanes had the lock, and they counted {int(counter[0])}")
        return 0.0

    def reading() -> dict[str, float]:
        came = float((on_host(done) == 1).sum())
        found = {"completed_lanes": came, "wait_cycles": float(on_host(cycles).max())}
        poison()
        return found

    return Bound(
        Launch.linear(1, 32),
        Work(),
        check=check,
        poison=poison,
        function=function,
        arguments=(LIMIT, *map(argument, (lock, counter, done, cycles))),
        reading=reading,
        cache_resident=True,
    )


_COURSE_SIGNATURE = (
    "void(int32[::1], int64, uint32[::1], uint32, uint32, uint64, uint32[::1], uint32[::1], "
    "uint32[::1])"
)
_LOCK_SIGNATURE = "void(int64, int32[::1], int32[::1], int32[::1], int64[::1])"
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
        Kernel(
            "course",
            "if {A; B;} else {X; Y;} P; Q: the clock of every lane at every statement",
            _bind_course,
            examples=tuple(
                {"taken": "half", "load": load, "syncwarp": sync} for load, sync in COURSES
            ),
            source=COURSES[False, False],
            compiled=tuple((course, _COURSE_SIGNATURE) for course in COURSES.values()),
        ),
        Kernel(
            "hand_over",
            "Two lanes of a warp in two branches wait for each other in turn",
            _bind_hand_over,
            examples=({"first": 0, "second": 31, "rounds": 2},),
            source=hand_over,
            compiled=(
                (hand_over, "void(int64, int64, int64, int64, int32[::1], int32[::1], int64[::1])"),
            ),
        ),
        *(
            Kernel(
                name,
                f"A spin lock inside a warp, {what}",
                partial(_bind_lock, function),
                examples=({},),
                source=function,
                compiled=((function, _LOCK_SIGNATURE),),
            )
            for name, function, what in (
                ("lock_in_loop", lock_in_loop, "released inside the loop"),
                ("lock_after_loop", lock_after_loop, "released after the loop"),
            )
        ),
    ),
)
