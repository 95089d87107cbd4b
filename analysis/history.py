"""Many runs in time: each case's series on each GPU model, and where its level changed.

A thousand runs are gigabytes of samples: here only what a median needs is decoded, in as many
processes as there are cores, and one number a run and case is kept.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Literal

import msgspec

from analysis.accepted import Acceptance
from analysis.change_points import NEEDED, change_points
from analysis.provenance import IGNORED, Change, changes
from analysis.readings import GATED, Key, label
from results import schema
from results.errors import UserError
from results.metrics import scalar
from results.schema import SCHEMA, End, Run, Seconds, schema_of
from results.store import File, load

Number = tuple[Key, str, float]
"""A case, what it is judged in, and its value in one process."""
POOL_FROM = 40
"""Runs from which worker processes pay for their start."""
BETTER: dict[str, Literal["lower", "higher"]] = {
    "time": "lower",
    **{metric.name: metric.better for metric in GATED if metric.better},
}
INSIDE = [metric.name for metric in GATED]
UNITS = {**{metric.name: metric.unit for metric in GATED}, "time": "s"}


class _Samples(msgspec.Struct, gc=False):
    time_s: list[Seconds]


_Metrics = msgspec.defstruct(
    "_Metrics",
    [(metric.name, float | schema.Vector | None, None) for metric in GATED],
)


class _Case(msgspec.Struct, tag_field="kind", tag="case", gc=False):
    """What a median needs of results.schema.Case. The rest of the line (launch, clocks, other
    metrics) is not decoded, and so not checked: that would double the time."""

    family: str
    kernel: str
    params: msgspec.Raw
    status: schema.Status
    samples: _Samples | None = None
    metrics: _Metrics | None = None  # type: ignore[valid-type]


_decoder: msgspec.json.Decoder[Run | _Case | End] = msgspec.json.Decoder(Run | _Case | End)


@dataclass(frozen=True)
class _File:
    """One process of one family."""

    header: Run
    numbers: list[Number]
    failed: set[Key]


@dataclass(frozen=True)
class RunLevel:
    """One run: its header and a number for each case."""

    path: Path
    header: Run
    """The first process's; `started` is what orders runs. Without the device's `attributes`."""
    values: dict[Key, tuple[str, float]]
    """Case -> what it is judged in, and the geometric mean of its process medians."""
    profiles: dict[str, str]
    """Family -> its profile; more than one are joined by "or"."""
    failed: set[Key] = field(default_factory=set)
    """Cases that failed in a process."""
    problems: list[str] = field(default_factory=list)
    """What is not whole about the run, as Recording.problems."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def gpu(self) -> str:
        return str(self.header.device.get("name"))


@dataclass(frozen=True)
class Step:
    """A change of level between two neighbouring runs of a series."""

    index: int
    """First run of the new level, in the series."""
    effect: float
    """New level over old - 1, medians."""
    slower: bool
    around: list[Change]
    """What the headers of the two runs do not share."""


@dataclass
class Series:
    """One case on one GPU model in time, under one profile: others ran before it in another."""

    gpu: str
    profile: str
    key: Key
    metric: str
    runs: list[RunLevel] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    anew: list[tuple[int, str]] = field(default_factory=list)
    """(index of a run, reason): an accepted change, at which the series starts anew."""
    failing: bool = False
    """The newest run of its family, on this GPU under this profile, has the case failing."""

    @property
    def label(self) -> str:
        return label(self.key[0], self.key[1], dict(self.key[2]))

    @property
    def where(self) -> str:
        return f"{self.gpu}, {self.profile} profile"

    @property
    def regressed(self) -> bool:
        """Whether the last thing that happened to this case is that it became slower, or fails."""
        if self.failing:
            return True
        start = self.anew[-1][0] if self.anew else 0
        return bool(self.steps) and self.steps[-1].slower and self.steps[-1].index > start


@dataclass(frozen=True)
class History:
    """Every series, the runs that could not be read, and those that are not whole."""

    series: list[Series]
    runs: int
    left_out: list[str]
    problems: list[str]

    @property
    def changed(self) -> list[Series]:
        return [series for series in self.series if series.steps]

    @property
    def short(self) -> list[Series]:
        """Series of too few runs to show a change, since the last that was accepted."""
        return [series for series in self.series if len(_pieces(series)[-1]) < NEEDED]


def history(folder: Path, accepted: Sequence[Acceptance] = ()) -> History:
    """The history of every run in `folder`, at any depth.

    Raises:
        UserError: there is no such folder, or no run in it can be read.
    """
    if not folder.is_dir():
        raise UserError(f"no folder '{folder}': name one that holds folders of runs")
    paths = sorted({path.parent for path in folder.rglob("*.jsonl")})
    with _no_search_for_cycles():
        read = _read_all(paths)
        runs = [run for run in read if isinstance(run, RunLevel)]
        left_out = [text for text in read if isinstance(text, str)]
        if not runs:
            told = f" ({left_out[0]})" if left_out else ""
            raise UserError(f"{folder} holds no run that can be read{told}; 'make bench' makes one")
        runs.sort(key=lambda run: run.header.started)
        series = _series(runs)
        newest = {
            (run.gpu, family, profile): run
            for run in runs
            for family, profile in run.profiles.items()
        }
        for one in series:
            _start_anew(one, accepted)
            points = _search(_pieces(one))
            one.steps = [_step(one, index, points) for index in points]
            one.failing = one.key in newest[one.gpu, one.key[0], one.profile].failed
    problems = [f"{run.path}: {text}" for run in runs for text in run.problems]
    return History(series, len(runs), left_out, problems)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """A history is a million objects without a cycle; looking for one takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_all(paths: Sequence[Path]) -> list[RunLevel | str]:
    """Every run, or why it cannot be read; over worker processes where they pay."""
    cores = _cores()
    if len(paths) < POOL_FROM or cores == 1:
        return [_read_or_say(path) for path in paths]
    # spawn: forking a process that runs threads (a notebook's, a test runner's) may deadlock.
    with ProcessPoolExecutor(cores, get_context("spawn"), gc.disable) as pool:
        found = pool.map(_read_or_say, paths, chunksize=max(1, len(paths) // (16 * cores)))
        import_module("ruptures")  # its 2 s pass while the workers read
        return list(found)


def _cores() -> int:
    """Cores that this process may use; not those of the machine, of which it may be lent few."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _read_or_say(path: Path) -> RunLevel | str:
    try:
        return read_run(path)
    except UserError as error:
        return str(error)


def read_run(path: Path) -> RunLevel:
    """One run's header and numbers.

    Raises:
        UserError: as for results.store.load.
    """
    files = _all_quick(path)
    problems: list[str] = []
    if files is None:
        recording = load(path)
        files, problems = [_whole(file) for file in recording.files], recording.problems
    processes: dict[tuple[Key, str], list[float]] = {}
    for file in files:
        for key, metric, value in file.numbers:
            processes.setdefault((key, metric), []).append(value)
    failed = set().union(*(file.failed for file in files))
    profiles: dict[str, set[str]] = {}
    for file in files:
        profiles.setdefault(file.header.family, set()).add(file.header.profile)
    told = {family: " or ".join(sorted(names)) for family, names in profiles.items()}
    headers = [file.header for file in files]
    first = min(headers, key=lambda header: header.started)
    device = {name: value for name, value in first.device.items() if name not in IGNORED}
    values = {
        key: (metric, geometric_mean(numbers) if len(numbers) > 1 else numbers[0])
        for (key, metric), numbers in processes.items()
    }
    header = msgspec.structs.replace(first, device=device)
    return RunLevel(path, header, values, told, failed, problems)


def _all_quick(path: Path) -> list[_File] | None:
    """Every file of a run; None where anything about one, or about all together, is unusual."""
    files = []
    for item in sorted(path.glob("*.jsonl")):
        if (file := _quick(item)) is None:
            return None
        files.append(file)
    processes = {(file.header.family, file.header.process) for file in files}
    models = {file.header.device.get("name") for file in files}
    return files if len(processes) == len(files) and len(models) == 1 else None


def _quick(path: Path) -> _File | None:
    """A whole file of this schema; None where anything is unusual, which the store then tells."""
    try:
        content = path.read_bytes()
        if schema_of(content[: content.find(b"\n")]) != SCHEMA or not content.endswith(b"\n"):
            return None
        header, *lines, end = _decoder.decode_lines(content)
        cases = [line for line in lines if isinstance(line, _Case)]
        keys = [_key(case.family, case.kernel, bytes(case.params)) for case in cases]
        unique = len(set(keys)) == len(lines)
    except (OSError, msgspec.MsgspecError, ValueError, AttributeError, TypeError):
        return None
    if not isinstance(header, Run) or not isinstance(header.device.get("name"), str):
        return None
    if not isinstance(end, End) or end.status != "ok" or not unique:
        return None
    read = (
        (
            key,
            case.status,
            msgspec.structs.astuple(case.metrics) if case.metrics else (),
            case.samples.time_s if case.samples else [],
        )
        for key, case in zip(keys, cases, strict=True)
    )
    return _told(header, read)


def _whole(file: File) -> _File:
    """The same by the store, which migrates old schemas, forgives a torn line and says the rest."""
    read = (
        (
            schema.key(case),
            case.status,
            [case.metrics.get(name) for name in INSIDE],
            case.samples.time_s if case.samples else [],
        )
        for case in file.cases
    )
    return _told(file.run, read)


def _told(header: Run, cases: Iterable[tuple[Key, str, Iterable[Any], list[float]]]) -> _File:
    """What a file's own cases say: (key, status, a value for each of INSIDE, times) of each."""
    numbers, failed = [], set()
    for key, status, inside, times in cases:
        if key[0] != header.family:
            continue
        if status == "failed":
            failed.add(key)
        elif status == "ok" and (number := _number(inside, times)):
            numbers.append((key, *number))
    return _File(header, numbers, failed)


@lru_cache(maxsize=100_000)
def _key(family: str, kernel: str, params: bytes) -> Key:
    """The key of a case. One object a key: runs that travel between processes share it."""
    return family, kernel, tuple(sorted(msgspec.json.decode(params).items()))


def _number(inside: Iterable[Any], times: list[float]) -> tuple[str, float] | None:
    """As readings.read: what the kernel measured, else the median time; None where not over 0.

    `inside` has a value or None for each of INSIDE, or nothing.
    """
    for name, value in zip(INSIDE, inside, strict=False):
        if value and (number := scalar(value)) > 0:
            return name, number
    return ("time", seconds) if times and (seconds := median(times)) > 0 else None


def _series(runs: Iterable[RunLevel]) -> list[Series]:
    found: dict[tuple[str, str, Key, str], Series] = {}
    for run in runs:
        gpu = run.gpu
        for key, (metric, value) in run.values.items():
            profile = run.profiles[key[0]]
            series = found.get((gpu, profile, key, metric))
            if series is None:
                series = found[gpu, profile, key, metric] = Series(gpu, profile, key, metric)
            series.runs.append(run)
            series.values.append(value)
    return list(found.values())


def _start_anew(series: Series, accepted: Sequence[Acceptance]) -> None:
    for item in accepted:
        if (item.gpu, item.key) == (series.gpu, series.key) and item.metric == series.metric:
            later = [i for i, run in enumerate(series.runs) if run.header.started >= item.since]
            if later and later[0] > 0:
                series.anew.append((later[0], item.reason))


def _pieces(series: Series) -> list[list[float]]:
    """The values between accepted changes."""
    edges = [0, *sorted({index for index, _ in series.anew}), len(series.values)]
    return [series.values[a:b] for a, b in itertools.pairwise(edges)]


def _search(pieces: list[list[float]]) -> list[int]:
    """Change points of every piece, as indices into the whole."""
    found, start = [], 0
    for piece in pieces:
        found += [start + index for index in change_points(piece)]
        start += len(piece)
    return found


def _step(series: Series, index: int, points: Sequence[int]) -> Step:
    edges = sorted({0, *points, *(start for start, _ in series.anew), len(series.values)})
    place = edges.index(index)
    old = median(series.values[edges[place - 1] : index])
    new = median(series.values[index : edges[place + 1]])
    slower = (new > old) == (BETTER[series.metric] == "lower")
    around = changes([series.runs[index - 1].header], [series.runs[index].header])
    return Step(index, new / old - 1, slower, around)
