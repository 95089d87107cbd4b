"""A clock and a bench that are made up, for every test of the measuring side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from bench.clock import Sample
from bench.measure import Bench
from bench.stopping import Rule
from kernels.spec import Family, Machine

CLOCK_HZ = 1.98e9


@dataclass
class FakeClock:
    """Gives the samples it was told to; each costs a millisecond of its own wall clock."""

    samples: Iterator[Sample]
    step_s: float = 1e-3
    elapsed: float = 3600.0  # an hour-old epoch: nothing may depend on when the process began
    flushed: list[Any] = field(default_factory=list)

    def sample(self, queue: Callable[[Any], None], flush: Any) -> Sample:
        queue("stream")
        self.flushed.append(flush)
        self.elapsed += self.step_s
        return next(self.samples)

    def now(self) -> float:
        return self.elapsed


def make_bench(samples: Iterator[Sample] | None = None, **more: Any) -> Bench:
    settings: dict[str, Any] = {
        "synchronise": lambda: None,
        "device": {"name": "made up", "memory_bandwidth_peak": 4.8e12},
        "rule": Rule(precision=0.002, least=11, seconds=0.3),
        "reference_clock_hz": CLOCK_HZ,
    }
    machine = Machine((9, 0), 132, 2048, 32, 50 << 20, 140 << 30, np)
    clock = FakeClock(samples or repeat(Sample(1e-5, CLOCK_HZ)))
    return Bench(Family("axpy", "", ()), machine, clock, **{**settings, **more})


@pytest.fixture
def bench_with() -> Callable[..., Bench]:
    """`bench_with(samples, **fields)`: a Bench with a clock that gives these samples."""
    return make_bench
