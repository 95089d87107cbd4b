"""Transparent scalability: the same work on few SMs or many, against the ideal."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

NAMES = {
    "compute": "arithmetic, green contexts",
    "memory": "memory, green contexts",
    "blocks_compute": "arithmetic, one block an SM",
    "blocks_memory": "memory, one block an SM",
}
SATURATED = 0.9
"""Share of the bandwidth of all SMs at which the memory counts as saturated."""
SCALES = 0.9
"""Arithmetic that keeps this share of the ideal speed-up scales."""


def speed_up(data: RunData) -> Answer | None:
    """Speed-up of arithmetic and of memory over the SMs that take part."""
    rows = data.select("scalability", *NAMES)
    if rows.empty or "sms_used" not in rows:
        return None
    rows = _with_speed_up(rows)
    arithmetic = _best(rows, "compute")
    if arithmetic is None:
        return None
    last = arithmetic.iloc[-1]
    share = last["speed_up"] / last["sms_used"]
    text = (
        f"Arithmetic on {last['sms_used']:.0f} SMs is {last['speed_up']:.1f} times as fast as on "
        f"one, {units.percent(share)} of the ideal"
    )
    memory = _best(rows, "memory")
    if memory is not None:
        few = memory.iloc[0]
        text += (
            f"; memory reaches {_saturation(memory)} "
            f"({units.bandwidth(few['bandwidth'] / few['sms_used'])} each with "
            f"{few['sms_used']:.0f}), with one large block an SM"
        )
    confined = rows[rows["kernel"] == "compute"]
    if confined.empty:
        text += "; green contexts are not to be had here, so that block stands for each SM"
    else:
        kept = (confined["speed_up"] / confined["sms_used"]).iloc[-1]
        text += (
            f". Confined by green contexts, full of warps, arithmetic keeps {units.percent(kept)}"
        )
        streams = rows[rows["kernel"] == "memory"]
        if len(streams) > 1 and streams["bandwidth"].notna().all():
            text += f" and memory reaches {_saturation(streams)}"
    columns = ["kernel", "sms", "sms_used", "median_seconds", "speed_up", "bandwidth", "spread"]
    return Answer(
        text=text + ".",
        verdict="confirmed" if share >= SCALES else "contradicted",
        plots=(Plot(_draw, rows, "Speed-up over one SM against SMs, with the ideal dashed"),),
        method="The work is that of all SMs throughout. Speed-up is over one SM; for green "
        "contexts, whose smallest is larger, over its share of the smallest. SMs are those that "
        "the blocks reported.",
        table=rows[[name for name in columns if name in rows]],
        sources=data.sources("scalability"),
    )


def _saturation(curve: pd.DataFrame) -> str:
    top = curve["bandwidth"].max()
    enough = curve[curve["bandwidth"] >= SATURATED * top].iloc[0]
    return f"90% of its {units.bandwidth(top)} with {enough['sms_used']:.0f} SMs"


def _with_speed_up(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.sort_values(["kernel", "sms_used"])
    first = rows.groupby("kernel")[["median_seconds", "sms_used"]].transform("first")
    ideal = first["median_seconds"] * first["sms_used"]
    return rows.assign(speed_up=ideal / rows["median_seconds"], series=rows["kernel"].map(NAMES))


def _best(rows: pd.DataFrame, kind: str) -> pd.DataFrame | None:
    """The curve by blocks, which begins with one SM, else that by green contexts."""
    for kernel in (f"blocks_{kind}", kind):
        curve = rows[rows["kernel"] == kernel]
        if len(curve) > 1 and (kind == "compute" or curve["bandwidth"].notna().all()):
            return curve
    return None


def _draw(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=4.4)
    order = [name for name in NAMES.values() if name in set(rows["series"])]
    plots.lines(axes, rows, "sms_used", "speed_up", "series", order=order)
    most = rows["sms_used"].max()
    plots.model(axes, [1, most], [1, most], "ideal")
    axes.set(xlabel="SMs", ylabel="speed-up")
    ticks = [value for value in (1, 2, 4, 8, 16, 32, 64, most) if value <= most]
    plots.log2_axis(axes, ticks, lambda value: f"{value:.0f}")
    plots.log2_axis(axes, ticks, lambda value: f"{value:.0f}", which="y")
    plots.legend(axes, columns=3)
    return figure


QUESTIONS = (
    Question(
        8,
        "Does the same program scale with the SMs?",
        ("scalability",),
        speed_up,
        claim="Without a change, a program that computes gets faster in proportion to its SMs.",
    ),
)
