"""What an SM really held: every block notes its SM and when it started and stopped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from kernels import ptx
from kernels.compat import device, on_host

ENTRIES = 3
"""int64 a block: SM, start and stop on that SM's clock, cycles."""


@device
def note_start(log):
    """The block's first thread notes where and when it is."""
    if cuda.threadIdx.x == 0:
        at = ENTRIES * cuda.blockIdx.x
        log[at] = ptx.smid()
        log[at + 1] = ptx.clock64()


@device
def note_stop(log):
    """The block's first thread notes when it is done."""
    if cuda.threadIdx.x == 0:
        log[ENTRIES * cuda.blockIdx.x + 2] = ptx.clock64()


def new_log(blocks: int, xp: Any) -> Any:
    """A log for `blocks` blocks, int64, shape (ENTRIES * blocks,)."""
    return xp.zeros(ENTRIES * blocks, xp.int64)


def rows(log: Any) -> np.ndarray:
    """The log as a NumPy array of shape (blocks, ENTRIES); waits for the device."""
    return np.asarray(on_host(log)).reshape(-1, ENTRIES)


def most_at_once(log: np.ndarray) -> int:
    """Most blocks that were on one SM at the same time.

    The first thread may be done before its block is, so a block can seem shorter than it was but
    never longer: what is counted together was together.
    """
    sms, starts, stops = log[:, 0], log[:, 1], log[:, 2]
    sm = np.concatenate([sms, sms])
    time = np.concatenate([starts, stops])
    change = np.concatenate([np.ones(len(log), int), -np.ones(len(log), int)])
    # An SM's changes add up to 0, so one running sum serves all SMs in a row. At equal times the
    # one that stops goes first.
    order = np.lexsort((change, time, sm))
    return int(np.cumsum(change[order]).max(initial=0))


def mean_cycles(log: np.ndarray) -> float:
    """Mean duration of the blocks' first warps, cycles."""
    return float((log[:, 2] - log[:, 1]).mean())
