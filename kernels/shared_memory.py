"""Shared memory of a launch: how much a block may have, the carve-out, and what fits an SM.

Shared memory and L1 are one array. The carve-out is the share of it that is shared memory; left
to itself, the driver picks it by what a block asks for, so that a sweep over dynamic shared
memory would change L1 too. Blocks over 48 KB must be allowed to first. numba gives neither
attribute at run time, therefore they are set through cuda.bindings on its kernel (a CUkernel).
"""

from __future__ import annotations

from typing import Any

from kernels.compat import SIMULATOR
from kernels.overload import active_blocks, driver_function
from kernels.spec import Unavailable

GRANULE = 256
"""Shared memory is handed out in units of 128 bytes, 256 before compute capability 8.0."""
SIMULATED_BYTES = 65536


def block_limit() -> int:
    """The most shared memory that a block can have when it opts in, B."""
    if SIMULATOR:
        return SIMULATED_BYTES
    return int(_device().MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)


def prepare_shared_memory(overload: Any, carveout: int = -1) -> None:
    """Allow the kernel as much dynamic shared memory as a block can have, and set its carve-out.

    Args:
        overload: The compiled kernel, from `Bound.overload`.
        carveout: Preferred shared memory, percent of the most an SM can have; -1: the driver's
            choice. Both hold for every later launch of this kernel until set again.
    """
    if SIMULATOR:
        return
    from cuda.bindings import driver

    attributes = driver.CUfunction_attribute
    function = driver_function(overload)
    for attribute, value in (
        (
            attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            block_limit() - overload.shared_mem_per_block,
        ),
        (attributes.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, carveout),
    ):
        (status,) = driver.cuKernelSetAttribute(attribute, value, function.handle, _device().id)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuKernelSetAttribute: {status.name} for {attribute.name}={value}")


def resident_blocks(overload: Any, block: int, dynamic_smem: int = 0) -> int:
    """Blocks resident on an SM, says the driver; 0: it cannot be launched. 1 in the simulator."""
    if SIMULATOR:
        return 1
    return active_blocks(overload, block, dynamic_smem)


def pin_blocks(overload: Any, block: int, blocks: int) -> int:
    """Dynamic shared memory, B, with which exactly `blocks` blocks are resident on an SM.

    The most that lets so many in, found by asking the driver: it knows the carve-out, the
    granularity and what the system reserves. Code and registers stay as they are. Call
    `prepare_shared_memory` first.

    Raises:
        Unavailable: This device holds another number whatever the size.
    """
    if SIMULATOR:
        return 0
    fits, beyond = 0, (block_limit() - overload.shared_mem_per_block) // GRANULE + 1
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        if resident_blocks(overload, block, middle * GRANULE) >= blocks:
            fits = middle
        else:
            beyond = middle
    found = resident_blocks(overload, block, fits * GRANULE)
    if found != blocks:
        raise Unavailable(
            f"an SM holds {found} blocks of {block} threads, {overload.regs_per_thread} registers "
            f"each and {fits * GRANULE} bytes of shared memory a block, not {blocks}"
        )
    return fits * GRANULE


def _device() -> Any:
    from numba import cuda

    return cuda.get_current_device()
