"""Schedule's axes: waves of blocks at one block an SM and at full residency, and their pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.measure import Case
from kernels.schedule import FAMILY
from kernels.spec import Machine

CYCLES = 20_000
"""A block stays some 11 µs: long beside a launch, short beside the budget."""
TURNS = 32
"""x 64 FMAs: 8,000 cycles alone, four times that where an SM is full."""
BLOCK = 256
COURSE = 1.25
"""100 blocks on 80 SMs: one wave and a quarter of another."""
WAVES = {
    "quick": (1.0, COURSE, 2.0),
    "standard": (0.5, 1.0, 1.01, COURSE, 1.5, 2.0, 2.01, 2.5, 3.0, 3.5, 4.0),
    "full": (0.25, 0.5, 0.75, 1.0, 1.01, *(1 + step / 8 for step in range(1, 25))),
}
"""1.01: one or a few blocks more than one wave holds."""
TRACED = {"quick": (COURSE,), "standard": (COURSE, 2.5), "full": (1.0, COURSE, 2.5, 4.0)}
ROUNDS = {"quick": 20, "standard": 60, "full": 100}
"""Rounds of cluster launches, 30 each."""
SAMPLES = 11
PICTURES = 3


def cases(profile: str, machine: Machine) -> Iterator[Case]:
    """Pictures, staircases, the questions about one block, and the map of GPCs."""
    one = {"block": BLOCK, "residency": "one", "cycles": CYCLES}
    full = {"block": BLOCK, "residency": "full"}
    pictures: list[tuple[str, dict[str, Any]]] = [
        ("timeline", {**one, "waves": waves, "durations": kind})
        for waves in TRACED[profile]
        for kind in ("equal", "unequal")
    ]
    # Two blocks of 1024 threads an SM: few enough to draw.
    light = {"block": 1024, "residency": "full", "cycles": CYCLES}
    pictures += [("timeline", {**light, "waves": COURSE, "durations": "unequal"})]
    pictures += [("early_exit", {**light, "waves": 2.0})]
    pictures += [("private_memory", {**full, "block": 128, "waves": 1.0, "cycles": 5 * CYCLES})]
    for name, params in pictures:
        yield Case(FAMILY[name], params, cache="warm", count=PICTURES)
    for waves in WAVES[profile]:
        for params in ({**one, "durations": "equal"}, {**one, "durations": "unequal"}):
            yield _timed("staircase", {**params, "waves": waves})
        yield _timed("staircase", {**full, "cycles": CYCLES, "durations": "equal", "waves": waves})
        yield _timed("staircase_arithmetic", {**full, "turns": TURNS, "waves": waves})
    yield Case(FAMILY["gpc"], {}, cache="warm", count=ROUNDS[profile])


def _timed(name: str, params: dict[str, Any]) -> Case:
    return Case(FAMILY[name], params, cache="warm", count=SAMPLES)
