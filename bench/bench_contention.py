"""Contention's axes: addresses, bank conflicts, warps and blocks; and what atomics are for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from bench.measure import Case
from kernels.contention import FAMILY, STRIDE
from kernels.spec import Machine

ADDRESSES = {
    "quick": (1, 32),
    "standard": (1, 2, 4, 8, 16, 32),
    "full": (1, 2, 3, 4, 6, 8, 12, 16, 24, 31, 32),
}
SHARES = {
    "quick": ((1024, "one"),),
    "standard": ((1024, "one"), (256, "sms")),
    "full": ((32, "one"), (256, "one"), (1024, "one"), (256, "sms")),
}
"""(threads a block, blocks): one block alone, or one for each SM, all on the same addresses."""
ACCESSES = ("store_shared", "atomic_shared", "store_global", "atomic_global")
GRIDS = {
    "quick": ((32, "one"), (256, "sms")),
    "standard": ((32, "one"), (256, "one"), (256, "sms"), (1024, "sms")),
    "full": ((32, "one"), (256, "one"), (1024, "one"), (256, "sms"), (1024, "sms")),
}
WINNERS = {"quick": (32,), "standard": (32, 256), "full": (32, 64, 256, 1024)}
SAMPLES = 5


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Costs by address, then counters, then whose write stays."""
    for name, (block, blocks), addresses in product(ACCESSES, SHARES[profile], ADDRESSES[profile]):
        if name.endswith("shared") and blocks == "sms":
            continue  # each block has words of its own: nothing is shared between SMs
        for stride in (1, STRIDE):
            if addresses > 1 or stride == 1:
                params = {"addresses": addresses, "stride": stride, "block": block}
                yield _counted(name, **params, blocks=blocks)
    for block, blocks in GRIDS[profile]:
        for name in ("increments", "tickets", "tickets_by_warp"):
            yield _counted(name, block=block, blocks=blocks)
    for block, space in product(WINNERS[profile], ("shared", "global")):
        yield _counted("winner", block=block, space=space)


def _counted(name: str, /, **params: int | str) -> Case:
    return Case(FAMILY[name], params, cache="warm", count=SAMPLES)
