"""Where and when each block runs: waves, refilled slots, early exits, private shared memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any

import numpy as np
from numba import cuda

from kernels import gpc, ptx
from kernels.block_log import allow_shared, most_resident, refills, whole_sm
from kernels.compat import argument, jit, on_host
from kernels.instructions import fma_chain
from kernels.probes import shared_address
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Work, WrongAnswer

START, STOP, BEGIN, END, SM, SLOT, LEFT = range(7)
FIELDS = 7
"""What each block logs: start and stop in ns of the clock that all SMs share, begin and end in
cycles of its own SM's, %smid, %warpid of warp 0, and when a warp that left early did so, ns."""
WORDS = 1024
"""Shared memory that each block fills and reads back, in int32."""
STEPS = 64
_chain = fma_chain(STEPS)
B, C = 0.999, 0.001
"""v <- v*B + C keeps any number of FMAs near one."""


@jit
def hold(cycles, log):
    """Every thread stays cycles[block] cycles of its SM, whoever shares it."""
    start = ptx.globaltimer()
    begin = ptx.clock64()
    mine = cycles[cuda.blockIdx.x]
    while ptx.clock64() - begin < mine:
        pass
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        at = FIELDS * cuda.blockIdx.x
        log[at + START] = start
        log[at + BEGIN] = begin
        log[at + SM] = ptx.smid()
        log[at + SLOT] = ptx.warpid()
        log[at + LEFT] = 0
        log[at + END] = ptx.clock64()
        log[at + STOP] = ptx.globaltimer()


@jit
def arithmetic(turns, b, c, log, out):
    """Every thread does turns[block] x STEPS dependent FMAs: neighbours slow each other."""
    start = ptx.globaltimer()
    begin = ptx.clock64()
    mine = turns[cuda.blockIdx.x]
    v = b
    for _ in range(mine):
        v = _chain(v, b, c)
    out[cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x] = v
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        at = FIELDS * cuda.blockIdx.x
        log[at + START] = start
        log[at + BEGIN] = begin
        log[at + SM] = ptx.smid()
        log[at + SLOT] = ptx.warpid()
        log[at + LEFT] = 0
        log[at + END] = ptx.clock64()
        log[at + STOP] = ptx.globaltimer()


@jit
def early_exit(cycles, log):
    """All warps but the first leave at once; the first stays cycles[block] cycles."""
    start = ptx.globaltimer()
    begin = ptx.clock64()
    at = FIELDS * cuda.blockIdx.x
    if cuda.threadIdx.x >= 32:
        if cuda.threadIdx.x == 32:
            log[at + LEFT] = ptx.globaltimer()
        return
    mine = cycles[cuda.blockIdx.x]
    while ptx.clock64() - begin < mine:
        pass
    if cuda.threadIdx.x == 0:
        log[at + START] = start
        log[at + BEGIN] = begin
        log[at + SM] = ptx.smid()
        log[at + SLOT] = ptx.warpid()
        log[at + END] = ptx.clock64()
        log[at + STOP] = ptx.globaltimer()


@jit(max_registers=32)
def private_memory(cycles, log, foreign, addresses):
    """Blocks that share an SM fill one shared array each, wait, and look for others' words."""
    words = cuda.shared.array(WORDS, np.int32)
    start = ptx.globaltimer()
    begin = ptx.clock64()
    first = cuda.blockIdx.x * WORDS
    for i in range(cuda.threadIdx.x, WORDS, cuda.blockDim.x):
        words[i] = first + i
    mine = cycles[cuda.blockIdx.x]
    while ptx.clock64() - begin < mine:
        pass
    cuda.syncthreads()
    wrong = 0
    for i in range(cuda.threadIdx.x, WORDS, cuda.blockDim.x):
        mirror = WORDS - 1 - i  # another thread's word
        if words[mirror] != first + mirror:
            wrong += 1
    if wrong > 0:
        cuda.atomic.add(foreign, 0, wrong)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        addresses[cuda.blockIdx.x] = shared_address(words)
        at = FIELDS * cuda.blockIdx.x
        log[at + START] = start
        log[at + BEGIN] = begin
        log[at + SM] = ptx.smid()
        log[at + SLOT] = ptx.warpid()
        log[at + LEFT] = 0
        log[at + END] = ptx.clock64()
        log[at + STOP] = ptx.globaltimer()


def residents(params: Params, machine: Machine) -> int:
    """Blocks an SM: one, or as many as its threads allow (no kernel here takes more than the 32
    registers that a full SM leaves a thread)."""
    if params["residency"] == "one":
        return 1
    return min(machine.max_threads_per_sm // params["block"], machine.max_blocks_per_sm)


def blocks_of(waves: float, slots: int) -> int:
    """Blocks in so many waves: the next whole number, so that 1.25 waves of 80 slots are 100."""
    return max(1, ceil(waves * slots - 1e-9))


def durations(kind: str, mean: int, blocks: int, seed: int) -> np.ndarray:
    """int64 of shape (blocks,): all `mean`, or spread evenly from half to one and a half of it."""
    if kind == "equal":
        return np.full(blocks, mean, np.int64)
    generator = np.random.default_rng(seed)
    return generator.integers(mean // 2, mean * 3 // 2, blocks, endpoint=True, dtype=np.int64)


def _launch(params: Params, machine: Machine) -> Launch:
    slots = machine.sms * residents(params, machine)
    smem = whole_sm() if params["residency"] == "one" else 0
    return Launch.linear(blocks_of(params["waves"], slots), params["block"], smem)


def _bind(
    function: Any,
    mean: str,
    around: Callable[[Any], tuple[Any, ...]],
    vectors: tuple[str, ...],
    params: Params,
    machine: Machine,
) -> Bound:
    """A kernel whose blocks log where and when they ran.

    `mean` names the parameter with the blocks' mean duration; `around(log)` gives the arguments
    after the durations, the log among them.
    """
    launch = _launch(params, machine)
    blocks, slots = launch.grid[0], residents(params, machine)
    each = durations(params.get("durations", "equal"), params[mean], blocks, machine.seed)
    log = machine.xp.empty(blocks * FIELDS, machine.xp.int64)

    def check() -> float:
        seen = on_host(log).reshape(blocks, FIELDS)
        if (seen < 0).any():
            raise WrongAnswer(f"{int((seen < 0).any(axis=1).sum())} of {blocks} blocks did not run")
        short = seen[:, END] - seen[:, BEGIN] < (each if mean == "cycles" else 0)
        if short.any():
            raise WrongAnswer(f"block {int(short.argmax())} ended before its time")
        return 0.0

    def reading() -> dict[str, Any]:
        return observed(on_host(log).reshape(blocks, FIELDS), slots, vectors)

    return allow_shared(
        Bound(
            launch=launch,
            work=Work(),
            check=check,
            poison=lambda: log.fill(-1),
            function=function,
            arguments=(argument(machine.xp.asarray(each)), *around(argument(log))),
            reading=reading,
        )
    )


VECTORS: dict[str, Callable[[np.ndarray], list[Any]]] = {
    "block_start": lambda seen: _seconds(seen, START),
    "block_stop": lambda seen: _seconds(seen, STOP),
    "block_left": lambda seen: _seconds(seen, LEFT),
    "block_sm": lambda seen: seen[:, SM].tolist(),
    "block_slot": lambda seen: seen[:, SLOT].tolist(),
}


def _seconds(seen: np.ndarray, field: int) -> list[float]:
    return [round(float(ns) * 1e-9, 9) for ns in seen[:, field] - seen[:, START].min()]


def observed(seen: np.ndarray, slots: int, vectors: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a log of shape (blocks, FIELDS) says; `slots` blocks fit on an SM."""
    sms, begin, end = seen[:, SM], seen[:, BEGIN], seen[:, END]
    found: dict[str, Any] = {
        "sms_used": float(len(np.unique(sms))),
        "resident_blocks": float(most_resident(sms, begin, end)),
    }
    gaps = refills(sms, begin, end, slots)
    if gaps:
        found["refill_cycles"] = float(np.median(gaps))
    return {**found, **{name: VECTORS[name](seen) for name in vectors}}


def _log_only(log: Any) -> tuple[Any, ...]:
    return (log,)


def _bind_arithmetic(params: Params, machine: Machine) -> Bound:
    single = machine.xp.float32
    out = machine.xp.empty(_launch(params, machine).grid[0] * params["block"], single)

    def around(log: Any) -> tuple[Any, ...]:
        return single(B), single(C), log, argument(out)

    bound = _bind(arithmetic, "turns", around, (), params, machine)
    logged, poisoned = bound.check, bound.poison
    expected = C / (1 - B) + (B - C / (1 - B)) * B ** (STEPS * params["turns"])

    def check() -> float:
        logged()
        error = float(abs(out.astype(machine.xp.float64) / expected - 1).max())
        if not error <= 1e-4:
            raise WrongAnswer(f"the FMAs' results are off by {error:.3g}")
        return error

    def poison() -> None:
        poisoned()
        out.fill(np.nan)

    bound.check, bound.poison = check, poison
    return bound


def _bind_private(params: Params, machine: Machine) -> Bound:
    xp = machine.xp
    foreign = xp.zeros(1, xp.int32)
    addresses = xp.zeros(_launch(params, machine).grid[0], xp.uint32)

    def around(log: Any) -> tuple[Any, ...]:
        return log, argument(foreign), argument(addresses)

    bound = _bind(private_memory, "cycles", around, (), params, machine)
    logged = bound.reading

    def reading() -> dict[str, Any]:
        found = {
            **logged(),  # type: ignore[misc]
            "foreign_values": float(foreign[0]),
            "shared_addresses": float(len(np.unique(on_host(addresses)))),
        }
        foreign.fill(0)
        return found

    bound.reading = reading
    return bound


_TRACE = ("block_start", "block_stop", "block_sm", "block_slot")
_LOG = "int64[::1]"
_SMALL = {"block": 64, "residency": "one", "waves": 1.0, "cycles": 2000}

FAMILY = Family(
    "schedule",
    "where and when each block runs",
    (
        Kernel(
            "timeline",
            "Start, stop, SM and warp slot of every block",
            partial(_bind, hold, "cycles", _log_only, _TRACE),
            examples=(_SMALL, {**_SMALL, "waves": 1.25, "durations": "unequal"}),
            source=hold,
            compiled=((hold, f"void({_LOG}, {_LOG})"),),
        ),
        Kernel(
            "staircase",
            "Time against waves of blocks that stay a set time",
            partial(_bind, hold, "cycles", _log_only, ()),
            examples=(_SMALL,),
            source=hold,
        ),
        Kernel(
            "staircase_arithmetic",
            "Time against waves of blocks that do a set number of FMAs",
            _bind_arithmetic,
            examples=({"block": 32, "residency": "one", "waves": 1.0, "turns": 2},),
            source=arithmetic,
            compiled=((arithmetic, f"void({_LOG}, float32, float32, {_LOG}, float32[::1])"),),
        ),
        Kernel(
            "early_exit",
            "All warps but one leave: does the next block wait for the last warp?",
            partial(_bind, early_exit, "cycles", _log_only, (*_TRACE, "block_left")),
            examples=(_SMALL,),
            source=early_exit,
            compiled=((early_exit, f"void({_LOG}, {_LOG})"),),
        ),
        Kernel(
            "private_memory",
            "Blocks that share an SM look for each other's shared memory",
            _bind_private,
            examples=(_SMALL,),
            source=private_memory,
            compiled=((private_memory, f"void({_LOG}, {_LOG}, int32[::1], uint32[::1])"),),
        ),
        Kernel(
            "gpc",
            "SMs that ever hold blocks of one cluster share a GPC",
            gpc.bind,
            examples=({},),
            source=gpc.bind,
            simulator="it has neither clusters nor SMs",
        ),
    ),
)
