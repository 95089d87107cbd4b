"""Mask's axes: which lanes take the branch; and a full mask that only half a warp calls."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Case
from kernels.mask import FAMILY
from kernels.spec import Machine

TAKEN = {
    "quick": (0x0000FFFF,),
    "standard": (0x0000FFFF, 0x55555555, 0x00000001, 0x7FFFFFFF, 0x00FF0F35),
    "full": (0x0000FFFF, 0xFFFF0000, 0x55555555, 0x00000001, 0x80000000, 0x7FFFFFFF, 0x00FF0F35),
}
HALVES = {"block": 32, "split": 16}
FULL = ("full_returned", "full_both_sides", "full_spinning", "full_later")
"""The one that may never end comes last, so that the others need no second process."""
SAMPLES = 3


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Masks seen, masks that are disjoint, and those that may never end."""
    for name in ("points", "disjoint"):
        for taken in TAKEN[profile]:
            yield Case(FAMILY[name], {"taken": taken}, cache="warm", count=SAMPLES)
    if profile != "quick":
        for name in FULL:
            yield Case(FAMILY[name], HALVES, group="isolated")
