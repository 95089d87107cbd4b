"""What changed around the numbers: driver, chip, clock, temperature, packages, commit.

Two groups of headers are compared; verdict asks about two runs, history about two neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from results.schema import Run

IGNORED = {"attributes", "energy_j", "memory_used_bytes", "power_w", "compute_processes"}
"""Device fields that differ at every reading and explain nothing by themselves."""


@dataclass(frozen=True)
class Drift:
    """A quantity that is never the same twice, and the difference of medians that is worth a word.

    For a clock half the least change that a verdict calls one; 5 °C is what a GPU's temperature
    varies by between two runs of one suite.
    """

    unit: str
    scale: float
    matters: Callable[[float, float], bool]


def _half_a_percent(old: float, new: float) -> bool:
    return abs(new - old) > 0.005 * old


DRIFTS = {
    "temperature_c": Drift("°C", 1, lambda old, new: abs(new - old) >= 5),
    "sm_clock_hz": Drift("MHz", 1e-6, _half_a_percent),
    "memory_clock_hz": Drift("MHz", 1e-6, _half_a_percent),
}


@dataclass(frozen=True)
class Change:
    """One thing that is not the same on both sides."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name} {self.old} → {self.new}"


def changes(old: Sequence[Run], new: Sequence[Run]) -> list[Change]:
    """What the headers of two sides do not share: code first, then software, then the device.

    A field that one side lacks counts as absent; drifting quantities are named where their
    medians are apart by more than DRIFTS allows.
    """
    found = [
        _change("commit", {r.commit or "absent" for r in old}, {r.commit or "absent" for r in new}),
        _change("sources", {r.sources for r in old}, {r.sources for r in new}),
        _change("profile", {r.profile for r in old}, {r.profile for r in new}),
    ]
    for name in _names(run.environment for run in (*old, *new)):
        before, after = ({run.environment.get(name) for run in side} for side in (old, new))
        found.append(_change(name, before, after))
    for name in _names(run.device for run in (*old, *new)):
        if name in DRIFTS:
            found.append(_drift(name, DRIFTS[name], old, new))
        elif name not in IGNORED:
            found.append(_change(name, *(_answers(name, side) for side in (old, new))))
    return [change for change in found if change is not None]


def _names(tables: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in table))


def _answers(name: str, side: Sequence[Run]) -> set[str | None]:
    return {_plain(run.device.get(name)) for run in side}


def _plain(value: Any) -> str | None:
    if isinstance(value, dict):  # {"error": name}: the field could not be read
        return f"unknown ({value.get('error')})"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return None if value is None else str(value)


def _change(name: str, old: set[str | None], new: set[str | None]) -> Change | None:
    return None if old == new else Change(name, _spell(old), _spell(new))


def _spell(values: set[str | None]) -> str:
    return " or ".join(sorted(value or "absent" for value in values))


def _drift(name: str, drift: Drift, old: Sequence[Run], new: Sequence[Run]) -> Change | None:
    sides = [
        [value for run in side if isinstance(value := run.device.get(name), int | float)]
        for side in (old, new)
    ]
    if not all(sides):
        return None
    before, after = (median(side) for side in sides)
    if not drift.matters(before, after):
        return None
    return Change(name, *(f"{value * drift.scale:.0f} {drift.unit}" for value in (before, after)))
