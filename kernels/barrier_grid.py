"""Synchronisation of a whole grid: cooperative, and made of atomics; at the limit and above it.

A barrier over the grid needs every block resident: one that waits for a place on an SM while those
that hold the places wait for it would wait for ever. The cooperative launch refuses such a grid;
a barrier made of atomics is launched all the same, and here every wait in it ends by the clock.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from kernels import ptx
from kernels.assembly import KINDS, Element, Value, assembly
from kernels.barrier_block import LATE, REGISTERS, ROUNDS, all_saw, compiled, late_one, shape, wait
from kernels.compat import SIMULATOR, argument, device, jit, on_host, queue_zero
from kernels.spec import Bound, Launch, Machine, Params, Unavailable, Work, WrongAnswer

WARM = 2
"""Barriers before the clock."""
COUNT = 2 if SIMULATOR else 64
"""Barriers between the clock reads."""
PATIENCE = 1 << 21
"""Cycles after which a wait is given up, some milliseconds: a thousand barriers' worth."""
GRID_LATE = 4 * LATE

_S32 = KINDS["s32"]
_read = ptx.load("s32", 1, "cg")
"""Other blocks have just written what it reads: L1 is passed by."""


def _add(array: Any, index: int, value: Any) -> None:
    cuda.atomic.add(array, index, value)


arrive = assembly(
    "arrive",
    "red.release.gpu.global.add.s32 [$0], $1;",
    None,
    (Element(_S32), Value(_S32)),
    _add,
    summary="Add to array[index]; whatever the thread wrote before is seen by who acquires it.",
    memory=True,
)
acquire = assembly(
    "acquire",
    "ld.acquire.gpu.global.s32 $0, [$1];",
    _S32,
    (Element(_S32),),
    lambda array, index: array[index],
    summary="Read array[index]; whatever was written before its release is seen after.",
    memory=True,
)


@jit(max_registers=REGISTERS)
def grid_sync(warm, count, words, seen, cycles):
    """Show that a grid-wide barrier holds, then time a row of them in every block."""
    thread, block, blocks = cuda.threadIdx.x, cuda.blockIdx.x, cuda.gridDim.x
    grid = cuda.cg.this_grid()
    found = 0
    for turn in range(ROUNDS):
        if block == late_one(turn, blocks) and thread == 0:
            wait(GRID_LATE)
            words[turn] = blocks + turn
        grid.sync()
        if _read(words, turn) == blocks + turn:
            found += 1
    seen[cuda.grid(1)] = found
    for _ in range(warm):
        grid.sync()
    begin = ptx.clock64()
    for _ in range(count):
        grid.sync()
    end = ptx.clock64()
    if thread == 0:
        cycles[block] = end - begin


@device
def _meet(counter, goal, patience, lost):
    """Wait until `goal` blocks have arrived, or until this block gives up; whether it has."""
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        arrive(counter, 0, np.int32(1))
        begin = ptx.clock64()
        while acquire(counter, 0) < goal:
            if ptx.clock64() - begin > patience:
                lost[cuda.blockIdx.x] = 1
                break
    cuda.syncthreads()
    return lost[cuda.blockIdx.x] != 0


@jit(max_registers=REGISTERS)
def atomic_barrier(warm, count, patience, counter, words, seen, cycles, lost):
    """The same with a counter that every block's first thread adds to and waits on.

    `counter` and `lost` start at 0. A block that has given up leaves at once.
    """
    thread, block, blocks = cuda.threadIdx.x, cuda.blockIdx.x, cuda.gridDim.x
    found, goal = 0, 0
    for turn in range(ROUNDS):
        if block == late_one(turn, blocks) and thread == 0:
            wait(GRID_LATE)
            words[turn] = blocks + turn
        goal += blocks
        if _meet(counter, goal, patience, lost):
            return
        if _read(words, turn) == blocks + turn:
            found += 1
    seen[cuda.grid(1)] = found
    for _ in range(warm):
        goal += blocks
        if _meet(counter, goal, patience, lost):
            return
    begin = ptx.clock64()
    for _ in range(count):
        goal += blocks
        if _meet(counter, goal, patience, lost):
            return
    end = ptx.clock64()
    if thread == 0:
        cycles[block] = end - begin


GRID_SIGNATURE = "void(int32, int32, int32[::1], int32[::1], int64[::1])"
ATOMIC_SIGNATURE = (
    "void(int32, int32, int64, int32[::1], int32[::1], int32[::1], int64[::1], int32[::1])"
)


def _latency(cycles: Any) -> float:
    return float(np.median(on_host(cycles))) / COUNT


def bind_grid_sync(params: Params, machine: Machine) -> Bound:
    """A cooperative launch of `blocks_per_sm` blocks on every SM, and of `beyond` more.

    Raises:
        Unavailable: the library refuses the launch; the reason is its own message.
    """
    xp = machine.xp
    launch = _beyond(shape(compiled(grid_sync, GRID_SIGNATURE), params, machine), params)
    (grid, _, _), (block, _, _) = launch.grid, launch.block
    words, seen = xp.empty(ROUNDS, np.int32), xp.empty(grid * block, np.int32)
    cycles = xp.zeros(grid, np.int64)

    def poison() -> None:
        words.fill(-1)
        seen.fill(-1)

    bound = Bound(
        launch=launch,
        work=Work(),
        check=lambda: all_saw(seen, "grid_sync"),
        poison=poison,
        function=grid_sync,
        arguments=(np.int32(WARM), np.int32(COUNT), *map(argument, (words, seen, cycles))),
        reading=lambda: {"latency_cycles": _latency(cycles)},
        cache_resident=True,
    )
    if params.get("beyond"):
        _must_launch(bound, grid - params["beyond"])
    return bound


def _beyond(launch: Launch, params: Params) -> Launch:
    """`launch` with so many blocks more than are resident at once."""
    (grid, y, z), more = launch.grid, params.get("beyond", 0)
    return Launch((grid + more, y, z), launch.block, launch.dynamic_smem)


def _must_launch(bound: Bound, resident: int) -> None:
    """Raises Unavailable with the library's message where it refuses the launch."""
    assert bound.launch is not None
    try:
        bound.queue(0)
    except Exception as error:  # numba, cuda.core and the driver each have a class of their own
        message = " ".join(str(error).split())
        raise Unavailable(
            f"{bound.launch.grid[0]} blocks where {resident} are resident at once: the cooperative "
            f"launch was refused ({message}); launch at most {resident} and let each do several "
            "pieces of work (a grid-stride loop)"
        ) from None


def bind_atomic(params: Params, machine: Machine) -> Bound:
    """The barrier made of atomics, on resident blocks or with `beyond` more than are resident."""
    xp = machine.xp
    launch = _beyond(shape(compiled(atomic_barrier, ATOMIC_SIGNATURE), params, machine), params)
    if machine.simulator:
        launch = Launch.linear(1, params["block"])  # its blocks run one after another
    (grid, _, _), (block, _, _) = launch.grid, launch.block
    counter, words = xp.zeros(1, np.int32), xp.empty(ROUNDS, np.int32)
    seen, cycles = xp.empty(grid * block, np.int32), xp.zeros(grid, np.int64)
    lost = xp.zeros(grid, np.int32)
    arrays = (counter, words, seen, cycles, lost)
    arguments = (np.int32(WARM), np.int32(COUNT), PATIENCE, *map(argument, arrays))

    def queue(stream: Any) -> None:
        for array in (counter, lost):
            queue_zero(array, stream)
        atomic_barrier[launch.grid, launch.block, stream, launch.dynamic_smem](*arguments)

    def poison() -> None:
        words.fill(-1)
        seen.fill(-1)

    def check() -> float:
        gave_up = on_host(lost)
        if gave_up.any() and not params.get("beyond"):
            raise WrongAnswer(f"{int(gave_up.sum())} of {grid} resident blocks waited for ever")
        return 0.0 if gave_up.any() else all_saw(seen, "atomic_barrier")

    def reading() -> dict[str, Any]:
        gave_up = float(on_host(lost).mean())
        if params.get("beyond"):
            return {"gave_up": gave_up}
        return {"latency_cycles": _latency(cycles), "gave_up": gave_up}

    return Bound(
        launch=launch,
        work=Work(),
        check=check,
        poison=poison,
        function=atomic_barrier,
        arguments=arguments,
        queue=queue,
        reading=reading,
        cache_resident=True,
    )
