"""Programs in which not every thread reaches a barrier, for the block's barrier or the warp's.

Each thread writes its number into shared memory, meets the others at the barrier, and reads what
its partner wrote. The second half writes late, and whoever reads too early finds EMPTY. Waiting
is bounded by the clock where the program itself waits; a thread at a barrier cannot be bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, int32

from kernels import ptx
from kernels.compat import argument, device, jit, on_host
from kernels.flags import look, put
from kernels.spec import Bound, Launch, Machine, Params, Work, WrongAnswer

MOST = 1024
EMPTY, NOTHING = -1, -2
"""What a word holds before its thread wrote it; what a thread leaves that reads none."""
LATE = 20_000
"""SM cycles by which the second half is late, and the first half's second word too."""
LIMIT = 2_000_000
"""SM cycles (1 ms) after which a thread that waits for a flag gives up."""


@device
def _stay(cycles):
    begin = ptx.clock64()
    while ptx.clock64() - begin < cycles:
        pass


@device(inline="always")
def block_barrier():
    """The barrier of the block."""
    cuda.syncthreads()


@device(inline="always")
def warp_barrier():
    """The barrier of the warp, with its full mask."""
    cuda.syncwarp()


def programs(meet: Callable) -> dict[str, Any]:
    """The kernels by name; `meet` is `block_barrier` or `warp_barrier`.

    Each takes (split, limit, out, gave_up): threads from `split` on are the second half; `out`
    gets what each thread read, `gave_up` 1 where it waited in vain.
    """

    @jit
    def uniform(split, limit, out, gave_up):
        """All threads take the branch with the barrier."""
        words = cuda.shared.array(MOST, int32)
        thread, last = cuda.threadIdx.x, cuda.blockDim.x - 1
        put(words, thread, EMPTY)
        meet()
        found = NOTHING
        if split >= 0:
            if thread >= split:
                _stay(LATE)
            put(words, thread, thread)
            meet()
            found = look(words, last - thread)
        out[thread] = found

    @jit
    def returned(split, limit, out, gave_up):
        """The second half returns; the first meets at the barrier without it."""
        words = cuda.shared.array(MOST, int32)
        thread = cuda.threadIdx.x
        put(words, thread, EMPTY)
        meet()
        out[thread] = NOTHING
        if thread >= split:
            return
        if thread >= split // 2:
            _stay(LATE)
        put(words, thread, thread)
        meet()
        out[thread] = look(words, split - 1 - thread)

    @jit
    def later(split, limit, out, gave_up):
        """The first half has a barrier of its own before the one that is for all: the second
        half's only barrier meets the wrong one, and it reads what is not yet written."""
        words = cuda.shared.array(MOST, int32)
        thread, last = cuda.threadIdx.x, cuda.blockDim.x - 1
        put(words, thread, EMPTY)
        meet()
        if thread < split:
            meet()
            _stay(LATE)
        put(words, thread, thread)
        meet()
        out[thread] = look(words, last - thread)

    @jit
    def spinning(split, limit, flag, out, gave_up):
        """The second half waits for a flag that the first sets after a barrier in its branch."""
        words = cuda.shared.array(MOST, int32)
        thread = cuda.threadIdx.x
        begin = ptx.clock64()
        put(words, thread, EMPTY)
        meet()
        found = NOTHING
        if thread < split:
            put(words, thread, thread)
            meet()
            put(flag, 0, 1)
            found = look(words, split - 1 - thread)
        else:
            waiting = 1
            while waiting == 1 and ptx.clock64() - begin < limit:
                if look(flag, 0) == 1:
                    waiting = 0
            gave_up[thread] = waiting
        out[thread] = found

    @jit
    def both_sides(split, limit, out, gave_up):
        """An if/else with a barrier in each branch."""
        words = cuda.shared.array(MOST, int32)
        thread, last = cuda.threadIdx.x, cuda.blockDim.x - 1
        put(words, thread, EMPTY)
        meet()
        found = NOTHING
        if thread < split:
            put(words, thread, thread)
            meet()
            found = look(words, last - thread)
        else:
            _stay(LATE)
            put(words, thread, thread)
            meet()
            found = look(words, last - thread)
        out[thread] = found

    @jit
    def after(split, limit, out, gave_up):
        """An if/else, and the barrier after it."""
        words = cuda.shared.array(MOST, int32)
        thread, last = cuda.threadIdx.x, cuda.blockDim.x - 1
        put(words, thread, EMPTY)
        meet()
        if thread < split:
            put(words, thread, thread)
        else:
            _stay(LATE)
            put(words, thread, thread)
        meet()
        out[thread] = look(words, last - thread)

    return {
        "uniform": uniform,
        "returned": returned,
        "later": later,
        "spinning": spinning,
        "both_sides": both_sides,
        "after": after,
    }


SIGNATURE = "void(int64, int64, int32[::1], int32[::1])"
SPINNING_SIGNATURE = "void(int64, int64, int32[::1], int32[::1], int32[::1])"


def signature(name: str) -> str:
    return SPINNING_SIGNATURE if name == "spinning" else SIGNATURE


def expected(name: str, block: int, split: int) -> np.ndarray:
    """What each thread reads, int32 of shape (block,), where the barrier did what was meant."""
    thread = np.arange(block)
    if name in ("returned", "spinning"):
        return np.where(thread < split, split - 1 - thread, NOTHING)
    return block - 1 - thread


def bind(name: str, function: Any, params: Params, machine: Machine) -> Bound:
    """`params`: `block`, threads, and `split`, the first thread of the second half."""
    block, split = params["block"], params["split"]
    if not 1 <= split < block <= MOST:
        raise ValueError(f"split {split} of {block} threads: 1 <= split < block <= {MOST}")
    xp = machine.xp
    out, gave_up, flag = (xp.zeros(n, np.int32) for n in (block, block, 1))
    wanted = expected(name, block, split)
    poison_value = -77

    def poison() -> None:
        out.fill(poison_value)
        gave_up.fill(0)
        flag.fill(0)

    def check() -> float:
        # Wrong reads are what this is about; here only that the kernel ran to its end.
        if (on_host(out) == poison_value).any():
            raise WrongAnswer("a thread did not come to its end")
        return 0.0

    def reading() -> dict[str, float]:
        found = {
            "wrong_reads": float((on_host(out) != wanted).sum()),
            "gave_up": float(on_host(gave_up).sum()),
        }
        poison()
        return found

    arrays = (flag, out, gave_up) if name == "spinning" else (out, gave_up)
    return Bound(
        Launch.linear(1, block),
        Work(),
        check=check,
        poison=poison,
        function=function,
        arguments=(split, LIMIT, *map(argument, arrays)),
        reading=reading,
        cache_resident=True,
    )
