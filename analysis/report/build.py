"""Builds the page: asks every question of every run, draws the figures, fills the template."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from analysis import plots, units
from analysis.report.question import GROUPS, Answer, Question, RunData, questions
from analysis.report.summary import Summary, summarise
from results.shell import missing_package
from results.store import Recording

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
WORKERS = 4
"""Processes that draw at the most: each holds the runs and matplotlib, 0.3 GB."""
PIXELS_A_POINT = 1.6
"""Widest that a figure is shown: a fifth over its print size, so that it suits the text."""
WIDE = 470
"""Points of width from which a figure is not shrunk to a narrow screen."""
MARKS = {
    "confirmed": "✓",
    "contradicted": "✗",
    "observed, not promised": "◐",
    "measured": "●",
    "not measured": "–",
}

UNJUDGED = frozenset({"measured", "not measured"})
"""Verdicts that are about no claim."""


@dataclass(frozen=True)
class Table:
    """Rows of (text, sort value) cells, and whether each column is a column of numbers."""

    columns: list[tuple[str, bool]]
    rows: list[list[tuple[str, Any]]]


@dataclass(frozen=True)
class Entry:
    """One run's answer, ready for the template."""

    run: str
    answer: Answer | None
    error: str = ""
    traceback: str = ""
    figures: list[Markup] = field(default_factory=list)
    table: Table | None = None
    sources: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)
    """Each kernel file with (line, link); an empty link where it is not in this checkout."""


@dataclass(frozen=True)
class Section:
    """One question with the answers of all runs."""

    question: Question
    entries: list[Entry]

    @property
    def verdict(self) -> str:
        """The runs' verdict where they agree."""
        found = {entry.answer.verdict for entry in self.entries if entry.answer}
        return found.pop() if len(found) == 1 else ("runs differ" if found else "not measured")

    @property
    def claim(self) -> str:
        """What a run's verdict is about; empty where every run only measured."""
        return "" if self.verdict in UNJUDGED else self.question.claim


def build(recordings: Sequence[Recording], output: Path) -> tuple[list[str], list[str]]:
    """Write `output`/index.html and `output`/figures/, which loses the figures it had.

    Returns (errors, problems): what a view could not answer because of an error of its own, and
    what is not whole about the runs.

    A view that raises costs its own question only: the page says so in its place, and the
    traceback goes to stderr.
    """
    output.mkdir(parents=True, exist_ok=True)
    for figure in (output / "figures").glob("[0-9][0-9]-*.*"):
        figure.unlink()  # of an earlier page, whose questions may have been others
    runs = [RunData(recording) for recording in recordings]
    asked = questions()
    jobs = [
        Job(question, data, output, len(runs) > 1)
        for question in asked
        for data in runs
        if not set(question.families) - set(data.recording.families)
    ]
    found: dict[str, list[Entry]] = {question.slug: [] for question in asked}
    for job, entry in zip(jobs, _answered(jobs), strict=True):
        sys.stderr.write(entry.traceback)
        if entry.answer or entry.error:
            found[job.question.slug].append(entry)
    sections = [Section(question, found[question.slug]) for question in asked]
    absent = [(s.question, _why_absent(s.question, runs)) for s in sections if not s.entries]
    sections = [section for section in sections if section.entries]
    summaries = [summarise(data) for data in runs]
    page = _page(runs, summaries, sections, absent)
    # A run's folder may be called what is no text: ? stands for it.
    (output / "index.html").write_bytes(page.encode(errors="replace"))
    errors = [
        f"{section.question.title} {entry.error}"
        for section in sections
        for entry in section.entries
        if entry.error
    ]
    return errors, [problem for summary in summaries for problem in summary.problems]


@dataclass(frozen=True)
class Job:
    """One question to one run."""

    question: Question
    data: RunData
    output: Path
    several: bool
    """Whether the page shows several runs, so that figures bear the run's name."""


_jobs: list[Job] = []
"""A worker's: what it was forked with, so that only numbers and finished text travel."""


def _answered(jobs: list[Job]) -> list[Entry]:
    """Each job's entry, in order, by as many processes as there are cores.

    Forked, so that the workers have the runs already; elsewhere than on Linux, where a fork is
    not safe, in this process.
    """
    for data in {job.data.name: job.data for job in jobs}.values():
        _ = data.frame, data.processes  # once, before the fork
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    workers = min(cores, WORKERS, len(jobs))
    if workers < 2 or not sys.platform.startswith("linux"):
        return [_entry(job) for job in jobs]
    context = multiprocessing.get_context("fork")
    with context.Pool(workers, initializer=_begin, initargs=(jobs,)) as pool:
        return pool.map(_numbered, range(len(jobs)), chunksize=1)


def _begin(jobs: list[Job]) -> None:
    """A worker lives for one page; to collect what figures leave would be an eighth of its time."""
    gc.freeze()
    gc.disable()
    _jobs.extend(jobs)


def _numbered(number: int) -> Entry:
    entry = _entry(_jobs[number])
    if entry.answer is None:
        return entry
    # What a view returned stays here: its functions and frames are drawn and need not travel.
    return replace(entry, answer=replace(entry.answer, plots=(), table=None))


def _entry(job: Job) -> Entry:
    with plots.theme():
        return _drawn(job.question, job.data, job.output, job.several)


def _drawn(question: Question, data: RunData, output: Path, several: bool) -> Entry:
    try:
        answer = question.answer(data)
        if answer is None:
            return Entry(data.name, None)
        figures = []
        for number, plot in enumerate(answer.plots):
            name = question.slug
            name += f"-{number + 1}" if number else ""
            name += f"-{_anchor(data.name)}" if several else ""
            text = plots.save(plot.draw(plot.data), output / "figures" / name)
            figures.append(inline(text, name, plot.alt))
        table = tabulate(answer.table) if answer.table is not None else None
        return Entry(data.name, answer, "", "", figures, table, _sources(answer.sources, output))
    except Exception as error:
        if missing_package(error):  # nobody's fault here: the command tells
            raise
        return Entry(data.name, None, f"{type(error).__name__}: {error}", traceback.format_exc())


def _why_absent(question: Question, runs: Sequence[RunData]) -> str:
    there = {family for data in runs for family in data.recording.families}
    missing = [family for family in question.families if family not in there]
    if missing:
        return f"no {', '.join(missing)} in this run"
    return f"{', '.join(question.families)} lacks the cases that it needs"


def inline(text: str, name: str, alt: str) -> Markup:
    """An SVG file's text as an element of the page: one image with its own ids and a text.

    Ink becomes the page's text colour, so the figure suits light and dark.
    """
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = text.replace(plots.INK, "currentColor")
    head, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    width = re.search(r'width="([\d.]+)pt"', head)
    points = float(width[1]) if width else 0.0
    size = f' style="max-width:{points * PIXELS_A_POINT:.0f}px;--least:{points:.0f}px"'
    # Too wide for a telephone: scrolls in its place, so that its texts can be read.
    shape = ' class="wide" tabindex="0"' if points > WIDE else ""
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{box[0] if box else ""} role="img" aria-label="{escape(alt)}"{shape}{size}>{rest}'
    )


def tabulate(frame: pd.DataFrame) -> Table:
    """A DataFrame as cells: pretty text by the column's name, and the value to sort by."""
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    columns = [(units.label(str(name)), n) for name, n in zip(frame, numeric, strict=True)]
    rows = [
        [
            (units.raised(units.pretty(str(name), value)), _sort_value(value))
            for name, value in zip(frame, row, strict=True)
        ]
        for row in frame.itertuples(index=False, name=None)
    ]
    return Table(columns, rows)


def _sort_value(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return "" if math.isnan(value) else value


def _sources(sources: Sequence[str], output: Path) -> list[tuple[str, list[tuple[str, str]]]]:
    """Sources by file: `kernels/axpy.py` with the lines 24 and 32."""
    parts = [source.partition(":") for source in sources]
    lines = sorted({(path, int(line or 1)) for path, _, line in parts})
    return [
        (path, [(str(line), _link(f"{path}:{line}", output)) for _, line in found])
        for path, found in groupby(lines, key=lambda item: item[0])
    ]


def marked(text: str) -> Markup:
    """A sentence with `code` between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def lead(text: str) -> str:
    """The first sentence of an answer, or its first clause where that is enough."""
    return re.split(r"(?<=[^\d])\. |; ", text, maxsplit=1)[0].rstrip(".") + "."


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _link(source: str, output: Path) -> str:
    """A link from the page to the line, relative; empty where the file is not here."""
    path, _, line = source.partition(":")
    if not (CHECKOUT / path).is_file():
        return ""
    relative = os.path.relpath(CHECKOUT / path, output.resolve())
    return f"{Path(relative).as_posix()}#L{line}"


def _page(
    runs: Sequence[RunData],
    summaries: Sequence[Summary],
    sections: list[Section],
    absent: list[tuple[Question, str]],
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"marked": marked, "lead": lead}
    tally = {
        verdict: asked
        for verdict in (*MARKS, "runs differ")
        if (asked := [s.question for s in sections if s.verdict == verdict])
    }
    return environment.get_template("page.html.j2").render(
        summaries=summaries,
        groups=[(g, [s for s in sections if s.question.group == g]) for g in GROUPS],
        tally=tally,
        first=[s for s in sections if s.question.asked_first and s.verdict != "not measured"],
        absent=absent,
        marks=MARKS,
        properties=_properties(runs),
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        js=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        anchor=_anchor,
    )


def _properties(runs: Sequence[RunData]) -> list[tuple[str, list[str]]]:
    """Every field of every device and environment, with a value a run."""
    found: list[dict[str, Any]] = []
    for data in runs:
        header = data.recording.files[0].run
        found.append(
            {
                **data.device,
                **header.environment,
                "sources": header.sources,
                "commit": header.commit or "not a git checkout",
            }
        )
    names = dict.fromkeys(name for properties in found for name in properties)
    return [(name, [_property(p.get(name)) for p in found]) for name in names]


def _property(value: Any) -> str:
    """A property as it is; large whole numbers in groups of three, an error by its name."""
    if value is None:
        return ""
    if isinstance(value, dict):
        if "error" in value:
            return f"({value['error']})"
        return ", ".join(f"{name} {_property(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_property, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) or value.is_integer() else f"{value:g}"
