"""One random cycle through memory: a node in each 128-byte line, which holds the next's address.

The order is a bijection computed from the step's number, so that 33 million nodes are linked by
one kernel with neither a sort nor a table, and where a chase must end is known in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from kernels import ptx
from kernels.compat import argument, device, jit, on_host
from kernels.probes import pointer
from kernels.spec import Machine, Unavailable, WrongAnswer

LINE = 128
"""Bytes a cache line: the unit of a tag in L1 and L2 (CUDA programming guide, global memory)."""
WORDS = LINE // 8

_MULTIPLIER = 0x9E3779B1
"""Odd, 2^32 over the golden ratio: Knuth, The Art of Computer Programming 3, 6.4."""
_ROUNDS = 3


def place(step, lines, bits):
    """Which of `lines` lines the cycle visits at `step`: a bijection on 0..lines - 1.

    `bits` is the smallest with 2^bits >= lines. Addition, multiplication by an odd number and a
    shifted exclusive-or are bijections modulo 2^bits; a result that is no line goes in again
    until one comes out, which keeps it a bijection (Black and Rogaway, 2002, "cycle walking").
    """
    mask = (1 << bits) - 1
    shift = bits // 2 + 1
    while True:
        for _ in range(_ROUNDS):
            step = ((step + 1) * _MULTIPLIER) & mask
            step ^= step >> shift
        if step < lines:
            return step


place_on_device = device(place)
"""`place`, for kernels."""


@jit
def link(nodes, base, lines, bits):
    """Write into each line of `nodes` the address of the line that follows it."""
    step = cuda.grid(1)
    while step < lines:
        following = step + 1 if step + 1 < lines else 0
        nodes[place_on_device(step, lines, bits) * WORDS] = (
            base + place_on_device(following, lines, bits) * LINE
        )
        step += cuda.gridsize(1)


_load = ptx.load("u64", 1, "cg")


@device
def read_share(nodes, first, lines, bits, thread, threads):
    """One thread's share of a read of all lines, in the cycle's order from step `first`.

    Returns the sum of what it read, modulo 2^64. Somebody must use it: the assembler drops a
    load whose value nobody needs, also one that is volatile in the PTX.
    """
    total = np.uint64(0)
    step = thread
    while step < lines:
        at = first + step if first + step < lines else first + step - lines
        total += _load(nodes, place_on_device(at, lines, bits) * WORDS)
        step += threads
    return total


@jit
def read_all(nodes, lines, bits, total):
    """Read every line once, so that caches hold whole sectors: of a sector that was written in
    part they hold that part, and its first read goes to DRAM for the rest."""
    share = read_share(nodes, 0, lines, bits, cuda.grid(1), cuda.gridsize(1))
    cuda.atomic.add(total, 0, share)


COMPILED = (
    (link, "void(uint64[::1], int64, int64, int64)"),
    (read_all, "void(uint64[::1], int64, int64, uint64[::1])"),
)
"""What `build` launches, for the PTX tier."""


@dataclass(frozen=True)
class Ring:
    """A linked cycle in device memory. Keep it as long as a kernel chases through it."""

    nodes: Any
    lines: int
    bits: int
    base: int
    total: Any = None
    """Sum of what the first read of all lines has read: a uint64 on the device."""

    def address(self, step: int) -> int:
        """Where a chase from step 0 is after `step` steps."""
        return self.base + place(step % self.lines, self.lines, self.bits) * LINE

    @property
    def sum(self) -> int:
        """What a read of all lines adds up to, modulo 2^64: each holds another's address."""
        return (self.lines * self.base + LINE * (self.lines * (self.lines - 1) // 2)) % 2**64

    def check_read(self, total: Any) -> float:
        """0.0 where all lines were read, and each once.

        Args:
            total: device array of one uint64, the sum of what was read.

        Raises:
            WrongAnswer: They were not, or the cycle is linked wrongly.
        """
        read = int(on_host(total)[0])
        if read != self.sum:
            raise WrongAnswer(f"a read of all {self.lines} lines adds up to {read}, not {self.sum}")
        return 0.0

    def check(self, address: Any, step: int) -> float:
        """0.0 where the chase is at `address` after `step` steps.

        Raises:
            WrongAnswer: It is somewhere else, or not all lines were read when it was built.
        """
        if self.total is not None:
            self.check_read(self.total)
        at, expected = int(address), self.address(step)
        if at != expected:
            raise WrongAnswer(
                f"after {step} steps the chase is {at - self.base} bytes from the start, should be "
                f"{expected - self.base}"
            )
        return 0.0


def build(size: int, machine: Machine) -> Ring:
    """A cycle through `size` bytes, linked and read once.

    Raises:
        ValueError: Not a positive multiple of `LINE`.
        Unavailable: Over half of the device's memory.
    """
    if size < LINE or size % LINE:
        raise ValueError(f"{size} bytes: a positive multiple of {LINE} is needed")
    if size > machine.memory_bytes // 2:
        raise Unavailable(f"{size} bytes are over half of this device's memory")
    lines = size // LINE
    bits = max(1, (lines - 1).bit_length())
    nodes = machine.xp.empty(size // 8, np.uint64)
    total = machine.xp.zeros(1, np.uint64)
    base = pointer(nodes)
    grid, block = (1, 32) if machine.simulator else (min(-(-lines // 256), 16 * machine.sms), 256)
    cuda.synchronize()  # the memory may be in use yet on another stream
    link[grid, block](argument(nodes), base, lines, bits)
    read_all[grid, block](argument(nodes), lines, bits, argument(total))
    cuda.synchronize()
    return Ring(nodes, lines, bits, base, total)
