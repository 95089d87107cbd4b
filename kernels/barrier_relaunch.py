"""The widest barrier: the end of a launch. The next one starts when all of its blocks are done.

Between two launches that note when each SM gets its first work there are empty ones of the same
shape, so that what is timed is the barrier alone. They are queued ahead or form one CUDA graph;
what the host takes to queue them is another matter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import cuda

from kernels import ptx
from kernels.barrier_block import ROUNDS, compiled, late_one, shape, wait
from kernels.barrier_grid import GRID_LATE
from kernels.compat import argument, jit, on_host
from kernels.graph import graph_of
from kernels.spec import Bound, Launch, Machine, Params, Queue, Work, WrongAnswer

RELAUNCHES = 32
"""Launches between the two that note the time, and the one that ends it: what is divided by."""


@jit
def empty():
    """Nothing."""


@jit
def pass_on(turn, source, target):
    """Each block takes over its neighbour's word plus one; one block is late."""
    block, blocks = cuda.blockIdx.x, cuda.gridDim.x
    if cuda.threadIdx.x == 0:
        if block == late_one(turn, blocks):
            wait(GRID_LATE)
        target[block] = source[(block + 1) % blocks] + 1


@jit
def note(starts):
    """Note when the last block came to each SM, on that SM's clock, which never goes back."""
    if cuda.threadIdx.x == 0:
        cuda.atomic.max(starts, ptx.smid(), ptx.clock64())


PASS_ON = "void(int32, int32[::1], int32[::1])"
NOTE = "void(int64[::1])"


def _launches(queue: Queue) -> Queue:
    return queue


def _graph(queue: Queue) -> Queue:
    """What `queue` queues, as one graph that is launched."""
    queue(0)  # loads the code, which a stream that records cannot
    cuda.synchronize()
    return graph_of(queue)


def _bind(make: Callable[[Queue], Queue], params: Params, machine: Machine) -> Bound:
    xp = machine.xp
    grid, _, _ = shape(compiled(empty, "void()"), params, machine).grid
    launch = Launch.linear(grid, params["block"])
    words = (xp.empty(grid, np.int32), xp.empty(grid, np.int32))
    first, last = xp.zeros(ptx.MOST_SMS, np.int64), xp.zeros(ptx.MOST_SMS, np.int64)
    relays = (tuple(map(argument, words)), tuple(map(argument, reversed(words))))
    noted = (argument(first), argument(last))
    relaunches = 1 if machine.simulator else RELAUNCHES

    def queue(stream: Any) -> None:
        at = (launch.grid, launch.block, stream)
        for turn in range(ROUNDS):
            pass_on[at](np.int32(turn), *relays[turn % 2])
        note[at](noted[0])
        for _ in range(relaunches - 1):
            empty[at]()
        note[at](noted[1])

    def poison() -> None:
        words[0][:] = xp.arange(grid, dtype=np.int32)
        words[1].fill(-1)

    poison()  # the graph is recorded after a launch, which reads the words
    made = make(queue)

    def check() -> float:
        # An even number of rounds: the words are back where they started.
        expected = (np.arange(grid) + ROUNDS) % grid + ROUNDS
        if (on_host(words[0]) != expected).any():
            raise WrongAnswer("a launch read words before the launch in front of it was done")
        return 0.0

    def reading() -> dict[str, Any]:
        begin, end = on_host(first), on_host(last)
        used = (begin > 0) & (end > 0)
        return {"latency_cycles": float(np.median((end - begin)[used])) / relaunches}

    return Bound(
        launch=launch,
        work=Work(),
        check=check,
        poison=poison,
        function=empty,
        queue=made,
        reading=reading,
        cache_resident=True,
    )


bind_relaunch = partial(_bind, _launches)
bind_graph = partial(_bind, _graph)
