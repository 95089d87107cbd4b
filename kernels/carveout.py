"""Shared memory and L1 share one array: what the carve-out leaves of L1, and what a tile costs.

`chase` walks a footprint by one thread, at a carve-out: L1 ends where the latency rises.
`stencil` loads a tile and its halo into shared memory; a larger tile loads fewer bytes twice, and
fewer blocks of it fit an SM.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float32

from kernels import probes, ptx, ring
from kernels.compat import SIMULATOR, argument, jit
from kernels.shared_memory import block_limit, prepare_shared_memory
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

STEPS = 16
_steps = probes.chase(STEPS, "ca")


@jit
def chase(start, warm, timed, out, cycles):
    """`warm` x 16 loads that fill L1, then `timed` x 16 loads, each at the address just read."""
    at = start
    for _ in range(warm):
        at = _steps(at)
    begin = ptx.clock64()
    for _ in range(timed):
        at = _steps(at)
    end = ptx.clock64()
    out[0] = at
    cycles[0] = end - begin


TIMED = 2 if SIMULATOR else 256
"""Rounds of STEPS loads between the two clock reads: 4,096 loads."""


def _bind_chase(params: Params, machine: Machine) -> Bound:
    cycle = ring.build(params["bytes"], machine)
    out = machine.xp.zeros(1, "uint64")
    cycles = machine.xp.zeros(1, "int64")
    # Every line once, and again, since L1 does not replace the oldest line first.
    warm = max(1, 2 * cycle.lines // STEPS)

    bound = Bound(
        launch=Launch.linear(1, 1),
        work=Work(bytes_read=8 * STEPS * (warm + TIMED)),
        check=lambda: cycle.check(out[0], (warm + TIMED) * STEPS),
        poison=lambda: out.fill(0),
        function=chase,
        arguments=(np.uint64(cycle.address(0)), warm, TIMED, argument(out), argument(cycles)),
        reading=lambda: {"latency_cycles": float(cycles[0]) / (STEPS * TIMED)},
        cache_resident=True,
    )
    if SIMULATOR:
        return bound
    overload, launch_once = bound.overload(), bound.queue

    def queue(stream: Any) -> None:
        # Set at every launch: cases that are sampled in turns share the kernel.
        prepare_shared_memory(overload, params["carveout"])
        launch_once(stream)

    bound.queue = queue
    return bound


RADIUS = 2
WEIGHTS = (np.float32(0.5), np.float32(0.1), np.float32(0.025))
"""Weight of the centre, and of each of the four neighbours at distance 1 and 2; they sum to 1."""


@jit(max_registers=48)  # without a cap, short loops are unrolled at the cost of 56
def stencil(n, tile, source, target):
    """Nine-point star on an n x n torus: one block a tile, staged with its halo."""
    # An unsigned index is taken as it is; a signed one costs a test for Python's negative indices.
    staged = cuda.shared.array(0, float32)
    side = tile + 2 * RADIUS
    left = cuda.blockIdx.x * tile - RADIUS
    top = cuda.blockIdx.y * tile - RADIUS
    row = cuda.threadIdx.y
    while row < side:  # a range with a step known at run time would divide
        y = top + row
        y = y + n if y < 0 else (y - n if y >= n else y)
        column = cuda.threadIdx.x
        while column < side:
            x = left + column
            x = x + n if x < 0 else (x - n if x >= n else x)
            staged[np.uint32(row * side + column)] = source[np.uint32(y * n + x)]
            column += 32
        row += cuda.blockDim.y
    cuda.syncthreads()
    centre, near, far = WEIGHTS
    row = cuda.threadIdx.y
    while row < tile:
        column = cuda.threadIdx.x
        while column < tile:
            at = (row + RADIUS) * side + column + RADIUS
            total = centre * staged[np.uint32(at)]
            total += near * (staged[np.uint32(at - 1)] + staged[np.uint32(at + 1)])
            total += near * (staged[np.uint32(at - side)] + staged[np.uint32(at + side)])
            total += far * (staged[np.uint32(at - 2)] + staged[np.uint32(at + 2)])
            total += far * (staged[np.uint32(at - 2 * side)] + staged[np.uint32(at + 2 * side)])
            target[np.uint32((top + RADIUS + row) * n + left + RADIUS + column)] = total
            column += 32
        row += cuda.blockDim.y


def stencil_reference(grid: Any, xp: Any) -> Any:
    """The same in float64; `grid` of shape (n, n)."""
    grid = grid.astype("float64")
    total = float(WEIGHTS[0]) * grid
    for distance in (1, 2):
        for axis in (0, 1):
            for sign in (-1, 1):
                total += float(WEIGHTS[distance]) * xp.roll(grid, sign * distance, axis)
    return total


def staged_bytes(tile: int) -> int:
    """Shared memory of one block, B."""
    return 4 * (tile + 2 * RADIUS) ** 2


def _bind_stencil(params: Params, machine: Machine) -> Bound:
    n, tile, block, xp = params["n"], params["tile"], params["block"], machine.xp
    if n % tile or block % 32:
        raise ValueError(f"n={n} is not a multiple of tile={tile}, or block={block} not of 32")
    if staged_bytes(tile) > block_limit():
        raise Unavailable(
            f"a tile of {tile} needs {staged_bytes(tile)} bytes of shared memory; a block of this "
            f"device has {block_limit()} at most"
        )
    source = machine.uniform("grid", n * n, "float32")
    target = machine.once("stencil target", lambda: xp.empty_like(source))
    reference = machine.once(
        "stencil reference", lambda: stencil_reference(source.reshape(n, n), xp).ravel()
    )
    bound = Bound(
        launch=Launch((n // tile, n // tile, 1), (32, block // 32, 1), staged_bytes(tile)),
        work=Work(4 * n * n, 4 * n * n, 12 * n * n),
        check=lambda: relative_error(target, lambda part: reference[part], 1e-6, xp),
        poison=lambda: target.fill(np.nan),
        function=stencil,
        arguments=(n, tile, argument(source), argument(target)),
        # How many bytes blocks ask for, halos counted each time: what a larger tile saves.
        reading=lambda: {"loaded_bytes": float((n // tile) ** 2 * staged_bytes(tile))},
    )
    if not SIMULATOR:
        prepare_shared_memory(bound.overload())
    return bound


FAMILY = Family(
    "carveout",
    "shared memory or L1: latency over a footprint by carve-out, and tiles of a stencil",
    (
        Kernel(
            "chase",
            "Dependent loads over a footprint, by share of shared memory",
            _bind_chase,
            examples=({"bytes": 4096, "carveout": 50},),
            source=chase,
            compiled=((chase, "void(uint64, int64, int64, uint64[::1], int64[::1])"),),
        ),
        Kernel(
            "stencil",
            "Nine-point star from tiles in shared memory",
            _bind_stencil,
            examples=({"n": 16, "tile": 8, "block": 64},),
            source=stencil,
            compiled=((stencil, "void(int64, int64, float32[::1], float32[::1])"),),
        ),
    ),
)
