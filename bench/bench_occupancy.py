"""Occupancy's axes: resident warps x loads in flight x load width, and random launches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from bench.measure import Case
from kernels.occupancy import FAMILY, SPINNERS
from kernels.spec import Kernel, Machine
from kernels.walk import WIDTHS

WARPS = {
    "quick": (1, 4, 16, 64),
    "standard": (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64),
    "full": (1, 2, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64),
}
READ = {  # (loads, width)
    "quick": ((1, 4), (4, 16)),
    "standard": tuple(product((1, 2, 4, 8), WIDTHS)),
    "full": tuple(product((1, 2, 4, 8), WIDTHS)),
}
AXPY = {  # of the loads half read x and half read y, so there is no 1
    "quick": ((2, 4),),
    "standard": tuple(product((2, 8), (4, 16))),
    "full": tuple(product((2, 4, 8), WIDTHS)),
}
BY_BLOCK = {"quick": (), "standard": ((1, 4), (4, 16)), "full": READ["full"]}
CALIBRATION_WARPS = (3, 11, 18, 26, 36, 44, 60)
"""Never a point of the scored sweep, in any profile."""
# (loads, width) -> warps. At 3 warps little queues: the time of a batch by its lines (loads x
# width / 4). One combination at all of them: how that time grows with the load. Two more where
# memory is full: what it delivers.
CALIBRATION: dict[str, dict[tuple[int, int], tuple[int, ...]]] = {
    "quick": {(4, 4): (3, 26, 60)},
    "standard": {
        **dict.fromkeys(((1, 4), (2, 4), (8, 8)), (3,)),
        (4, 4): CALIBRATION_WARPS,
        (8, 4): (3, 36, 60),
        (8, 16): (3, 18, 44),
    },
}
CALIBRATION["full"] = CALIBRATION["standard"]
CALIBRATION_AXPY: dict[str, dict[tuple[int, int], tuple[int, ...]]] = {
    "quick": {(4, 4): (3, 26, 60)},
    "standard": {
        (2, 4): (3,),
        (4, 4): CALIBRATION_WARPS,
        (8, 4): (3, 36, 60),
        (8, 16): (3, 18, 44),
    },
}
CALIBRATION_AXPY["full"] = CALIBRATION_AXPY["standard"]
SMALL_CARVEOUT = 25
"""Percent. At the sweep's carve-out L1 is smallest: does it limit the loads in flight?"""
RANDOM = {"quick": 4, "standard": 30, "full": 100}
SAMPLES = 11
SEED = 4


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """The cases of one (loads, width) are sampled in turns and share their data."""
    for name, points in (("read", READ), ("axpy", AXPY)):
        for loads, width in points[profile]:
            yield from _sweep(FAMILY[name], loads, width, WARPS[profile], "shared_memory")
    for name, sweeps in (("calibration", CALIBRATION), ("calibration_axpy", CALIBRATION_AXPY)):
        for (loads, width), warps in sweeps[profile].items():
            yield from _sweep(FAMILY[name], loads, width, warps, "shared_memory")
    for loads, width in BY_BLOCK[profile]:
        yield from _sweep(FAMILY["read"], loads, width, WARPS[profile], "block")
    if profile != "quick":
        for loads, width in ((1, 4), (8, 16)):
            yield from _sweep(
                FAMILY["read"], loads, width, (8, 64), "shared_memory", carveout=SMALL_CARVEOUT
            )
    yield Case(FAMILY["driver"], {}, cache="warm", count=1)
    for params in random_launches(RANDOM[profile]):
        yield Case(FAMILY["resident"], params, cache="warm", count=3)


def _sweep(
    kernel: Kernel, loads: int, width: int, warps: tuple[int, ...], by: str, **more: Any
) -> Iterator[Case]:
    group = (kernel.name, loads, width, by, *more.values())
    for resident in warps:
        params = {"warps": resident, "loads": loads, "width": width, "by": by, **more}
        yield Case(kernel, params, group=group, count=SAMPLES)


def random_launches(count: int) -> list[dict[str, Any]]:
    """Registers, block and share of a block's most shared memory; the same in every process."""
    random = np.random.default_rng(SEED)
    launches: dict[tuple[Any, ...], dict[str, Any]] = {}
    while len(launches) < count:
        values = int(random.choice(list(SPINNERS)))
        # 208 registers a thread leave room for 9 warps.
        block = int(random.integers(1, 1025 if values <= 56 else 289))
        share = round(float(random.choice([0.0, 1.0]) * random.uniform(0, 0.6)), 3)
        params = {"registers": values, "block": block, "shared_share": share}
        launches[values, block, share] = params
    return list(launches.values())
