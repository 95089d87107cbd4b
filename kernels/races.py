"""Planted faults: what a race checker must report, each a right kernel with one thing left out.

They are run one at a time under compute-sanitizer; `python -m bench.sanitize` says whether what
it reports is what is expected here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba import cuda

from kernels import reduction_tree
from kernels.compat import argument, array_module, jit
from kernels.exchange import PARTNERS, exchange, suffices

Expected = Literal["clean", "warning", "error"]
BLOCK = 256

ON_PURPOSE: dict[tuple[str, str], dict[str, Expected]] = {
    # All threads write to one word, and which write stays is what is asked.
    ("racecheck", "contention"): {"winner": "error"},
    # Without the barrier, or with one that is too small; wrong reads are counted.
    ("racecheck", "exchange"): {"exchange": "error"},
    # A barrier in one branch meets another one: threads read what is not written yet.
    ("racecheck", "branch"): {"later": "error"},
    ("racecheck", "mask"): {"later": "warning"},
    ("synccheck", "branch"): {"later": "error", "both_sides": "error"},
    # In a child process: which call of the host tells of an error in a kernel?
    ("memcheck", "launch"): {"broken": "error"},
}
"""(tool, family) -> what the tool must say of the kernels that are faulty on purpose."""

GIVES_UP: dict[tuple[str, str], frozenset[str]] = {
    ("racecheck", "barrier"): frozenset({"atomic_barrier"}),
}
"""(tool, family) -> kernels that may fail there: racecheck does not keep the blocks of an ordinary
launch resident together, so that every wait for the others ends by the clock, with 64 times the
patience too. A cooperative launch it does."""


@dataclass(frozen=True)
class Fault:
    """One faulty launch (or its right twin, which must be clean) and what a tool says of it."""

    name: str
    tool: Literal["racecheck", "memcheck"]
    expected: Expected
    summary: str
    run: Callable[[], str]
    """Launches it, waits, and says what came out."""

    @property
    def is_ended(self) -> bool:
        """Whether the tool ends the launch: memcheck does, for an error."""
        return (self.tool, self.expected) == ("memcheck", "error")


@jit
def missing_syncthreads(data, n, partials):
    """The tree of reduction_tree.sequential without the barrier after each step: a warp adds
    what another has not written yet."""
    values = cuda.shared.array(0, data.dtype)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    values[thread] = 0
    if i < n:
        values[thread] = data[i]
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if thread < half:
            values[thread] += values[thread + half]
        half //= 2
    if thread == 0:
        partials[cuda.blockIdx.x] = values[0]


@jit
def missing_syncwarp(data, n, partials):
    """The same tree with every syncthreads, down to the last warp, which has no syncwarp."""
    values = cuda.shared.array(0, data.dtype)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    values[thread] = 0
    if i < n:
        values[thread] = data[i]
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half >= 32:
        if thread < half:
            values[thread] += values[thread + half]
        cuda.syncthreads()
        half //= 2
    while half > 0:
        if thread < half:
            values[thread] += values[thread + half]
        half //= 2
    if thread == 0:
        partials[cuda.blockIdx.x] = values[0]


def _sum_of_ones(function: Any, block: int) -> Callable[[], str]:
    """One block sums as many ones as it has threads."""

    def run() -> str:
        xp = array_module()
        data, partials = xp.ones(block, "float32"), xp.zeros(1, "float32")
        # A whole block of 4-byte elements and no more, so that a read past its end is one.
        function[1, block, 0, 4 * block](argument(data), block, argument(partials))
        cuda.synchronize()
        return f"{block} ones add up to {float(partials[0]):g}"

    return run


def _exchanged(barrier: str, partner: str) -> Callable[[], str]:
    rounds = 20

    def run() -> str:
        counts = array_module().zeros(2, "int64")
        function = exchange(barrier, "plain")
        offset = np.int32(PARTNERS[partner])
        function[1, BLOCK, 0, 4 * BLOCK](offset, np.int32(rounds), argument(counts))
        cuda.synchronize()
        return f"{int(counts[0])} of {int(counts[1])} reads are wrong"

    return run


def _expected(barrier: str, partner: str) -> Expected:
    """A hazard between warps is an error to racecheck, one within a warp a warning."""
    if suffices(barrier, partner):
        return "clean"
    return "error" if partner == "tid ^ 32" else "warning"


def _exchanges() -> tuple[Fault, ...]:
    barriers = {
        "none": "without a barrier",
        "syncwarp": "with syncwarp",
        "syncthreads": "with syncthreads",
    }
    return tuple(
        Fault(
            f"exchange {partner}, {barrier}",
            "racecheck",
            _expected(barrier, partner),
            f"neighbour exchange of {partner} {words}",
            _exchanged(barrier, partner),
        )
        for partner in PARTNERS
        for barrier, words in barriers.items()
    )


def _published(block: int, expected: Expected, summary: str) -> Fault:
    run = _sum_of_ones(reduction_tree.reduce4_as_published, block)
    return Fault(f"reduce4_as_published, {block} threads", "memcheck", expected, summary, run)


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "missing syncthreads",
            "racecheck",
            "error",
            "tree reduction without the barrier after each step",
            _sum_of_ones(missing_syncthreads, BLOCK),
        ),
        Fault(
            "missing syncwarp",
            "racecheck",
            "warning",
            "tree reduction whose last warp has no syncwarp",
            _sum_of_ones(missing_syncwarp, BLOCK),
        ),
        *_exchanges(),
        _published(128, "error", "128 threads: the second step reads past shared memory"),
        _published(256, "clean", "256 threads: in its range"),
        _published(512, "clean", "512 threads: in its range"),
        _published(1024, "clean", "1024 threads: no bad access, but half the sum is lost"),
    )
}
