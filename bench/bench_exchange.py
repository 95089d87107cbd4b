"""The exchange's axes: partner, barrier and access; and one case of each voting barrier."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Case
from kernels.exchange import FAMILY, PARTNERS
from kernels.spec import Machine

BLOCKS = {"quick": (256,), "standard": (64, 256, 1024), "full": (64, 128, 256, 512, 1024)}
ROUNDS = 1000
SAMPLES = {"quick": 3, "standard": 11, "full": 21}
VOTES = ("syncthreads_count", "syncthreads_and", "syncthreads_or")


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Wrong reads are counted in each of so many launches."""
    count = SAMPLES[profile]
    for block in BLOCKS[profile]:
        for partner in PARTNERS:
            params = {"partner": partner, "access": "plain", "block": block, "rounds": ROUNDS}
            for name in ("no_barrier", "syncwarp", "syncthreads"):
                yield Case(FAMILY[name], params, cache="warm", count=count)
            volatile = {**params, "access": "volatile"}
            yield Case(FAMILY["no_barrier"], volatile, cache="warm", count=count)
    for name in VOTES:
        yield Case(FAMILY[name], {"block": 256, "rounds": 65}, cache="warm", count=count)
