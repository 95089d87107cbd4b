"""Scalability's axes: SMs, by green contexts and by blocks, for arithmetic and for memory."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Case
from kernels.scalability import FAMILY, TURNS
from kernels.spec import Machine

BLOCK = 1024
CHUNKS_PER_SM = 64
"""Chunks of work for each SM of the device: enough that what is left over at the end, up to one
chunk an SM, stays under two per cent."""
CONFINED = {
    "quick": (8,),
    "standard": (8, 16, 32, 48, 64, 80, 96, 112, 128),
    "full": tuple(range(8, 256, 8)),
}
BLOCKS = {
    "quick": (1, 8),
    "standard": (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48, 64, 80, 96, 112, 128),
    "full": (*range(1, 8), *range(8, 256, 4)),
}


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Each number of SMs below the device's, and all of them."""
    for kernel, counts in (
        ("compute", CONFINED),
        ("memory", CONFINED),
        ("blocks_compute", BLOCKS),
        ("blocks_memory", BLOCKS),
    ):
        arithmetic = kernel.endswith("compute")
        for sms in (*(few for few in counts[profile] if few < machine.sms), machine.sms):
            params = {"sms": sms, "block": BLOCK, "chunks_per_sm": CHUNKS_PER_SM}
            if arithmetic:
                params["turns"] = TURNS
            yield Case(FAMILY[kernel], params, cache="warm" if arithmetic else "cold")
