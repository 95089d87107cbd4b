"""Nsight Compute: where it is, which metrics it knows, and what its CSV output says."""

from __future__ import annotations

import csv
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum, isfinite
from pathlib import Path

from results.counters import COUNTERS, CaseCounters
from results.errors import UserError

PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")
"""Where NVIDIA's packages put it without a word to PATH."""
NOT_FOUND = (
    "Nsight Compute (ncu) is not installed: take it from the CUDA toolkit's packages "
    "(nsight-compute) and put it on PATH; everything but 'profile' works without it"
)
NO_PERMISSION = (
    "the driver shows this user no counters (ERR_NVGPUCTRPERM): run as root, start a container "
    "with '--cap-add SYS_ADMIN', or set 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in "
    "/etc/modprobe.d and reboot; everything but 'profile' works without them"
)
QUERY_S = 120.0
OPTIONS = (
    *("--csv", "--page", "raw", "--print-units", "base"),
    *("--nvtx", "--profile-from-start", "off"),  # bench.marks says what is counted, and its name
    *("--target-processes", "application-only"),  # what may hang runs in children
    *("--replay-mode", "kernel"),
    *("--cache-control", "all"),  # L1 and L2 invalidated before each pass: cold, as our samples
    *("--clock-control", "none"),  # the GPU's clocks are left as they are
)
UNITS = {
    **dict.fromkeys(("byte", "second", "s", "cycle", "inst", "warp", "sector", "request", ""), 1.0),
    **dict.fromkeys(("nsecond", "ns"), 1e-9),
    **dict.fromkeys(("usecond", "us"), 1e-6),
    **dict.fromkeys(("msecond", "ms"), 1e-3),
    **{f"{prefix}byte": 1e3**power for power, prefix in enumerate("KMGT", 1)},
}
"""Its units, old and new spelling, in ours; of a count the name says nothing more."""
NUMBER = re.compile(r"[-+]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][-+]?\d+)?")
LABEL = re.compile(r'\w+/\w+\[[^\]"]*\]')
KERNEL = "Kernel Name"
RANGES = "Push/Pop_Range"
"""In the name of the column that lists the NVTX ranges around a launch, outermost first."""


@dataclass(frozen=True)
class Launch:
    """One profiled launch: its kernel, the case it belongs to, and its metrics in SI units."""

    kernel: str
    case: str | None
    """None where no range names a case."""
    metrics: dict[str, float]
    """By the profiler's names; one that it could not read is absent."""


@dataclass(frozen=True)
class Output:
    """What an output held. `problems` says, a line each, what it lacks."""

    launches: list[Launch] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def find() -> str:
    """Path of ncu.

    Raises:
        UserError: it is not installed.
    """
    if found := shutil.which("ncu"):
        return found
    installed = [path for place in PLACES for path in Path(place).glob("**/ncu")]
    usable = sorted(str(path) for path in installed if os.access(path, os.X_OK))
    if not usable:
        raise UserError(NOT_FOUND)
    return usable[-1]


def version(ncu: str) -> str:
    """`2025.3.1.0`, or `unknown` where it does not tell."""
    found = re.search(r"Version (\d[\d.]*)", _ask(ncu, "--version"))
    return found.group(1) if found else "unknown"


def known(ncu: str, index: int) -> set[str]:
    """Names of the metrics that it knows for the device, without their suffixes; empty where it
    does not tell.

    Raises:
        UserError: this user may not read counters.
    """
    output = _ask(ncu, "--query-metrics", "--devices", str(index))
    if "ERR_NVGPUCTRPERM" in output:
        raise UserError(NO_PERMISSION)
    return set(re.findall(r"^(\w+__\w+)\s", output, re.M))


def choose(names: set[str]) -> dict[str, str]:
    """Counter -> the metric to ask for. One unknown name would end the whole run, so those that
    the profiler does not know are left out; all are asked for where it did not tell."""
    chosen = {}
    for counter in COUNTERS.values():
        for metric in counter.metrics:
            if not names or metric.partition(".")[0] in names:
                chosen[counter.name] = metric
                break
    return chosen


def command(ncu: str, metrics: Iterable[str], log: Path, program: Sequence[str]) -> list[str]:
    """The call that profiles `program` and writes CSV to `log`."""
    return [ncu, *OPTIONS, "--metrics", ",".join(metrics), "--log-file", str(log), *program]


def environment() -> dict[str, str]:
    """Ours, with numbers written the C way: 1234.5, whatever this user's language."""
    return {**os.environ, "LC_ALL": "C"}


def parse(text: str) -> Output:
    """The launches of a raw page: a column a metric, a row a launch.

    Everything around the table (`==PROF==` lines, what the program printed) is passed over. Of an
    output that was cut off, the last case is left out, for launches of it may be missing.
    """
    *lines, torn = text.split("\n")
    problems = [
        line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")
    ]
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        return Output(problems=[*problems, "the profiler wrote no table"])
    try:
        header, *body = csv.reader(line for line in lines[start:] if line.startswith('"'))
    except csv.Error as error:
        return Output(problems=[*problems, f"its table is no CSV: {error}"])
    if KERNEL not in header:
        return Output(problems=[*problems, f"its table has no column '{KERNEL}'"])
    whole = itertools.takewhile(lambda row: len(row) == len(header), body)
    rows = [dict(zip(header, row, strict=True)) for row in whole]
    launches = _launches(rows, header)
    if torn or len(rows) < len(body):
        problems.append("its table is cut off; the last case is left out")
        last = launches[-1].case if launches else None
        launches = [launch for launch in launches if launch.case != last]
    if not launches:
        problems.append("no launch was profiled")
    return Output(launches, problems)


def _launches(rows: list[dict[str, str]], header: list[str]) -> list[Launch]:
    """The first row holds units, in the columns of metrics only."""
    if not rows or rows[0]["ID"]:
        return []
    units, rows = rows[0], rows[1:]
    metrics = [name for name in header if "__" in name]
    return [_launch(row, {name: (row[name], units[name]) for name in metrics}) for row in rows]


def _launch(row: dict[str, str], metrics: dict[str, tuple[str, str]]) -> Launch:
    ranges = " ".join(text for name, text in row.items() if RANGES in name)
    labels = LABEL.findall(ranges)
    read = {name: _number(text, unit) for name, (text, unit) in metrics.items()}
    return Launch(
        row[KERNEL],
        labels[-1] if labels else None,
        {name: value for name, value in read.items() if value is not None},
    )


def _number(text: str, unit: str) -> float | None:
    """`1,234.5` in thousands of bytes as 1234500.0; None for `n/a` and everything else."""
    text = text.strip()
    if not NUMBER.fullmatch(text) or (unit not in UNITS and unit[-4:] in ("byte", "cond")):
        return None
    value = float(text.replace(",", "")) * UNITS.get(unit, 1.0)
    return value if isfinite(value) and value >= 0 else None


def add_up(launches: Iterable[Launch], metrics: dict[str, str]) -> list[CaseCounters]:
    """The launches of each case together, in the order of their first.

    A counter that one launch of a case lacks is left out for that case: its sum is not known.
    """
    cases: dict[str, list[Launch]] = {}
    for launch in launches:
        if launch.case is not None:
            cases.setdefault(launch.case, []).append(launch)
    return [
        CaseCounters(
            name,
            [launch.kernel for launch in members],
            {
                counter: fsum(launch.metrics[metric] for launch in members)
                * COUNTERS[counter].factor
                for counter, metric in metrics.items()
                if all(metric in launch.metrics for launch in members)
            },
        )
        for name, members in cases.items()
    ]


def _ask(ncu: str, *arguments: str) -> str:
    """What it prints. What it cannot do shows in the text.

    Raises:
        UserError: it does not start, or does not end.
    """
    try:
        done = subprocess.run(
            [ncu, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=QUERY_S,
            env=environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{ncu} does not run ({error}): install Nsight Compute anew") from None
    return done.stdout + done.stderr
