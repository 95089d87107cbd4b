"""AXPY with extra FMAs: how much arithmetic is free, against the model's knee, and why."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.model import LITTLE, Knee, Parameters, Value, Workload, axpy, knee, with_extra_fma
from analysis.report.question import Answer, Plot, Question, RunData

CHAINS = {"fma_dependent": "dependent FMAs", "fma_independent": "independent FMAs"}
FREE = 0.05
"""A time within this of the time without extra arithmetic is called unchanged."""
BANDWIDTH_BOUND = 0.75
"""From this share of the peak on, memory's bandwidth and not its latency sets the time."""
QUEUES = 1.5
"""Warps that take this many times as long for an element as few warps do wait for each other at
memory, and not for its latency."""


@dataclass(frozen=True)
class Series:
    """One kernel at one number of resident warps: times by extra FMAs an element."""

    kernel: str
    warps: str
    """`full`, or resident warps an SM."""
    rows: pd.DataFrame
    """Merged over processes, sorted by extra_fma."""
    each: pd.DataFrame
    """A row a process."""

    @property
    def name(self) -> str:
        resident = "all warps" if self.warps == "full" else f"{self.warps} warps an SM"
        return f"{CHAINS[self.kernel].removesuffix(' FMAs')}, {resident}"

    def ratio(self, extra: int) -> tuple[float, float, float]:
        """Median, lowest and highest t(extra)/t(0) over the processes."""
        times = self.each.pivot_table(index="process", columns="extra_fma", values="median_seconds")
        ratios = (times[extra] / times[0]).dropna()
        return float(ratios.median()), float(ratios.min()), float(ratios.max())

    def knee(self) -> float | None:
        """Extra FMAs where the line through the two longest times meets t(0).

        None where the longest is not clearly past the knee, so that there is no line yet.
        """
        extra = self.rows["extra_fma"].to_numpy(float)
        time = self.rows["median_seconds"].to_numpy(float)
        if len(extra) < 3 or time[-1] < 1.5 * time[0]:
            return None
        slope = (time[-1] - time[-2]) / (extra[-1] - extra[-2])
        return max(0.0, extra[-1] - (time[-1] - time[0]) / slope)


def _series(data: RunData) -> dict[tuple[str, str], Series]:
    """Every series that starts at no extra arithmetic and has a second point."""
    merged = data.select("axpy", *CHAINS)
    each = data.select_processes("axpy", *CHAINS)
    found = {}
    if not merged.empty:
        for (kernel, warps), rows in merged.groupby(["kernel", "warps"], sort=False):
            rows = rows.sort_values("extra_fma")
            same = (each["kernel"] == kernel) & (each["warps"] == warps)
            if len(rows) > 1 and rows["extra_fma"].iloc[0] == 0:
                found[kernel, str(warps)] = Series(kernel, str(warps), rows, each[same])
    return found


def parameters(data: RunData) -> Parameters | None:
    """What the model may know, none of it from the points that it predicts; None: too little.

    Bandwidth: the fastest peer's at its largest size. Latency: the pointer chase through the
    largest footprint. Clock: the median of the peers' samples. FMA lanes: the device's peak.
    """
    rivals = data.select("axpy")
    rivals = rivals[rivals["peer"].astype(bool)] if not rivals.empty else rivals
    chase = data.select("memory", "chase")
    if rivals.empty or chase.empty or "bytes" not in chase or rivals["sm_clock"].isna().all():
        return None
    numbers = [
        data.number(name) for name in ("sms", "max_threads_per_sm", "fp32_peak", "sm_clock_max_hz")
    ]
    if any(number is None for number in numbers):
        return None
    sms, threads, peak, clock = (float(number or 0) for number in numbers)
    deepest = chase[chase["bytes"] == chase["bytes"].max()]
    rivals = rivals[rivals["n"] == rivals["n"].max()]
    return Parameters(
        gpu=str(data.device.get("name")),
        cc=str(data.device.get("cc")),
        sms=int(sms),
        max_warps=int(threads) // 32,
        clock=Value(float(rivals["sm_clock"].median()), unit="Hz"),
        dram_latency=Value(float(deepest["latency_cycles"].max()), unit="cycle"),
        dram_bandwidth=Value(float(rivals["bandwidth"].max()), unit="B/s"),
        theta=Value(1.0),
        fma_rate=Value(peak / (sms * 2 * clock * 32), unit="warp-FMA/clock/SM"),
    )


def _workload(known: Parameters, warps: str) -> Workload:
    return axpy(known.max_warps if warps == "full" else float(warps))


def _predicted(known: Parameters, series: Series) -> tuple[pd.DataFrame, Knee]:
    """The model's times at the measured points and between, and its knee."""
    base = _workload(known, series.warps)
    dependent = series.kernel == "fma_dependent"
    moved = sum(series.rows["work"].iloc[0].get(k, 0) for k in ("bytes_read", "bytes_written"))
    most = int(series.rows["extra_fma"].max())
    grid = sorted({*series.rows["extra_fma"], *range(0, most, max(1, most // 64))})
    times = [
        LITTLE.predict(known, with_extra_fma(base, extra, dependent=dependent)).time(moved)
        for extra in grid
    ]
    points = pd.DataFrame({"extra_fma": grid, "median_seconds": times, "series": series.name})
    return points, knee(known, base, dependent=dependent)


def _points(data: RunData, chosen: list[Series]) -> tuple[pd.DataFrame, dict[str, Knee]]:
    """Measured points (a row a process) and the model's, told apart by `what`."""
    known = parameters(data)
    parts, knees = [], {}
    for series in chosen:
        columns = ["extra_fma", "median_seconds", "bandwidth_of_peak"]
        parts.append(series.each[columns].assign(series=series.name, what="measured"))
        if known is not None:
            points, knees[series.name] = _predicted(known, series)
            parts.append(points.assign(what="model"))
    return pd.concat(parts, ignore_index=True), knees


def _method(data: RunData) -> str:
    text = (
        f"The grid-stride AXPY with a block of FMAs on each element, in one chain or in eight "
        f"chains side by side; median and range over {len(data.recording.processes)} processes."
    )
    if parameters(data) is None:
        return text + " No model: the run has no pointer chase or no peer to take it from."
    return text + (
        " Dashed: Little's law, with the latency of the pointer chase and the bandwidth of the "
        "fastest peer; nothing is fitted to these points."
    )


def _table(chosen: list[Series]) -> pd.DataFrame:
    rows = pd.concat([s.rows.assign(series=s.name) for s in chosen])
    columns = ["extra_fma", "median_seconds", "bandwidth_of_peak", "operations_per_second"]
    return rows[["series", *columns, "spread"]]


def unchanged(data: RunData) -> Answer | None:
    """t(2x)/t(1x) with its interval, and the knee against the predicted one."""
    series = _series(data)
    chosen = [series[kernel, "full"] for kernel in CHAINS if (kernel, "full") in series]
    if not chosen:
        return None
    first = int(chosen[0].rows["extra_fma"].iloc[1])
    middle, low, high = chosen[0].ratio(first)
    times = "twice" if first == 1 else f"{first + 1} times"
    points, knees = _points(data, chosen)
    text = (
        f"{'Yes' if high <= 1 + FREE else 'No'}: {times} the arithmetic takes "
        f"{units.ratio(middle)} the time ({low:.3f} to {high:.3f} over the processes)"
    )
    text += "; " + ", ".join(_knee_text(s, knees.get(s.name)) for s in chosen)
    return Answer(
        text=text + ".",
        verdict="confirmed" if high <= 1 + FREE else "contradicted",
        plots=(
            Plot(
                _draw_times,
                points.assign(
                    knee=points["series"].map({n: k.extra_fma for n, k in knees.items()})
                ),
                "Time against extra FMAs an element, measured and by the model",
            ),
        ),
        method=_method(data),
        table=_table(chosen),
        sources=data.sources("axpy", *CHAINS),
    )


def _knee_text(series: Series, predicted: Knee | None) -> str:
    measured = series.knee()
    if measured is None:
        most = series.rows["extra_fma"].max()
        text = f"{CHAINS[series.kernel]} show no knee up to {most}"
    else:
        text = f"{CHAINS[series.kernel]} begin to cost at about {measured:.0f} an element"
    if predicted is None:
        return text
    text += f" (Little's law: {predicted.extra_fma:.0f}"
    early = measured is not None and measured < 0.9 * predicted.extra_fma
    return text + (", so the two overlap only in part)" if early else ")")


def _draw_times(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    _draw(axes, rows, "median_seconds")
    for value in sorted(set(rows["knee"].dropna().round(6)))[:1]:
        plots.limit(axes, value, "predicted knee", horizontal=False, end="end")
    if (rows["what"] == "model").any():
        plots.model(axes, [], [], label="Little's law")
    axes.set_ylabel("time")
    plots.log_axis(axes, units.seconds)
    plots.legend(axes)
    return figure


def why(data: RunData) -> Answer | None:
    """Whether bandwidth or latency is what the arithmetic hides behind."""
    series = _series(data)
    full = series.get(("fma_dependent", "full"))
    few = [s for (kernel, warps), s in series.items() if warps != "full"]
    if full is None or full.rows["bandwidth_of_peak"].isna().all():
        return None
    share = float(full.rows["bandwidth_of_peak"].iloc[0])
    wait = _wait(full, few[0], data) if few else None
    bound = share >= BANDWIDTH_BOUND or (wait is not None and wait >= QUEUES)
    text = (
        f"{'No, bandwidth is' if bound else 'Yes'}: with all warps resident and no extra "
        f"arithmetic, AXPY draws {units.percent(share)} of the memory's peak"
    )
    if bound and wait is not None:
        text += (
            f" and a warp takes {units.ratio(wait)} as long for its elements as with "
            f"{few[0].warps} warps an SM, since warps queue for memory; arithmetic fits into that "
            "wait"
        )
    elif bound:
        text += ", and arithmetic fits into the time that memory needs anyway"
    if few:
        text += (
            f". With {few[0].warps} warps an SM, where nothing queues and latency alone binds "
            f"({units.percent(float(few[0].rows['bandwidth_of_peak'].iloc[0]))} of the peak), "
            + " and ".join(map(_cost, few))
            + f"; with all warps {_cost(full)}"
        )
    points, _ = _points(data, [full, *few])
    points = points[points["what"] == "measured"].drop(columns="median_seconds")
    return Answer(
        text=text + ".",
        verdict="contradicted" if bound else "confirmed",
        plots=(
            Plot(_draw_shares, points, "Share of the peak bandwidth against extra FMAs an element"),
        ),
        method=_method(data).partition(" Dashed:")[0].partition(" No model:")[0]
        + " A warp's time for its elements: warps an SM over throughput, by Little's law.",
        table=_table([full, *few]),
        sources=data.sources("axpy", *CHAINS),
    )


def _wait(full: Series, few: Series, data: RunData) -> float | None:
    """A warp's time for an element with all warps over that with few; None: residency unknown.

    Little's law turned round: warps in flight over throughput, the same work in both.
    """
    most = data.number("max_threads_per_sm")
    occupancy = full.rows["occupancy"].iloc[0]
    if most is None or pd.isna(occupancy):
        return None
    times = [float(series.rows["median_seconds"].iloc[0]) for series in (full, few)]
    return occupancy * most / 32 * times[0] / (float(few.warps) * times[1])


def _cost(series: Series) -> str:
    """`32 dependent FMAs add 12.0%`, at the most extra FMAs up to 32."""
    extra = series.rows["extra_fma"]
    chosen = int(extra[extra <= 32].max()) or int(extra.iloc[1])
    change = series.ratio(chosen)[0] - 1
    added = "nothing" if change < 0.005 else units.percent(change)
    return f"{chosen} {CHAINS[series.kernel]} add {added}"


def _draw_shares(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    _draw(axes, rows, "bandwidth_of_peak")
    axes.set(ylim=(0, 1), ylabel="share of peak bandwidth")
    plots.format_axis(axes, lambda value: f"{100 * value:.0f}%")
    plots.legend(axes, columns=2)
    return figure


def _draw(axes: plots.Axes, rows: pd.DataFrame, y: str) -> None:
    """Measured series with the model's curve in the same colour; zero has a place of its own."""
    measured = rows[rows["what"] == "measured"]
    order = list(dict.fromkeys(measured["series"]))
    ticks = sorted(set(measured["extra_fma"]))
    plots.lines(axes, measured, "extra_fma", y, "series", order=order)
    for name, curve in rows[rows["what"] == "model"].groupby("series"):
        color = plots.PALETTE[order.index(str(name))]
        plots.model(axes, curve["extra_fma"], curve[y], color=color)
    axes.set_xscale("symlog", base=2, linthresh=ticks[1], linscale=0.7)
    plots.ticks(axes, ticks, "{:.0f}".format)
    axes.set(xlabel="extra FMAs an element", xlim=(-0.4 * ticks[1], 1.2 * ticks[-1]))


QUESTIONS = (
    Question(
        1,
        "Does twice the arithmetic leave AXPY's time unchanged?",
        ("axpy",),
        unchanged,
        claim="Doubling the arithmetic of AXPY leaves its time nearly unchanged.",
    ),
    Question(
        1,
        "Is hidden latency what makes that arithmetic free?",
        ("axpy",),
        why,
        claim="The added arithmetic is free because the latency of memory is hidden, not because "
        "its bandwidth is the limit.",
    ),
)
