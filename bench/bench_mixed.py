"""The mixed kernel's axes: resident warps x arithmetic a load x where the data lie."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Case
from kernels.mixed import FAMILY
from kernels.spec import Machine

LEVELS = ("l1", "l2", "dram")
WARPS = {
    "quick": (1, 8, 64),
    "standard": (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 48, 64),
    "full": (*range(1, 13), 14, 16, 18, 20, 22, 24, 25, 26, 28, 30, 32, 40, 48, 52, 56, 60, 64),
}
EXTRA = {
    "quick": (4,),
    "standard": (0, 4, 16, 64),
    "full": (0, 1, 2, 4, 8, 16, 32, 64),
}
CALIBRATION = {  # (level, FMAs) -> warps; never FMAs of the scored sweep, in any profile
    **dict.fromkeys((("l1", 3), ("l2", 3), ("dram", 3)), (2, 64)),
    ("l1", 24): (10, 64),
}
"""What a turn takes alone, and what its instructions and each FMA cost where the SM is full; 10
warps of 24 FMAs just fill an SM, so that their wait for each other shows most."""
SAMPLES = 11


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """4 instructions a load are the notes' own; the warps of one mix are sampled in turns.

    Numbers of warps that no equal blocks make on this device are skipped with the reason.
    """
    for extra_fma in EXTRA[profile]:
        for level in LEVELS:
            for warps in WARPS[profile]:
                yield Case(
                    FAMILY["mixed"],
                    {"warps": warps, "extra_fma": extra_fma, "level": level},
                    group=(extra_fma, level),
                    cache="cold" if level == "dram" else "warm",
                    count=SAMPLES,
                )
    for (level, extra_fma), resident in CALIBRATION.items():
        for warps in resident:
            yield Case(
                FAMILY["calibration"],
                {"warps": warps, "extra_fma": extra_fma, "level": level},
                group=("calibration", extra_fma, level),
                cache="cold" if level == "dram" else "warm",
                count=SAMPLES,
            )
