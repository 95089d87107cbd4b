"""Lanes that wait for lanes of their own warp: a flag handed to and fro, and spin locks.

Before Volta the lanes of a warp could not: the one that waited kept the other from going on.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba import cuda

from kernels import ptx
from kernels.compat import argument, jit, on_host
from kernels.flags import look, put
from kernels.spec import Bound, Kernel, Launch, Machine, Params, Unavailable, Work, WrongAnswer

LIMIT = 20_000_000
"""SM cycles (some 10 ms) after which whoever waits gives up."""


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


_LOCK_SIGNATURE = "void(int64, int32[::1], int32[::1], int32[::1], int64[::1])"
WAITING = (
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
)
