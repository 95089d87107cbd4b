"""What the compiler and the driver made of a launch: registers, memory, residency, code."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from kernels.compat import SIMULATOR
from kernels.cubin import text_hash
from kernels.overload import active_blocks, cubin
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
        blocks_per_sm=active_blocks(overload, prod(launch.block), launch.dynamic_smem),
        code=_code(overload),
    )


@cache
def _code(overload: Any) -> str:
    return text_hash(cubin(overload))
