"""`python -m analysis history DIR`: what changed its level, when, and what changed with it."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import accepted
from analysis.change_points import NEEDED
from analysis.history import UNITS, History, Series, Step, history
from analysis.units import BY_UNIT, digits
from results.errors import UserError
from results.shell import not_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AROUND = 6
"""So many of the things that changed around a step are named in a figure."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `history` command."""
    parser = subparsers.add_parser(
        "history",
        help="many runs in time: changes of level and what changed with them",
        description="Runs are found in DIR at any depth and ordered by their start. Exit code 1: "
        "the last change of a case is a slow-down that nobody accepted, or it fails in the newest "
        "run; 2: a run was left out or is not whole, or no case has runs enough to show a change.",
    )
    parser.add_argument("DIR", type=Path, help="folder that holds folders of runs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--output", metavar="FOLDER", type=Path, help="write a figure a case here")
    parser.add_argument("--changed", action="store_true", help="figures of changed cases only")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the history, draw it where asked; the exit code as the description of `history`.

    Raises:
        UserError: no run can be read, or a figure cannot be written.
    """
    found = history(arguments.DIR, accepted.load())
    print(as_json(found) if arguments.json else as_text(found))
    for line in found.left_out:
        print(f"warpgauge: left out: {line}", file=sys.stderr)
    code = not_whole(found.problems)
    if arguments.output:
        wanted = found.changed if arguments.changed else found.series
        draw_all(wanted, arguments.output)
        if not arguments.json:
            print(f"\n{len(wanted)} figures in {arguments.output}")
    if any(series.regressed for series in found.series):
        return 1
    cannot_tell = len(found.short) == len(found.series)
    return 2 if found.left_out or cannot_tell else code


def as_text(found: History) -> str:
    """Changes by the run at which they began, newest first, under what changed around them."""
    lines = [
        f"{found.runs} runs, {len(found.series)} series (a case on a GPU model in one profile), "
        f"{len(found.changed)} with a change of level, "
        f"{sum(series.regressed for series in found.series)} slower since their last, or failing"
    ]
    if found.short:
        lines.append(
            f"{len(found.short)} series have fewer than {NEEDED} runs: too few to show a change"
        )
    lines += [
        f"FAILING in the newest run on {s.where}: {s.label}" for s in found.series if s.failing
    ]
    places: dict[tuple[str, str, str], list[tuple[Series, Step]]] = {}
    for series in found.changed:
        for step in series.steps:
            first = series.runs[step.index]
            place = first.header.started, first.name, series.where
            places.setdefault(place, []).append((series, step))
    for (started, name, where), members in sorted(places.items(), reverse=True):
        around = list(dict.fromkeys(str(change) for _, step in members for change in step.around))
        lines += ["", f"{name} ({started}) on {where}: {len(members)} cases"]
        lines += [f"  changed: {'; '.join(around) or 'nothing that is recorded'}"]
        for series, step in sorted(members, key=lambda item: -abs(item[1].effect)):
            kind = "SLOWER" if step.slower else "FASTER"
            lines.append(f"  {kind} {step.effect:+.2%} {series.metric}  {series.label}")
    anew = [(series, index, reason) for series in found.series for index, reason in series.anew]
    if anew:
        lines += ["", "accepted"]
        lines += [f"  {s.runs[index].name} {s.label}: {reason}" for s, index, reason in anew]
    return "\n".join(lines)


def as_json(found: History) -> str:
    """Every series with its runs, values in SI units, steps and accepted changes."""
    return json.dumps(
        {
            "runs": found.runs,
            "left_out": found.left_out,
            "problems": found.problems,
            "series": [_object(series) for series in found.series],
        },
        indent=1,
    )


def _object(series: Series) -> dict[str, Any]:
    family, kernel, params = series.key
    return {
        "gpu": series.gpu,
        "profile": series.profile,
        "family": family,
        "kernel": kernel,
        "params": dict(params),
        "metric": series.metric,
        "unit": UNITS[series.metric],
        "runs": [item.name for item in series.runs],
        "started": [item.header.started for item in series.runs],
        "values": series.values,
        "steps": [{"run": series.runs[step.index].name, **asdict(step)} for step in series.steps],
        "accepted": [
            {"run": series.runs[index].name, "reason": reason} for index, reason in series.anew
        ],
        "failing": series.failing,
        "regressed": series.regressed,
    }


def draw_all(wanted: list[Series], folder: Path) -> None:
    """One figure a series, named after GPU and case, as SVG and PNG.

    Raises:
        UserError: the folder cannot be written.
    """
    from analysis import plots

    for series in wanted:
        with plots.theme():
            drawing = draw(series)
            try:
                plots.save(drawing, folder / slug(series))
            except OSError as error:
                raise UserError(f"cannot write to {folder}: {error.strerror}") from None


def slug(series: Series) -> str:
    """`nvidia-h200-quick-axpy-vector-block-256-n-1024`, with the metric where it is not time."""
    words = f"{series.gpu} {series.profile} {series.label}"
    if series.metric != "time":
        words += f" {series.metric}"
    return re.sub(r"[^a-z0-9_.]+", "-", words.lower()).strip("-")


def draw(series: Series) -> Figure:
    """The series over time: a point a run, a line a level, each change with what came with it."""
    import seaborn as sns

    from analysis import plots

    drawing, axes = plots.figure()
    when = [datetime.fromisoformat(item.header.started) for item in series.runs]
    sns.scatterplot(x=when, y=series.values, color=plots.BLUE, s=18, ax=axes)
    edges = sorted({0, *(step.index for step in series.steps), *(i for i, _ in series.anew)})
    for start, end in zip(edges, [*edges[1:], len(when)], strict=True):
        level = sorted(series.values[start:end])[(end - start) // 2]
        axes.plot([when[start], when[end - 1]], [level] * 2, color=plots.INK, linewidth=1.2)
    for step in series.steps:
        color = plots.VERMILION if step.slower else plots.GREEN
        around = [str(change) for change in step.around[:AROUND]]
        text = "\n".join([f"{step.effect:+.1%} {series.runs[step.index].name}", *around])
        _mark(axes, when[step.index], text, color)
    for index, reason in series.anew:
        _mark(axes, when[index], f"accepted: {reason}", plots.GREY)
    plots.format_axis(axes, BY_UNIT.get(UNITS[series.metric], digits))
    axes.set_title(f"{series.label} on {series.where}", fontsize=9, loc="left")
    axes.set_ylabel(series.metric.replace("_", " "))
    axes.tick_params(axis="x", rotation=20)
    low, high = min(series.values), max(series.values)
    # At least 4% in view: noise of 0.1% shall not fill the figure as a change does.
    margin = max(0.02 * high - (high - low) / 2, 0.15 * (high - low))
    axes.set_ylim(low - margin, high + 2 * margin)
    return drawing


def _mark(axes: Any, when: datetime, text: str, color: str) -> None:
    from matplotlib.dates import date2num

    axes.axvline(when, color=color, linestyle="--", linewidth=1.0)
    axes.annotate(
        text,
        (date2num(when), 0.98),
        xycoords=axes.get_xaxis_transform(),
        xytext=(4, 0),
        textcoords="offset points",
        va="top",
        fontsize=7.5,
        color=color,
    )
