"""Identity's axes: the course's launch, other shapes, and a chip that is full."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Case
from kernels.identity import FAMILY
from kernels.spec import Machine

COURSE = ("16x16", "2x2")
"""The launch of the lecture notes: block (16,16), grid (2,2)."""
SHAPES = {
    "quick": (COURSE,),
    "standard": (COURSE, ("8x4x4", "2x2x2"), ("10x10", "2"), ("33", "2"), ("1024", "1")),
    "full": (COURSE, ("8x4x4", "2x2x2"), ("10x10", "2"), ("33", "2"), ("1024", "1"), ("1", "3")),
}
BLOCKS = {"quick": (256,), "standard": (96, 256, 1024), "full": (32, 96, 256, 512, 1024)}
SAMPLES = 3
"""Each is a picture; three show whether it stays the same."""


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Shapes of a small launch, then block sizes at full residency."""
    for block, grid in SHAPES[profile]:
        params = {"block_shape": block, "grid_shape": grid}
        yield Case(FAMILY["small"], params, cache="warm", count=SAMPLES)
    for size in BLOCKS[profile]:
        yield Case(FAMILY["full_chip"], {"block": size}, cache="warm", count=SAMPLES)
