"""The cases of a barrier in a branch, each in a process that can be ended."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Case
from kernels.branch import FAMILY
from kernels.spec import Machine

BLOCK = 128
EDGE, INSIDE = 64, 48
"""Where the threads split: between two warps, and inside one."""
CASES = (
    ("uniform", EDGE),
    ("after", EDGE),
    ("after", INSIDE),
    ("returned", EDGE),
    ("returned", INSIDE),
    ("both_sides", EDGE),
    ("later", EDGE),
    ("spinning", EDGE),
    ("spinning", INSIDE),
    ("later", INSIDE),
    ("both_sides", INSIDE),
)
"""Those that may never end come last, so that the others need no second process."""


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """The same in every profile: there is nothing to sample."""
    for name, split in CASES:
        yield Case(FAMILY[name], {"block": BLOCK, "split": split}, group="isolated")
