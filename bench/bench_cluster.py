"""The clusters' axes: size, distance, threads a block, and the barrier's order of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.measure import Case
from kernels.cluster import FAMILY, ORDERS
from kernels.cluster_launch import LARGEST_SIZE, PORTABLE_SIZE
from kernels.spec import Machine

BLOCK = 256
SIZES = {"quick": (8,), "standard": (1, 2, 4, 8, 16), "full": range(1, LARGEST_SIZE + 1)}
BLOCKS = {
    "quick": (BLOCK,),
    "standard": (32, 64, 128, BLOCK, 512, 1024),
    "full": (32, 64, 96, 128, 192, BLOCK, 384, 512, 768, 1024),
}
SAMPLES = 11


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Barriers by size, then by threads a block; reads of shared memory by size and distance."""
    sizes, blocks = SIZES[profile], BLOCKS[profile]
    for order in ORDERS:
        for size in sizes:
            yield _case("cluster_sync", cluster=size, block=BLOCK, order=order)
        for block in blocks:
            if block != BLOCK:
                yield _case("cluster_sync", cluster=PORTABLE_SIZE, block=block, order=order)
    asked = {"cluster": LARGEST_SIZE, "block": BLOCK, "order": "release_acquire"}
    yield _case("cluster_sync", **asked, permitted=0)
    for size in sizes if profile == "quick" else range(1, LARGEST_SIZE + 1):
        yield _case("max_active_clusters", cluster=size, block=BLOCK)
    for what in ("latency", "bandwidth"):
        yield _case(f"shared_{what}", cluster=1)
        for size in sizes:
            for distance in _distances(size, profile):
                yield _case(f"dsmem_{what}", cluster=size, distance=distance)


def _distances(size: int, profile: str) -> list[int]:
    """Every block of the two largest clusters; of the others the block itself and the next."""
    every = profile == "full" or (profile == "standard" and size >= PORTABLE_SIZE)
    return list(range(size if every else min(size, 2)))


def _case(name: str, **params: Any) -> Case:
    return Case(FAMILY[name], params, cache="warm", count=SAMPLES)
