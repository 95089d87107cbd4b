"""Two made-up GPUs side by side, with the published figures as extra points."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.compare import PUBLISHED, compare, share_of_peak, side_by_side
from analysis.frame import frame
from analysis.model.published import figures
from results.metrics import METRICS
from results.schema import SCHEMA, Case, End, Run, Samples, Work
from results.store import Writer, file_name, load, resolve

OLD = {
    "name": "Old GPU",
    "memory_bandwidth_peak": 1e12,
    "fp32_peak": 1e13,
    "sms": 10,
    "sm_clock_max_hz": 1e9,
}
NEW = {**OLD, "name": "New GPU", "memory_bandwidth_peak": 4e12, "fp32_peak": 4e13}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """write(name, device, cases, end=True) -> folder of a run of one process, family f."""

    def run(name: str, device: dict[str, object], cases: list[Case], end: bool = True) -> Path:
        with Writer(tmp_path / name / file_name(0, "f")) as writer:
            start = "2000-01-01T00:00:00Z"
            writer.write(Run(SCHEMA, "f", 0, start, "quick", [], device, {}, "0" * 16))
            for case in cases:
                writer.write(case)
            if end:
                writer.write(End("ok", start, 1.0))
        return tmp_path / name

    return run


def stream(seconds: float, clock: float, dtype: str = "float32", n: int = 8) -> Case:
    """1 GB read and 1 GFLOP in so many seconds."""
    return Case(
        "f",
        "stream",
        {"n": n, "dtype": dtype},
        "ok",
        work=Work(10**9, 0, 10**9),
        samples=Samples([seconds] * 3, "precision", "cold", sm_clock_hz=[clock] * 3),
    )


def chain(op: str, cycles: float, rate: float) -> Case:
    metrics: dict[str, float | list[float]] = {
        "latency_cycles": cycles,
        "operations_per_clock_per_sm": rate,
    }
    return Case("f", "chain", {"op": op}, "ok", metrics=metrics)


@pytest.fixture
def runs(write: Callable[..., Path]) -> tuple[Path, Path]:
    old = [stream(2e-3, 1e9), stream(2e-3, 1e9, "float64"), chain("fma.f32", 6.0, 400.0)]
    new = [stream(1e-3, 2e9), stream(1e-3, 2e9, n=16), chain("fma.f32", 4.0, 1000.0)]
    return write("old", OLD, old), write("new", NEW, new)


def test_absolute_share_of_own_peak_and_per_clock(runs: tuple[Path, Path]) -> None:
    joined = side_by_side(compare(*map(load, runs))).set_index(["metric", "case"])
    row = joined.loc["bandwidth", "dtype=float32,n=8"]
    assert row["absolute_a"] == pytest.approx(5e11)
    assert row["ratio"] == pytest.approx(2)
    assert row["share_of_peak_a"] == pytest.approx(0.5)
    assert row["share_of_peak_b"] == pytest.approx(0.25), "of its own peak, not of A's"
    assert row["per_clock_a"] == row["per_clock_b"] == pytest.approx(500)
    time = joined.loc["time", "dtype=float32,n=8"]
    assert time["per_clock_a"] == pytest.approx(2e6), "cycles: 2 ms at 1 GHz"
    rate = joined.loc["operations_per_clock_per_sm", "op=fma.f32"]
    # fp32_peak / (2 SMs clock) lanes an SM: 500 and 2000
    assert [rate["share_of_peak_a"], rate["share_of_peak_b"]] == pytest.approx([0.8, 0.5])


def test_float64_has_no_share_of_the_float32_peak(runs: tuple[Path, Path]) -> None:
    table = compare(*map(load, runs))
    rows = table[table["metric"] == "operations_per_second"].set_index("case")
    assert rows["share_of_peak"].isna()["dtype=float64,n=8"]
    assert rows["share_of_peak"].notna()["dtype=float32,n=16"]


def test_a_case_of_one_run_only_has_no_ratio(runs: tuple[Path, Path]) -> None:
    joined = side_by_side(compare(*map(load, runs))).set_index(["metric", "case"])
    assert joined["ratio"].isna()["bandwidth", "dtype=float32,n=16"]
    assert joined["ratio"].isna()["bandwidth", "dtype=float64,n=8"]


def test_published_figures_are_labelled_with_their_source(runs: tuple[Path, Path]) -> None:
    table = compare(*map(load, runs))
    published = table[table["run"] == "published"].set_index(["gpu", "case"])
    row = published.loc["A100-80GB", "read_bandwidth"]
    assert row["absolute"] == 1776e9
    assert row["share_of_peak"] == pytest.approx(1776 / 2039)
    assert row["source"] == "RRZE-HPC/gpu-benches gpu-stream"
    assert (table[table["run"] != "published"]["source"] == "measured").all()


def test_every_published_performance_has_its_place() -> None:
    quantities = {quantity for _, quantity in figures()}
    assert quantities - set(PUBLISHED) == {"read_warps_to_90pct"}, "a count of warps: the model's"
    assert {metric for metric, _ in PUBLISHED.values()} <= set(METRICS)


def test_what_others_published_stands_beside_a_kernel_of_ours() -> None:
    """Each is measured by a kernel that the recorded H200 has, in the same metric."""
    families = {kernel.partition("/")[0] for _, kernel in PUBLISHED.values()}
    files = [load(resolve("nvidia-h200") / file_name(0, family)) for family in families]
    measured = {
        (metric, row.kernel)
        for file in files
        for row in frame(file).itertuples()
        for metric in ("latency_cycles", "bandwidth")
        if getattr(row, metric) > 0
    }
    ours = {(metric, *kernel.split("/")[1:]) for metric, kernel in PUBLISHED.values()}
    assert ours <= measured


def test_the_command(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "figures"
    assert main(["compare", *map(str, runs), "--output", str(output)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("A: Old GPU (old)\nB: New GPU (new)\n\n")
    assert "  1 cases of A and 1 cases of B alone" in text
    assert "dtype=float64,n=8" not in text, "B lacks it"
    assert "500 GB/s  1.00 TB/s" in text
    heads = [line.split("  ")[-1] for line in text.splitlines() if line.startswith("  kernel ")]
    assert heads == [f"B in {u}" for u in ("cycles", "B/clock", "1/clock", "cycles", "1/clock/SM")]
    assert "published: V100 l1_latency 27.9 cycles  (RRZE-HPC/gpu-benches gpu-latency)" in text
    drawn = (output / "compare-bandwidth.svg").read_text()
    for told in ("share of own peak", "B: New GPU", "A40 (published)", "read bandwidth, published"):
        assert told in drawn
    assert (output / "compare-latency_cycles.png").stat().st_size > 0


def test_json_and_csv(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", *map(str, runs), "--metric", "bandwidth", "--family", "f"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 4
    assert {item["metric"] for item in found} == {"bandwidth"}
    assert main([*arguments, "--csv"]) == 0
    assert capsys.readouterr().out.startswith("gpu,run,name,metric,unit,kernel,case,absolute,")


def test_a_run_that_is_not_whole_is_2(write: Callable[..., Path]) -> None:
    old, new = write("old", OLD, [stream(1, 1e9)]), write("new", NEW, [stream(1, 1e9)], end=False)
    assert main(["compare", str(old), str(new), "--csv"]) == 2


def test_nothing_to_compare_is_one_line(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *map(str, runs), "--family", "none"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["memory_bandwidth_peak", "fp32_peak", "sms", "sm_clock_max_hz"])
def test_a_peak_of_zero_has_no_share(name: str) -> None:
    device = {"memory_bandwidth_peak": 1e12, "fp32_peak": 1e13, "sms": 100, "sm_clock_max_hz": 1e9}
    case = {"dtype": "float32", "op": "fma.f32", "cache_resident": False}
    for metric in ("bandwidth", "operations_per_second", "operations_per_clock_per_sm"):
        known = share_of_peak(metric, 100.0, case, device)
        unknown = share_of_peak(metric, 100.0, case, device | {name: 0})
        assert known > 0
        assert math.isnan(unknown) or unknown == known
