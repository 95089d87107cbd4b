"""Axes of the instructions: every op's latency and throughput; ILP x warps; sub-partitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from bench.measure import Case
from kernels.instruction import FAMILY, ILP, MOST_WARPS, OPERANDS, PARTITIONS, SURFACE
from kernels.spec import Machine
from kernels.switching import COUNTS

COUNT = {"quick": 5, "standard": 11, "full": 21}
OPS = {"quick": SURFACE, "standard": tuple(OPERANDS), "full": tuple(OPERANDS)}
WARPS = {
    "quick": (MOST_WARPS,),
    "standard": (1, 2, 4, 8, 16, 32),
    "full": (*range(1, 9), *range(12, 33, 4)),
}
SWITCHED = {
    "quick": (1, 4, 8),
    "standard": (*range(1, 9), 10, 12, 16),
    "full": (*range(1, 9), 10, 12, 14, 16),
}
"""Warps on one sub-partition; from 9 on they come in two blocks, hence in even numbers."""


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """All are warm and read in cycles; the count of samples is fixed."""

    def case(kernel: str, **params: int | str) -> Case:
        return Case(FAMILY[kernel], params, cache="warm", count=COUNT[profile])

    for op in OPS[profile]:
        yield case("chain", op=op)
    surface = list(product(SURFACE, ILP if profile != "quick" else (4,), WARPS[profile]))
    for op in OPS[profile]:
        if (op, 1, MOST_WARPS) not in surface:
            yield case("streams", op=op, ilp=1, warps=MOST_WARPS)
    for op, ilp, warps in surface:
        yield case("streams", op=op, ilp=ilp, warps=warps)
    for partitions in range(1, PARTITIONS + 1):
        yield case("partitions", op="fma.f32", ilp=4, partitions=partitions)
    for registers, warps in product(("few", "most"), SWITCHED[profile]):
        yield case("switch", warps=warps, registers=registers)
    for fma in COUNTS if profile != "quick" else COUNTS[::4]:
        yield case("load_use", fma=fma)
