"""One look for every figure: theme, colours, axes in powers of two, files, and data digests.

The colours are those of Okabe and Ito (jfly.uni-koeln.de/color), told apart by colour-blind
readers and legible on white and on dark; markers differ too, so that a figure survives print in
grey. Text and axes are drawn in `INK`, which the page replaces by its own text colour.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MultipleLocator,
    NullLocator,
)

from analysis import units
from analysis.units import raised

BLUE, VERMILION, GREEN, ORANGE = "#0072b2", "#d55e00", "#009e73", "#e69f00"
PURPLE, SKY, GREY = "#cc79a7", "#56b4e9", "#767676"
PALETTE = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GREY]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
INK = "#24292f"
MODEL = (0, (4, 2))
"""Dashes of every model curve and limit, so that solid means measured."""

SHADES = ListedColormap(mpl.colormaps["cividis"](np.linspace(0.22, 1, 256)), "warpgauge")
"""For quantities: cividis (Nunez et al., 2018) without its darkest part, which is lost on dark."""
mpl.colormaps.register(SHADES, force=True)

_RC = {
    **sns.axes_style("whitegrid"),
    **sns.plotting_context("notebook", font_scale=0.92),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.prop_cycle": cycler(color=PALETTE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "patch.force_edgecolor": False,
    "patch.edgecolor": "none",
    "grid.alpha": 0.35,
    "grid.color": GREY,
    "grid.linewidth": 0.6,
    "image.cmap": "warpgauge",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "warpgauge",
}

LEAST_GAP = 0.075
"""Share of an axis that the label of a tick needs."""
MARGIN = 0.9
"""Inches left of the axes, for labels, where a legend above them does not reach."""
HANDLE, LETTER = 0.55, 0.078
"""Inches of a legend's line with the gap to the next, and of a letter of its text."""
A_LETTER = 0.0185
"""Share of a figure's usual width that a letter of a tick's label needs, its share of the gap to
the next label included."""


@contextmanager
def theme() -> Iterator[None]:
    """Draw inside this; `build` does so around every view."""
    with mpl.rc_context(_RC):
        yield


def figure(
    rows: int = 1, columns: int = 1, *, width: float = 6.2, height: float = 3.8, **options: Any
) -> tuple[Figure, Any]:
    """A figure and its Axes (an array of them for several), inches; options as for subplots."""
    drawing = Figure(figsize=(width, height), layout="constrained")
    return drawing, drawing.subplots(rows, columns, **options)


def lines(
    axes: Axes,
    data: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    *,
    order: Iterable[str] | None = None,
) -> None:
    """Measured series: median over the rows of a point, and their range as a band.

    `data` has a row a process (or one row a point, which has no band), `by` names the series.
    The colour and the marker of a series follow its place in `order`, up to seven.
    """
    names = list(order if order is not None else dict.fromkeys(data[by]))
    sns.lineplot(
        data,
        x=x,
        y=y,
        hue=by,
        style=by,
        hue_order=names,
        style_order=names,
        palette=PALETTE[: len(names)],
        markers=MARKERS[: len(names)],
        dashes=False,
        estimator="median",
        errorbar=("pi", 100),
        ax=axes,
    )
    axes.set(xlabel="", ylabel="")


def model(axes: Axes, x: Any, y: Any, label: str | None = None, color: str = INK) -> None:
    """A model's curve: dashed, without markers."""
    axes.plot(x, y, color=color, linestyle=MODEL, linewidth=1.4, label=label, zorder=2.5)


def boxes(axes: Axes, left: Any, right: Any, middle: Any, height: Any, color: Any) -> None:
    """Horizontal bars as one object, for hundreds of them: an artist each would cost seconds.

    left, right, middle: shape (bars,), in the axes' units; height: one, or a bar each; color: one
    or a bar each.
    """
    left, right, middle, height = np.broadcast_arrays(
        *(np.asarray(value, dtype=float) for value in (left, right, middle, height))
    )
    low, high = middle - height / 2, middle + height / 2
    corners = [(left, low), (right, low), (right, high), (left, high)]
    vertices = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    axes.add_collection(PolyCollection(list(vertices), facecolors=color, linewidths=0))
    axes.autoscale_view()


def beside(axes: Axes, row: float, text: str) -> None:
    """A remark on a row, to the right of the axes."""
    place, frame = (1.02, row), ("axes fraction", "data")
    axes.annotate(text, place, va="center", fontsize=9, xycoords=frame)


def limit(
    axes: Axes, value: float, text: str, *, horizontal: bool = True, end: str = "start"
) -> None:
    """A dashed line with its name on it: a peak, a capacity, a predicted knee.

    The name stands above a horizontal line, at its `start` (left) or `end` (right); beside the
    top of a vertical one, on its right (`start`) or left (`end`).
    """
    draw = axes.axhline if horizontal else axes.axvline
    draw(value, color=INK, linestyle=MODEL, linewidth=1.1, zorder=1.5)
    first = end == "start"
    place: dict[str, Any]
    if horizontal:
        place = {"xy": (0.01 if first else 0.99, value), "xytext": (0, 3), "va": "bottom"}
        place |= {"xycoords": axes.get_yaxis_transform(), "ha": "left" if first else "right"}
    else:
        place = {"xy": (value, 0.98), "xytext": (4 if first else -4, 0), "va": "top"}
        place |= {"xycoords": axes.get_xaxis_transform(), "ha": "left" if first else "right"}
    axes.annotate(text, textcoords="offset points", fontsize=9, **place)


def log2_axis(
    axes: Axes, values: Iterable[float], form: Callable[[float], str], which: str = "x"
) -> None:
    """A logarithmic axis with ticks at the measured values, spelled by `form`."""
    getattr(axes, f"set_{which}scale")("log", base=2)
    ticks(axes, values, form, which)


def ticks(
    axes: Axes, values: Iterable[float], form: Callable[[float], str], which: str = "x"
) -> None:
    """Ticks at measured values and nowhere else, spelled by `form`; set the scale before.

    Where labels would meet, powers of two go first, then the larger values.
    """
    axis = axes.xaxis if which == "x" else axes.yaxis
    places = {float(value) for value in values}
    seen = {place: float(axis.get_transform().transform([place])[0]) for place in places}
    length = max(seen.values()) - min(seen.values())
    spot = axes.get_subplotspec()
    panels = spot.get_gridspec().ncols if spot else 1
    letters = {place: len(short(form(place))) for place in places}

    def room(one: float, other: float) -> float:
        wide = A_LETTER * panels * (letters[one] + letters[other]) / 2 if which == "x" else 0.0
        return length * max(LEAST_GAP, wide)

    kept: list[float] = []
    for place in sorted(places, key=lambda value: (not _power_of_two(value), -value)):
        if all(abs(seen[place] - seen[other]) >= room(place, other) for other in kept):
            kept.append(place)
    axis.set_major_locator(FixedLocator(sorted(kept)))
    axis.set_minor_locator(NullLocator())
    format_axis(axes, form, which)


def _power_of_two(value: float) -> bool:
    return value > 0 and math.log2(value).is_integer()


def log_axis(axes: Axes, form: Callable[[float], str], which: str = "y") -> None:
    """A logarithmic axis with ticks at 1, 2 and 5 times powers of ten, spelled by `form`."""
    getattr(axes, f"set_{which}scale")("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=9))
    axis.set_minor_locator(NullLocator())
    format_axis(axes, form, which)


def format_axis(axes: Axes, form: Callable[[float], str], which: str = "y") -> None:
    """Ticks of an axis spelled by `form`, as `units.seconds`, without idle zeros."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: raised(short(form(value)))))


def size_axis(axes: Axes, which: str = "y") -> None:
    """An axis of bytes from zero, with ticks at a power of two of them."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    top = max(axis.get_view_interval())
    axis.set_major_locator(MultipleLocator(2.0 ** round(math.log2(top / 4))))
    format_axis(axes, units.size, which)


def short(text: str) -> str:
    """A tick's label, which is a round number: `1 TB/s` for `1.00 TB/s`, `0` for `0 B/s`."""
    found = re.match(r"(-?[\d,]*)(\.\d+)?", text)
    number, fraction = found.groups("") if found else ("", "")
    unit = text.removeprefix(number + fraction)
    fraction = fraction.rstrip("0").rstrip(".")
    return "0" if number == "0" and not fraction else number + fraction + unit


def legend(axes: Axes, columns: int = 4, **options: Any) -> None:
    """The legend above the axes, where it covers no point, in as many columns as fit."""
    texts = options.get("labels") or [
        item if isinstance(item, str) else item.get_label()
        for item in options.get("handles") or axes.get_legend_handles_labels()[1]
    ]
    parent = axes.get_figure(root=True)
    room = parent.get_figwidth() - MARGIN if parent else 0.0
    while columns > 1 and _legend_width([str(text) for text in texts], columns) > room:
        columns -= 1
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
        title=None,
        borderaxespad=0.2,
        handlelength=2.2,
        columnspacing=1.4,
        **options,
    )


def _legend_width(texts: list[str], columns: int) -> float:
    """Inches, by the longest text of each column, which are filled one after another."""
    rows = math.ceil(len(texts) / columns)
    parts = [texts[start : start + rows] for start in range(0, len(texts), rows)]
    return sum(HANDLE + LETTER * max(map(len, part)) for part in parts)


def svg(drawing: Figure) -> str:
    """The figure as SVG text, the same for the same data."""
    buffer = io.StringIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def save(drawing: Figure, stem: Path) -> str:
    """Write `stem`.svg and `stem`.png, on white; return the SVG text, which has no ground."""
    text = svg(drawing)
    drawing.set_layout_engine("none")  # it is laid out; a second time costs as much as drawing
    stem.parent.mkdir(parents=True, exist_ok=True)
    on_white = text.replace("<defs>", '<rect width="100%" height="100%" fill="#fff"/><defs>', 1)
    stem.with_name(stem.name + ".svg").write_text(on_white, encoding="utf-8")
    drawing.savefig(
        stem.with_name(stem.name + ".png"), dpi=144, facecolor="white", metadata={"Software": None}
    )
    return text


def digest(data: pd.DataFrame) -> str:
    """SHA-256 of what a figure draws: columns and rows, numbers to six significant digits.

    Pixels differ between versions of matplotlib and the last bits of a model's curve between
    machines; the data to six digits do not. The order of the rows does not count.
    """
    rows = [json.dumps([*map(_plain, row)]) for row in data.itertuples(index=False, name=None)]
    text = json.dumps([[*map(str, data.columns)], sorted(rows)])
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return value if isinstance(value, bool | int | None) else str(value)
