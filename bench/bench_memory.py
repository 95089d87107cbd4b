"""Memory's axes: footprint from 4 KiB to 4 GiB through L1 and past it; shared memory; texture."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Case
from kernels.memory import FAMILY
from kernels.spec import Machine

COUNT = {"quick": 5, "standard": 11, "full": 21}
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
FOOTPRINTS = {
    "quick": [16 * KIB, 2 * MIB, 2 * GIB],
    "standard": sorted(
        [1 << exponent for exponent in range(12, 33)]
        + [3 << exponent for exponent in (15, 16, 17, 22, 23, 24, 25)]
        + [odd << exponent for odd in (5, 7) for exponent in (22, 23)]
    ),
    "full": sorted(
        [1 << exponent for exponent in range(12, 33)]
        + [3 << exponent for exponent in range(11, 31)]
        + [odd << exponent for odd in (5, 7) for exponent in range(20, 25)]
    ),
}
"""Bytes. Between the powers of two where an L1 (96 to 384 KiB) or an L2 (12 to 96 MiB) may end."""
TEXTURE = 16 * KIB
BY_SM = {"quick": [MIB], "standard": [MIB], "full": [MIB, 16 * MIB]}


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Each footprint through both caches; then the other memories of an SM, and SM by SM.

    All are warm: what the caches hold is what the chase itself left there.
    """

    def case(kernel: str, **params: int | str) -> Case:
        return Case(FAMILY[kernel], params, cache="warm", count=COUNT[profile])

    for size in FOOTPRINTS[profile]:
        for cache in ("ca", "cg"):
            yield case("chase", bytes=size, cache=cache)
    for size in (4 * KIB, 32 * KIB) if profile != "quick" else (32 * KIB,):
        yield case("chase_shared", bytes=size)
    for size in BY_SM[profile]:
        yield case("chase_by_sm", bytes=size)
    if profile != "quick":
        yield case("chase_texture", bytes=TEXTURE)
