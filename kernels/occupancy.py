"""Resident warps against loads in flight against load width, and what an SM really held.

Grids are persistent: exactly as many blocks as are resident on all SMs, each with the same work.
Dynamic shared memory sets how many that is, so code and registers stay the same over a sweep. The
carve-out is pinned to the most shared memory: left to the driver it would follow the blocks'
demand, and each point would have another L1. Nothing is read twice, so L1 serves no hit; what
its size does to loads in flight, points at another carve-out show.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32

from kernels import ptx, walk
from kernels.compat import SIMULATOR, argument, jit
from kernels.residency import (
    mean_cycles,
    most_at_once,
    new_log,
    note_start,
    note_stop,
    rows,
)
from kernels.shared_memory import (
    block_limit,
    pin_blocks,
    prepare_shared_memory,
    resident_blocks,
)
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
from kernels.walk import WARP

MOST_SHARED = 100
"""Carve-out of the sweeps: all that can be shared memory is, in percent."""
TURNS = 3 if SIMULATOR else 1024
"""Batches of loads a warp: at some 700 cycles from issue to use, about half a millisecond."""
LARGEST = 1024
"""Threads of the largest block. Not told, the assembler aims at 32 registers and uses the first
loads of a turn before it issues the last ones, to save some."""
A = 1.25


def stream_bytes(machine: Machine) -> int:
    """Bytes that a sweep may walk through: 2 GiB, which a full H200 reads in half a millisecond."""
    if machine.simulator:
        return 1 << 20
    return min(1 << 31, 1 << (machine.memory_bytes // 16).bit_length() - 1)


def arrange(warps: int, by: str, machine: Machine) -> tuple[int, int]:
    """(threads a block, blocks an SM) that make `warps` resident warps on an SM.

    by='shared_memory': blocks as small as the SM's block slots allow, their number set by shared
    memory. by='block': one block an SM, or as few as there can be, its size sets the warps.

    Raises:
        Unavailable: more warps than an SM holds, or a number that no equal blocks make.
        ValueError: another `by`.
    """
    most = machine.max_threads_per_sm // WARP
    if warps > most:
        raise Unavailable(f"an SM of this device holds {most} warps, not {warps}")
    equal = [size for size in range(1, 33) if warps % size == 0]
    fitting = [size for size in equal if warps // size <= machine.max_blocks_per_sm]
    if not fitting:
        raise Unavailable(f"no equal blocks make {warps} warps on an SM of this device")
    choose = {"shared_memory": min, "block": max}
    if by not in choose:
        raise ValueError(f"by='{by}': 'shared_memory' or 'block'")
    size = choose[by](fitting)
    return size * WARP, warps // size


def pin(bound: Bound, blocks: int, carveout: int = MOST_SHARED) -> None:
    """Give the launch the shared memory with which just `blocks` blocks are resident on an SM.

    Raises:
        Unavailable: as `pin_blocks`.
    """
    launch = bound.launch
    if SIMULATOR or launch is None:
        return
    overload = bound.overload()
    prepare_shared_memory(overload, carveout)
    dynamic = pin_blocks(overload, launch.block[0], blocks)
    bound.launch = Launch(launch.grid, launch.block, dynamic)


def residency(log: Any, turns: int) -> dict[str, float | list[float]]:
    """The readings of a persistent loop of `turns` batches from its log."""
    found = rows(log)
    return {
        "resident_blocks": float(most_at_once(found)),
        "batch_cycles": mean_cycles(found) / turns,
    }


@cache
def reader(loads: int, width: int) -> Any:
    """The read: persistent warps, `loads` independent loads of `width` bytes in flight each."""
    loop = walk.read(loads, width)
    words = width // 4
    span = loads * WARP * words

    @jit(launch_bounds=LARGEST)
    def read(data, step, turns, out, log):
        """Sum of the words that this thread reads."""
        note_start(log)
        thread = cuda.grid(1)
        index = thread // WARP * span + thread % WARP * words
        out[thread] = loop(data, index, step, turns)
        note_stop(log)

    return read


@cache
def writer(loads: int, width: int) -> Any:
    """AXPY: the same loop, in which half the loads read x, half read y, and y is written."""
    loop = walk.axpy(loads, width)
    words = width // 4
    span = loads // 2 * WARP * words

    @jit(launch_bounds=LARGEST)
    def axpy(xy, a, distance, step, turns, log):
        """y <- a*x + y on the words that this thread walks over."""
        note_start(log)
        thread = cuda.grid(1)
        index = thread // WARP * span + thread % WARP * words
        loop(xy, index, a, (distance, step, turns))
        note_stop(log)

    return axpy


def _shape(params: Params, machine: Machine) -> tuple[int, int, int]:
    """(threads a block, blocks an SM, warps of the whole grid)."""
    block, blocks = arrange(params["warps"], params["by"], machine)
    return block, blocks, machine.sms * blocks * block // WARP


def _bind_read(params: Params, machine: Machine) -> Bound:
    loads, width = params["loads"], params["width"]
    block, blocks, warps = _shape(params, machine)
    step = warps * loads * WARP * width
    turns = min(TURNS, stream_bytes(machine) // step)
    data = machine.uniform("stream", stream_bytes(machine) // 4, "float32").view("uint32")
    out = machine.xp.zeros(warps * WARP, "uint32")
    log = new_log(machine.sms * blocks, machine.xp)

    def check() -> float:
        walked = data[: turns * step // 4].reshape(turns, -1).sum(axis=0, dtype="uint32")
        expected = walked.reshape(warps, loads, WARP, -1).sum(axis=(1, 3), dtype="uint32").ravel()
        return relative_error(out, lambda part: expected[part].astype("float64"), 0.0, machine.xp)

    bound = Bound(
        launch=Launch.linear(machine.sms * blocks, block),
        # The sums and the log are written too, under a thousandth of what is read.
        work=Work(bytes_read=turns * step),
        check=check,
        poison=lambda: out.fill(0),
        function=reader(loads, width),
        arguments=(argument(data), step, turns, argument(out), argument(log)),
        reading=lambda: residency(log, turns),
    )
    pin(bound, blocks, params.get("carveout", MOST_SHARED))
    return bound


def _bind_axpy(params: Params, machine: Machine) -> Bound:
    loads, width = params["loads"], params["width"]
    block, blocks, warps = _shape(params, machine)
    step = warps * loads // 2 * WARP * width
    half = stream_bytes(machine) // 8
    turns = min(TURNS, 4 * half // step)
    start = machine.uniform("xy", 2 * half, "float32")
    xy = machine.once("xy copy", lambda: machine.xp.empty_like(start))
    log = new_log(machine.sms * blocks, machine.xp)
    n = turns * step // 4
    x, y, y0 = start[:n], xy[half : half + n], start[half : half + n]

    def check() -> float:
        return relative_error(
            y, lambda part: A * x[part].astype("float64") + y0[part], 2e-7, machine.xp
        )

    def poison() -> None:
        xy[:] = start

    bound = Bound(
        launch=Launch.linear(machine.sms * blocks, block),
        work=Work(2 * turns * step, turns * step, 2 * n),
        check=check,
        poison=poison,
        function=writer(loads, width),
        arguments=(argument(xy), np.float32(A), 4 * half, step, turns, argument(log)),
        reading=lambda: residency(log, turns),
    )
    pin(bound, blocks, params.get("carveout", MOST_SHARED))
    return bound


SPIN_CYCLES = 50_000
"""Long enough for every place on every SM to be taken before the first block stops."""
SPINNERS = {0: 0, 24: 0, 40: 5_000, 56: 0, 120: 0, 200: 0}
"""Values that a thread keeps alive, and so about its registers -> static shared memory, B."""


@cache
def spinner(values: int) -> Any:
    """A block that waits, with the registers and the static shared memory of SPINNERS."""
    keep = walk.live(max(2, values))
    floats = max(1, SPINNERS[values] // 4)

    @jit
    def wait(cycles, never, table, out, log):
        """Note SM, start and stop; between them, wait."""
        note_start(log)
        begin = ptx.clock64()
        # Never taken, and nobody can know: the branch costs its registers, not its time.
        if never != 0:
            if values > 0:
                out[cuda.grid(1)] = keep(table, cuda.threadIdx.x, np.float32(never), never)
            if floats > 1:
                shared = cuda.shared.array(floats, float32)
                shared[cuda.threadIdx.x] = table[cuda.threadIdx.x]
                cuda.syncthreads()
                out[cuda.grid(1)] = shared[cuda.blockDim.x - cuda.threadIdx.x]
        while ptx.clock64() - begin < cycles:
            pass
        cuda.syncthreads()
        note_stop(log)

    return wait


def _bind_resident(params: Params, machine: Machine) -> Bound:
    block, values = params["block"], params["registers"]
    table = machine.xp.zeros(1024, machine.xp.float32)

    def bound(blocks: int, dynamic: int) -> Bound:
        grid = 2 * machine.sms * blocks
        log = new_log(grid, machine.xp)

        def check() -> float:
            found = rows(log)
            short = found[:, 2] - found[:, 1] < SPIN_CYCLES
            if short.any():
                raise WrongAnswer(f"{short.sum()} of {grid} blocks did not wait {SPIN_CYCLES}")
            return 0.0

        return Bound(
            launch=Launch.linear(grid, block, dynamic),
            work=Work(),
            check=check,
            poison=lambda: log.fill(0),
            function=spinner(values),
            arguments=(SPIN_CYCLES, 0, argument(table), argument(table), argument(log)),
            reading=lambda: {"resident_blocks": float(most_at_once(rows(log)))},
        )

    overload = None if SIMULATOR else bound(1, 0).overload()
    prepare_shared_memory(overload, MOST_SHARED)
    static = SPINNERS[values]
    dynamic = int(params["shared_share"] * (block_limit() - static)) // 4 * 4
    blocks = resident_blocks(overload, block, dynamic)
    if blocks == 0:
        raise Unavailable(f"the driver says that no block of {block} threads fits an SM like this")
    return bound(blocks, dynamic)


DRIVER_LAUNCHES = 400
"""Random launches for each kernel of SPINNERS: 2,400 in all."""


def _bind_driver(params: Params, machine: Machine) -> Bound:
    """Ask the driver about random launches; what is queued is just one short launch."""
    example = {"block": 32, "registers": 0, "shared_share": 0.0}
    asked: list[tuple[int, ...]] = []
    random = np.random.default_rng(machine.seed)
    for values in SPINNERS:
        overload = _bind_resident({**example, "registers": values}, machine).overload()
        static = int(overload.shared_mem_per_block)
        for _ in range(DRIVER_LAUNCHES):
            threads = int(random.integers(1, 1025))
            # Half of them with no dynamic memory or with little, so that many blocks fit.
            share = random.choice([0.0, 0.1, 1.0, 1.0])
            dynamic = int(random.uniform() * share * (block_limit() - static))
            blocks = resident_blocks(overload, threads, dynamic)
            asked.append((threads, int(overload.regs_per_thread), static, dynamic, blocks))
    columns = [list(column) for column in zip(*asked, strict=True)]
    bound = _bind_resident(example, machine)
    bound.reading = lambda: dict(zip(DRIVER_METRICS, columns, strict=True))
    return bound


DRIVER_METRICS = (
    "driver_threads",
    "driver_registers",
    "driver_static_smem",
    "driver_dynamic_smem",
    "driver_blocks",
)

_SMALL = (
    {"warps": 1, "loads": 1, "width": 4, "by": "shared_memory"},
    {"warps": 2, "loads": 2, "width": 16, "by": "block"},
)
_READ = "void(uint32[::1], int64, int64, uint32[::1], int64[::1])"
_AXPY = "void(float32[::1], float32, int64, int64, int64, int64[::1])"
_WAIT = "void(int64, int64, float32[::1], float32[::1], int64[::1])"

FAMILY = Family(
    "occupancy",
    "bandwidth against resident warps, loads in flight and load width, and what an SM held",
    (
        Kernel(
            "read",
            "Persistent warps read; so many independent loads in flight each",
            _bind_read,
            examples=_SMALL,
            source=reader,
            compiled=((reader(1, 4), _READ), (reader(8, 16), _READ)),
        ),
        Kernel(
            "axpy",
            "The same for y <- a*x + y; half of the loads read x, half read y",
            _bind_axpy,
            examples=({**_SMALL[0], "loads": 2}, _SMALL[1]),
            source=writer,
            compiled=((writer(2, 4), _AXPY), (writer(8, 16), _AXPY)),
        ),
        Kernel(
            "calibration",
            "The read at other numbers of warps: feeds the model and is never scored",
            _bind_read,
            examples=({"warps": 1, "loads": 3, "width": 8, "by": "shared_memory"},),
            source=reader,
            compiled=((reader(3, 8), _READ),),
        ),
        Kernel(
            "calibration_axpy",
            "AXPY at other numbers of warps: feeds the model and is never scored",
            _bind_axpy,
            examples=({"warps": 1, "loads": 4, "width": 4, "by": "shared_memory"},),
            source=writer,
            compiled=((writer(4, 4), _AXPY),),
        ),
        Kernel(
            "resident",
            "Blocks of given registers, shared memory and size wait: how many at once on an SM",
            _bind_resident,
            examples=({"block": 64, "registers": 24, "shared_share": 0.25},),
            source=spinner,
            compiled=tuple((spinner(values), _WAIT) for values in (0, 40, 200)),
        ),
        Kernel(
            "driver",
            "Random launches of real kernels: resident blocks by the driver",
            _bind_driver,
            examples=({},),
            source=spinner,
            compiled=((spinner(0), _WAIT),),
            simulator="there is no driver to ask",
        ),
    ),
)
