"""A run as a tidy pandas DataFrame: one row a case, or one row a case and process.

Columns: `family`, `kernel`, `params` (dict), `status`, `reason`, `peer`, `launch` (dict), `work`
(dict), `cache_resident`, `source`, `summary`, `median_seconds`, one for each scalar metric of
`results.metrics`, one for each parameter (absent: NaN). `frame` adds `spread` and `processes`,
`processes` adds `process`. The metrics are those of `results.metrics.derive`, all in SI units.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from os import PathLike
from statistics import median
from types import ModuleType
from typing import Any

import msgspec
import pandas as pd

from results.errors import UserError
from results.metrics import METRICS, derive
from results.schema import Case, key
from results.store import Recording, load

SCALARS = [name for name, metric in METRICS.items() if not metric.vector]
NUMBERS = ["median_seconds", *SCALARS]
TEXTS = ["family", "kernel", "params", "status", "reason", "peer", "launch", "work"]
COLUMNS = [*TEXTS, "cache_resident", "source", "summary", *NUMBERS]
RESERVED = {*COLUMNS, "spread", "processes", "process"}

RunLike = str | PathLike[str] | Recording


def frame(run: RunLike) -> pd.DataFrame:
    """One row a case of `run` (a path, a baseline's name, or a loaded recording).

    `median_seconds` is the median over the processes' medians and `spread` their range over it;
    every metric is the median over processes; `processes` counts those in which the case was ok.

    A case that failed in any process is `failed` and has no number, for a wrong answer is never
    one. Else it is `ok` where any process measured it, else `throttled`, else `skipped`. `reason`
    says what each process that was not ok reported, so an `ok` row may have one too.

    Raises:
        UserError: the run cannot be read, or a parameter bears the name of another column.
    """
    merged: dict[Any, list[dict[str, Any]]] = {}
    for name, row in _rows(run):
        merged.setdefault(name, []).append(row)
    return _table([_merge(rows) for rows in merged.values()], ["spread", "processes"])


def processes(run: RunLike) -> pd.DataFrame:
    """One row a (process, case), with the column `process`; only ok cases have numbers.

    Raises:
        UserError: as for frame.
    """
    return _table([row for _, row in _rows(run)], ["process"])


def vectors(run: RunLike, family: str, kernel: str | None = None) -> list[tuple[int, Case]]:
    """(process, case) of every ok case of a family, for readings over threads, blocks or SMs.

    Raises:
        UserError: the run cannot be read.
    """
    return [
        (file.run.process, case)
        for file in _recording(run).files
        for case in file.cases
        if case.status == "ok" and case.family == family and kernel in (None, case.kernel)
    ]


def only(table: pd.DataFrame, family: str, *kernels: str, status: str = "ok") -> pd.DataFrame:
    """Rows of a family (and of some of its kernels) with that status.

    Columns that are empty there are dropped, save the metrics; whole numbers become integers.
    """
    rows = table[(table["family"] == family) & (table["status"] == status)]
    if kernels:
        rows = rows[rows["kernel"].isin(kernels)]
    rows = rows[[c for c in rows if c in RESERVED or rows[c].notna().any()]].copy()
    # A parameter that is a text in another family ("full") leaves numbers as objects here.
    free = [column for column in rows if column not in RESERVED]
    rows[free] = rows[free].infer_objects()
    for column in free:
        values = rows[column]
        if pd.api.types.is_float_dtype(values) and values.notna().all():
            whole = values.astype("int64")
            if (whole == values).all():
                rows[column] = whole
    return rows


def problems(recording: Recording, table: pd.DataFrame) -> list[str]:
    """What is not whole about a run, a line each: torn files, dead families, cases without number.

    `table` is its frame. A skipped case is none: its reason says what this GPU cannot do.
    """
    lost = table[table["status"].isin(["failed", "throttled"])]
    return recording.problems + [
        f"{row['family']}/{row['kernel']} {row['params']} {row['status']}: {row['reason']}"
        for row in lost.to_dict("records")
    ]


def _recording(run: RunLike) -> Recording:
    return run if isinstance(run, Recording) else load(run)


def _rows(run: RunLike) -> Iterable[tuple[Any, dict[str, Any]]]:
    """(key, row) of every case of every process, in the order of the files."""
    for file in _recording(run).files:
        for case, metrics in zip(file.cases, derive(file.cases, file.run.device), strict=True):
            if clash := RESERVED & case.params.keys():
                raise UserError(
                    f"{file.path.name}: {case.family}/{case.kernel} has a parameter named "
                    f"{', '.join(sorted(clash))}, which is the name of a column or a metric; "
                    "rename the parameter and record again"
                )
            yield key(case), _row(case, metrics, file.run.process)


def _row(case: Case, metrics: dict[str, float], process: int) -> dict[str, Any]:
    row = {
        "family": case.family,
        "kernel": case.kernel,
        "params": dict(case.params),
        "status": case.status,
        "reason": case.reason,
        "peer": case.peer,
        "launch": _plain(case.launch),
        "work": _plain(case.work),
        "cache_resident": case.cache_resident,
        "source": case.source,
        "summary": case.summary,
        "process": process,
        **case.params,
    }
    if case.status == "ok":
        row |= metrics
        if case.samples and case.samples.time_s:
            row["median_seconds"] = median(case.samples.time_s)
    return row


def _plain(part: msgspec.Struct | None) -> dict[str, Any]:
    return msgspec.to_builtins(part) if part is not None else {}


def _merge(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = {row["status"] for row in rows}
    status = next(s for s in ("failed", "ok", "throttled", "skipped") if s in found)
    good = [row for row in rows if row["status"] == "ok"]
    merged = {**(good or rows)[0], "status": status}
    # The self-check is in every family's file, so one process may tell of a case many times.
    merged["processes"] = len({row["process"] for row in good})
    merged["reason"] = _reason(rows)
    del merged["process"]
    for name in NUMBERS:
        values = [row[name] for row in good if name in row]
        merged[name] = median(values) if values and status == "ok" else math.nan
    seconds = [row["median_seconds"] for row in good if "median_seconds" in row]
    if seconds and status == "ok" and merged["median_seconds"]:
        merged["spread"] = (max(seconds) - min(seconds)) / merged["median_seconds"]
    return merged


def _reason(rows: list[dict[str, Any]]) -> str | None:
    """Each distinct reason with the processes that gave it; these are left out where all did."""
    everywhere = {row["process"] for row in rows}
    told: dict[str, set[int]] = {}
    for row in rows:
        if row["status"] != "ok":
            told.setdefault(row["reason"] or row["status"], set()).add(row["process"])
    texts = [
        reason
        if where == everywhere
        else f"{reason} (in process {', '.join(map(str, sorted(where)))} of {len(everywhere)})"
        for reason, where in told.items()
    ]
    return "; ".join(texts) or None


def _table(rows: list[dict[str, Any]], extra: list[str]) -> pd.DataFrame:
    params = dict.fromkeys(name for row in rows for name in row["params"])
    table = pd.DataFrame(rows, columns=[*COLUMNS, *extra, *params])
    numbers = [*NUMBERS, *(name for name in extra if name == "spread")]
    return table.astype(dict.fromkeys(numbers, "float64"))


class _Callable(ModuleType):
    """`analysis.frame(RUN)` and `from analysis.frame import frame` are both promised."""

    def __call__(self, run: RunLike) -> pd.DataFrame:
        return frame(run)


sys.modules[__name__].__class__ = _Callable
