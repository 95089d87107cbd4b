"""Axes of the loaded latency: how wide the generators' loads are, and how hard they read."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Case
from kernels.loaded_latency import FAMILY, KERNELS, WARPS
from kernels.spec import Machine

COUNT = {"quick": 5, "standard": 11, "full": 21}
STANDARD = (
    *(160_000, 80_000, 40_000, 20_000, 12_000, 8000, 6000, 5000),
    *(4000, 3500, 3000, 2500, 2000, 1000, 0),
)
FINE = {int(250_000 / 1.25**step) for step in range(28)}
PAUSES = {
    "quick": (4000, 0),
    "standard": STANDARD,
    "full": sorted(FINE.union(STANDARD), reverse=True),
}
"""SM cycles between a warp's batches. Dense where an H200 saturates (3,560 cycles take 64 KiB an SM
at 4.8 TB/s and 1.98 GHz) and wide enough for chips with a tenth of its bandwidth an SM."""
FEWER = {"quick": (), "standard": (1, 2, 4, 8, 16), "full": (1, 2, 3, 4, 6, 8, 12, 16, 24)}
"""Warps an SM without a pause: another way to a load in between."""


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Idle memory first, then from little load to all."""

    def case(width: int, warps: int, pause: int) -> Case:
        params = {"width": width, "warps": warps, "pause": pause}
        return Case(FAMILY["probe"], params, cache="warm", count=COUNT[profile])

    for width in KERNELS:
        yield case(width, 0, 0)
        for pause in PAUSES[profile]:
            yield case(width, WARPS, pause)
        for warps in FEWER[profile]:
            yield case(width, warps, 0)
