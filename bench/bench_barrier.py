"""The barriers' axes: warps a block at one block an SM, then blocks an SM; and above the limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.measure import Case
from kernels.barrier import FAMILY
from kernels.spec import Machine

BLOCK = 256
CHAINS = (
    "syncwarp",
    "syncwarp_masked",
    "syncwarp_halves",
    "syncwarp_diverged",
    "diverged",
    "shuffle",
    "ballot",
    "syncthreads",
    "syncthreads_diverged",
    "syncthreads_count",
    "syncthreads_and",
    "syncthreads_or",
)
WIDE = ("grid_sync", "atomic_barrier", "relaunch", "graph_relaunch")
QUICK = ("syncwarp", "syncthreads", "grid_sync", "graph_relaunch")
BLOCKS = {
    "standard": {"chain": (32, 64, 128, 256, 512, 1024), "wide": (32, 256, 1024)},
    "full": {
        "chain": (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
        "wide": (32, 64, 128, 256, 512, 1024),
    },
}
BLOCKS_PER_SM = (1, 2, "most")
SAMPLES = 11


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Every barrier; what a quick run leaves out is the axes, and most of the chains."""
    if profile == "quick":
        yield from (_case(name, BLOCK, 1) for name in QUICK)
        return
    blocks = BLOCKS[profile]
    for name in CHAINS:
        for block in blocks["chain"]:
            yield _case(name, block, 1)
        for per_sm in BLOCKS_PER_SM[1:]:
            for block in (BLOCK,) if profile == "standard" else blocks["chain"]:
                yield _case(name, block, per_sm)
    for name in WIDE:
        for block in blocks["wide"]:
            for per_sm in BLOCKS_PER_SM:
                yield _case(name, block, per_sm)
    for name in ("grid_sync", "atomic_barrier"):
        yield _case(name, BLOCK, "most", beyond=1)


def _case(name: str, block: int, blocks_per_sm: Any, **more: int) -> Case:
    params = {"block": block, "blocks_per_sm": blocks_per_sm, **more}
    return Case(FAMILY[name], params, cache="warm", count=SAMPLES)
