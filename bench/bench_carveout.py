"""Carve-out's axes: footprint x carve-out for the chase, tile x block for the stencil."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.measure import Case
from kernels.carveout import FAMILY
from kernels.spec import Machine

KB = 1 << 10
FOOTPRINTS = {
    "quick": (16 * KB, 128 * KB),
    "standard": tuple(KB * size for size in (8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320)),
    "full": tuple(KB * size for size in (8, *range(16, 337, 16))),
}
CARVEOUTS = {
    "quick": (0, 100),
    "standard": (0, 25, 50, 75, 100),
    "full": (-1, 0, 4, 8, 15, 25, 29, 44, 50, 58, 72, 75, 86, 100),
}
"""Percent of the most shared memory; -1 leaves it to the driver. The driver rounds up to what the
hardware has."""
TILES = {
    "quick": (32, 128),
    "standard": (16, 32, 64, 112, 128, 224),
    "full": (8, 16, 32, 56, 64, 112, 128, 224),
}
BLOCKS = {"quick": (256,), "standard": (128, 256, 1024), "full": (64, 128, 256, 512, 1024)}
SIDE = 7168
"""The stencil's grid is SIDE x SIDE, 196 MiB: several times L2, and a multiple of every tile."""
SAMPLES = 11


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """A chase reads cycles inside the kernel, and its first visits warm L1: no flush."""
    for carveout in CARVEOUTS[profile]:
        for footprint in FOOTPRINTS[profile]:
            params: dict[str, Any] = {"bytes": footprint, "carveout": carveout}
            yield Case(FAMILY["chase"], params, cache="warm", count=3)
    for block in BLOCKS[profile]:
        for tile in TILES[profile]:
            params = {"n": SIDE, "tile": tile, "block": block}
            yield Case(FAMILY["stencil"], params, group="stencil", count=SAMPLES)
