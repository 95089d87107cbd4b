"""Resident blocks by the rules, by the driver, and as seen on the SMs: do the three agree?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots
from analysis.occupancy import resident
from analysis.report.question import Answer, Plot, Question, RunData
from results.errors import UserError
from results.schema import Case, key

VECTORS = ("threads", "registers", "static_smem", "dynamic_smem", "blocks")
"""What the driver was asked and what it said: the metrics driver_<name>."""
REFERENCE = Path(__file__).parents[2] / "results" / "reference"
RULES = ("occupancy-cases.csv", "occupancy-rules.csv")
"""Launches on chips of every compute capability with the answers of NVIDIA's cuda_occupancy.h."""


@dataclass(frozen=True)
class Agreement:
    """How often two of the three answers were the same."""

    what: str
    things: str
    equal: int
    of: int
    differing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.what} {self.equal:,} of {self.of:,} {self.things}"


def agreement(data: RunData) -> Answer | None:
    """The calculator against NVIDIA's rules and against the driver, and the driver against what was
    seen on the SMs."""
    cc = _cc(data)
    launches = _driver_launches(data).assign(cc=cc)
    if cc is None or launches.empty:
        return None
    found = [
        _calculated(
            "the calculator equals NVIDIA's published rules on",
            "reference launches",
            _reference_launches(),
        ),
        _calculated("the driver on", "random launches", launches),
    ]
    recorded = _recorded_launches(data).assign(cc=cc)
    if not recorded.empty:
        found.append(_calculated("and on", "launches that were measured", recorded))
    seen = _observed(data)
    if seen.of:
        found.append(seen)
    limiters = Counter(
        " and ".join(_rule(row)[1]).replace("_", " ") for row in launches.to_dict("records")
    )
    whole = all(count.equal == count.of for count in found)
    differing = [text for count in found for text in count.differing][:3]
    text = (
        "As many as the scarcest of registers, shared memory, warps and block places allows: "
        + ", ".join(map(str, found))
        + ("" if whole else f". Differing are {', '.join(differing)}")
    )
    table = pd.DataFrame([{"comparison": f.what, "equal": f.equal, "of": f.of} for f in found])
    shown = launches.assign(calculated=[_rule(row)[0] for row in launches.to_dict("records")])
    shown = shown.groupby(["calculated", "blocks"]).size().reset_index(name="launches")
    return Answer(
        text=text + ".",
        verdict="confirmed" if whole else "contradicted",
        plots=(
            Plot(
                _draw_agreement,
                shown,
                "Resident blocks by the driver against those by the rules, for random launches",
            ),
        ),
        method="The calculator knows the rules and asks nobody; reference launches are for every "
        "compute capability from 5.0 on, with the answers of NVIDIA's cuda_occupancy.h; the driver "
        "is asked for kernels of several register counts, with random block sizes and shared "
        "memory; a block notes its SM and when it starts and stops, and most at once on one SM is "
        "what was observed. What held "
        f"the random launches down: {_tell(limiters)}. "
        "Grids too small to fill all SMs do not count.",
        table=table,
        sources=data.sources("occupancy", "driver", "resident"),
    )


def _cc(data: RunData) -> str | None:
    value = data.device.get("cc")
    if isinstance(value, list | tuple):
        return ".".join(map(str, value))
    return value if isinstance(value, str) else None


def _tell(counts: Counter[str]) -> str:
    return ", ".join(f"{name or 'nothing'} {count:,}" for name, count in counts.most_common())


def _driver_launches(data: RunData) -> pd.DataFrame:
    """Launches put to the driver, each once: processes ask for the same ones."""
    tables = []
    for _, case in data.vectors("occupancy", "driver"):
        columns = {name: case.metrics.get(f"driver_{name}") for name in VECTORS}
        if all(isinstance(column, list) for column in columns.values()):
            tables.append(pd.DataFrame(columns).astype("int64"))
    if not tables:
        return pd.DataFrame(columns=VECTORS)
    return pd.concat(tables).drop_duplicates(ignore_index=True).assign(carveout=-1)


def _cases(data: RunData) -> Iterator[Case]:
    for file in data.recording.files:
        yield from (case for case in file.cases if case.status == "ok")


def _recorded_launches(data: RunData) -> pd.DataFrame:
    """Every launch of the run that was put to the driver, each once. Clusters have other rules."""
    rows = []
    for case in _cases(data):
        launch = case.launch
        if launch is None or launch.block is None or launch.cluster:
            continue
        if launch.registers is None or launch.blocks_per_sm is None:
            continue
        carveout = case.params.get("carveout", -1)
        static, dynamic = launch.static_smem or 0, launch.dynamic_smem or 0
        shape = (prod(launch.block), launch.registers, static, dynamic, launch.blocks_per_sm)
        rows.append((*shape, int(carveout)))
    return pd.DataFrame(rows, columns=[*VECTORS, "carveout"]).drop_duplicates(ignore_index=True)


def _reference_launches() -> pd.DataFrame:
    tables = [pd.read_csv(REFERENCE / name, comment="#", dtype={"cc": str}) for name in RULES]
    rows = pd.concat(tables).rename(columns={"regs": "registers"})
    return rows.fillna({"carveout": -1, "barriers": 1})


def _rule(row: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    try:
        return resident(
            row["cc"],
            row["threads"],
            row["registers"],
            row["static_smem"],
            row["dynamic_smem"],
            None if row["carveout"] < 0 else int(row["carveout"]),
            int(row.get("barriers", 1)),
        )
    except UserError:
        return -1, ("unknown compute capability",)


def _calculated(what: str, things: str, launches: pd.DataFrame) -> Agreement:
    """The calculator's blocks against those that each launch has beside it."""
    rows = launches.to_dict("records")
    wrong = [row for row in rows if _rule(row)[0] != row["blocks"]]
    return Agreement(
        what,
        things,
        len(rows) - len(wrong),
        len(rows),
        tuple(
            f"{row['threads']} threads, {row['registers']} registers, "
            f"{row['static_smem'] + row['dynamic_smem']} B on a {row['cc']}: calculated "
            f"{_rule(row)[0]}, not {row['blocks']}"
            for row in wrong
        ),
    )


def _observed(data: RunData) -> Agreement:
    """Points of the sweeps at which every sample of every process saw as many blocks on an SM as
    the driver says. A grid that is too small to fill all SMs tells nothing."""
    sms = data.number("sms") or 0
    differing: dict[object, str | None] = {}
    for case in _cases(data):
        seen = case.metrics.get("resident_blocks")
        if seen is None or case.launch is None or case.launch.blocks_per_sm is None:
            continue
        if case.launch.grid and prod(case.launch.grid) < sms * case.launch.blocks_per_sm:
            continue
        samples = set(seen if isinstance(seen, list) else [seen])
        differing.setdefault(key(case), None)
        if samples != {float(case.launch.blocks_per_sm)}:
            seen_text = "/".join(f"{value:.0f}" for value in sorted(samples))
            differing[key(case)] = (
                f"{case.kernel} {case.params}: seen {seen_text}, driver {case.launch.blocks_per_sm}"
            )
    wrong = tuple(text for text in differing.values() if text)
    return Agreement(
        "and the blocks seen at once on an SM are the driver's at",
        "points of the sweeps",
        len(differing) - len(wrong),
        len(differing),
        wrong,
    )


def _draw_agreement(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=4.2)
    most = float(max(rows["calculated"].max(), rows["blocks"].max()))
    plots.model(axes, [0, most], [0, most], "equal")
    axes.scatter(
        rows["calculated"],
        rows["blocks"],
        s=12 + 90 * rows["launches"] / rows["launches"].max(),
        color=plots.BLUE,
        label="launches (area: how many)",
        zorder=3,
    )
    axes.set(xlabel="resident blocks an SM by the rules", ylabel="by the driver")
    plots.legend(axes)
    return figure


QUESTIONS = (
    Question(
        12,
        "How many blocks are resident on an SM?",
        ("occupancy",),
        agreement,
        claim="The blocks resident on an SM are as many as the scarcest of registers, shared "
        "memory, warps and block places allows.",
    ),
)
