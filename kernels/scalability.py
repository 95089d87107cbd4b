"""The same work on few or many SMs: confined by green contexts, or as one large block an SM."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba import cuda

from kernels import ptx
from kernels.block_log import allow_shared, whole_sm
from kernels.compat import argument, jit, on_host
from kernels.green import partition
from kernels.instructions import fma_chain
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

STEPS, TURNS = 256, 4
B, C = 0.999, 0.001
"""v <- v*B + C keeps any number of FMAs near one."""
A = 1.25
UNROLLED, WIDTH = 4, 4
"""16-byte loads in flight a thread, and float32 a load."""
_chain = fma_chain(STEPS)


@jit
def compute(chunks, turns, b, c, out, sms):
    """turns x STEPS dependent FMAs a thread and chunk: 8 warps a scheduler hide their latency."""
    chunk = cuda.blockIdx.x
    while chunk < chunks:
        v = b
        for _ in range(turns):
            v = _chain(v, b, c)
        out[chunk * cuda.blockDim.x + cuda.threadIdx.x] = v
        if cuda.threadIdx.x == 0:
            sms[chunk] = ptx.smid()
        chunk += cuda.gridDim.x


@jit
def memory(chunks, a, x, y, sms):
    """y <- a*x, a chunk of four 16-byte loads a thread at a time."""
    chunk = cuda.blockIdx.x
    step = WIDTH * cuda.blockDim.x
    while chunk < chunks:
        i = chunk * UNROLLED * step + WIDTH * cuda.threadIdx.x
        p0, p1, p2, p3 = ptx.load_v4_f32(x, i)
        q0, q1, q2, q3 = ptx.load_v4_f32(x, i + step)
        r0, r1, r2, r3 = ptx.load_v4_f32(x, i + 2 * step)
        s0, s1, s2, s3 = ptx.load_v4_f32(x, i + 3 * step)
        ptx.store_v4_f32(y, i, (a * p0, a * p1, a * p2, a * p3))
        ptx.store_v4_f32(y, i + step, (a * q0, a * q1, a * q2, a * q3))
        ptx.store_v4_f32(y, i + 2 * step, (a * r0, a * r1, a * r2, a * r3))
        ptx.store_v4_f32(y, i + 3 * step, (a * s0, a * s1, a * s2, a * s3))
        if cuda.threadIdx.x == 0:
            sms[chunk] = ptx.smid()
        chunk += cuda.gridDim.x


def _compute(params: Params, machine: Machine, chunks: int, places: Any) -> dict[str, Any]:
    xp = machine.xp
    threads, turns = chunks * params["block"], params["turns"]
    out = xp.empty(threads, xp.float32)
    limit = C / (1 - B)
    expected = limit + (B - limit) * B ** (STEPS * turns)

    def check() -> float:
        return relative_error(out, lambda part: xp.full(1, expected), 1e-4, xp)

    return {
        "work": Work(bytes_written=4 * threads, operations=2 * STEPS * turns * threads),
        "check": check,
        "poison": lambda: out.fill(np.nan),
        "function": compute,
        "arguments": (chunks, turns, np.float32(B), np.float32(C), argument(out), argument(places)),
    }


def _memory(params: Params, machine: Machine, chunks: int, places: Any) -> dict[str, Any]:
    xp = machine.xp
    n = chunks * params["block"] * UNROLLED * WIDTH
    x = machine.uniform("x", n, "float32")
    y = machine.once(("y", n), lambda: xp.empty(n, xp.float32))

    def check() -> float:
        return relative_error(y, lambda part: A * x[part].astype(xp.float64), 1e-7, xp)

    return {
        "work": Work(4 * n, 4 * n, n),
        "check": check,
        "poison": lambda: y.fill(np.nan),
        "function": memory,
        "arguments": (chunks, np.float32(A), argument(x), argument(y), argument(places)),
    }


def _bound(make: Any, params: Params, machine: Machine, confined: bool) -> Bound:
    """The work of all SMs, `chunks_per_sm` each, however many take part in it."""
    chunks = params["chunks_per_sm"] * machine.sms
    places = machine.xp.full(chunks, -1, machine.xp.int32)
    parts = make(params, machine, chunks, places)
    right = parts.pop("check")

    def check() -> float:
        if (on_host(places) < 0).any():
            raise WrongAnswer("a chunk was left out")
        return float(right())

    grid, smem = (chunks, 0) if confined else (params["sms"], whole_sm())
    return Bound(
        launch=Launch.linear(grid, params["block"], smem),
        check=check,
        reading=lambda: {"sms_used": float(len(np.unique(on_host(places))))},
        **parts,
    )


def _bind_confined(make: Any, params: Params, machine: Machine) -> Bound:
    """`sms` are asked for; `sms_used` tells how many the driver gave."""
    if params["sms"] > machine.sms:
        raise Unavailable(f"there are {machine.sms} SMs, not {params['sms']}")
    share = partition(params["sms"])
    bound = _bound(make, params, machine, confined=True)
    launch_once = bound.queue
    bound.queue = lambda stream: share.run(stream, launch_once)
    return bound


def _bind_blocks(make: Any, params: Params, machine: Machine) -> Bound:
    if params["sms"] > machine.sms:
        raise Unavailable(f"there are {machine.sms} SMs, not {params['sms']}")
    return allow_shared(_bound(make, params, machine, confined=False))


_COMPUTE = ((compute, "void(int64, int64, float32, float32, float32[::1], int32[::1])"),)
_MEMORY = ((memory, "void(int64, float32, float32[::1], float32[::1], int32[::1])"),)
_FEW = {"sms": 2, "block": 32, "chunks_per_sm": 2}
_NO_GREEN = "green contexts are the driver's; the kernel runs there as blocks_"

FAMILY = Family(
    "scalability",
    "the same work on few or many SMs",
    (
        Kernel(
            "compute",
            "FMAs on SMs set apart by a green context",
            partial(_bind_confined, _compute),
            examples=({**_FEW, "sms": 8, "turns": 1},),
            source=compute,
            compiled=_COMPUTE,
            simulator=_NO_GREEN + "compute",
        ),
        Kernel(
            "memory",
            "y <- a*x on SMs set apart by a green context",
            partial(_bind_confined, _memory),
            examples=({**_FEW, "sms": 8},),
            source=memory,
            compiled=_MEMORY,
            simulator=_NO_GREEN + "memory",
        ),
        Kernel(
            "blocks_compute",
            "FMAs by one block an SM, on as many SMs as there are blocks",
            partial(_bind_blocks, _compute),
            examples=({**_FEW, "turns": 1}, {**_FEW, "sms": 1, "turns": 1}),
            source=compute,
        ),
        Kernel(
            "blocks_memory",
            "y <- a*x by one block an SM, on as many SMs as there are blocks",
            partial(_bind_blocks, _memory),
            examples=(_FEW, {**_FEW, "sms": 1}),
            source=memory,
        ),
    ),
)
