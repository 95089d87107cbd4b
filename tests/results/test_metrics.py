"""Metrics are derived once, from a case, its device and its peers."""

from __future__ import annotations

import pytest

from results.metrics import DEFINED, METRICS, derive, pretty
from results.schema import Case, Launch, Samples, Work

DEVICE = {"memory_bandwidth_peak": 4e12, "max_threads_per_sm": 2048}
WORK = Work(8000, 4000, 2000)


def case(kernel: str, seconds: float, params: dict | None = None, **more: object) -> Case:
    return Case(
        "axpy",
        kernel,
        {"n": 1000, "block": 256} if params is None else params,
        "ok",
        work=more.pop("work", WORK),
        samples=Samples([seconds * 0.9, seconds, seconds * 5], "time", "cold", [1e9, 2e9, 2e9]),
        **more,
    )


def test_rates_come_from_the_median():
    row = derive([case("vector", 1e-6)], DEVICE)[0]
    assert row["bandwidth"] == pytest.approx(12e9)
    assert row["bandwidth_of_peak"] == pytest.approx(0.003)
    assert row["operations_per_second"] == pytest.approx(2e9)
    assert row["sm_clock"] == 2e9
    assert "ratio_to_peer" not in row


def test_the_best_peer_that_does_the_same_work_counts():
    rows = derive(
        [
            case("vector", 1e-6),
            case("cublas", 1.5e-6, {"n": 1000}, peer=True),
            case("cuda_float4", 1.2e-6, {"n": 1000}, peer=True),
            case("memcpy", 0.5e-6, {"n": 1000}, peer=True, work=Work(4000, 4000)),
            case("cublas", 0.1e-6, {"n": 2000}, peer=True),
        ],
        DEVICE,
    )
    assert rows[0]["ratio_to_peer"] == pytest.approx(1.2)
    assert all("ratio_to_peer" not in row for row in rows[1:])


def test_cache_resident_data_has_no_share_of_the_dram_peak():
    assert "bandwidth_of_peak" not in derive([case("v", 1e-6, cache_resident=True)], DEVICE)[0]


def test_a_device_that_does_not_tell_its_peak_gives_no_share():
    row = derive([case("v", 1e-6)], {"memory_bandwidth_peak": {"error": "NotSupported"}})[0]
    assert "bandwidth" in row
    assert "bandwidth_of_peak" not in row


def test_no_metric_is_defined_twice():
    assert [metric.name for metric in DEFINED] == list(METRICS)


def test_occupancy_counts_warps_not_threads():
    launch = Launch((1, 1, 1), (1000, 1, 1), blocks_per_sm=2)
    assert derive([case("v", 1e-6, launch=launch)], DEVICE)[0]["occupancy"] == 1.0
    part = Launch((1, 1, 1), (33, 1, 1), blocks_per_sm=16)
    assert derive([case("v", 1e-6, launch=part)], DEVICE)[0]["occupancy"] == 0.5


def test_readings_are_medians_over_samples_and_vectors_stay_in_the_record():
    row = derive([case("chase", 1e-6, metrics={"latency_cycles": [30.0, 32.0, 90.0]})], DEVICE)[0]
    assert row["latency_cycles"] == 32.0
    assert row["latency_seconds"] == pytest.approx(16e-9)


def test_a_failed_case_has_no_metric():
    assert derive([Case("axpy", "v", {}, "failed", reason="wrong")], DEVICE) == [{}]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.35e12, "B/s", "4.35 TB/s"),
        (3.2e-6, "s", "3.2 µs"),
        (0.0, "s", "0 s"),
        (4.04, "cycle", "4.04 cycles"),
        (0.9041, "1", "0.9041"),
        (4.2e13, "1/s", "42 T/s"),
        (5e-10, "s", "0.5 ns"),
    ],
)
def test_pretty(value: float, unit: str, text: str):
    assert pretty(value, unit) == text


def test_every_metric_says_its_unit_and_what_it_is():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.unit
        assert metric.description
