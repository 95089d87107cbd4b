"""Many lanes, few addresses: ordinary writes and atomics, in shared and in global memory.

Is the same address slow, or only the same bank? `where` gives each lane its word: `addresses`
different ones, next to each other (stride 1) or all in one bank or a line each (stride 32).
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from numba import cuda, int32

from kernels import ptx
from kernels.assembly import KINDS, Element, Value, assembly
from kernels.compat import FULL_MASK, SIMULATOR, argument, jit, on_host
from kernels.flags import look, put
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Work, WrongAnswer

BURST = 2 if SIMULATOR else 32
"""Accesses a warp in one block of assembly."""
TURNS = 2 if SIMULATOR else 32
"""x BURST accesses a warp in one launch: 1,024."""
STRIDE = 32
"""Words from one address to the next where all lie in one of shared memory's 32 banks, or each
in a line of its own of global memory."""
WORDS = 32 * STRIDE
_S32 = KINDS["s32"]
_after = ptx.clock_after("s32")

OPS = {
    "store": "st.volatile.{space}.u32 [a], $1;",
    "atomic": "red.{space}.add.u32 [a], $1;",
}
"""Volatile, for the compiler would leave out all but the last of equal stores."""


@cache
def burst(op: str, space: str) -> Any:
    """BURST accesses one after another: ``f(array, index, value)``."""

    address = f"cvta.to.{space}.u64 a, $0;"
    lines = ["{ .reg .u64 a;", address, *[OPS[op].format(space=space)] * BURST, "}"]
    return assembly(
        f"burst_{op}_{space}",
        "\n".join(lines),
        None,
        (Element(_S32), Value(_S32)),
        partial(_burst_twin, op),
        summary=f"{BURST} times {op} in {space} memory.",
        memory=True,
    )


def _burst_twin(op: str, array: Any, index: int, value: int) -> None:
    from numba.cuda.simulator.kernelapi import FakeCUDAAtomic

    if op == "store":
        array[index] = value
    else:
        FakeCUDAAtomic().add(array, index, BURST * value)


def _shared(op: str) -> Any:
    access = burst(op, "shared")

    @jit
    def shared(where, turns, value, out, start, stop, sm):
        """Every warp accesses its block's words; the first block's words come back."""
        words = cuda.shared.array(WORDS, int32)
        thread = cuda.threadIdx.x
        for i in range(thread, WORDS, cuda.blockDim.x):
            words[i] = 0
        at = where[thread % 32]
        cuda.syncthreads()
        begin = ptx.clock64()
        for _ in range(turns):
            access(words, at, value)
        # What comes back last shows that all before it is done.
        end = _after(cuda.atomic.add(words, at, 0))
        cuda.syncthreads()
        if cuda.blockIdx.x == 0:
            for i in range(thread, WORDS, cuda.blockDim.x):
                out[i] = words[i]
        if thread % 32 == 0:
            warp = (cuda.blockIdx.x * cuda.blockDim.x + thread) // 32
            start[warp] = begin
            stop[warp] = end
            sm[warp] = ptx.smid()

    return shared


def _global(op: str) -> Any:
    access = burst(op, "global")

    @jit
    def everywhere(where, turns, value, out, start, stop, sm):
        """Every warp of every block accesses the same words."""
        thread = cuda.threadIdx.x
        at = where[thread % 32]
        cuda.syncthreads()
        begin = ptx.clock64()
        for _ in range(turns):
            access(out, at, value)
        end = _after(cuda.atomic.add(out, at, 0))
        if thread % 32 == 0:
            warp = (cuda.blockIdx.x * cuda.blockDim.x + thread) // 32
            start[warp] = begin
            stop[warp] = end
            sm[warp] = ptx.smid()

    return everywhere


ACCESSES = {
    (space, op): make(op)
    for space, make in (("shared", _shared), ("global", _global))
    for op in OPS
}


@jit
def winner(shared, out):
    """All threads of a block write their number to one word; which one stays?"""
    words = cuda.shared.array(1, int32)
    thread = cuda.threadIdx.x
    if thread == 0:
        words[0] = -1
        put(out, cuda.blockIdx.x, -1)
    cuda.syncthreads()
    if shared != 0:
        words[0] = thread
    else:
        put(out, cuda.blockIdx.x, thread)
    cuda.syncthreads()
    if thread == 0 and shared != 0:
        put(out, cuda.blockIdx.x, words[0])


@jit
def increments(times, counter):
    """Every thread adds one to a word, `times` times, by reading and writing it."""
    for _ in range(times):
        put(counter, 0, look(counter, 0) + 1)


@jit
def tickets(where, times, counter, taken):
    """Every thread draws `times` tickets from one counter, an atomic each."""
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    at = where[cuda.threadIdx.x % 32]
    for _ in range(times):
        ticket = cuda.atomic.add(counter, at, 1)
        taken[ticket] = thread


@jit
def tickets_by_warp(where, times, counter, taken):
    """The same with one atomic a warp: its lowest lane draws for all, and tells them."""
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    at = where[cuda.threadIdx.x % 32]
    below = ptx.lanemask_lt()
    for _ in range(times):
        mask = cuda.ballot_sync(FULL_MASK, True)
        first = 0
        if below & mask == 0:
            first = cuda.atomic.add(counter, at, cuda.popc(mask))
        ticket = cuda.shfl_sync(FULL_MASK, first, 0) + cuda.popc(mask & below)
        taken[ticket] = thread


def _where(addresses: int, stride: int) -> np.ndarray:
    """The word of each lane, int32 of shape (32,)."""
    if not 1 <= addresses <= 32 or stride not in (1, STRIDE):
        raise ValueError(f"{addresses} addresses, stride {stride}: 1 to 32, and 1 or {STRIDE}")
    return (np.arange(32) % addresses * stride).astype(np.int32)


def _blocks(params: Params, machine: Machine) -> int:
    return {"one": 1, "sms": 2 if machine.simulator else machine.sms}[params["blocks"]]


def _bind_access(space: str, op: str, params: Params, machine: Machine) -> Bound:
    """`params`: `addresses`, `stride` in words, `block` in threads, `blocks` (`one`, `sms`)."""
    xp, block = machine.xp, params["block"]
    where = _where(params["addresses"], params["stride"])
    blocks = _blocks(params, machine)
    warps, value = blocks * block // 32, 3
    out = xp.zeros(WORDS, np.int32)
    start, stop, sm = (
        xp.zeros(warps, np.int64),
        xp.zeros(warps, np.int64),
        xp.zeros(warps, np.int32),
    )
    done = TURNS * BURST
    lanes = np.bincount(where, minlength=WORDS)
    sharing = block // 32 if space == "shared" else warps
    wanted = lanes * (done * sharing * value) if op == "atomic" else (lanes > 0) * value
    wanted = wanted.astype(np.int32)  # wraps as the counters do

    def check() -> float:
        seen = on_host(out)
        if (seen != wanted).any():
            at = int((seen != wanted).argmax())
            raise WrongAnswer(f"word {at} is {seen[at]}, should be {wanted[at]}")
        return 0.0

    def poison() -> None:
        out.fill(0)

    def reading() -> dict[str, float]:
        begin, end, on = on_host(start), on_host(stop), on_host(sm)
        # Of the SMs in use, the median: cycles from its first warp's start to its last one's end.
        spent = [
            (end[on == one].max() - begin[on == one].min()) / (on == one).sum()
            for one in np.unique(on)
        ]
        cycles = float(np.median(spent)) / done
        poison()
        return {"access_cycles": cycles, "operations_per_clock_per_sm": 32 / cycles}

    return Bound(
        Launch.linear(blocks, block),
        Work(operations=32 * warps * done),
        check=check,
        poison=poison,
        function=ACCESSES[space, op],
        arguments=(
            argument(xp.asarray(where)),
            TURNS,
            np.int32(value),
            *map(argument, (out, start, stop, sm)),
        ),
        reading=reading,
        cache_resident=True,
    )


TRIALS = 2 if SIMULATOR else 64


def _bind_winner(params: Params, machine: Machine) -> Bound:
    block = params["block"]
    out = machine.xp.empty(TRIALS, np.int32)

    def check() -> float:
        seen = on_host(out)
        if ((seen < 0) | (seen >= block)).any():
            raise WrongAnswer("the word holds what no thread wrote")
        return 0.0

    return Bound(
        Launch.linear(TRIALS, block),
        Work(),
        check=check,
        poison=lambda: out.fill(-77),
        function=winner,
        arguments=(int(params["space"] == "shared"), argument(out)),
        reading=lambda: {"winner": on_host(out).tolist()},
        cache_resident=True,
    )


TIMES = 4 if SIMULATOR else 32


def _bind_increments(params: Params, machine: Machine) -> Bound:
    blocks, block = _blocks(params, machine), params["block"]
    counter = machine.xp.zeros(1, np.int32)
    total = blocks * block * TIMES

    def check() -> float:
        kept = int(on_host(counter)[0])
        if not TIMES <= kept <= total:
            raise WrongAnswer(f"{kept} increments of {total}: one thread alone makes {TIMES}")
        return 0.0

    def reading() -> dict[str, float]:
        kept = float(on_host(counter)[0])
        counter.fill(0)
        return {"kept_share": kept / total}

    return Bound(
        Launch.linear(blocks, block),
        Work(operations=total),
        check=check,
        poison=lambda: counter.fill(0),
        function=increments,
        arguments=(TIMES, argument(counter)),
        reading=reading,
        cache_resident=True,
    )


def _bind_tickets(function: Any, params: Params, machine: Machine) -> Bound:
    blocks, block = _blocks(params, machine), params["block"]
    xp, total = machine.xp, blocks * block * TIMES
    counter, taken = xp.zeros(1, np.int32), xp.empty(total, np.int32)

    def check() -> float:
        if int(on_host(counter)[0]) != total:
            raise WrongAnswer(f"the counter is {int(counter[0])}, should be {total}")
        drawn = np.bincount(on_host(taken), minlength=blocks * block)
        if (drawn != TIMES).any():
            raise WrongAnswer("a ticket was drawn twice, or not at all")
        return 0.0

    def reading() -> dict[str, float]:
        kept = float(on_host(counter)[0])
        counter.fill(0)
        return {"kept_share": kept / total}

    def poison() -> None:
        counter.fill(0)
        taken.fill(0)

    return Bound(
        Launch.linear(blocks, block),
        Work(operations=total),
        check=check,
        poison=poison,
        function=function,
        arguments=(
            # The same word for all; read from memory, lest the compiler gather a warp's atomics.
            argument(xp.zeros(32, np.int32)),
            TIMES,
            argument(counter),
            argument(taken),
        ),
        reading=reading,
        cache_resident=True,
    )


_ACCESS_SIGNATURE = "void(int32[::1], int64, int32, int32[::1], int64[::1], int64[::1], int32[::1])"
_TICKET_SIGNATURE = "void(int32[::1], int64, int32[::1], int32[::1])"
_ONE = {"block": 64, "blocks": "one"}

FAMILY = Family(
    "contention",
    "many lanes that write to few addresses",
    (
        *(
            Kernel(
                f"{op}_{space}",
                f"{what} from all lanes to 1 to 32 words of {space} memory",
                partial(_bind_access, space, op),
                examples=(
                    {"addresses": 1, "stride": 1, **_ONE},
                    {"addresses": 32, "stride": 32, "block": 32, "blocks": "sms"},
                ),
                source=ACCESSES[space, op],
                compiled=((ACCESSES[space, op], _ACCESS_SIGNATURE),),
            )
            for space in ("shared", "global")
            for op, what in (("store", "Ordinary writes"), ("atomic", "Atomic additions"))
        ),
        Kernel(
            "winner",
            "All threads of a block write to one word: which write stays",
            _bind_winner,
            examples=({"block": 64, "space": "shared"}, {"block": 32, "space": "global"}),
            source=winner,
            compiled=((winner, "void(int64, int32[::1])"),),
        ),
        Kernel(
            "increments",
            "Read, add one, write, without atomics: how many increments are lost",
            _bind_increments,
            examples=(_ONE,),
            source=increments,
            compiled=((increments, "void(int64, int32[::1])"),),
        ),
        Kernel(
            "tickets",
            "Tickets from one counter, an atomic a thread",
            partial(_bind_tickets, tickets),
            examples=(_ONE,),
            source=tickets,
            compiled=((tickets, _TICKET_SIGNATURE),),
        ),
        Kernel(
            "tickets_by_warp",
            "Tickets from one counter, an atomic a warp",
            partial(_bind_tickets, tickets_by_warp),
            examples=(_ONE,),
            source=tickets_by_warp,
            compiled=((tickets_by_warp, _TICKET_SIGNATURE),),
        ),
    ),
)
