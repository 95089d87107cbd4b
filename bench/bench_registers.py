"""Registers' axes: caps on one kernel, and block sizes at two counts of registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.measure import Case
from kernels.registers import FAMILY, UP_TO
from kernels.spec import Machine

CAPS = {
    "quick": (24, 64, 255),
    # 16 asks for less than the assembler grants.
    "standard": (16, 24, 32, 40, 48, 64, 80, 96, 128, 168, 255),
    "full": (16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 168, 192, 255),
}
ONE_BLOCK = {"quick": (), "standard": (24, 32, 64, 96, 128), "full": CAPS["full"]}
"""Caps at which one block an SM is measured too: its spills are few enough for L1."""
BLOCKS = {
    "quick": (128, 256),
    "standard": (32, 64, 96, 128, 160, 256, 384, 512, 768, 1000, 1024),
    "full": (32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 896, 1000, 1024),
}
ELEMENTS = 2**27
SAMPLES = 11


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Block sizes of one kernel are sampled in turns: the question is whether they differ."""
    for caps, blocks in ((CAPS, "all"), (ONE_BLOCK, 1)):
        for registers in caps[profile]:
            params: dict[str, Any] = {"registers": registers, "blocks_per_sm": blocks}
            yield Case(FAMILY["capped"], params, cache="warm", count=SAMPLES)
    for name in ("block_monolithic", "block_grid_stride"):
        for registers in UP_TO:
            for block in BLOCKS[profile]:
                params = {"n": ELEMENTS, "block": block, "registers": registers}
                yield Case(FAMILY[name], params, group=(name, registers), count=SAMPLES)
