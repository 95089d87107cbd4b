"""Launch's axes, and the host's side of a launch, which is measured here and not in the kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench.measure import Case
from kernels.late_error import FAULTS
from kernels.launch import FAMILY, LIMITS
from kernels.spec import Bound, Kernel, Machine, Params

LAUNCHES = 100
"""Launches in a row for the host's cost of one: the driver takes some 1,000 before it blocks."""
ROUNDTRIPS = 10
ROADS = ("numba", "cupy", "cuda_core")
NODES = {"quick": (1,), "standard": (1, 4, 16, 64), "full": (1, 2, 4, 8, 16, 32, 64, 128)}
GRIDS = {
    "quick": (0, 16, 24),
    "standard": range(0, 25, 2),
    "full": range(25),
}
BLOCKS = {"quick": (32,), "standard": (32, 1024), "full": (32, 128, 1024)}
WAIT_NS = 200_000
SAMPLES = 11


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """The roads side by side, graphs, grids from one block to 2^24, and what goes wrong."""
    for arguments in (0, 2):
        for road in ROADS:
            params = {"arguments": arguments}
            yield _hosted(FAMILY[road], params, group=("road", arguments))
    for nodes in NODES[profile]:
        yield _hosted(FAMILY["graph"], {"nodes": nodes})
    yield _hosted(FAMILY["spin"], {"nanoseconds": WAIT_NS})
    for block in BLOCKS[profile]:
        for exponent in GRIDS[profile]:
            params = {"grid": 2**exponent, "block": block}
            yield Case(FAMILY["blocks"], params, cache="warm", count=SAMPLES)
    for limit in LIMITS:
        yield Case(FAMILY["refused"], {"limit": limit}, cache="warm", count=1)
    for fault in FAULTS if profile != "quick" else FAULTS[:1]:
        yield Case(FAMILY["late_error"], {"fault": fault}, cache="warm", count=1)


def _hosted(kernel: Kernel, params: Params, group: Any = None) -> Case:
    """The case, with the host's time read after each sample of the device's."""
    timed = replace(
        kernel, bind=lambda params, machine: with_host_time(kernel.bind(params, machine))
    )
    return Case(timed, params, group=group, cache="warm", count=SAMPLES)


def with_host_time(bound: Bound) -> Bound:
    """`bound`, reading also what its launch costs the host.

    `host_seconds` is a launch's share of LAUNCHES in a row, none of them waited for;
    `roundtrip_seconds` a launch that is waited for.
    """
    from numba import cuda

    stream, queue, reading = cuda.stream(), bound.queue, bound.reading

    def host() -> dict[str, Any]:
        found = reading() if reading else {}
        queue(stream)
        stream.synchronize()
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            queue(stream)
        returned = time.perf_counter()
        stream.synchronize()
        again = time.perf_counter()
        for _ in range(ROUNDTRIPS):
            queue(stream)
            stream.synchronize()
        end = time.perf_counter()
        return {
            **found,
            "host_seconds": (returned - begin) / LAUNCHES,
            "roundtrip_seconds": (end - again) / ROUNDTRIPS,
        }

    bound.reading = host
    return bound
