"""Neighbour exchanges through shared memory, with and without a barrier; barriers that vote.

Each round every thread writes its cell and reads another thread's. Without a barrier that spans
both threads the read may find an earlier or a later round: such wrong reads are counted.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda

from kernels.compat import argument, device, jit, on_host
from kernels.flags import look, put
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Work, WrongAnswer

PARTNERS = {"tid ^ 1": 1, "31 - lane": 31, "tid ^ 32": 32}
"""Whose cell is read: thread index XOR this. 31 - lane is lane XOR 31, so the first two stay in
the warp; the third leaves it."""
WARP_PARTNERS = ("tid ^ 1", "31 - lane")
CELLS = 1024
"""Values are round * 1024 + thread, so that no two threads of a block write the same."""

CELL = np.dtype("int32")


@device
def plain_load(cells, index):
    """cells[index], as the compiler likes."""
    return cells[index]


@device
def plain_store(cells, index, value):
    """Write cells[index] when the compiler likes."""
    cells[index] = value


ACCESSES = {"plain": (plain_load, plain_store), "volatile": (look, put)}


@functools.cache
def exchange(barrier: str, access: str) -> Any:
    """Kernel ``(partner, rounds, counts)``: adds wrong reads to `counts[0]`, all reads to
    `counts[1]` (int64). Dynamic shared memory: 4 bytes a thread."""
    load, store = ACCESSES[access]
    over_block, over_warp = barrier == "syncthreads", barrier == "syncwarp"

    @jit
    def exchange(partner, rounds, counts):
        """Write, pass the barrier if there is one, read the partner's cell, compare."""
        cells = cuda.shared.array(0, CELL)
        thread = cuda.threadIdx.x
        other = thread ^ partner
        wrong = 0
        for turn in range(rounds):
            store(cells, thread, np.int32(turn * CELLS + thread))
            if over_block:
                cuda.syncthreads()
            if over_warp:
                cuda.syncwarp()
            if load(cells, other) != turn * CELLS + other:
                wrong += 1
            if over_block:  # nobody may write the next round before all have read this one
                cuda.syncthreads()
            if over_warp:
                cuda.syncwarp()
        cuda.atomic.add(counts, 0, wrong)
        cuda.atomic.add(counts, 1, rounds)

    return exchange


def suffices(barrier: str, partner: str) -> bool:
    """Whether this barrier orders the two threads' accesses (CUDA programming guide:
    syncthreads over the block, syncwarp over the warp)."""
    return barrier == "syncthreads" or (barrier == "syncwarp" and partner in WARP_PARTNERS)


def _bind_exchange(barrier: str) -> Any:
    def bind(params: Params, machine: Machine) -> Bound:
        """`partner`, `access` (plain where absent), `block` and `rounds`; a block an SM."""
        block, rounds, partner = params["block"], params["rounds"], params["partner"]
        if block % 64 or not 64 <= block <= CELLS:
            raise ValueError(f"{block} threads a block: pairs of warps are needed, up to {CELLS}")
        if partner not in PARTNERS:
            raise ValueError(f"partner '{partner}' is none of {', '.join(PARTNERS)}")
        counts = machine.xp.zeros(2, "int64")
        before = [0]
        reads = machine.sms * block * rounds

        def poison() -> None:
            counts.fill(0)
            before[0] = 0

        def check() -> float:
            wrong, done = (int(count) for count in on_host(counts))
            if done != reads:
                raise WrongAnswer(f"{done} reads were made, should be {reads}")
            if wrong and suffices(barrier, partner):
                raise WrongAnswer(f"{wrong} of {reads} reads are wrong in spite of {barrier}")
            before[0] = wrong
            return wrong / reads

        def reading() -> dict[str, float | list[float]]:
            total = int(counts[0])
            new, before[0] = total - before[0], total
            return {"wrong_reads": float(new)}

        return Bound(
            launch=Launch.linear(machine.sms, block, 4 * block),
            work=Work(operations=reads),
            check=check,
            function=exchange(barrier, params.get("access", "plain")),
            arguments=(np.int32(PARTNERS[partner]), np.int32(rounds), argument(counts)),
            poison=poison,
            reading=reading,
            cache_resident=True,
        )

    return bind


# --- Barriers that vote. ---


@jit
def syncthreads_count(rounds, found):
    """How many threads of the block are below a limit that rises from none to all."""
    thread, block = cuda.threadIdx.x, cuda.blockDim.x
    for turn in range(rounds):
        voted = cuda.syncthreads_count(int(thread * (rounds - 1) < turn * block))
        found[(cuda.blockIdx.x * rounds + turn) * block + thread] = voted


@jit
def syncthreads_and(rounds, found):
    """Whether all threads of the block are below the limit."""
    thread, block = cuda.threadIdx.x, cuda.blockDim.x
    for turn in range(rounds):
        voted = cuda.syncthreads_and(int(thread * (rounds - 1) < turn * block))
        found[(cuda.blockIdx.x * rounds + turn) * block + thread] = voted


@jit
def syncthreads_or(rounds, found):
    """Whether any thread of the block is below the limit."""
    thread, block = cuda.threadIdx.x, cuda.blockDim.x
    for turn in range(rounds):
        voted = cuda.syncthreads_or(int(thread * (rounds - 1) < turn * block))
        found[(cuda.blockIdx.x * rounds + turn) * block + thread] = voted


VOTES = {
    "syncthreads_count": (syncthreads_count, lambda below: below.sum(axis=1)),
    "syncthreads_and": (syncthreads_and, lambda below: below.all(axis=1)),
    "syncthreads_or": (syncthreads_or, lambda below: below.any(axis=1)),
}
"""The kernel, and what each round must answer: `below` is (rounds, threads)."""


def _bind_vote(name: str) -> Any:
    function, answer = VOTES[name]

    def bind(params: Params, machine: Machine) -> Bound:
        """`block` threads and `rounds` votes; every thread stores every answer."""
        block, rounds = params["block"], params["rounds"]
        found = machine.xp.empty(machine.sms * rounds * block, "int32")
        turns, threads = np.arange(rounds)[:, None], np.arange(block)[None, :]
        expected = answer(threads * (rounds - 1) < turns * block)

        def check() -> float:
            answers = on_host(found).reshape(machine.sms, rounds, block)
            wrong = (answers.astype(bool) if name != "syncthreads_count" else answers) != (
                expected[None, :, None]
            )
            if wrong.any():
                raise WrongAnswer(f"{int(wrong.sum())} of {wrong.size} answers are wrong")
            return 0.0

        return Bound(
            launch=Launch.linear(machine.sms, block),
            work=Work(operations=found.size),
            check=check,
            function=function,
            arguments=(np.int32(rounds), argument(found)),
            poison=lambda: found.fill(-77),
            cache_resident=True,
        )

    return bind


def _exchange_kernel(name: str, barrier: str, summary: str, accesses: tuple[str, ...]) -> Kernel:
    examples = tuple(
        {"partner": partner, "access": access, "block": 64, "rounds": 3}
        for partner in PARTNERS
        for access in accesses
    )
    compiled = tuple(
        (exchange(barrier, access), "void(int32, int32, int64[::1])") for access in accesses
    )
    source = exchange(barrier, "plain")
    return Kernel(name, summary, _bind_exchange(barrier), examples, source, compiled)


def _vote_kernel(name: str, summary: str) -> Kernel:
    function = VOTES[name][0]
    examples = ({"block": 96, "rounds": 4},)
    compiled = ((function, "void(int32, int32[::1])"),)
    return Kernel(name, summary, _bind_vote(name), examples, function, compiled)


FAMILY = Family(
    "exchange",
    "Exchanges between threads through shared memory, with and without a barrier",
    (
        _exchange_kernel(
            "no_barrier", "none", "Write, read a neighbour's cell at once", ("plain", "volatile")
        ),
        _exchange_kernel(
            "syncwarp", "syncwarp", "Write, syncwarp, read a neighbour's cell", ("plain",)
        ),
        _exchange_kernel(
            "syncthreads", "syncthreads", "Write, syncthreads, read a neighbour's cell", ("plain",)
        ),
        _vote_kernel("syncthreads_count", "A barrier that counts the threads with a property"),
        _vote_kernel("syncthreads_and", "A barrier that tells whether all threads agree"),
        _vote_kernel("syncthreads_or", "A barrier that tells whether any thread agrees"),
    ),
)
