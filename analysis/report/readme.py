"""The README's figures: drawn from the recorded run, and checked by digests of their data."""

from __future__ import annotations

import json
from pathlib import Path

from analysis import plots
from analysis.report.question import Plot, RunData, questions
from results.store import Recording

DIGESTS = "digests.json"


def write(recording: Recording, folder: Path) -> list[str]:
    """Draw each figure into `folder` as SVG and PNG, with digests.json; return their names."""
    drawn = _plots(recording)
    with plots.theme():
        for name, plot in drawn.items():
            plots.save(plot.draw(plot.data), folder / name)
    text = json.dumps(_digests(drawn), indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DIGESTS).write_text(text, encoding="utf-8")
    return list(drawn)


def stale(recording: Recording, folder: Path) -> list[str]:
    """What is not up to date in `folder`, a line each; empty where everything is."""
    path = folder / DIGESTS
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    now = _digests(_plots(recording))
    found = [
        f"{path.parent / name}.svg shows other data than {recording.name}"
        for name, value in now.items()
        if stored.get(name) != value
    ]
    found += [
        f"{path.parent / name}.svg has no question" for name in sorted(set(stored) - set(now))
    ]
    for name in now:
        files = [folder / f"{name}{suffix}" for suffix in (".svg", ".png")]
        found += [f"{file} is missing" for file in files if not file.is_file()]
    return found


def _plots(recording: Recording) -> dict[str, Plot]:
    """The first plot of every question that the README shows, by the figure's name."""
    data = RunData(recording)
    found = {}
    for question in questions():
        if question.readme and not set(question.families) - set(recording.families):
            answer = question.answer(data)
            if answer and answer.plots:
                found[question.readme] = answer.plots[0]
    return found


def _digests(drawn: dict[str, Plot]) -> dict[str, str]:
    return {name: plots.digest(plot.data) for name, plot in sorted(drawn.items())}
