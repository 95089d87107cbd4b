"""Synchronisation inside a block: shown to work, then timed as a chain.

Every warp notes its own cycles between two reads of the SM's clock. Before that, in each of a few
rounds, one participant comes late and writes just before the barrier; everyone reads it after.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda, types

from kernels import ptx
from kernels.barrier_steps import STEPS, bounds, chain
from kernels.compat import FULL_MASK, SIMULATOR, argument, device, jit, on_host
from kernels.shared_memory import pin_blocks, prepare_shared_memory, resident_blocks
from kernels.spec import Bound, Launch, Machine, Params, Unavailable, Work, WrongAnswer, whole_warps

ROUNDS = 4
LATE = 2000
"""Cycles by which a participant is late, far over what any barrier inside a block costs."""
REPEATS = 2
"""The first fetches the instructions, the second counts."""
REGISTERS = 32
"""With so many a thread, 2,048 threads fit an SM."""
TURNS = 8
"""Rounds of a chain between the clock reads."""
SLOTS = 64 * ROUNDS
"""A word for each round of each half-warp of the largest block."""

SIGNATURE = "void(int32, int32, int32[::1], int32[::1], int32, int32[::1], int32[::1], int64[::1])"


@device
def wait(cycles):
    """Spend so many cycles."""
    begin = ptx.clock64()
    while ptx.clock64() - begin < cycles:
        pass


@device
def late_one(turn, size):
    """Who of `size` is late: the first, two between, the last."""
    return (size - 1) * turn // (ROUNDS - 1)


@device
def _full(late):
    cuda.syncwarp(FULL_MASK)
    return True


@device
def _halves(late):
    if cuda.threadIdx.x % 32 < 16:
        cuda.syncwarp(0xFFFF)
    else:
        cuda.syncwarp(0xFFFF0000)
    return True


@device
def _block(late):
    cuda.syncthreads()
    return True


@device
def _count(late):
    return cuda.syncthreads_count(np.int32(cuda.threadIdx.x == late)) == 1


@device
def _and(late):
    return cuda.syncthreads_and(np.int32(cuda.threadIdx.x != late)) == 0


@device
def _or(late):
    return cuda.syncthreads_or(np.int32(cuda.threadIdx.x == late)) != 0


def through_memory(barrier: Any, width: int) -> Any:
    """A device function that counts the rounds in which this thread read the late one's word.

    `barrier(late)` is the synchronisation under test among `width` threads in a row (0: the whole
    block), and tells whether its own outcome is right.
    """

    @device
    def meet():
        slots = cuda.shared.array(SLOTS, types.int32)
        size, group, member = cuda.blockDim.x, 0, cuda.threadIdx.x
        if width:
            size, group, member = width, cuda.threadIdx.x // width, cuda.threadIdx.x % width
        if member == 0:
            for turn in range(ROUNDS):
                slots[group * ROUNDS + turn] = -1
        cuda.syncthreads()
        seen = 0
        for turn in range(ROUNDS):
            late = late_one(turn, size)
            word = cuda.blockIdx.x + group + turn
            if member == late:
                wait(LATE)
                slots[group * ROUNDS + turn] = word
            right = barrier(late)
            if right and slots[group * ROUNDS + turn] == word:
                seen += 1
        return seen

    return meet


@device
def through_shuffle():
    """The same without memory: the late lane's word comes by a shuffle."""
    lane, seen = cuda.threadIdx.x % 32, 0
    for turn in range(ROUNDS):
        late = late_one(turn, 32)
        mine = -1
        if lane == late:
            wait(LATE)
            mine = cuda.threadIdx.x // 32 + turn
        if cuda.shfl_sync(FULL_MASK, mine, late) == cuda.threadIdx.x // 32 + turn:
            seen += 1
    return seen


@device
def through_ballot():
    """The same: only the late lane votes yes."""
    lane, seen = cuda.threadIdx.x % 32, 0
    for turn in range(ROUNDS):
        late = late_one(turn, 32)
        if lane == late:
            wait(LATE)
        votes = cuda.ballot_sync(FULL_MASK, lane == late)  # int32: bit 31 is its sign
        if cuda.popc(votes) == 1 and (votes >> late) & 1 == 1:
            seen += 1
    return seen


@device
def alone():
    """Nothing synchronises here, and nothing is shown."""
    return ROUNDS


_warp, _half_warp = through_memory(_full, 32), through_memory(_halves, 16)
MEETINGS: dict[str, Any] = {
    "syncwarp": _warp,
    "syncwarp_masked": _warp,
    "syncwarp_halves": _half_warp,
    "syncwarp_diverged": _warp,
    "diverged": alone,
    "shuffle": through_shuffle,
    "ballot": through_ballot,
    "syncthreads": through_memory(_block, 0),
    "syncthreads_diverged": through_memory(_block, 0),
    "syncthreads_count": through_memory(_count, 0),
    "syncthreads_and": through_memory(_and, 0),
    "syncthreads_or": through_memory(_or, 0),
}
"""How each synchronisation of STEPS is shown to synchronise."""


@cache
def timed(name: str) -> Any:
    """The kernel of one synchronisation of STEPS."""
    meet, steps, after = MEETINGS[name], chain(name), ptx.clock_after("s32")

    @jit(max_registers=REGISTERS)
    def synchronise(repeats, turns, starts, operands, zero, seen, ends, cycles):
        """Show that the synchronisation holds, then time a chain of it in every warp."""
        thread = cuda.threadIdx.x
        i = cuda.grid(1)
        seen[i] = meet()
        x = starts[thread]
        operand = operands[thread]
        for _ in range(repeats):
            cuda.syncthreads()
            begin = ptx.clock64()
            x = steps(turns, x, operand, zero)
            end = after(x)
        ends[i] = x
        if thread % 32 == 0:
            cycles[i // 32] = end - begin

    return synchronise


def compiled(function: Any, signature: str) -> Any:
    """The compiled kernel, of which the driver tells how much of it fits; None in the simulator."""
    return None if SIMULATOR else function.compile(signature)


def shape(overload: Any, params: Params, machine: Machine) -> Launch:
    """A grid of `blocks_per_sm` blocks on every SM, or as many as fit where that is "most".

    Fewer than fit are held apart by shared memory: an SM takes no more, whatever the scheduler
    would like to do.

    Raises:
        ValueError: a block that is not of whole warps.
        Unavailable: an SM does not hold so many blocks of this size.
    """
    block, wanted = whole_warps(params["block"]), params["blocks_per_sm"]
    if machine.simulator:
        return Launch.linear(1 if wanted == 1 else 2, block)
    prepare_shared_memory(overload)
    most = resident_blocks(overload, block)
    if wanted == "most" or wanted == most:
        return Launch.linear(machine.sms * most, block)
    if wanted > most:
        raise Unavailable(f"an SM holds {most} blocks of {block} threads, not {wanted}")
    return Launch.linear(machine.sms * wanted, block, pin_blocks(overload, block, wanted))


def all_saw(seen: Any, what: str) -> float:
    """Check that every participant read each late one's word: 0.0, the error.

    Raises:
        WrongAnswer: one of them did not.
    """
    counts = on_host(seen)
    if (counts != ROUNDS).any():
        where = int(np.flatnonzero(counts != ROUNDS)[0])
        raise WrongAnswer(
            f"{what}: participant {where} read a word written before the barrier in "
            f"{int(counts[where])} of {ROUNDS} rounds"
        )
    return 0.0


def bind(name: str, params: Params, machine: Machine) -> Bound:
    """One synchronisation of STEPS, timed in every warp of the grid."""
    function, xp = timed(name), machine.xp
    launch = shape(compiled(function, SIGNATURE), params, machine)
    (grid, _, _), block = launch.grid, params["block"]
    turns = 1 if machine.simulator else TURNS
    starts, operands, expected = bounds(name, block, REPEATS * turns)
    seen, ends = xp.empty(grid * block, np.int32), xp.empty(grid * block, np.int32)
    cycles = xp.zeros(grid * block // 32, np.int64)

    def check() -> float:
        wrong = on_host(ends).reshape(grid, block) != expected
        if wrong.any():
            at, thread = np.argwhere(wrong)[0]
            raise WrongAnswer(
                f"{name}: thread {thread} of block {at} ended with "
                f"{int(on_host(ends)[at * block + thread])}, should be {expected[thread]}"
            )
        return all_saw(seen, name)

    def poison() -> None:
        seen.fill(-1)
        ends.fill(-77)

    def reading() -> dict[str, Any]:
        count = turns * STEPS[name].steps
        return {"latency_cycles": float(np.median(on_host(cycles))) / count}

    arrays = (argument(xp.asarray(starts)), argument(xp.asarray(operands)))
    return Bound(
        launch=launch,
        work=Work(),
        check=check,
        poison=poison,
        function=function,
        arguments=(
            np.int32(REPEATS),
            np.int32(turns),
            *arrays,
            np.int32(0),
            *map(argument, (seen, ends, cycles)),
        ),
        reading=reading,
        cache_resident=True,
    )
