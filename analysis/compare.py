"""Two runs, of GPUs of any generation, side by side: no verdict, only what each reaches.

Each metric as absolute, as share of its own GPU's peak, and per clock of its own SM, so that a chip
that is merely larger or faster clocked can be told from one that is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from analysis.frame import frame
from analysis.model.published import ARCHITECTURE, figures
from analysis.readings import label
from results.metrics import METRICS
from results.store import Recording

SKIPPED = {"sm_clock", "relative_error", "bandwidth_of_peak"}
"""The clock is what others are divided by, an error is no performance, and the share of the peak
is a column of `bandwidth`."""
PER_CLOCK: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "bandwidth": ("B/clock", lambda value, clock: value / clock),
    "operations_per_second": ("1/clock", lambda value, clock: value / clock),
    "latency_seconds": ("cycle", lambda value, clock: value * clock),
    "time": ("cycle", lambda value, clock: value * clock),
}
"""Metric -> unit and value at the SM clock of its own samples. What a kernel reads in SM cycles is
per clock already."""
PUBLISHED = {
    "l1_latency": ("latency_cycles", "memory/chase"),
    "l2_latency": ("latency_cycles", "memory/chase"),
    "dram_latency": ("latency_cycles", "memory/chase"),
    "shared_latency": ("latency_cycles", "memory/chase_shared"),
    "dsmem_latency": ("latency_cycles", "cluster/dsmem_latency"),
    "fma_f32_latency": ("latency_cycles", "instruction/chain"),
    "fma_f64_latency": ("latency_cycles", "instruction/chain"),
    "add_f32_latency": ("latency_cycles", "instruction/chain"),
    "read_bandwidth": ("bandwidth", "occupancy/read"),
    "copy_bandwidth": ("bandwidth", "axpy/memcpy"),
    "dot_bandwidth": ("bandwidth", "reduction/shuffle"),
}
"""Quantity of results/reference/published.csv -> metric and the kernel of ours that measures it."""
COLUMNS = [
    "gpu",
    "run",
    "name",
    "metric",
    "unit",
    "kernel",
    "case",
    "absolute",
    "share_of_peak",
    "per_clock",
    "per_clock_unit",
    "source",
]


def compare(*runs: Recording) -> pd.DataFrame:
    """One row a run, case and metric, then one a published figure (`run` "published").

    Columns: gpu, run, name (of the run), metric, unit, kernel (`family/kernel`), case (its
    parameters, or the published quantity), absolute (SI), share_of_peak (of this GPU's own),
    per_clock, per_clock_unit, source. What does not apply is NaN or empty. `run` is A, B, … in
    order.

    Raises:
        UserError: a run cannot be read as a frame.
    """
    rows = [
        row
        for letter, recording in zip("ABCDEFGH", runs, strict=False)
        for case in frame(recording).to_dict("records")
        if case["status"] == "ok" and case["family"] != "selfcheck"
        for row in _measured(letter, recording, case)
    ]
    return pd.DataFrame([*rows, *_published()], columns=COLUMNS)


def _measured(run: str, recording: Recording, case: dict[Any, Any]) -> list[dict[str, Any]]:
    device = recording.device
    kernel = f"{case['family']}/{case['kernel']}"
    clock = case["sm_clock"]
    values = {"time": case["median_seconds"]} | {
        name: case[name]
        for name, metric in METRICS.items()
        if not metric.vector and metric.better and name not in SKIPPED
    }
    return [
        {
            "gpu": str(device.get("name")),
            "run": run,
            "name": recording.name,
            "metric": name,
            "unit": "s" if name == "time" else METRICS[name].unit,
            "kernel": kernel,
            "case": label("", "", case["params"]).removeprefix("/").strip("[]"),
            "absolute": value,
            "share_of_peak": share_of_peak(name, value, case, device),
            **_per_clock(name, value, clock),
            "source": "measured",
        }
        for name, value in values.items()
        if value == value  # not NaN
    ]


def _per_clock(metric: str, value: float, clock: float) -> dict[str, Any]:
    if metric == "operations_per_clock_per_sm" or metric.endswith("_cycles"):
        unit = "cycle" if metric.endswith("_cycles") else "1/clock/SM"
        return {"per_clock": value, "per_clock_unit": unit}
    if metric not in PER_CLOCK:
        return {"per_clock": float("nan"), "per_clock_unit": ""}
    unit, at = PER_CLOCK[metric]
    return {"per_clock": at(value, clock), "per_clock_unit": unit}


def share_of_peak(
    metric: str, value: float, case: Mapping[Any, Any], device: Mapping[str, Any]
) -> float:
    """The share of this GPU's own peak, NaN where the record knows no peak for it.

    Bandwidth over the memory's, unless the data is cache-resident; float32 operations over
    fp32_peak; float32 FMAs a clock and SM over the FP32 lanes, fp32_peak / (2 SMs max clock).
    """
    memory, fp32, sms, clock = (
        found if isinstance(found := device.get(name), int | float) and found > 0 else None
        for name in ("memory_bandwidth_peak", "fp32_peak", "sms", "sm_clock_max_hz")
    )
    single = "float32" in str(case.get("dtype")) or str(case.get("op")).endswith(".f32")
    if metric == "bandwidth" and memory and not case["cache_resident"]:
        return float(value / memory)
    if not single or not fp32:
        return float("nan")
    if metric == "operations_per_second":
        return float(value / fp32)
    if (
        metric == "operations_per_clock_per_sm"
        and case.get("op") in ("fma.f32", "add.f32", "mul.f32")
        and sms
        and clock
    ):
        return float(value / (fp32 / (2 * sms * clock)))
    return float("nan")


def _published() -> list[dict[str, Any]]:
    """The figures of others; peak and clock are those of data sheets, where they are known."""
    sheets = {sheet.key: sheet for sheet in ARCHITECTURE.values()}
    rows = []
    for (gpu, quantity), figure in figures().items():
        if quantity not in PUBLISHED:
            continue
        metric, kernel = PUBLISHED[quantity]
        sheet = sheets.get(gpu)
        bandwidth = metric == "bandwidth" and sheet is not None
        rows.append(
            {
                "gpu": gpu,
                "run": "published",
                "name": "published",
                "metric": metric,
                "unit": figure.unit,
                "kernel": kernel,
                "case": quantity,
                "absolute": figure.value,
                "share_of_peak": figure.value / sheet.peak_bandwidth
                if bandwidth and sheet
                else float("nan"),
                **_per_clock(metric, figure.value, sheet.clock if sheet else float("nan")),
                "source": figure.source,
            }
        )
    return rows


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """One row a metric and case with A's and B's columns (suffixes _a, _b) and `ratio`, B over A.

    A case that one run lacks has NaN there.
    """
    names = ["metric", "unit", "kernel", "case"]
    numbers = ["absolute", "share_of_peak", "per_clock"]
    a, b = (table[table["run"] == run][names + numbers] for run in ("A", "B"))
    order = table[names].drop_duplicates()
    joined = order.merge(a, on=names, how="left").merge(
        b, on=names, how="left", suffixes=("_a", "_b")
    )
    joined = joined[joined["absolute_a"].notna() | joined["absolute_b"].notna()].reset_index(
        drop=True
    )
    joined["ratio"] = joined["absolute_b"] / joined["absolute_a"]
    return joined
