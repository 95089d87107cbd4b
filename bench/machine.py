"""The device as kernels may know it: from its snapshot, or the one that the simulator plays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.compat import array_module
from kernels.spec import Machine


def from_snapshot(snapshot: Mapping[str, Any]) -> Machine:
    """The machine that `bench.device.snapshot` describes."""
    major, minor = str(snapshot["cc"]).split(".")
    return Machine(
        cc=(int(major), int(minor)),
        sms=snapshot["sms"],
        max_threads_per_sm=snapshot["max_threads_per_sm"],
        max_blocks_per_sm=snapshot["max_blocks_per_sm"],
        l2_bytes=snapshot["l2_bytes"],
        memory_bytes=snapshot["memory_bytes"],
        xp=array_module(),
    )


def simulated() -> Machine:
    """The simulator as a machine: two SMs of a recent chip, little memory."""
    return Machine((9, 0), 2, 2048, 32, 1 << 20, 1 << 30, array_module(), simulator=True)
