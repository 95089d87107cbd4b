"""A compiled numba kernel as the driver knows it: its handle, its machine code, what fits an SM.

numba-cuda 0.30 keeps all of it behind one private name; nothing else in the tree says that name.
"""

from __future__ import annotations

from typing import Any


def driver_function(overload: Any) -> Any:
    """numba's wrapper of the loaded kernel; its `handle` is a CUkernel of the driver."""
    return overload._codelibrary.get_cufunc()


def cubin(overload: Any) -> bytes:
    """The machine code, as the ELF file that the driver has loaded."""
    return bytes(overload._codelibrary.get_cubin().code)


def active_blocks(overload: Any, block: int, dynamic_smem: int) -> int:
    """Blocks resident on an SM by the driver's occupancy calculator; 0: it cannot be launched.

    Args:
        overload: From `Bound.overload`.
        block: Threads a block.
        dynamic_smem: Dynamic shared memory a block, B.
    """
    from numba import cuda

    function, context = driver_function(overload), cuda.current_context()
    return int(context.get_active_blocks_per_multiprocessor(function, block, dynamic_smem))
