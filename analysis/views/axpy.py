"""AXPY: bandwidth against size, and ours against peers."""

from __future__ import annotations

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

FORMS = ["monolithic", "grid_stride", "unrolled", "vector"]
PEERS = {
    "cublas": "cuBLAS",
    "cuda_float4": "CUDA C with float4",
    "cupy_elementwise": "CuPy",
    "memcpy": "cudaMemcpy",
}
METHOD = (
    "Device time between two events around the kernel, L2 flushed before each sample; a point is "
    "the median over {processes} processes, its band their range."
)


def method(data: RunData) -> str:
    """How AXPY was timed, with the number of processes."""
    return METHOD.format(processes=len(data.recording.processes))


def _name(kernel: str) -> str:
    return PEERS.get(kernel, kernel.replace("_", " "))


def named(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """These columns behind the kernel's name in words."""
    return rows.assign(kernel=rows["kernel"].map(_name))[["kernel", *columns]]


# Row 1: from launch-bound to memory-bound, and peers


def size(data: RunData) -> Answer | None:
    """Where the launch stops dominating, and where the plateau begins."""
    rows = _over_sizes(data.select("axpy", *FORMS))
    if rows is None:
        return None
    largest = rows[rows["n"] == rows["n"].max()]
    best = largest.loc[largest["bandwidth"].idxmax()]
    curve = rows[rows["kernel"] == best["kernel"]].sort_values("n")
    full = curve[curve["bandwidth"] >= 0.9 * best["bandwidth"]].iloc[0]
    smallest = curve.iloc[0]
    empty = data.select("selfcheck", "empty")
    launch = float(empty["median_seconds"].iloc[0]) if not empty.empty else None
    text = (
        f"The {_name(best['kernel'])} form moves {units.bandwidth(best['bandwidth'])} at n = "
        f"{_n(best['n'])}" + _of_peak(best) + f", and needs n = {_n(full['n'])} to reach 90% of "
        f"that; n = {_n(smallest['n'])} takes {units.seconds(smallest['median_seconds'])}"
        + (f", where an empty kernel takes {units.seconds(launch)} already" if launch else "")
    )
    every = _over_sizes(data.select_processes("axpy", *FORMS))
    assert every is not None
    bytes_moved = every["work"].map(lambda work: sum(work[k] for k in work if "bytes" in k))
    drawn = named(every.assign(moved=bytes_moved), "n", "bandwidth", "moved").assign(
        peak=data.number("memory_bandwidth_peak"), launch=launch, l2=data.number("l2_bytes")
    )
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(Plot(_draw_sizes, drawn, "Bandwidth against elements, a line for each form"),),
        method=method(data),
        table=named(rows, "n", "median_seconds", "bandwidth", "bandwidth_of_peak", "spread"),
        sources=data.sources("axpy", *FORMS),
    )


def _over_sizes(rows: pd.DataFrame) -> pd.DataFrame | None:
    """float32 at one block size (that with most sizes); None unless there are two sizes."""
    if rows.empty:
        return None
    rows = rows[rows["dtype"] == "float32"]
    rows = rows[rows["block"] == rows.groupby("block")["n"].nunique().idxmax()]
    return rows.sort_values("n") if rows["n"].nunique() > 1 else None


def _n(value: float) -> str:
    return units.raised(units.elements(value))


def _of_peak(row: pd.Series) -> str:
    share = row["bandwidth_of_peak"]
    return "" if pd.isna(share) else f", {units.percent(share)} of the peak"


def _draw_sizes(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    order = [name for name in map(_name, FORMS) if name in set(rows["kernel"])]
    plots.lines(axes, rows, "n", "bandwidth", "kernel", order=order)
    axes.set(yscale="log", xlabel="elements", ylabel="bandwidth")
    ends = axes.get_ylim()
    curve = rows.drop_duplicates("n").sort_values("n")
    if rows["launch"].notna().all():
        plots.model(axes, curve["n"], curve["moved"] / curve["launch"])
        axes.annotate(
            "all time is launch",
            (curve["n"].iloc[1], (curve["moved"] / curve["launch"]).iloc[1]),
            xytext=(14, -16),
            textcoords="offset points",
            fontsize=9,
        )
    if rows["peak"].notna().all():
        plots.limit(axes, rows["peak"].iloc[0], "DRAM peak")
        ends = ends[0], max(ends[1], rows["peak"].iloc[0] * 5)
    if rows["l2"].notna().all():
        per_element = (curve["moved"] / curve["n"]).iloc[-1]
        plots.limit(axes, rows["l2"].iloc[0] / per_element, "data fill L2", horizontal=False)
    axes.set_ylim(ends)
    plots.log2_axis(axes, rows["n"], units.elements)
    plots.format_axis(axes, units.bandwidth)
    plots.legend(axes)
    return figure


def peers(data: RunData) -> Answer | None:
    """The best form against each peer at the largest size, and against the best over all sizes."""
    rows = data.select("axpy")
    if rows.empty or not rows["peer"].any():
        return None
    theirs = rows[rows["peer"].astype(bool)]
    ours = rows[rows["kernel"].isin(FORMS) & rows["ratio_to_peer"].notna()]
    if ours.empty:
        return None
    # Ours at one block size, as CUDA C has: to choose the best would flatter us.
    block = ours.groupby("block")["n"].nunique().idxmax()
    ours = ours[ours["block"] == block]
    largest = pd.concat([ours, theirs])
    largest = largest[(largest["n"] == ours["n"].max()) & (largest["dtype"] == "float32")]
    bandwidth = largest.groupby("kernel", sort=False)["bandwidth"].max().dropna()
    form = bandwidth[[name for name in FORMS if name in bandwidth]].idxmax()
    ratios = ", ".join(
        f"{units.ratio(bandwidth[form] / bandwidth[name])} that of {_name(name)}"
        for name in dict.fromkeys(theirs["kernel"])
        if name in bandwidth
    )
    best = ours.groupby(["dtype", "n"])["ratio_to_peer"].max()
    (dtype, n), least = best.idxmin(), best.min()
    n_largest = _n(ours["n"].max())
    drawn = bandwidth.rename("bandwidth").reset_index()
    drawn["who"] = drawn["kernel"].isin(FORMS).map({True: "warpgauge", False: "peer"})
    drawn["kernel"] = drawn["kernel"].map(_name)
    return Answer(
        text=(
            f"At n = {n_largest} the bandwidth of the {_name(form)} form, with {block:.0f} threads "
            f"a block, is {ratios}; over all "
            f"sizes the best form has at least {units.ratio(least)} the speed of the best peer "
            f"({dtype}, n = {_n(n)})."
        ),
        verdict="measured",
        plots=(
            Plot(
                _draw_peers,
                drawn.assign(peak=data.number("memory_bandwidth_peak")),
                f"Bandwidth of every form and every peer at n = {n_largest}, as bars",
            ),
        ),
        method=method(data)
        + " Peers take turns with ours in the same process. The device-to-device copy moves two "
        "of AXPY's three arrays, so only its rate compares.",
        table=named(
            pd.concat([ours, theirs]).sort_values(["dtype", "n"]),
            *("n", "dtype", "median_seconds", "bandwidth", "bandwidth_of_peak", "ratio_to_peer"),
        ),
        sources=data.sources("axpy", form),
    )


def _draw_peers(rows: pd.DataFrame) -> Figure:
    rows = rows.sort_values("bandwidth")
    figure, axes = plots.figure(height=0.9 + 0.32 * len(rows))
    colors = rows["who"].map({"warpgauge": plots.BLUE, "peer": plots.GREY})
    bars = axes.barh(rows["kernel"], rows["bandwidth"], color=colors, height=0.66)
    labels = [units.bandwidth(value) for value in rows["bandwidth"]]
    # Inside the bar, so that no label meets the line of the peak.
    for bar, label in zip(bars, labels, strict=True):
        place = (bar.get_width(), bar.get_y() + bar.get_height() / 2)
        axes.annotate(
            label,
            place,
            xytext=(-5, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color="white",
            fontsize=9,
        )
    handles: list[Artist] = [
        Patch(color=plots.BLUE, label="warpgauge"),
        Patch(color=plots.GREY, label="peer"),
    ]
    if rows["peak"].notna().all():
        plots.limit(axes, rows["peak"].iloc[0], "", horizontal=False)
        handles.append(Line2D([], [], color=plots.INK, linestyle=plots.MODEL, label="DRAM peak"))
    top = max(rows["bandwidth"].max(), rows["peak"].fillna(0).max())
    axes.set(xlim=(0, 1.03 * top), xlabel="bandwidth")
    axes.grid(visible=False, axis="y")
    plots.format_axis(axes, units.bandwidth, "x")
    plots.legend(axes, handles=handles)
    return figure


QUESTIONS = (
    Question(
        1,
        "How does bandwidth grow from a tiny launch to DRAM?",
        ("axpy",),
        size,
    ),
    Question(1, "Is a Python kernel as fast as libraries and CUDA C?", ("axpy",), peers),
)
