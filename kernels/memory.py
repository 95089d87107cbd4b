"""Latency of memory, level by level: one warp that waits for each load before the next.

A chase goes over absolute addresses through a random cycle of lines (`kernels.ring`), so that
nothing lies between two loads and no prefetcher guesses the next. Each launch goes on where the
last one ended. A footprint that L2 may hold is first read once round from there, by all warps of
the chase's own SM and in the chase's own order: L2 then holds just what a whole turn of this SM
leaves in it, and in the partition where this SM leaves it. Larger ones meet lines not yet seen.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda, types

from kernels import ptx, ring
from kernels.compat import SIMULATOR, argument, jit, on_host
from kernels.probes import chase as chase_loads
from kernels.probes import chase_shared as chase_shared_loads
from kernels.probes import shared_address
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

STEPS = 64
"""Loads in one block of assembly; the loop around it costs some 10 cycles to its 2,000 or more."""
ROUNDS = 64
"""Blocks timed in a launch: 4,096 loads, of which DRAM takes 1.5 ms."""
MOST_L1 = 512 << 10
"""Bytes: no SM has a larger L1, so that a larger footprint cannot be warmed up in it."""
READERS = 32 if SIMULATOR else 1024
"""Threads that read the footprint before the chase: as many loads in flight as a block can have,
which takes about a cycle a line where the chase takes hundreds."""
L2S = 2
"""Footprints up to so many times L2 are read before the chase: past one L2 it ends gradually."""
STEP, ADDRESS = range(2)
"""What the cursor holds: the step of the cycle that comes next, and the address there."""
CYCLES, SM = range(2)
"""What a chase logs."""

_after_u64 = ptx.clock_after("u64")
_after_u32 = ptx.clock_after("u32")
_shared_loads = chase_shared_loads(STEPS)


def _chase(operator: str) -> Any:
    loads = chase_loads(STEPS, operator)

    @jit
    def chase(nodes, base, lines, bits, turns, warmup, rounds, total, cursor, log):
        """Read all lines `turns` times from the cursor on, then follow the cycle from there."""
        thread = cuda.threadIdx.x
        first = cursor[STEP]
        for _ in range(turns):
            share = ring.read_share(nodes, first, lines, bits, thread, cuda.blockDim.x)
            cuda.atomic.add(total, 0, share)
        cuda.syncthreads()
        if thread == 0:
            address = np.uint64(base + ring.place_on_device(first, lines, bits) * ring.LINE)
            for _ in range(warmup):
                address = loads(address)
            start = _after_u64(address)
            for _ in range(rounds):
                address = loads(address)
            stop = _after_u64(address)
            cursor[STEP] = (first + (warmup + rounds) * STEPS) % lines
            cursor[ADDRESS] = address
            log[CYCLES] = stop - start
            log[SM] = ptx.smid()

    return chase


chase_ca = _chase("ca")
chase_cg = _chase("cg")
_loads_cg = chase_loads(STEPS, "cg")


@jit
def chase_by_sm(warmup, rounds, starts, ends, cycles, sm):
    """The same from each block at once, one warp an SM: too few loads to be in each other's way."""
    block = cuda.blockIdx.x
    address = starts[block]
    for _ in range(warmup):
        address = _loads_cg(address)
    start = _after_u64(address)
    for _ in range(rounds):
        address = _loads_cg(address)
    stop = _after_u64(address)
    ends[block] = address
    cycles[block] = stop - start
    sm[block] = ptx.smid()


@jit
def chase_shared(warmup, rounds, words, bits, ends, cycles):
    """Follow a cycle of 4-byte words in shared memory; all lanes read the same word."""
    table = cuda.shared.array(0, types.uint32)
    base = shared_address(table)
    step = cuda.threadIdx.x
    while step < words:
        following = step + 1 if step + 1 < words else 0
        table[ring.place_on_device(step, words, bits)] = (
            base + ring.place_on_device(following, words, bits) * 4
        )
        step += cuda.blockDim.x
    cuda.syncthreads()
    address = table[ring.place_on_device(words - 1, words, bits)]
    for _ in range(warmup):
        address = _shared_loads(address)
    start = _after_u32(address)
    for _ in range(rounds):
        address = _shared_loads(address)
    stop = _after_u32(address)
    ends[cuda.threadIdx.x] = address - base
    cycles[0] = stop - start


_TEXTURE = r"""
__device__ long long after(int value)
{
    long long now = 0;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, -1; @p mov.u64 %0, %%clock64; }"
                 : "+l"(now) : "r"(value) : "memory");
    return now;
}
__device__ int follow(cudaTextureObject_t nodes, int at, int rounds)
{
    for (int round = 0; round < rounds; ++round) {
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) at = tex1Dfetch<int>(nodes, at);
    }
    return at;
}
extern "C" __global__ void chase_texture(
    cudaTextureObject_t nodes, int warmup, int rounds, int* cursor, long long* cycles)
{
    int at = follow(nodes, *cursor, warmup);
    long long start = after(at);
    at = follow(nodes, at, rounds);
    *cycles = after(at) - start;
    *cursor = at;
}
"""


def _warmup(size: int) -> int:
    """Blocks of loads before the clock: a whole cycle where L1 may hold it, else one, which
    fetches instructions and page tables."""
    return -(-size // ring.LINE // STEPS) if size <= MOST_L1 else 1


def _latency(cycles: Any) -> float:
    return float(on_host(cycles)[0]) / (ROUNDS * STEPS)


def _bind_chase(params: Params, machine: Machine) -> Bound:
    functions = {"ca": chase_ca, "cg": chase_cg}
    if params["cache"] not in functions:
        raise ValueError(f"cache '{params['cache']}' is none of {', '.join(functions)}")
    xp, size = machine.xp, int(params["bytes"])
    cycle = ring.build(size, machine)
    total, cursor, log = xp.zeros(1, np.uint64), xp.zeros(2, np.int64), xp.zeros(2, np.int64)
    warmup, turns = _warmup(size), int(size <= L2S * machine.l2_bytes)

    def check() -> float:
        if turns:
            cycle.check_read(total)
        return cycle.check(on_host(cursor)[ADDRESS], (warmup + ROUNDS) * STEPS)

    def poison() -> None:
        for array in (total, cursor, log):
            array.fill(0)

    given = (argument(cycle.nodes), cycle.base, cycle.lines, cycle.bits, turns, warmup, ROUNDS)
    return Bound(
        Launch.linear(1, READERS),
        Work(),
        check=check,
        poison=poison,
        function=functions[params["cache"]],
        arguments=(*given, *map(argument, (total, cursor, log))),
        reading=lambda: {"latency_cycles": _latency(log), "block_sm": [int(on_host(log)[SM])]},
        cache_resident=size <= machine.l2_bytes,
    )


def _bind_by_sm(params: Params, machine: Machine) -> Bound:
    xp, size = machine.xp, int(params["bytes"])
    cycle = ring.build(size, machine)
    blocks = machine.sms
    steps = [block * cycle.lines // blocks for block in range(blocks)]
    starts = xp.asarray(np.array([cycle.address(step) for step in steps], np.uint64))
    ends, cycles, sm = xp.empty_like(starts), xp.zeros(blocks, np.int64), xp.zeros(blocks, np.int32)

    def check() -> float:
        for step, end in zip(steps, on_host(ends), strict=True):
            cycle.check(end, step + (1 + ROUNDS) * STEPS)
        return 0.0

    def reading() -> dict[str, Any]:
        latency = on_host(cycles) / (ROUNDS * STEPS)
        return {
            "latency_cycles": float(np.median(latency)),
            "block_latency": latency.tolist(),
            "block_sm": on_host(sm).tolist(),
        }

    return Bound(
        Launch.linear(blocks, 1),
        Work(),
        check=check,
        poison=lambda: ends.fill(0),
        function=chase_by_sm,
        arguments=(1, ROUNDS, *map(argument, (starts, ends, cycles, sm))),
        reading=reading,
        cache_resident=True,
    )


def _bind_shared(params: Params, machine: Machine) -> Bound:
    xp, size = machine.xp, int(params["bytes"])
    words = size // 4
    bits = (words - 1).bit_length()
    ends, cycles = xp.zeros(32, np.uint32), xp.zeros(1, np.int64)
    expected = ring.place((1 + ROUNDS) * STEPS % words, words, bits) * 4

    def check() -> float:
        if (on_host(ends) != expected).any():
            raise WrongAnswer(f"a chase ended at byte {int(on_host(ends).max())}, not {expected}")
        return 0.0

    return Bound(
        Launch.linear(1, 32, dynamic_smem=size),
        Work(),
        check=check,
        poison=lambda: ends.fill(0xFFFFFFFF),
        function=chase_shared,
        arguments=(1, ROUNDS, words, bits, argument(ends), argument(cycles)),
        reading=lambda: {"latency_cycles": _latency(cycles)},
        cache_resident=True,
    )


@cache
def _texture_kernel() -> Any:
    import cupy

    return cupy.RawKernel(_TEXTURE.replace("STEPS", str(STEPS)), "chase_texture")


def _bind_texture(params: Params, machine: Machine) -> Bound:
    """A cycle of texels, one a line; no index arithmetic between two fetches."""
    import cupy
    from cupy.cuda import runtime, texture

    size = int(params["bytes"])
    lines = size // ring.LINE
    bits = max(1, (lines - 1).bit_length())
    if lines > 1 << 14:
        raise Unavailable(f"{size} bytes: the texture's cycle is linked on the host, up to 2 MiB")
    order = np.array([ring.place(step, lines, bits) for step in range(lines)], np.int32)
    ints = ring.LINE // 4
    host = np.zeros(size // 4, np.int32)
    host[order * ints] = np.roll(order, -1) * ints
    nodes = cupy.asarray(host)
    signed = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindSigned)
    resource = texture.ResourceDescriptor(
        runtime.cudaResourceTypeLinear, arr=nodes, chDesc=signed, sizeInBytes=size
    )
    fetched = texture.TextureObject(resource, texture.TextureDescriptor())
    cursor, cycles = cupy.zeros(1, np.int32), cupy.zeros(1, np.int64)
    warmup = _warmup(size)
    arguments = (fetched, np.int32(warmup), np.int32(ROUNDS), cursor, cycles)
    expected = int(order[(warmup + ROUNDS) * STEPS % lines]) * ints

    def queue(stream: Any) -> None:
        with cupy.cuda.ExternalStream(int(stream)):
            _texture_kernel()((1,), (1,), arguments)

    def check() -> float:
        if int(cursor[0]) != expected:
            raise WrongAnswer(f"the chase ended at element {int(cursor[0])}, not {expected}")
        return 0.0

    return Bound(
        Launch.linear(1, 1),
        Work(),
        check=check,
        queue=queue,
        poison=lambda: cursor.fill(order[0] * ints),
        reading=lambda: {"latency_cycles": _latency(cycles)},
        cache_resident=True,
    )


_CHASE = (
    "void(uint64[::1], int64, int64, int64, int64, int64, int64, "
    "uint64[::1], int64[::1], int64[::1])"
)
_SMALL = {"bytes": 4096}

FAMILY = Family(
    "memory",
    "latency of each level of memory, from pointer chases",
    (
        Kernel(
            "chase",
            "Dependent global loads over a random cycle: L1 (ca), L2 (cg) and DRAM by footprint",
            _bind_chase,
            examples=({**_SMALL, "cache": "ca"}, {"bytes": 384, "cache": "cg"}),
            source=chase_ca,
            compiled=((chase_ca, _CHASE), (chase_cg, _CHASE), *ring.COMPILED),
        ),
        Kernel(
            "chase_by_sm",
            "The chase through L2 from each SM: how far each is from memory",
            _bind_by_sm,
            examples=(_SMALL,),
            source=chase_by_sm,
            compiled=(
                (
                    chase_by_sm,
                    "void(int64, int64, uint64[::1], uint64[::1], int64[::1], int32[::1])",
                ),
            ),
        ),
        Kernel(
            "chase_shared",
            "Dependent loads from shared memory, one word for all lanes",
            _bind_shared,
            examples=(_SMALL,),
            source=chase_shared,
            compiled=((chase_shared, "void(int64, int64, int64, int64, uint32[::1], int64[::1])"),),
        ),
        Kernel(
            "chase_texture",
            "Dependent texture fetches through CuPy",
            _bind_texture,
            examples=(_SMALL,),
            source=_bind_texture,
            simulator="numba's simulator has no texture units",
        ),
    ),
)
