"""What a log of blocks tells: who shared an SM, and how soon a freed place was taken again."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from kernels.compat import SIMULATOR
from kernels.shared_memory import block_limit, prepare_shared_memory
from kernels.spec import Bound


def whole_sm() -> int:
    """Dynamic shared memory, B, of which no SM holds two blocks; 0 in the simulator.

    The most that a block may have is the most that an SM has, less what the system keeps of it.
    """
    return 0 if SIMULATOR else block_limit()


def allow_shared(bound: Bound) -> Bound:
    """`bound`, its kernel allowed the dynamic shared memory that its launch asks for; of
    `whole_sm`, what the kernel's own arrays leave."""
    if bound.launch is not None and bound.launch.dynamic_smem:
        overload = bound.overload()
        prepare_shared_memory(overload)
        left = block_limit() - overload.shared_mem_per_block
        bound.launch = replace(bound.launch, dynamic_smem=min(bound.launch.dynamic_smem, left))
    return bound


def most_resident(sms: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> int:
    """Most blocks that were on one SM at once.

    Shapes (blocks,); the times may be an SM's own clock, for only blocks of one SM are compared.
    A block that starts in the tick in which another stops replaces it.
    """
    most = 0
    for sm in np.unique(sms):
        there = sms == sm
        events = [(int(time), 1) for time in starts[there]]
        events += [(int(time), -1) for time in stops[there]]
        resident = 0
        for _, change in sorted(events):
            resident += change
            most = max(most, resident)
    return most


def refills(sms: np.ndarray, starts: np.ndarray, stops: np.ndarray, slots: int) -> list[int]:
    """Time from the end of a block to the start of the one that takes its place, for each.

    Args:
        sms, starts, stops: an entry a block, in the SM's clock.
        slots: blocks that fit on an SM; the first so many replace nothing.
    """
    gaps = []
    for sm in np.unique(sms):
        there = np.flatnonzero(sms == sm)
        order = there[np.argsort(starts[there], kind="stable")]
        ends = deque(sorted(int(stop) for stop in stops[there]))
        # The block that starts as number slots + k takes the place that became free k-th.
        gaps += [int(starts[block]) - ends.popleft() for block in order[slots:]]
    return gaps
