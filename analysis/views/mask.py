"""Masks of a warp: what activemask shows at each point, and syncwarp with masks of all kinds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from analysis.views.branch import draw_outcomes, outcome
from results.schema import Case

WARP = 32
POINTS = ("before", "then", "nested", "otherwise", "after", "after_loop", "synchronised")
IN_BRANCH = ("then", "nested", "otherwise")
NAMES = {
    "before": "before the branch",
    "then": "in the if",
    "nested": "in an if within it",
    "otherwise": "in the else",
    "after": "after both",
    "after_loop": "after a loop",
    "synchronised": "after syncwarp",
}


def seen(data: RunData) -> Answer | None:
    """At how many lanes activemask differs from what the branch implies, point by point."""
    cases = [case for _, case in data.vectors("mask", "points") if _usable(case)]
    if not cases:
        return None
    shares = pd.DataFrame(
        [
            {"taken": _hex(case), **dict(zip(POINTS, _deviations(case), strict=True))}
            for case in cases
        ]
    )
    worst = shares[list(POINTS)].max()
    trusted = worst[list(IN_BRANCH)].max() == 0
    text = (
        "In a branch, activemask names just the lanes that the ballot before it says"
        if trusted
        else f"In a branch, activemask differs from the ballot before it in up to "
        f"{units.percent(worst[list(IN_BRANCH)].max())} of the lanes"
    )
    loose = worst[["after", "after_loop"]]
    if loose.max() == 0:
        text += "; after it, and after a loop, all lanes are back together without `syncwarp`"
    else:
        told = [
            f"{NAMES[name]} {units.percent(share)}" for name, share in loose.items() if share > 0
        ]
        text += f"; lanes that see less than the whole warp: {', '.join(told)}"
    text += (
        "; after `syncwarp` the warp is whole"
        if worst["synchronised"] == 0
        else f"; after `syncwarp`, {units.percent(worst['synchronised'])} of the lanes miss others"
    )
    # The raggedest mask shows most.
    shown = max(cases, key=lambda case: _changes(int(case.params["taken"])))
    masks = np.asarray(shown.metrics["mask_seen"]).reshape(WARP, len(POINTS))
    drawn = pd.DataFrame(
        [
            {"lane": lane, "point": name, "active": int(masks[lane, place]).bit_count()}
            for place, name in enumerate(POINTS)
            for lane in range(WARP)
        ]
    )
    table = shares.groupby("taken", as_index=False).max()
    return Answer(
        text=text + ".",
        verdict="observed, not promised" if trusted else "contradicted",
        plots=(Plot(_draw_masks, drawn, "Lanes that each lane saw active, point by point down"),),
        method="A full chip of warps reads activemask at seven points; every branch is a chain of "
        f"FMAs of its own length. Shown: the lanes of {_hex(shown)} take the if.",
        table=table.rename(columns=NAMES),
        sources=data.sources("mask", "points"),
    )


def _usable(case: Case) -> bool:
    masks, shares = case.metrics.get("mask_seen"), case.metrics.get("mask_deviations")
    return (
        isinstance(masks, list)
        and isinstance(shares, list)
        and len(masks) == WARP * len(POINTS)
        and len(shares) == len(POINTS)
        and isinstance(case.params.get("taken"), int)
    )


def _deviations(case: Case) -> list[float]:
    shares = case.metrics["mask_deviations"]
    assert isinstance(shares, list)
    return shares


def _hex(case: Case) -> str:
    return f"0x{int(case.params['taken']):08x}"


def _changes(mask: int) -> int:
    return (mask ^ (mask >> 1)).bit_count()


def _draw_masks(rows: pd.DataFrame) -> Figure:
    table = rows.pivot(index="point", columns="lane", values="active").loc[list(POINTS)]
    figure, axes = plots.figure(height=3.2)
    row, lane = np.nonzero(table.to_numpy())
    counts = table.to_numpy()[row, lane]
    shades = plots.SHADES(counts / WARP)
    plots.boxes(axes, lane - 0.42, lane + 0.42, row, 0.8, shades)
    # How many each lane saw: one number a row where they agree.
    for place in range(len(POINTS)):
        seen = sorted(set(counts[row == place]))
        told = " or ".join(map(str, seen)) if seen else "none"
        plots.beside(axes, place, told)
    plots.beside(axes, -1, "see")
    axes.set_yticks(range(len(POINTS)), [NAMES[name] for name in POINTS])
    axes.set(xlabel="lane", xticks=(0, 8, 16, 24, 31), xlim=(-0.6, WARP - 0.4))
    axes.set_ylim(len(POINTS) - 0.4, -0.6)
    axes.grid(visible=False)
    return figure


FULL = {
    "full_returned": ("the other half has returned", "done"),
    "full_both_sides": ("the other half calls it in the else", "done"),
    "full_later": ("the other half calls only a later one", "undefined"),
    "full_spinning": ("the other half waits for what comes after it", "never ends"),
}
"""Kernel -> what the other half of the warp does, and what the programming guide says: all lanes
of the mask that have not returned must call it, with the same mask."""


def full(data: RunData) -> Answer | None:
    """A full mask in half a warp, and disjoint masks in two branches."""
    rows = data.select("mask", *FULL)
    disjoint = data.select("mask", "disjoint")
    if rows.empty:
        return None
    rows = rows.assign(
        outcome=[outcome(row) for _, row in rows.iterrows()],
        other=[FULL[kernel][0] for kernel in rows["kernel"]],
        guide=[FULL[kernel][1] for kernel in rows["kernel"]],
    )
    told = "; ".join(f"{row['other']}: {row['outcome']}" for _, row in rows.iterrows())
    text = f"Half a warp calls `syncwarp` with the full mask, and {told}"
    if not disjoint.empty:
        wrong = disjoint["wrong_reads"].sum()
        text += "; under two disjoint masks the two branches exchange words " + (
            "without a wrong read" if wrong == 0 else f"with {wrong:.0f} wrong reads"
        )
    kept = rows[rows["guide"] == "done"]
    good = (kept["outcome"] == "done").all()
    drawn = rows[["other", "guide", "outcome"]].set_axis(
        ["program", "by the guide", "outcome"], axis=1
    )
    return Answer(
        text=text + ".",
        verdict="confirmed" if good else "contradicted",
        plots=(
            Plot(draw_outcomes, drawn, "How syncwarp ended, by what the warp's other half does"),
        ),
        method="Each case once, in a process of its own that is killed when the kernel does not "
        "end within a second; who waits for a flag gives up after 2 million cycles.",
        table=rows[["other", "guide", "outcome", "wrong_reads", "gave_up"]].rename(
            columns={"other": "the other half", "guide": "by the guide"}
        ),
        sources=data.sources("mask", *FULL),
    )


QUESTIONS = (
    Question(
        22,
        "What does activemask show in and after a branch?",
        ("mask",),
        seen,
        claim="In a branch, `activemask` names just the lanes that took it.",
    ),
    Question(
        22,
        "What if half a warp names all of it in syncwarp?",
        ("mask",),
        full,
        claim="`syncwarp` ends well once every lane that its mask names has called it, on either "
        "path, or has returned.",
    ),
)
