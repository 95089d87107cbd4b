"""Identity: lane, warp slot and SM of each thread, in the course's launch and on a full chip."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from results.schema import Case

COURSE = {"block_shape": "16x16", "grid_shape": "2x2"}
"""The launch of the lecture notes."""
THREAD = (5, 1)
"""The thread of that launch which the notes number: 1*16 + 5 = 21."""


def _first(data: RunData, kernel: str, params: Mapping[str, object]) -> Case | None:
    """The first process's case of these parameters."""
    for _, case in data.vectors("identity", kernel):
        if params.items() <= case.params.items():
            return case
    return None


def identity(data: RunData) -> Answer | None:
    """Lanes, warps and SMs of the course's launch, and the warp slots of a full chip."""
    course = _first(data, "small", COURSE)
    rows = data.select("identity")
    if course is None or "thread_slot" not in course.metrics or rows.empty:
        return None
    threads = _threads(course, 16, 16)
    full = rows[rows["kernel"] == "full_chip"]
    partial = rows[rows["block_shape"] == "33"] if "block_shape" in rows else rows.iloc[:0]
    holds = (rows["lane_differs"] == 0).all() and (rows["sms_per_block"] == 1).all()
    own = threads[(threads["x"] == THREAD[0]) & (threads["y"] == THREAD[1])].iloc[0]
    text = (
        f"The lane is the linear index mod 32 for {_share(1 - rows['lane_differs'].max())} of the "
        f"threads: thread {THREAD} of a 16 × 16 block has linear index {own['linear']} and lane "
        f"{own['lane']}"
    )
    if not partial.empty:
        text += f"; 33 threads make {partial['warps_per_block'].iloc[0]:.0f} warps"
    text += f"; a block was never seen on more than {_sms(rows['sms_per_block'].max())}"
    if full.empty:
        slots = None
    else:
        most = full.loc[full["slot_differs"].idxmax()]
        slots = _holders(data, int(most["block"]))
        text += (
            f"; %warpid is a slot and not the warp's number: in the course's launch they are equal "
            f"for {_share(1 - threads['differs'].mean())} of the threads, on a chip full of blocks "
            f"of {most['block']:.0f} threads they differ for {_share(most['slot_differs'])}, and "
            f"one slot number is in use on {most['sms_per_slot']:.0f} SMs"
        )
    figures = [Plot(_draw_threads, threads, "Warp slot and lane of each thread of the first block")]
    if slots is not None:
        alt = "Warp in its block against warp slot of one SM of a full chip"
        figures.append(Plot(_draw_slots, slots, alt))
    return Answer(
        text=text + ".",
        verdict="confirmed" if holds else "contradicted",
        plots=tuple(figures),
        method="Each thread stores %warpid, %laneid and %smid; blocks of the full chip stay until "
        "all SMs hold as many as fit.",
        table=_print_out(threads),
        sources=data.sources("identity"),
    )


def _threads(case: Case, x: int, y: int) -> pd.DataFrame:
    """A row a thread, in the order of the record: block by block, linear index by linear index."""
    slot, lane, sm = (case.metrics[f"thread_{name}"] for name in ("slot", "lane", "sm"))
    assert isinstance(slot, list)
    index = np.arange(len(slot))
    linear = index % (x * y)
    table = pd.DataFrame(
        {
            "block": index // (x * y),
            "x": linear % x,
            "y": linear // x,
            "linear": linear,
            "slot": slot,
            "lane": lane,
            "sm": sm,
        }
    ).astype(int)
    return table.assign(differs=table["slot"] != table["linear"] // 32)


def _print_out(threads: pd.DataFrame) -> pd.DataFrame:
    """Like the notes' print-out: each block's first and last thread, and the one they number."""
    last = threads["linear"] == threads["linear"].max()
    numbered = (threads["x"] == THREAD[0]) & (threads["y"] == THREAD[1])
    shown = threads[(threads["linear"] == 0) | last | numbered]
    place = [f"({x}, {y})" for x, y in zip(shown["x"], shown["y"], strict=True)]
    return pd.DataFrame(
        {
            "block number": shown["block"],
            "thread": place,
            "linear index": shown["linear"],
            "%warpid": shown["slot"],
            "%laneid": shown["lane"],
            "%smid": shown["sm"],
        }
    ).reset_index(drop=True)


def _holders(data: RunData, block: int) -> pd.DataFrame | None:
    case = _first(data, "full_chip", {"block": block})
    if case is None or "slot_warp" not in case.metrics:
        return None
    warps, blocks = case.metrics["slot_warp"], case.metrics["slot_block"]
    assert isinstance(warps, list)
    return pd.DataFrame({"slot": range(len(warps)), "warp": warps, "block": blocks}).query(
        "warp >= 0"
    )


def _share(value: float) -> str:
    return {0.0: "none", 1.0: "all"}.get(value, units.percent(value))


def _sms(count: float) -> str:
    return f"{count:.0f} SM" + ("s" if count > 1 else "")


def _draw_threads(threads: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=4.6)
    first = threads[threads["block"] == 0]
    slots = first.pivot(index="y", columns="x", values="slot")
    names = sorted(first["slot"].unique())
    axes.imshow(slots.map(names.index).to_numpy(), aspect="auto", alpha=0.45, origin="upper")
    # Each warp's ends, and the thread that the notes number: all would be too many to read.
    ends = first["x"].isin([0, first["x"].max()])
    own = (first["x"] == THREAD[0]) & (first["y"] == THREAD[1])
    for thread in first[ends | own].itertuples():
        weight = "bold" if (thread.x, thread.y) == THREAD else "normal"
        style = {"ha": "center", "va": "center", "fontsize": 8.5, "fontweight": weight}
        axes.text(thread.x, thread.y, str(thread.lane), in_layout=False, **style)
    axes.set(
        xlabel="threadIdx.x", ylabel="threadIdx.y", title="Lanes of the threads of block (0, 0)"
    )
    for name in names:
        rows = first.loc[first["slot"] == name, "y"]
        axes.annotate(
            f"slot {name}",
            (1.01, (rows.min() + rows.max()) / 2),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8.5,
        )
    axes.grid(visible=False)
    return figure


def _draw_slots(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=2.8)
    most = rows["warp"].max()
    plots.model(axes, [0, most], [0, most], "slot = warp")
    points = axes.scatter(rows["slot"], rows["warp"], c=rows["block"], s=34, zorder=3)
    figure.colorbar(points, ax=axes, label="block", shrink=0.9)
    axes.set(xlabel="%warpid: warp slot of one SM", ylabel="warp in its block")
    axes.set(ylim=(-0.5, most + 0.5), yticks=range(int(most) + 1))
    plots.legend(axes)
    return figure


QUESTIONS = (
    Question(
        6,
        "Who am I? %warpid, %laneid and %smid",
        ("identity",),
        identity,
        claim="A thread's lane is its linear index in its block mod 32; a block stays on one SM.",
    ),
)
