"""AXPY's axes: size, block and extra arithmetic, one at a time around n = 2^28, block 256."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from bench.measure import Case
from kernels.axpy import FAMILY
from kernels.spec import Machine

CENTRE = 2**28
OURS = ("monolithic", "grid_stride", "unrolled", "vector")
PEERS = ("cublas", "cuda_float4", "cupy_elementwise", "memcpy")
SIZES = {
    "quick": (10, 20, 28),
    "standard": range(10, 29, 2),
    "full": range(10, 29),
}
BLOCKS = {
    "quick": (256,),
    "standard": (32, 64, 96, 128, 160, 256, 384, 512, 768, 1000, 1024),
    "full": (32, 64, 96, 128, 160, 192, 256, 384, 512, 640, 768, 896, 1000, 1024),
}
EXTRA = {
    "quick": (0, 1, 64),
    "standard": (0, 1, 8, 16, 32, 64, 128, 256, 512),
    "full": (0, 1, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512),
}
FMA_ELEMENTS = 2**26
"""Enough for some hundred microseconds without extra work, and milliseconds with 512 FMAs."""


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Ours and the peers side by side at each size; then the other axes."""
    dtypes = ("float32", "float64")
    for exponent in SIZES[profile]:
        yield from _side_by_side(2**exponent, "float32")
    yield from _side_by_side(CENTRE, "float64")
    if profile == "full":
        for exponent in SIZES[profile][:-1]:
            yield from _side_by_side(2**exponent, "float64")
    for block in BLOCKS[profile]:
        if block != 256:
            size = {"n": CENTRE, "dtype": "float32", "block": block}
            yield from (Case(FAMILY[name], size, group=("block", block)) for name in OURS)
    for kernel, warps, count in product(
        ("fma_dependent", "fma_independent"), ("full", 4), EXTRA[profile]
    ):
        block = 256 if warps == "full" else 128
        params: dict[str, Any] = {"n": FMA_ELEMENTS, "dtype": dtypes[0], "block": block}
        yield Case(FAMILY[kernel], {**params, "extra_fma": count, "warps": warps})


def _side_by_side(n: int, dtype: str) -> Iterator[Case]:
    params: dict[str, Any] = {"n": n, "dtype": dtype}
    group = ("size", n, dtype)
    for name in OURS:
        yield Case(FAMILY[name], {**params, "block": 256}, group=group)
    for name in PEERS:
        yield Case(FAMILY[name], params, group=group)
