"""Divergence's axes: paths, stripes, active lanes, the course's if/else, and lanes that wait."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from bench.measure import Case
from kernels.divergence import FAMILY, OFF
from kernels.spec import Machine

PATHS = {
    "quick": (1, 2, 32),
    "standard": (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 31, 32),
    "full": range(1, 33),
}
STRIPES = {
    "quick": (1, 32),
    "standard": (1, 2, 4, 8, 16, 32, 48, 64, 96, 128),
    "full": (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192),
}
"""Threads that go one way before the next go the other; multiples of 32 lie on warp edges."""
STRIPED_BLOCK = 256
LANES = {
    "quick": (1, 32),
    "standard": (1, 2, 4, 8, 12, 16, 20, 24, 28, 31, 32),
    "full": range(1, 33),
}
TAKEN = {
    "quick": ("half",),
    "standard": ("half", "alternate"),
    "full": ("half", "alternate", "one", "all"),
}
HANDOVERS = 64
SAMPLES = 5
PICTURES = 3


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Costs first, then the timelines, then who waits for whom."""
    for paths in PATHS[profile]:
        yield _counted("paths", paths=paths)
    for stripe in STRIPES[profile]:
        yield _counted("stripes", block=STRIPED_BLOCK, stripe=stripe)
    for off, lanes in product(OFF, LANES[profile]):
        yield _counted("lanes", lanes=lanes, off=off)
    for taken, load, sync in product(TAKEN[profile], (False, True), (False, True)):
        yield _counted("course", PICTURES, taken=taken, load=load, syncwarp=sync)
    for first, second in ((0, 31), (31, 0)):
        yield _counted("hand_over", first=first, second=second, rounds=HANDOVERS)
    for name in ("lock_in_loop", "lock_after_loop"):
        yield _counted(name)


def _counted(name: str, count: int = SAMPLES, /, **params: bool | int | str) -> Case:
    return Case(FAMILY[name], params, cache="warm", count=count)
