"""What registers cost: a kernel capped at fewer than it needs, and block sizes at two counts.

`capped` keeps 128 values of each thread alive. Under a cap the assembler spills what does not fit
to local memory, and every turn of the loop stores and loads it again. A cap that is lower lets
more blocks be resident, which this kernel has no use for.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from numba import cuda

from kernels import axpy, walk
from kernels.compat import SIMULATOR, argument, jit
from kernels.shared_memory import prepare_shared_memory, resident_blocks
from kernels.spec import (
    Bound,
    Family,
    Kernel,
    Launch,
    Machine,
    Params,
    Unavailable,
    Work,
    relative_error,
)
from kernels.walk import LIVE_PITCH

LIVE = 128
BLOCK = LIVE_PITCH
GAIN = np.float32(2**-7)
"""v_i <- GAIN*v_(i+1) + v_i grows by less than e in TURNS turns."""
TURNS = 1 if SIMULATOR else 64
THREADS_PER_SM = 2 * BLOCK if SIMULATOR else 8192
"""Threads that each SM gets in all: the same work under every cap, in four waves at the least."""


@cache
def capped(registers: int) -> Any:
    """128 values alive, compiled for at most so many registers."""
    keep = walk.live(LIVE)

    @jit(max_registers=registers)
    def capped_at(table, a, turns, out):
        """Sum of this thread's values after `turns` rounds of FMAs."""
        out[cuda.grid(1)] = keep(table, cuda.threadIdx.x, a, turns)

    return capped_at


def _bind_capped(params: Params, machine: Machine) -> Bound:
    """blocks_per_sm='all' gives every SM the same threads, in waves as the registers allow; 1
    gives it one block, whose spills are a fraction as many bytes."""
    share = params["blocks_per_sm"]
    blocks = THREADS_PER_SM // BLOCK if share == "all" else share
    grid = machine.sms * blocks
    table = machine.uniform("table", LIVE * BLOCK, "float32")
    out = machine.xp.zeros(grid * BLOCK, "float32")

    def check() -> float:
        values = table.reshape(LIVE, BLOCK).astype("float64")
        total = sum(walk.live_turns(list(values), float(GAIN), TURNS))
        expected = machine.xp.tile(total, grid)
        # An FMA rounds once and a value goes through TURNS of them, then LIVE additions.
        tolerance = 6e-8 * (TURNS + LIVE)
        return relative_error(out, lambda part: expected[part], tolerance, machine.xp)

    return Bound(
        launch=Launch.linear(grid, BLOCK),
        work=Work(operations=2 * grid * BLOCK * TURNS * LIVE),
        check=check,
        poison=lambda: out.fill(np.nan),
        function=capped(params["registers"]),
        arguments=(argument(table), GAIN, TURNS, argument(out)),
        cache_resident=True,
    )


EXTRA_VALUES = 40
"""With these alive in a branch that no thread takes, AXPY needs more than 32 registers, at most
64, and does nothing else than before."""
_extra = walk.live(EXTRA_VALUES)


@jit
def monolithic(n, a, x, y, never):
    """One thread an element, with the registers of a larger kernel."""
    i = cuda.grid(1)
    if never != 0:
        y[i] = _extra(x, i, a, never)
    if i < n:
        y[i] = a * x[i] + y[i]


@jit
def grid_stride(n, a, x, y, never):
    """Resident threads walk the array, with the registers of a larger kernel."""
    step = cuda.gridsize(1)
    i = cuda.grid(1)
    if never != 0:
        y[i] = _extra(x, i, a, never)
    while i < n:
        y[i] = a * x[i] + y[i]
        i += step


LARGE = {"monolithic": monolithic, "grid_stride": grid_stride}
UP_TO = (32, 64)
"""Registers a thread, at most: AXPY as it is, and with more alive."""


def _bind_block(name: str, params: Params, machine: Machine) -> Bound:
    registers, block = params["registers"], params["block"]
    if registers not in UP_TO:
        raise ValueError(f"registers {registers}: the kernels have up to 32 or up to 64")
    bound = axpy.FAMILY[name].bind({**params, "dtype": "float32"}, machine)
    if registers == 64:
        bound.function = LARGE[name]
        bound.arguments = (*bound.arguments, 0)
    if name == "grid_stride" and not SIMULATOR:
        overload = bound.overload()
        prepare_shared_memory(overload)
        resident = resident_blocks(overload, block)
        if resident == 0:
            raise Unavailable(f"no block of {block} threads with so many registers fits an SM")
        bound.launch = Launch.linear(machine.sms * resident, block)
    return bound


_AXPY = "void(int64, float32, float32[::1], float32[::1], int64)"


def _block_kernel(name: str, summary: str) -> Kernel:
    return Kernel(
        f"block_{name}",
        summary,
        bind=partial(_bind_block, name),
        examples=tuple({"n": 200, "block": 96, "registers": up_to} for up_to in UP_TO),
        source=LARGE[name],
        compiled=((LARGE[name], _AXPY),),
    )


FAMILY = Family(
    "registers",
    "registers a thread: capped and spilled, and block sizes for small and larger kernels",
    (
        Kernel(
            "capped",
            "128 values alive in a thread under a cap of registers",
            _bind_capped,
            examples=({"registers": 64, "blocks_per_sm": 1},),
            source=capped,
            compiled=tuple(
                (capped(registers), "void(float32[::1], float32, int64, float32[::1])")
                for registers in (24, 255)
            ),
        ),
        _block_kernel("monolithic", "AXPY, one thread an element, by block size"),
        _block_kernel("grid_stride", "AXPY by resident threads, by block size"),
    ),
)
