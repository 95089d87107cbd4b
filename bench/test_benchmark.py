"""pytest-benchmark as a second front: `pytest bench -k axpy --benchmark-enable`.

The samples come from the same `measure`; a timer that replays them hands them over by
pytest-benchmark's public API, so that its table, JSON, compare and histogram show device time.
It writes no record.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from bench import device, families
from bench.machine import from_snapshot
from bench.measure import Bench, Case, measure
from bench.session import open_bench, self_check


class Replay:
    """A timer of which every second reading is the next sample after zero."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._started = False

    def load(self, times: list[float]) -> None:
        self._times, self._started = list(times), False

    def __call__(self) -> float:
        self._started = not self._started
        return 0.0 if self._started else self._times.pop(0)


REPLAY = Replay()


@cache
def bench_of(family: str) -> Bench:
    bench = open_bench(family, 0, "quick")
    self_check(bench)
    return bench


def pytest_generate_tests(metafunc: Any) -> None:
    if reason := device.why_not():
        metafunc.parametrize(
            ("family", "case"),
            # A case a family, so that -k selects one and pytest prints the reason.
            [
                pytest.param(
                    name, None, marks=pytest.mark.skip(reason=reason), id=f"{name}-no-device"
                )
                for name in families.names()
            ],
        )
        return
    where = from_snapshot(device.snapshot())
    metafunc.parametrize(
        ("family", "case"),
        [
            pytest.param(name, case, id=f"{name}-{case.label}")
            for name in families.names()
            for case in families.cases(name, "quick", where)
            if not case.kernel.may_hang  # it is not timed
        ],
    )


@pytest.mark.gpu
@pytest.mark.benchmark(timer=REPLAY)
def test_benchmark(family: str, case: Case, benchmark: Any) -> None:
    record = measure(case, bench_of(family))
    if record.status == "skipped":
        pytest.skip(record.reason or "")
    assert record.status == "ok", record.reason
    assert record.samples is not None
    times = record.samples.time_s
    REPLAY.load(times)
    benchmark.group = family
    benchmark.extra_info["params"] = record.params  # changed in place: a new dict would be lost
    benchmark.pedantic(lambda: None, rounds=len(times), iterations=1)
