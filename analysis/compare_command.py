"""`python -m analysis compare A B`: two runs of any two GPUs side by side, with others' figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.units import BY_UNIT, digits, percent, ratio
from analysis.units import label as heading
from results.errors import UserError
from results.shell import no_such, not_whole
from results.store import load

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMS = {
    "absolute": "absolute",
    "share_of_peak": "share of own peak",
    "per_clock": "per SM clock",
}
ROW_INCHES = 0.33
SHAPES = "Ds^vPX<>ph*dHo"
"""A mark for each GPU of the published figures."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `compare` command."""
    parser = subparsers.add_parser(
        "compare",
        help="two GPUs side by side: absolute, share of own peak, per clock; never gated",
        description="Figures of others are labelled as published, with their source.",
    )
    parser.add_argument("A", help="folder or file of records, or the name of a baseline")
    parser.add_argument("B", help="likewise")
    parser.add_argument("--family", help="this family only")
    parser.add_argument("--metric", help="this metric only")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a list of objects, SI units")
    form.add_argument("--csv", action="store_true", help="the same as CSV")
    parser.add_argument("--output", metavar="FOLDER", type=Path, help="a figure a metric")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison and draw it where asked. 2 where a run is not whole, else 0.

    Raises:
        UserError: a run cannot be read, nothing is left to compare, or a figure not written.
    """
    from analysis.compare import compare

    recordings = [load(arguments.A), load(arguments.B)]
    table = compare(*recordings)
    families = dict.fromkeys(table["kernel"].str.partition("/")[0])
    if arguments.family:
        if arguments.family not in families:
            raise no_such("family", arguments.family, families)
        table = table[table["kernel"].str.startswith(f"{arguments.family}/")]
    if arguments.metric:
        if arguments.metric not in set(table["metric"]):
            raise no_such("metric", arguments.metric, dict.fromkeys(table["metric"]))
        table = table[table["metric"] == arguments.metric]
    if not (table["run"] != "published").any():
        raise UserError("A and B have no case in common: 'python -m analysis table' lists each's")
    if arguments.json:
        print(json.dumps(json.loads(table.to_json(orient="records")), indent=1))
    elif arguments.csv:
        print(table.to_csv(index=False, lineterminator="\n"), end="")
    else:
        print(as_text(table))
    if arguments.output:
        draw_all(table, arguments.output)
    return not_whole(f"{run.name}: {text}" for run in recordings for text in run.problems)


def as_text(table: pd.DataFrame) -> str:
    """A section a metric: each case that both have, how many one has alone, published figures."""
    from analysis.compare import side_by_side

    heads = table[table["run"] != "published"].drop_duplicates("run")
    lines = [f"{row['run']}: {row['gpu']} ({row['name']})" for row in heads.to_dict("records")]
    joined = side_by_side(table)
    for metric, part in joined.groupby("metric", sort=False):
        spell = BY_UNIT.get(part["unit"].iloc[0], digits)
        per_clock = _per_clock_unit(table[table["metric"] == metric])
        heads = ["kernel", "case", "A", "B", "B/A", "A of peak", "B of peak"]
        rows = [[*heads, f"A in {per_clock}", f"B in {per_clock}"]]
        for row in part[part["ratio"].notna()].to_dict("records"):
            forms = [
                ("absolute_a", spell),
                ("absolute_b", spell),
                ("ratio", ratio),
                ("share_of_peak_a", percent),
                ("share_of_peak_b", percent),
                ("per_clock_a", digits),
                ("per_clock_b", digits),
            ]
            cells = ["" if row[name] != row[name] else form(row[name]) for name, form in forms]
            rows.append([row["kernel"], row["case"], *cells])
        lines += ["", f"{heading(str(metric))}", *(_aligned(rows) if len(rows) > 1 else [])]
        alone = {run: int(part[f"absolute_{run.lower()}"].isna().sum()) for run in ("B", "A")}
        told = [f"{n} cases of {'A' if run == 'B' else 'B'}" for run, n in alone.items() if n]
        lines += [f"  {' and '.join(told)} alone: --csv and --json list them"] if told else []
        others = table[(table["metric"] == metric) & (table["run"] == "published")]
        lines += [
            f"  published: {row['gpu']} {row['case']} {spell(row['absolute'])}  ({row['source']})"
            for row in others.to_dict("records")
        ]
    return "\n".join(lines)


def _per_clock_unit(table: pd.DataFrame) -> str:
    """`B/clock` or `cycles`: what a metric per clock is in; empty for one that has no such form."""
    unit = next((str(unit) for unit in table["per_clock_unit"] if unit), "")
    return "cycles" if unit == "cycle" else unit


def _aligned(rows: list[list[str]]) -> list[str]:
    used = [i for i in range(len(rows[0])) if i < 2 or any(row[i] for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in used}
    lines = []
    for row in rows:
        cells = [row[i].ljust(widths[i]) if i < 2 else row[i].rjust(widths[i]) for i in used]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines


def draw_all(table: pd.DataFrame, folder: Path) -> None:
    """One figure a metric as SVG and PNG, named `compare-<metric>`.

    Raises:
        UserError: the folder cannot be written.
    """
    from analysis import plots

    measured = table[table["run"] != "published"]["metric"].unique()
    for metric in measured:
        with plots.theme():
            drawing = draw(table[table["metric"] == metric])
            try:
                plots.save(drawing, folder / f"compare-{metric}")
            except OSError as error:
                raise UserError(f"cannot write to {folder}: {error.strerror}") from None


def draw(table: pd.DataFrame) -> Figure:
    """One metric: a panel for each form that it has, a line a kernel, a point a case.

    Published figures are open marks, a shape a GPU, on a line of their own under the kernel that
    measures the same quantity.
    """
    import seaborn as sns
    from matplotlib.ticker import LogLocator

    from analysis import plots

    table = table.assign(
        line=table["kernel"].where(
            table["run"] != "published", table["case"].str.replace("_", " ") + ", published"
        )
    )
    lines = [
        line for _, part in table.groupby("kernel", sort=False) for line in part["line"].unique()
    ]
    forms = [form for form in FORMS if _worth(table, form)]
    drawing, grid = plots.figure(
        1,
        len(forms),
        width=3.4 + 2.6 * len(forms),
        height=1.6 + ROW_INCHES * len(lines),
        sharey=True,
        squeeze=False,
    )
    others = table[table["run"] == "published"]
    ours = table[table["run"] != "published"].assign(
        run_and_gpu=lambda rows: rows["run"] + ": " + rows["gpu"] + " (" + rows["name"] + ")"
    )
    for axes, form in zip(grid[0], forms, strict=True):
        sns.stripplot(
            ours,
            x=form,
            y="line",
            hue="run_and_gpu",
            order=lines,
            palette=plots.PALETTE[: ours["run"].nunique()],
            dodge=True,
            jitter=False,
            size=4,
            alpha=0.8,
            ax=axes,
        )
        axes.get_legend().remove()
        for shape, (gpu, rows) in zip(SHAPES, others.groupby("gpu", sort=False), strict=False):
            places = [lines.index(line) for line in rows["line"]]
            style = {"color": plots.INK, "markerfacecolor": "none", "markersize": 5}
            axes.plot(rows[form], places, shape, label=f"{gpu} (published)", **style)
        values = table[form].dropna()
        if (values > 0).all() and values.max() > 20 * values.min():
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(numticks=4))
        axes.set(title=FORMS[form], xlabel="", ylabel="")
        axes.tick_params(axis="x", labelrotation=20)
        if form == "per_clock":
            axes.set_xlabel(next(iter(table["per_clock_unit"][table[form].notna()])))
        else:
            absolute = BY_UNIT.get(table["unit"].iloc[0], digits)
            plots.format_axis(axes, _share if form == "share_of_peak" else absolute, "x")
        axes.set_ylim(len(lines) - 0.5, -0.5)
    handles, labels = grid[0][0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside upper left", ncols=1 + len(forms), fontsize=7)
    return drawing


def _share(value: float) -> str:
    """`0.01%`, `50%`: a tick of an axis that may span decades."""
    return f"{100 * value:g}%"


def _worth(table: pd.DataFrame, form: str) -> bool:
    """Whether a form has values, and others than the absolute ones (cycles are per clock)."""
    values = table[form].dropna()
    same = form != "absolute" and values.equals(table.loc[values.index, "absolute"])
    return not values.empty and not same
