"""A run's cases that feed the models, and values read off them with their uncertainty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, stdev

import pandas as pd

from analysis import frame as frames
from analysis.model.value import Value
from results.errors import UserError
from results.store import Recording

FEEDS = frozenset(
    {
        ("occupancy", "calibration"),
        ("occupancy", "calibration_axpy"),
        ("mixed", "calibration"),
        ("loaded_latency", "probe"),
        ("memory", "chase"),
        ("launch", "numba"),
        ("launch", "blocks"),
        ("schedule", "timeline"),
        ("instruction", "streams"),
        ("axpy", "cuda_float4"),
    }
)
"""(family, kernel) of everything that is read here. None of it is ever scored."""


@dataclass(frozen=True)
class Source:
    """A run's feeding cases: merged over processes, and process by process."""

    recording: Recording
    table: pd.DataFrame
    each: list[pd.DataFrame]

    def number(self, field: str) -> float:
        """A number of the device snapshot. UserError: the run does not know it."""
        value = self.recording.device.get(field)
        if not isinstance(value, int | float):
            raise UserError(f"{self.recording.name} does not know its GPU's {field}: record again")
        return float(value)

    def value(
        self, of: Callable[[pd.DataFrame], float | None], unit: str, source: str
    ) -> Value | None:
        """`of` the merged table, with its spread over processes. None: it has no such cases."""
        centre = of(self.table)
        if centre is None:
            return None
        return Value(float(centre), spread([of(rows) for rows in self.each]), unit, source)


def feeding(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a run's frame that may be read here."""
    names = pd.MultiIndex.from_frame(table[["family", "kernel"]])
    rows = table[names.isin(FEEDS) & (table["status"] == "ok")]
    # what other kernels alone have is left out here, once, and not at each look
    kept = [name for name in rows if name in frames.RESERVED or rows[name].notna().any()]
    return rows[kept]


def spread(values: list[float | None]) -> float:
    """Relative standard deviation of what is known; 0 of fewer than two."""
    known = [value for value in values if value is not None]
    return stdev(known) / median(known) if len(known) > 1 else 0.0


def sm_clock(table: pd.DataFrame) -> float | None:
    """Hz, while the calibration ran."""
    clocks = frames.only(table, "occupancy", "calibration")["sm_clock"].dropna()
    return float(clocks.median()) if len(clocks) else None
