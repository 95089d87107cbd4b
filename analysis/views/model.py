"""The latency-hiding models beside what was measured: curves by load width, errors, and warps."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.model import MODELS
from analysis.model.scoring import MEMORY_BOUND, SHARE, Point, Score, points, scores
from analysis.report.question import Answer, Plot, Question, RunData
from results.errors import UserError

NOTES_FMA = 4
"""Arithmetic instructions a load, of the course notes' example."""
NAMES = [model.name for model in MODELS]
COLOURS = dict(zip(NAMES, (plots.ORANGE, plots.GREEN, plots.VERMILION), strict=True))
LEVELS = {"mixed in l1": "L1", "mixed in l2": "L2", "mixed in dram": "DRAM"}
METHOD = (
    "Parameters come from cases recorded for that purpose and never scored: loops at other numbers "
    "of warps, a pointer chase, empty launches. No parameter is fitted to a case that it predicts. "
    "An error is predicted over measured throughput of the whole launch, less 1."
)


def predicted(data: RunData) -> Answer | None:
    """Errors of the three models on the cases that memory binds, and the worst one by name."""
    found = _points(data)
    every = scores(found)
    overall = {score.model: score for score in every if score.group == MEMORY_BOUND}
    if "queueing" not in overall:
        return None
    best = overall["queueing"]
    others = [
        f"{_title(name)} {units.percent(overall[name].mean_relative_error)} and "
        f"{units.percent(overall[name].maximum_relative_error)}"
        for name in reversed(NAMES)
        if name != "queueing"
    ]
    text = (
        f"Over {best.cases} cases that memory binds the queueing model is off by "
        f"{units.percent(best.mean_relative_error)} on average and by "
        f"{units.percent(best.maximum_relative_error)} at most, {', '.join(others)}; its worst "
        f"case is {best.worst}"
    )
    bound = pd.DataFrame(
        [
            {"model": point.model, "group": point.group, "error": point.error}
            for point in found
            if point.memory_bound
        ]
    )
    curves = pd.DataFrame([_drawn(point) for point in found if _single_load(point)])
    plotted = []
    if not curves.empty:
        plotted.append(
            Plot(
                _draw_curves,
                curves,
                "Bandwidth against warps for each load width, measured and by three models",
            )
        )
    plotted.append(Plot(_draw_errors, bound, "Error of each model on every case memory binds"))
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=tuple(plotted),
        method=METHOD,
        table=pd.DataFrame([_row(score) for score in every if score.curve is None]),
        sources=data.sources("occupancy", "read"),
    )


def warps(data: RunData) -> Answer | None:
    """Warps to 90% of the notes' kernel's own plateau, measured and by each model."""
    found = [p for p in _points(data, "mixed") if p.curve == f"{NOTES_FMA} FMAs"]
    curves = [score for score in scores(found) if score.curve is not None]
    if not curves:
        return None
    parts = []
    for group, level in LEVELS.items():
        own = [score for score in curves if score.group == group]
        if own:
            parts.append(f"in {level} {_needed(own)}")
    levels = pd.DataFrame([{**_drawn(p), "level": LEVELS[p.group]} for p in found])
    return Answer(
        text=f"With {NOTES_FMA} instructions a load, {SHARE:.0%} of its own plateau is reached "
        + "; ".join(parts)
        + ".",
        verdict="measured",
        plots=(
            Plot(
                _draw_levels,
                levels,
                "Throughput against warps in L1, L2 and DRAM, measured and by three models",
            ),
        ),
        method=METHOD + " A curve whose last doubling of warps adds a ninth has no plateau yet.",
        table=pd.DataFrame([_row(score) for score in curves]),
        sources=data.sources("mixed", "mixed"),
    )


def _points(data: RunData, *families: str) -> list[Point]:
    try:
        return points(data.recording, *families, table=data.frame, by_process=data.processes)
    except UserError:  # the run lacks what feeds the models
        return []


def _single_load(point: Point) -> bool:
    return point.group == "read" and point.curve.startswith("1 x ") and "," not in point.curve


def _drawn(point: Point) -> dict[str, object]:
    return {
        "model": point.model,
        "curve": point.curve,
        "warps": point.warps,
        "measured": point.measured,
        "predicted": point.predicted,
        "low": point.low,
        "high": point.high,
    }


def _row(score: Score) -> dict[str, object]:
    row: dict[str, object] = {
        "model": score.model,
        "group": score.group,
        "cases": score.cases,
        "mean_relative_error": score.mean_relative_error,
        "maximum_relative_error": score.maximum_relative_error,
    }
    if score.curve is None:
        return {**row, "worst": score.worst}
    return {
        **row,
        "warps_to_90_predicted": score.warps_to_90_predicted,
        "warps_to_90_measured": score.warps_to_90_measured,
    }


def _title(name: str) -> str:
    return {"little": "Little's law", "naive": "the naive rule"}.get(name, name)


def _needed(own: list[Score]) -> str:
    """Warps measured and by each model, of one curve."""
    measured = own[0].warps_to_90_measured
    said = {_title(score.model): score.warps_to_90_predicted for score in own}
    if measured is None and not any(said.values()):
        return "not yet by the most warps, and every model says so"
    told = ", ".join(f"{name} {_count(count)}" for name, count in said.items())
    return f"at {_count(measured)} warps an SM ({told})"


def _count(number: float | None) -> str:
    return "more than were run" if number is None else f"{number:.0f}"


def _draw_curves(rows: pd.DataFrame) -> Figure:
    widths = sorted(rows["curve"].unique(), key=lambda name: int(name.split()[2]))
    return _panels(rows, "curve", widths, "bandwidth")


def _draw_levels(rows: pd.DataFrame) -> Figure:
    names = [name for name in LEVELS.values() if name in set(rows["level"])]
    return _panels(rows, "level", names, "bytes read a second")


def _panels(rows: pd.DataFrame, by: str, names: list[str], label: str) -> Figure:
    """A panel each: points measured, the models dashed, the queueing model's band shaded."""
    figure, panels = plots.figure(1, len(names), width=7.6, height=3.4, squeeze=False)
    for place, (name, axes) in enumerate(zip(names, panels[0], strict=True)):
        own = rows[rows[by] == name].sort_values("warps")
        for model in NAMES:
            curve = own[own["model"] == model]
            title = _title(model) if place == 0 else None
            plots.model(axes, curve["warps"], curve["predicted"], title, COLOURS[model])
        band = own[own["model"] == "queueing"]
        colour = COLOURS["queueing"]
        axes.fill_between(band["warps"], band["low"], band["high"], color=colour, alpha=0.2)
        axes.plot(
            band["warps"],
            band["measured"],
            marker="o",
            linestyle="none",
            color=plots.BLUE,
            label="measured" if place == 0 else None,
        )
        axes.set_title(name, fontsize=10)
        axes.set_ylim(bottom=0)
        plots.log2_axis(
            axes, [w for w in (1, 4, 16, 64) if w <= own["warps"].max()], "{:.0f}".format
        )
        plots.format_axis(axes, units.bandwidth)
    panels[0][0].set_ylabel(label)
    figure.supxlabel("resident warps an SM", fontsize="medium")
    figure.legend(loc="outside upper left", ncols=4, fontsize=9.5, handlelength=2.2)
    return figure


def _draw_errors(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=4.2)
    groups = list(dict.fromkeys(rows["group"]))
    for place, model in enumerate(NAMES):
        own = rows[rows["model"] == model]
        at = [groups.index(group) + 0.24 * (place - 1) for group in own["group"]]
        axes.scatter(
            own["error"],
            at,
            s=14,
            alpha=0.6,
            color=COLOURS[model],
            marker=plots.MARKERS[place],
            label=_title(model),
            zorder=3,
        )
    axes.axvline(0, color=plots.INK, linewidth=1)
    axes.set_yticks(range(len(groups)), groups)
    axes.invert_yaxis()
    axes.set_xlabel("predicted over measured throughput, less 1")
    plots.format_axis(axes, "{:.0%}".format, "x")
    plots.legend(axes)
    return figure


QUESTIONS = (
    Question(
        13,
        "Can a kernel's bandwidth be predicted from its warps and loads?",
        ("occupancy",),
        predicted,
        readme="model-by-width",
    ),
    Question(3, "Which rule gives the right number of warps?", ("mixed",), warps),
)
