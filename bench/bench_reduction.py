"""The reduction's axes: every variant at 2^28, the best over n beside CUB, then launch shapes.

One axis at a time around n = 2^28 float32. Kernels without `block` choose their launch by n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.measure import Case
from kernels.reduction import FAMILY
from kernels.spec import Machine

CENTRE = 2**28
COURSE = (
    "interleaved_divergent",
    "interleaved",
    "sequential",
    "first_add",
    "reduce4_as_published",
    "reduce4",
    "register_sum",
    "unrolled",
    "shuffle",
    "vector_shuffle",
    "block_atomics",
    "grid_sync",
    "cluster",
    "last_block",
)
"""The variants in the course's order, each a step from the one before."""
CENTRE_KERNELS = {
    "quick": ("reduce4_as_published", "reduce4", "shuffle", "last_block", "cub"),
    "standard": (*COURSE, "cub", "numba_reduce"),
    "full": (*COURSE, "cub", "numba_reduce"),
}
OVER_N = {
    "quick": ("last_block", "cub"),
    "standard": ("vector_shuffle", "one_block", "cluster", "last_block", "cub"),
    "full": ("shuffle", "vector_shuffle", "one_block", "cluster", "last_block", "cub"),
}
ONE_BLOCK_LIMIT = 2**18
"""Past it one block takes tens of microseconds, and shows nothing new."""

SIZES = {
    "quick": (10, 16, 20),
    "standard": (*range(10, 28, 2), 30),
    "full": (*range(10, 28), 29, 30),
}
"""log2 of n; 28, the centre, is measured with all variants."""
BLOCKS = {"quick": (), "standard": (64, 128, 512, 1024), "full": (32, 64, 128, 512, 1024)}
BLOCKS_PER_SM = {"quick": (), "standard": (1, 2, 4, 8, 16), "full": (1, 2, 3, 4, 5, 6, 8, 16, 32)}
ITEMS = {"quick": (), "standard": (8, 32), "full": (4, 8, 32)}
"""Elements a thread loads at once; 16 is the default."""
PAST_INT32 = 2**31 + 33
"""An index of 32 bits would wrap around."""


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """All at the centre, the best over n, and the axes of the launch."""
    yield from _group("centre", CENTRE_KERNELS[profile], CENTRE)
    for exponent in SIZES[profile]:
        n = 2**exponent
        names = [name for name in OVER_N[profile] if name != "one_block" or n <= ONE_BLOCK_LIMIT]
        yield from _group(("n", n), names, n)
    yield from _launch_axes(profile)
    if profile != "quick":
        yield from _group("max", ("last_block", "cub"), CENTRE, op="max")
        for block in (512, 1024):
            params = {"n": CENTRE, "dtype": "float32", "block": block}
            yield Case(FAMILY["reduce4_outside"], params, count=3)
    if profile == "full":
        for dtype, n in (("int32", CENTRE), ("float64", CENTRE // 2)):
            yield from _group(dtype, CENTRE_KERNELS[profile], n, dtype=dtype)
        yield from _group("64-bit index", ("reduce4", "last_block", "cluster"), PAST_INT32)


def _launch_axes(profile: str) -> Iterator[Case]:
    """Threads a block, blocks an SM, elements a thread."""
    for block in BLOCKS[profile]:
        names = ["reduce4", "shuffle", "last_block"]
        if block == 512:  # 256 and 512: the range of the published one
            names.insert(0, "reduce4_as_published")
        yield from _group(("block", block), names, CENTRE, block=block)
    for count in BLOCKS_PER_SM[profile]:
        names = ["shuffle", "last_block"]
        yield from _group(("blocks_per_sm", count), names, CENTRE, block=256, blocks_per_sm=count)
    for items in ITEMS[profile]:
        yield from _group(("items", items), ["last_block"], CENTRE, block=256, items=items)


def _group(
    group: Any, names: Sequence[str], n: int, dtype: str = "float32", **params: Any
) -> Iterator[Case]:
    """These kernels in turns; peers know nothing of how ours are launched."""
    for name in names:
        kernel = FAMILY[name]
        own = {key: value for key, value in params.items() if key == "op" or not kernel.peer}
        yield Case(kernel, {"n": n, "dtype": dtype, **own}, group=group)
