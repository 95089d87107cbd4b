"""Blocks resident on an SM: how to leave room for one only, and what a log of blocks tells."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from kernels.compat import SIMULATOR
from kernels.spec import Bound

GRANTED = 48 << 10
"""Dynamic shared memory a block, B, that every launch may ask for: CUDA C++ Programming Guide,
compute capabilities. More must be allowed kernel by kernel."""


def whole_sm() -> int:
    """Dynamic shared memory, B, of which no SM holds two blocks: the most that one may have.

    0 in the simulator, where blocks run one after another.
    """
    if SIMULATOR:
        return 0
    from cuda.core import Device

    return int(Device().properties.max_shared_memory_per_block_optin)


def allow_shared(bound: Bound) -> Bound:
    """`bound`, its kernel allowed the dynamic shared memory that its launch asks for.

    Raises:
        RuntimeError: the driver refuses; the message has its name for the error.
    """
    launch = bound.launch
    if SIMULATOR or launch is None or launch.dynamic_smem <= GRANTED:
        return bound
    from cuda.bindings import driver
    from numba import cuda

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    handle = bound.overload()._codelibrary.get_cufunc().handle
    device = cuda.current_context().device.id
    (error,) = driver.cuKernelSetAttribute(attribute, launch.dynamic_smem, handle, device)
    if int(error):
        raise RuntimeError(f"{launch.dynamic_smem} B of dynamic shared memory: {error.name}")
    return bound


def on_host(array: Any) -> np.ndarray:
    """A CuPy array copied to the host; a NumPy array itself."""
    return array.get() if hasattr(array, "get") else array


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
