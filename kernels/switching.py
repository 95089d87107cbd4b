"""Warps that take turns on one scheduler, and arithmetic beneath a load: latency that is hidden.

`switch` puts k warps of dependent arithmetic on one sub-partition; `load_use` puts k independent
FMAs between a load and its use. Both are part of the family `instruction`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from kernels import loops, ptx, ring
from kernels.compat import argument, jit, on_host
from kernels.probes import pointer
from kernels.spec import (
    Bound,
    Kernel,
    Launch,
    Machine,
    Params,
    Unavailable,
    Work,
    WrongAnswer,
    scalar_error,
)

PARTITIONS = 4
"""Sub-partitions of an SM, each with a scheduler of its own, since Maxwell. A warp belongs to
number %warpid mod 4, which is not promised but seen: warps of one number share one scheduler."""
REGISTER_FILE = 65536
"""32-bit registers an SM (CUDA programming guide, technical specifications, cc 5.0 to 12.x)."""
ROUNDS = 128
EDGE = 16
"""Blocks that must start together wait until %globaltimer passes a multiple of 2^16 ns (65 us)."""
HELD = {32: 14, 64: 48, 128: 112, 255: 236}
"""Registers a thread may have -> registers that its chain goes over; the rest are for addresses,
clocks and loops."""
FEW = 1
A = 0.5

_after = ptx.clock_after("f32")
_after_u64 = ptx.clock_after("u64")


@cache
def switch(held: int) -> Any:
    """The kernel whose chain goes over `held` registers."""
    run = loops.chain_over(held)

    @jit
    def switch(rounds, together, table, x, a, out, start, stop, sm):
        """Time dependent FMAs on the warps of sub-partition 0; the others leave 0 as clocks."""
        thread = cuda.grid(1)
        value = x[thread]
        begin = end = ptx.clock64() * 0
        turns = 1
        # A loop whose end the compiler cannot foretell, so that it does not copy the code.
        while turns <= rounds:
            cuda.syncthreads()
            if together != 0:
                now = ptx.globaltimer()
                edge = ((now >> EDGE) + 1) << EDGE
                while now < edge:
                    now = ptx.globaltimer()
            if ptx.warpid() & 3 == 0:
                begin = ptx.clock64()
                value = run(turns, table, value, a)
                end = _after(value)
            turns *= rounds
        out[thread] = value
        if thread % 32 == 0:
            start[thread // 32] = begin
            stop[thread // 32] = end
            sm[thread // 32] = ptx.smid()

    return switch


SWITCH_SIGNATURE = (
    "void(int64, int64, uint64, float32[::1], float32, float32[::1], int64[::1], int64[::1], "
    "int32[::1])"
)


def held_by(warps: int, registers: str) -> int:
    """Registers that each chain goes over, where `4 * warps` warps share an SM.

    Raises:
        ValueError: `registers` is neither 'few' nor 'most'.
    """
    if registers == "few":
        return FEW
    if registers != "most":
        raise ValueError(f"registers '{registers}': 'few' or 'most'")
    each = REGISTER_FILE // (PARTITIONS * warps * 32)
    return HELD[max(limit for limit in HELD if limit <= max(each, min(HELD)))]


def _bind_switch(params: Params, machine: Machine) -> Bound:
    warps = params["warps"]
    resident = PARTITIONS * warps
    if 32 * resident > machine.max_threads_per_sm:
        most = machine.max_threads_per_sm // 32
        raise Unavailable(f"{resident} warps an SM: this device holds {most}")
    # A block has at most 32 warps; where more are needed two blocks share each SM.
    blocks, each = (1, resident) if resident <= 32 else (2 * machine.sms, resident // 2)
    held = held_by(warps, params["registers"])
    rounds = 2 if machine.simulator else ROUNDS
    steps = loops.chain_over_steps(held)
    xp, total = machine.xp, blocks * each
    table = machine.uniform("switch", held, "float32")
    x, out = xp.ones(32 * total, np.float32), xp.empty(32 * total, np.float32)
    start, stop = xp.zeros(total, np.int64), xp.zeros(total, np.int64)
    sm = xp.zeros(total, np.int32)

    def timing() -> float | None:
        """Cycles from first start to last stop on an SM where just `warps` warps ran."""
        on = on_host(stop) > 0
        for one in np.unique(on_host(sm)):
            here = on & (on_host(sm) == one)
            if here.sum() == warps:
                return float(on_host(stop)[here].max() - on_host(start)[here].min())
        return None

    def check() -> float:
        if timing() is None:
            raise WrongAnswer(f"no SM had {warps} warps on its first sub-partition")
        # Each step halves what came before, so that the last 64 make the result.
        value, values = 0.0, on_host(table).astype(np.float64)
        for step in range(-64, 0):
            value = value * A + values[step % steps % held]
        lanes = on_host(out).reshape(total, 32)[on_host(stop) > 0]
        return max(scalar_error(float(end), value, 1e-5) for end in (lanes.min(), lanes.max()))

    def poison() -> None:
        out.fill(-77)
        start.fill(0)
        stop.fill(0)

    return Bound(
        Launch.linear(blocks, 32 * each),
        Work(),
        check=check,
        poison=poison,
        function=switch(held),
        arguments=(
            rounds,
            int(blocks > 1),
            np.uint64(pointer(table)),
            argument(x),
            np.float32(A),
            *map(argument, (out, start, stop, sm)),
        ),
        reading=lambda: (
            {} if (cycles := timing()) is None else {"latency_cycles": cycles / (rounds * steps)}
        ),
        cache_resident=True,
    )


SWITCH = Kernel(
    "switch",
    "Warps of dependent FMAs on one sub-partition: is it free to switch between them?",
    _bind_switch,
    examples=({"warps": 2, "registers": "few"}, {"warps": 1, "registers": "most"}),
    source=switch(FEW),
    compiled=tuple((switch(held), SWITCH_SIGNATURE) for held in (FEW, HELD[64])),
)


COUNTS = (0, 32, 64, 128, 192, 256, 320, 384, 512)
"""FMAs between a load and its use: up to about twice the latency of an L2."""
LOADS = 512
FOOTPRINT = LOADS * ring.LINE
"""Bytes, all of which the first launch reads: the samples find in L2 what it has brought there."""
_run = loops.load_then_fma(COUNTS)


@jit
def load_use(choice, rounds, cursor, x, b, cycles):
    """One warp: a load from L2, independent FMAs, and the next load, which needs the first."""
    address = cursor[0]
    a = x[cuda.threadIdx.x]
    turns = 1
    while turns <= rounds:
        begin = ptx.clock64()
        address = _run(choice, turns, address, a, b)
        end = _after_u64(address)
        turns *= rounds
    cuda.syncthreads()
    cursor[0] = address
    cycles[0] = end - begin


def _bind_load_use(params: Params, machine: Machine) -> Bound:
    count = params["fma"]
    if count not in COUNTS:
        raise ValueError(f"{count} FMAs: one of {', '.join(map(str, COUNTS))}")
    rounds = 2 if machine.simulator else LOADS
    cycle = ring.build(4096 if machine.simulator else FOOTPRINT, machine)
    xp = machine.xp
    cursor, cycles = xp.zeros(1, np.uint64), xp.zeros(1, np.int64)
    x = xp.full(32, A, np.float32)
    return Bound(
        Launch.linear(1, 32),
        Work(),
        check=lambda: cycle.check(on_host(cursor)[0], 1 + rounds),
        poison=lambda: cursor.fill(cycle.address(0)),
        function=load_use,
        arguments=(
            COUNTS.index(count),
            rounds,
            argument(cursor),
            argument(x),
            np.float32(1),
            argument(cycles),
        ),
        reading=lambda: {"latency_cycles": float(on_host(cycles)[0]) / rounds},
        cache_resident=True,
    )


LOAD_USE = Kernel(
    "load_use",
    "One load from L2, k independent FMAs, then the use: how much fits beneath a load",
    _bind_load_use,
    examples=({"fma": 0}, {"fma": 64}),
    source=load_use,
    compiled=((load_use, "void(int64, int64, uint64[::1], float32[::1], float32, int64[::1])"),),
)
