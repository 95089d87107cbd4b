"""What a view hands to the report: questions, and the answers that a run's data give.

A view is a module of `analysis/views/`; nothing lists it. It defines `QUESTIONS`, like this:

    def answer(data: RunData) -> Answer | None:
        rows = data.select("axpy", "vector")          # ok cases, a row each, SI units
        if rows.empty:
            return None                               # this run cannot answer: 'not measured'
        best = rows.loc[rows["bandwidth"].idxmax()]
        return Answer(
            text=f"{bandwidth(best['bandwidth'])} at {best['block']} threads a block.",
            verdict="confirmed",
            plots=(Plot(draw, rows[["block", "bandwidth"]], "Bandwidth against block size"),),
            method="Median of 5 processes, L2 flushed before each sample.",
            table=rows[["block", "bandwidth"]],
            sources=data.sources("axpy", "vector"),
        )

    def draw(rows: pd.DataFrame) -> Figure:           # draws these data and nothing else
        figure, axes = plots.figure()
        ...
        return figure

    CLAIM = "8 warps a block are enough, 4 too few."
    QUESTIONS = (Question(2, "Why 256 threads a block?", ("axpy",), answer, claim=CLAIM),)

Rules: the sentence is made from the data, so another GPU may answer otherwise; an answer never
raises because something is missing (return None); a text holds no HTML (it is escaped).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure

import analysis.views
from analysis import frame as frames
from results.schema import Case
from results.store import Recording

Verdict = Literal["confirmed", "contradicted", "observed, not promised", "measured", "not measured"]
"""How the claim behind a question fared. `measured`: a quantity that no claim is about;
`not measured`: the run lacks what the question needs (the report says it by itself)."""

GROUPS: dict[str, frozenset[int]] = {
    "Memory and arithmetic": frozenset({1, 2}),
    "Warps and latency": frozenset({3, 4, 5}),
    "Occupancy": frozenset({12, 13, 14, 15}),
    "Reductions": frozenset({16}),
    "The execution model": frozenset({6, 7, 8, 9, 10, 11, 20, 21, 22, 28}),
    "Synchronisation": frozenset({17, 18, 19, 23, 24, 25, 26, 27}),
}
"""Chapters of the report in order, and the rows (claims, numbered from 1) that each holds."""


@dataclass(frozen=True)
class Plot:
    """A figure and the data it draws. The digest of the data says whether it is up to date."""

    draw: Callable[[pd.DataFrame], Figure]
    data: pd.DataFrame
    """All that `draw` may look at: measured points and model curves, tidy."""
    alt: str
    """What the figure shows, for a reader who cannot see it."""


@dataclass(frozen=True)
class Answer:
    """What one run says to one question."""

    text: str
    """One sentence with its numbers, pretty units."""
    verdict: Verdict
    plots: tuple[Plot, ...] = ()
    method: str = ""
    """How it was measured, in a sentence or two."""
    table: pd.DataFrame | None = None
    """The numbers behind the figure, SI units. A column that bears the name of a metric or a
    parameter is shown in its pretty unit (analysis.units.pretty), a text as it is."""
    sources: tuple[str, ...] = ()
    """`kernels/axpy.py:41`, from Case.source: see RunData.sources."""


@dataclass(frozen=True)
class Question:
    """A question of the report; its place follows from the row of its claim."""

    row: int
    title: str
    families: tuple[str, ...]
    """Without one of these families in the run, the question is not asked."""
    answer: Callable[[RunData], Answer | None]
    claim: str = ""
    """The claim that the verdict is about, in one sentence and in our own words, from the course
    notes or the programming guide. Empty where there is none and the verdict is `measured`."""
    asked_first: str = ""
    """How a new user would put it: the first screen then shows the question, so worded."""
    readme: str = ""
    """Name of the figure in docs/figures/ where the README shows this question's first plot."""

    @property
    def group(self) -> str:
        return next(group for group, rows in GROUPS.items() if self.row in rows)

    @property
    def slug(self) -> str:
        """Name for the anchor and the figure files, made of letters, digits and hyphens."""
        kept = "".join(c if c.isascii() and c.isalnum() else " " for c in self.title.lower())
        return f"{self.row:02d}-" + "-".join(kept.split()[:8])


@dataclass(frozen=True)
class RunData:
    """One run as views see it; what is costly is computed once."""

    recording: Recording

    @property
    def name(self) -> str:
        return self.recording.name

    @property
    def device(self) -> dict[str, object]:
        """The device's snapshot: a value for each field, or {"error": name}."""
        return self.recording.device

    def number(self, field: str) -> float | None:
        """A field of the device's snapshot, None where it is not a number."""
        value = self.device.get(field)
        return float(value) if isinstance(value, int | float) else None

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row a case: analysis.frame.frame."""
        return frames.frame(self.recording)

    @cached_property
    def processes(self) -> pd.DataFrame:
        """One row a case and process: analysis.frame.processes."""
        return frames.processes(self.recording)

    def select(self, family: str, *kernels: str) -> pd.DataFrame:
        """The ok cases of a family (and of some kernels), parameters in columns of their own."""
        return frames.only(self._family("frame", family), family, *kernels)

    def select_processes(self, family: str, *kernels: str) -> pd.DataFrame:
        """As select, a row a case and process: for bands and intervals."""
        return frames.only(self._family("processes", family), family, *kernels)

    @cached_property
    def _families(self) -> dict[tuple[str, str], pd.DataFrame]:
        return {}

    def _family(self, table: Literal["frame", "processes"], family: str) -> pd.DataFrame:
        """A family's ok cases without the columns of others: to select from it is fast."""
        key = table, family
        if key not in self._families:
            self._families[key] = frames.only(getattr(self, table), family)
        return self._families[key]

    def vectors(self, family: str, kernel: str | None = None) -> list[tuple[int, Case]]:
        """(process, case) of the ok cases, for readings over threads, blocks or SMs."""
        return frames.vectors(self.recording, family, kernel)

    def sources(self, family: str, *kernels: str) -> tuple[str, ...]:
        """File and line of these kernels, each once."""
        rows = self.select(family, *kernels)
        return tuple(dict.fromkeys(rows["source"].dropna()))


def questions() -> list[Question]:
    """Every question of every view, in the report's order."""
    found: list[Question] = []
    for module in pkgutil.iter_modules(analysis.views.__path__):
        view = importlib.import_module(f"analysis.views.{module.name}")
        found += getattr(view, "QUESTIONS", ())
    order = list(GROUPS)
    return sorted(found, key=lambda question: (order.index(question.group), question.row))
