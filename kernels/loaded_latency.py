"""Latency under load: one warp chases through DRAM while the other SMs read memory.

The load generators count their own bytes, and the probe reads the counts when its chase begins
and when it ends, so that each latency comes with the bandwidth that ran beside it. How hard they
read is set by how many warps do and by a pause between two batches of loads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from kernels import ptx, ring
from kernels.compat import argument, device, jit, on_host
from kernels.probes import chase, loads
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
)

STEPS, ROUNDS = 32, 16
"""The probe's loads: 512, some 0.2 ms in idle memory."""
WARPS = 32
"""Warps in each block, at most."""
BATCH = 64
"""Bytes a thread reads at once: 4 loads of 16 or 16 loads of 4. With 32 warps an SM has 64 KiB in
flight, three times what saturates DRAM (bandwidth x latency / SMs: 22 KiB on an H200)."""
SHARE = 32 * BATCH
"""Bytes that a warp reads at once."""
SETTLE = 60_000
"""Cycles (30 us) from the last generator's start to the probe's first load, and 4 pauses more."""
DEADLINE = 1 << 26
"""Cycles (30 to 60 ms) after which every loop of the kernel gives up."""
CHASED, READ = 1 << 30, 1 << 32
"""Bytes that the probe chases through and that the generators read, both far beyond any L2."""
SPACING = 16
"""Counters and flags are 128 bytes apart, each on a line of its own."""
PROBE_SM, STARTED, STOP, LEFT = (SPACING * place for place in range(4))
"""Where in `flags` is what."""
BEGIN_NS, END_NS, CYCLES, ADDRESS = range(4)
"""What the probe logs."""

_chase = chase(STEPS, "cg")
_after_u64 = ptx.clock_after("u64")
_after_f32 = ptx.clock_after("f32")
_fresh = ptx.fresh("s64")


@device
def _probe(settle, born, cursor, flags, counts, seen, log):
    """One warp: wait until all read, then chase, with the counters read before and after."""
    lane, blocks = cuda.threadIdx.x, cuda.gridDim.x
    if lane == 0:
        cuda.atomic.add(flags, PROBE_SM, 1 + ptx.smid())
    while _fresh(flags, STARTED) < blocks - 1 and ptx.clock64() - born < DEADLINE:
        pass
    settled = ptx.clock64()
    while ptx.clock64() - settled < settle:
        pass
    address = _chase(cursor[0])
    # The counters are read in the same order both times, so that the bytes between are those of
    # the time from one first read to the other.
    begin_ns = ptx.globaltimer()
    for block in range(lane, blocks, 32):
        seen[block] = _fresh(counts, block * SPACING)
    begin = _after_u64(address)
    for _ in range(ROUNDS):
        address = _chase(address)
    end = _after_u64(address)
    end_ns = ptx.globaltimer()
    for block in range(lane, blocks, 32):
        seen[block] = _fresh(counts, block * SPACING) - seen[block]
    cuda.syncwarp()
    if lane == 0:
        cuda.atomic.add(flags, STOP, 1)
        cursor[0] = address
        log[BEGIN_NS] = begin_ns
        log[END_NS] = end_ns
        log[CYCLES] = end - begin
        log[ADDRESS] = address


def _kernel(width: int) -> Any:
    batch = loads(BATCH // width, width // 4, "cg")

    @jit
    def probe(
        warps, pause, settle, zero, data, slice_bytes, cursor, flags, counts, seen, log, sink
    ):
        """Block 0 probes, the others read; a block on the probe's SM reads nothing.

        `counts` grows from launch to launch, and says where a block goes on reading.
        """
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        warp = thread >> 5
        born = ptx.clock64()
        if block == 0:
            if warp == 0:
                _probe(settle, born, cursor, flags, counts, seen, log)
        else:
            sm = _fresh(flags, PROBE_SM)
            while sm == 0 and ptx.clock64() - born < DEADLINE:
                sm = _fresh(flags, PROBE_SM)
            position = (counts[block * SPACING] + warp * SHARE) % slice_bytes
            cuda.syncthreads()
            if thread == 0:
                cuda.atomic.add(flags, STARTED, 1)
            if warp < warps and sm != 0 and sm != 1 + ptx.smid():
                start = np.int64(ptx.address_of(data)) + block * slice_bytes + (thread & 31) * width
                # Knuth's multiplicative hash, then Numerical Recipes' generator (2nd ed., 7.1).
                random = (block * WARPS + warp) * 2654435761 + position
                carry = np.float32(0)
                stop = 0
                while stop == 0:
                    if pause > 0:
                        # 0.5 to 1.5 pauses: warps that kept step would come in bursts.
                        random = (random * 1664525 + 1013904223) & 0xFFFFFFFF
                        wait = (pause >> 1) + ((pause * (random >> 16)) >> 16)
                        now = _after_f32(carry)
                        while ptx.clock64() - now < wait:
                            pass
                    stop = _fresh(flags, STOP)
                    carry = batch(start + position, 32 * width, carry, zero)
                    position += warps * SHARE
                    if position >= slice_bytes:
                        position -= slice_bytes
                    if thread & 31 == 0:
                        cuda.atomic.add(counts, block * SPACING, SHARE)
                    if ptx.clock64() - born > DEADLINE:
                        stop = 1
                sink[block * WARPS + warp] = carry
        # The last block to leave makes the flags ready for the next launch.
        cuda.syncthreads()
        if thread == 0 and cuda.atomic.add(flags, LEFT, 1) == cuda.gridDim.x - 1:
            flags[PROBE_SM] = 0
            flags[STARTED] = 0
            flags[STOP] = 0
            flags[LEFT] = 0

    return probe


KERNELS = {width: _kernel(width) for width in (4, 16)}
_LONGS = "int64[::1]"
SIGNATURE = (
    "void(int64, int64, int64, uint32, float32[::1], int64, uint64[::1], "
    f"{_LONGS}, {_LONGS}, {_LONGS}, {_LONGS}, float32[::1])"
)


def _bind(params: Params, machine: Machine) -> Bound:
    width, warps, pause = params["width"], params["warps"], params["pause"]
    if width not in KERNELS:
        raise ValueError(f"loads of {width} bytes: one of {', '.join(map(str, KERNELS))}")
    if not 0 <= warps <= WARPS:
        raise ValueError(f"{warps} warps: 0 to {WARPS} fit in a block")
    if machine.memory_bytes < 2 * (CHASED + READ):
        raise Unavailable(f"needs a device of {2 * (CHASED + READ) >> 30} GiB")
    xp, blocks = machine.xp, machine.sms
    cycle = ring.build(CHASED, machine)
    data = xp.zeros(READ // 4, np.float32)
    slice_bytes = READ // blocks // SHARE * SHARE
    cursor, flags = xp.zeros(1, np.uint64), xp.zeros(4 * SPACING, np.int64)
    counts, seen = xp.zeros(blocks * SPACING, np.int64), xp.zeros(blocks, np.int64)
    log, sink = xp.zeros(4, np.int64), xp.zeros(blocks * WARPS, np.float32)

    def check() -> float:
        if on_host(flags).any():
            raise WrongAnswer("the kernel did not end in good order: its flags are still set")
        if warps > 0 and not on_host(seen)[1:].sum() > 0:
            raise WrongAnswer("no load generator read anything while the probe ran")
        return cycle.check(on_host(log)[ADDRESS], (1 + ROUNDS) * STEPS)

    def poison() -> None:
        for array in (flags, counts, seen, log):
            array.fill(0)
        cursor.fill(cycle.address(0))

    def reading() -> dict[str, Any]:
        logged = on_host(log)
        seconds = float(logged[END_NS] - logged[BEGIN_NS]) * 1e-9
        return {
            "latency_cycles": float(logged[CYCLES]) / (ROUNDS * STEPS),
            "load_bandwidth": float(on_host(seen)[1:].sum()) / seconds,
        }

    given = (warps, pause, SETTLE + 4 * pause, np.uint32(0), argument(data), slice_bytes)
    return Bound(
        Launch.linear(blocks, 32 * WARPS),
        Work(),
        check=check,
        poison=poison,
        function=KERNELS[width],
        arguments=(*given, *map(argument, (cursor, flags, counts, seen, log, sink))),
        reading=reading,
    )


FAMILY = Family(
    "loaded_latency",
    "latency of DRAM while others load it",
    (
        Kernel(
            "probe",
            "One warp chases through DRAM while the other SMs read with a pause between batches",
            _bind,
            examples=(
                {"width": 16, "warps": 0, "pause": 0},
                {"width": 16, "warps": WARPS, "pause": 4000},
                {"width": 4, "warps": 4, "pause": 0},
            ),
            source=KERNELS[16],
            compiled=tuple((function, SIGNATURE) for function in KERNELS.values()),
            simulator="blocks run one after another there: none loads memory beside the probe",
        ),
    ),
)
