"""What the compiler and the driver made of a launch: registers, memory, residency, code."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from kernels.compat import SIMULATOR
from kernels.spec import Bound
from results import schema


def launch_record(bound: Bound) -> schema.Launch:
    """The launch as stored; for peers and in the simulator, what the kernel declares alone."""
    launch = bound.launch
    if launch is None:
        return schema.Launch()
    known: dict[str, Any] = {
        "grid": launch.grid,
        "block": launch.block,
        "dynamic_smem": launch.dynamic_smem,
    }
    if launch.cluster:
        known["cluster"] = launch.cluster
    if bound.function is None or SIMULATOR:
        return schema.Launch(**known)
    overload = bound.overload()
    return schema.Launch(
        **known,
        registers=overload.regs_per_thread,
        static_smem=overload.shared_mem_per_block,
        local_bytes=overload.local_mem_per_thread,
        blocks_per_sm=_blocks_per_sm(overload, prod(launch.block), launch.dynamic_smem),
        code=_code(overload),
    )


def _blocks_per_sm(overload: Any, threads: int, dynamic_smem: int) -> int:
    from numba import cuda

    function = overload._codelibrary.get_cufunc()
    context = cuda.current_context()
    return int(context.get_active_blocks_per_multiprocessor(function, threads, dynamic_smem))


@cache
def _code(overload: Any) -> str:
    from kernels.compile import text_hash

    return text_hash(bytes(overload._codelibrary.get_cubin().code))
