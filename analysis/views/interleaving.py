"""Paths of one warp since Volta: whether they overlap, and whether lanes can wait for lanes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from analysis.views.divergence import WARP
from results.schema import Case

POINTS = 7
BEGIN, FIRST, SECOND, JOIN, P, Q, END = range(POINTS)
SPANS = {"A": (FIRST, SECOND), "B": (SECOND, JOIN), "P": (P, Q), "Q": (Q, END)}
"""Statement -> the points at which it begins and ends; X and Y lie where A and B do."""
ELSE = {"A": "X", "B": "Y"}
COLORS = dict(
    zip(
        "ABXYPQ",
        (plots.BLUE, plots.SKY, plots.VERMILION, plots.ORANGE, plots.GREEN, plots.GREY),
        strict=True,
    )
)
TAKEN = {
    "half": lambda lane: lane < 16,
    "alternate": lambda lane: lane % 2 == 0,
    "one": lambda lane: lane == 0,
    "all": lambda lane: lane >= 0,
}
"""Which lanes take the if, by the name of the pattern."""


def overlap(data: RunData) -> Answer | None:
    """Whether the two branches are under way at once, and whether lanes come to P together."""
    cases = [case for _, case in data.vectors("divergence", "course") if _usable(case) is not None]
    rows = data.select("divergence", "course")
    if not cases or rows.empty:
        return None
    rows = rows[rows["taken"].isin([case.params["taken"] for case in cases])]
    diverged = rows[rows["taken"] != "all"]
    if diverged.empty:
        return None
    most = diverged.loc[diverged["overlap_cycles"].idxmax()]
    overlapped = most["overlap_cycles"] > 0
    if overlapped:
        text = (
            f"Overlapped: {_kind(most)}, the two branches are under way together for up to "
            f"{units.cycles(most['overlap_cycles'])}"
        )
    else:
        text = (
            "Serial: one branch begins only when the other has ended, with arithmetic alone and "
            "with a load from memory in each branch"
            if diverged["load"].nunique() > 1
            else "Serial: one branch begins only when the other has ended"
        )
    free, synced = (diverged[diverged["syncwarp"] == sync] for sync in (False, True))
    if len(free):
        together = (free["arrivals"] <= 1).all()
        text += (
            "; without `syncwarp` the lanes come to P "
            + ("together" if together else f"in up to {free['arrivals'].max():.0f} groups")
            + (" all the same, which nothing promises" if together else "")
        )
    if len(synced) and (synced["arrivals"] > 1).any():
        text += f"; with it in up to {synced['arrivals'].max():.0f} groups"
    first: dict[tuple[bool, bool], Case] = {}
    taken = cases[0].params["taken"]
    for case in cases:
        if case.params["taken"] == taken:
            first.setdefault((bool(case.params["load"]), bool(case.params["syncwarp"])), case)
    drawn = pd.concat(
        [timeline(case).assign(load=load, syncwarp=sync) for (load, sync), case in first.items()],
        ignore_index=True,
    )
    return Answer(
        text=text + ".",
        verdict="confirmed" if overlapped else "observed, not promised",
        plots=(
            Plot(
                _draw_timeline,
                drawn,
                "For each lane, down, the statements A, B, X, Y, P and Q over the cycles, with and "
                "without a load, with and without syncwarp",
            ),
        ),
        method="if {A; B;} else {X; Y;} P; Q; in one warp, each statement 32 dependent integer "
        "multiply-adds, A and X with a load past L1 first where the figure says so. Every lane "
        "reads the SM's clock where a statement begins, once the one before is complete.",
        table=diverged[["taken", "load", "syncwarp", "overlap_cycles", "arrivals"]],
        sources=data.sources("divergence", "course"),
    )


def _usable(case: Case) -> np.ndarray | None:
    """The clocks of a case, shape (lanes, POINTS)."""
    clocks = case.metrics.get("statement_clock")
    if not isinstance(clocks, list) or len(clocks) != WARP * POINTS:
        return None
    return np.asarray(clocks).reshape(WARP, POINTS) if case.params.get("taken") in TAKEN else None


def _kind(row: pd.Series) -> str:
    return ("with a load" if row["load"] else "with arithmetic alone") + (
        " and `syncwarp`" if row["syncwarp"] else " and no `syncwarp`"
    )


def timeline(case: Case) -> pd.DataFrame:
    """A row a lane and statement: when it began and ended, cycles."""
    clocks = _usable(case)
    assert clocks is not None
    goes = TAKEN[str(case.params["taken"])](np.arange(WARP))
    return pd.DataFrame(
        [
            {
                "lane": lane,
                "statement": name if goes[lane] else ELSE.get(name, name),
                "start": int(clocks[lane, begin]),
                "stop": int(clocks[lane, end]),
            }
            for lane in range(WARP)
            for name, (begin, end) in SPANS.items()
        ]
    )


def _draw_timeline(rows: pd.DataFrame) -> Figure:
    panels = list(rows.groupby(["load", "syncwarp"]))
    figure, grid = plots.figure(
        len(panels), 1, height=0.6 + 1.7 * len(panels), sharex=True, squeeze=False
    )
    for axes, ((load, sync), part) in zip(grid[:, 0], panels, strict=True):
        for name, spans in part.groupby("statement"):
            plots.boxes(axes, spans["start"], spans["stop"], spans["lane"], 0.85, COLORS[str(name)])
        axes.set(ylabel="lane", ylim=(WARP - 0.5, -0.5), yticks=(0, 15, 31))
        axes.set_title(
            f"{'a load in A and X' if load else 'arithmetic'}, "
            f"{'syncwarp' if sync else 'no syncwarp'}",
            loc="right",
            fontsize=9,
        )
        axes.grid(visible=False, axis="y")
    top = grid[0, 0]
    for name, color in COLORS.items():
        if name in set(rows["statement"]):
            top.barh([0], [0], color=color, label=name)
    top.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=6, handlelength=1.2)
    grid[-1, 0].set(xlabel="cycles", xlim=(0, None))
    return figure


def waiting(data: RunData) -> Answer | None:
    """Whether lanes of one warp get a lock, and an answer, from each other."""
    rows = data.select("divergence", "hand_over", "lock_in_loop", "lock_after_loop")
    if rows.empty:
        return None
    wanted = {"hand_over": 2}
    rows = rows.assign(of=[wanted.get(kernel, WARP) for kernel in rows["kernel"]])
    rows["done"] = rows["completed_lanes"] >= rows["of"]
    parts = []
    for kernel, part in rows.groupby("kernel", sort=False):
        done = part["done"].all()
        if kernel == "hand_over":
            parts.append(
                "two lanes in two branches wait for each other in turn, "
                f"{units.cycles(part['handover_cycles'].median())} a turn"
                if done
                else "two lanes in two branches that wait for each other do not come to an end"
            )
        else:
            where = "inside" if kernel == "lock_in_loop" else "after"
            row = part.iloc[0]
            parts.append(
                f"a spin lock released {where} the loop goes round all {WARP} lanes in "
                f"{units.cycles(row['wait_cycles'])}"
                if done
                else f"a spin lock released {where} the loop is got by {row['completed_lanes']:.0f}"
                f" of {WARP} lanes until the others give up"
            )
    text = "; ".join(parts)
    return Answer(
        text=text[0].upper() + text[1:] + ".",
        verdict="confirmed" if rows["done"].all() else "contradicted",
        plots=(
            Plot(_draw_waiting, _came_through(rows), "Lanes that came through, and the cycles"),
        ),
        method="One warp; whoever waits gives up after 20 million cycles.",
        table=rows[["kernel", "completed_lanes", "of", "handover_cycles", "wait_cycles"]].rename(
            columns={"of": "of lanes"}
        ),
        sources=data.sources("divergence", *dict.fromkeys(rows["kernel"])),
    )


def _came_through(rows: pd.DataFrame) -> pd.DataFrame:
    """Share of the lanes that were served, and what the wait took, cycles; the worst case."""
    names = {
        "hand_over": "two branches wait in turn",
        "lock_in_loop": "lock released inside the loop",
        "lock_after_loop": "lock released after the loop",
    }
    found = rows.assign(
        program=rows["kernel"].map(names),
        share=rows["completed_lanes"] / rows["of"],
        cycles=rows["wait_cycles"].fillna(rows["handover_cycles"]),
    )
    return found.groupby("program", as_index=False, sort=False).agg(
        share=("share", "min"), cycles=("cycles", "max"), lanes=("of", "first")
    )


def _draw_waiting(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=0.9 + 0.45 * len(rows))
    axes.barh(range(len(rows)), rows["share"], 0.6, color=plots.BLUE)
    for place, row in enumerate(rows.itertuples()):
        each = " a turn" if row.lanes < WARP else " for all"
        told = units.cycles(row.cycles) + each if row.share >= 1 else "gave up"
        style = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        axes.annotate(told, (row.share, place), **style)
    axes.set_yticks(range(len(rows)), rows["program"])
    axes.set(xlabel="lanes that came through", xlim=(0, 1.45), ylim=(len(rows) - 0.4, -0.6))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    plots.format_axis(axes, units.percent, "x")
    axes.grid(visible=False, axis="y")
    return figure


QUESTIONS = (
    Question(
        21,
        "Do the two branches of an if/else overlap?",
        ("divergence",),
        overlap,
        claim="Since Volta the paths of a diverged warp may interleave.",
    ),
    Question(
        21,
        "Can lanes of one warp wait for each other?",
        ("divergence",),
        waiting,
        claim="Since Volta every lane makes progress while others of its warp wait, so lanes may "
        "wait for each other.",
    ),
)
