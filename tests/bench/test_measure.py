"""The sampler, with a clock and a device that are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count, repeat
from typing import Any

import numpy as np
import pytest

from bench.clock import Sample
from bench.measure import Bench, Case, check, measure, measure_together
from bench.stopping import Rule, half_width
from kernels.spec import (
    Bound,
    Kernel,
    Launch,
    Machine,
    Unavailable,
    Work,
    WrongAnswer,
)

CLOCK_HZ = 1.98e9
NewBench = Callable[..., Bench]


def at(seconds: float, clock_hz: float | None = CLOCK_HZ, **more: Any) -> Sample:
    return Sample(seconds, clock_hz, **more)


def kernel(bind: Callable[..., Bound] | None = None, **more: Any) -> Kernel:
    def bound(params: Any, machine: Machine) -> Bound:
        return Bound(
            launch=None,
            work=Work(bytes_read=8000, bytes_written=4000),
            check=lambda: 1e-8,
            queue=lambda stream: None,
        )

    return Kernel("made_up", "for the tests", bind or bound, examples=({},), **more)


def test_steady_samples_stop_at_the_target_precision(bench_with: NewBench):
    record = measure(Case(kernel(), {"n": 1}), bench_with(repeat(at(1e-5))))
    assert record.status == "ok"
    assert record.samples.stop == "precision"
    assert record.samples.time_s == [1e-5] * 11
    assert record.samples.sm_clock_hz == [CLOCK_HZ] * 11
    assert record.metrics["relative_error"] == 1e-8


def test_a_kernel_that_writes_finds_dirty_lines_and_one_that_reads_clean_ones(bench_with: NewBench):
    writes = bench_with(repeat(at(1e-5)))
    measure(Case(kernel(), {}), writes)
    assert set(writes.clock.flushed) == {"dirty"}

    def reads(params: Any, machine: Machine) -> Bound:
        return Bound(None, Work(bytes_read=8), lambda: 0.0, queue=lambda stream: None)

    clean = bench_with(repeat(at(1e-5)))
    measure(Case(kernel(reads), {}), clean)
    assert set(clean.clock.flushed) == {"clean"}
    warm = bench_with(repeat(at(1e-5)))
    measure(Case(kernel(), {}, cache="warm"), warm)
    assert set(warm.clock.flushed) == {None}


def test_throttled_for_ever_is_a_status_without_any_number(bench_with: NewBench):
    record = measure(Case(kernel(), {}), bench_with(repeat(at(1e-5, 1.0e9))))
    assert record.status == "throttled"
    assert record.samples is None
    assert "1000 MHz" in record.reason
    assert "1980 MHz" in record.reason


def test_throttled_samples_are_set_aside_and_counted(bench_with: NewBench):
    slow_first = iter([at(2e-5, 1.2e9)] * 7 + [at(1e-5)] * 50)
    record = measure(Case(kernel(), {}), bench_with(slow_first))
    assert record.status == "ok"
    assert record.samples.throttled == 7
    assert set(record.samples.time_s) == {1e-5}


def test_noise_that_does_not_average_out_stops_at_the_plateau(bench_with: NewBench):
    two_modes = iter([at(1e-5 if turn % 2 else 1.1e-5) for turn in range(1000)])
    record = measure(Case(kernel(), {}), bench_with(two_modes))
    assert record.samples.stop == "plateau"
    assert len(record.samples.time_s) == 44


def test_the_wall_clock_ends_a_case_of_few_samples(bench_with: NewBench):
    fixture = bench_with(repeat(at(0.2)))
    fixture.clock.step_s = 0.2
    record = measure(Case(kernel(), {}), fixture)
    assert record.samples.stop == "time"
    assert len(record.samples.time_s) == 2


def test_at_most_a_hundred_samples_are_kept(bench_with: NewBench):
    noisy = (
        at(1e-5 * (1 + 0.2 * ((turn * 7919) % 101) / 101 / (1 + turn / 20))) for turn in count()
    )
    record = measure(Case(kernel(), {}), replace(bench_with(noisy), rule=Rule(0.0, seconds=60.0)))
    assert record.samples.stop in ("samples", "plateau")
    assert len(record.samples.time_s) <= 100


def test_launch_bound_samples_are_flagged_and_not_used(bench_with: NewBench):
    once = iter([at(5e-5, launch_bound=True)] + [at(1e-5)] * 50)
    record = measure(Case(kernel(), {}), bench_with(once))
    assert record.samples.launch_bound == 1
    assert set(record.samples.time_s) == {1e-5}


def test_a_launch_that_waits_for_the_device_fails_with_the_reason(bench_with: NewBench):
    record = measure(Case(kernel(), {}), bench_with(repeat(at(5e-5, launch_bound=True))))
    assert record.status == "failed"
    assert "gate gave up" in record.reason
    assert record.samples is None


def test_clocks_of_probes_on_different_sms_are_discarded(bench_with: NewBench):
    record = measure(Case(kernel(), {}), bench_with(repeat(at(1e-5, None))))
    assert record.status == "ok"
    assert record.samples.sm_clock_hz is None


def test_a_wrong_answer_is_never_a_number(bench_with: NewBench):
    def wrong(params: Any, machine: Machine) -> Bound:
        def compare() -> float:
            raise WrongAnswer("element 3: is 1.0, should be 2.0")

        return Bound(None, Work(), compare, queue=lambda stream: None)

    fixture = bench_with(repeat(at(1e-5)))
    record = measure(Case(kernel(wrong), {}), fixture)
    assert record.status == "failed"
    assert "element 3" in record.reason
    assert record.samples is None
    assert fixture.clock.flushed == []


def test_the_answer_is_checked_on_poisoned_outputs(bench_with: NewBench):
    order: list[str] = []

    def bound(params: Any, machine: Machine) -> Bound:
        return Bound(
            None,
            Work(),
            check=lambda: order.append("check") or 0.0,
            poison=lambda: order.append("poison"),
            queue=lambda stream: order.append("queue"),
        )

    assert check(Case(kernel(bound), {}), bench_with(iter([]))).status == "ok"
    assert order == ["poison", "queue", "check"]


def test_a_bandwidth_over_the_peak_is_refused(bench_with: NewBench):
    record = measure(Case(kernel(), {}), bench_with(repeat(at(1e-9))))
    assert record.status == "failed"
    assert "over the device's peak" in record.reason


def test_cache_resident_data_may_exceed_the_peak(bench_with: NewBench):
    def resident(params: Any, machine: Machine) -> Bound:
        return Bound(None, Work(8000), lambda: 0.0, queue=lambda stream: None, cache_resident=True)

    record = measure(Case(kernel(resident), {}, cache="warm"), bench_with(repeat(at(1e-9))))
    assert record.status == "ok"
    assert record.cache_resident


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (Unavailable("needs clusters (cc 9.0)"), "skipped", "needs clusters"),
        (MemoryError("2 GB"), "skipped", "not enough device memory"),
    ],
)
def test_what_cannot_run_is_skipped_with_its_reason(
    error: Exception, status: str, words: str, bench_with: NewBench
):
    def bind(params: Any, machine: Machine) -> Bound:
        raise error

    record = measure(Case(kernel(bind), {}), bench_with(iter([])))
    assert record.status == status
    assert words in record.reason


def test_readings_follow_every_launch_and_are_kept_for_clean_samples(bench_with: NewBench):
    cycles = count(40)

    def bind(params: Any, machine: Machine) -> Bound:
        return Bound(
            None,
            Work(),
            lambda: 0.0,
            queue=lambda stream: None,
            reading=lambda: {"latency_cycles": float(next(cycles))},
        )

    samples = iter([at(1e-5), at(1e-5, 1e9), at(1e-5, launch_bound=True), *[at(1e-5)] * 3])
    record = measure(Case(kernel(bind), {}, count=3), bench_with(samples))
    # 40 was read after the check, 42 and 43 after samples that were set aside.
    assert record.metrics["latency_cycles"] == [41.0, 44.0, 45.0]
    assert record.samples.stop == "counted"


def test_cases_of_a_group_are_sampled_in_turns(bench_with: NewBench):
    order: list[str] = []

    def named(name: str) -> Kernel:
        def bind(params: Any, machine: Machine) -> Bound:
            return Bound(None, Work(), lambda: 0.0, queue=lambda stream: order.append(name))

        return replace(kernel(bind), name=name)

    cases = [Case(named("ours"), {}), Case(named("peer"), {})]
    records = measure_together(cases, bench_with(repeat(at(1e-5))))
    assert [record.kernel for record in records] == ["ours", "peer"]
    assert order[:2] == ["ours", "peer"]  # one launch each for the answer
    assert order[2:] == ["ours", "peer"] * 11


def test_half_width_of_the_median_covers_it_as_often_as_it_says():
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        times = list(1.0 + 0.01 * random.standard_normal(31))
        width = half_width(times) * float(np.median(times))
        hits += abs(float(np.median(times)) - 1.0) <= 2 * width
    assert hits >= 380


def test_launch_of_a_bound_without_one_needs_queue():
    with pytest.raises(ValueError, match="must give queue"):
        Bound(None, Work(), lambda: 0.0).queue(0)
    assert Launch.linear(3, 64).grid == (3, 1, 1)
