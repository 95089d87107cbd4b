"""profile: Nsight Compute over `python -m bench check`, each case's launches counted once.

Counters are kept beside the run that they explain. Under a profiler a launch is replayed many
times, alone and with flushed caches: its time is there to be compared with ours, not to replace it.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Timer

from bench import device, environment, families, nsight, watching
from results import counters
from results.counters import FamilyCounters
from results.errors import UserError
from results.store import resolve

NOT_PROFILED = {
    "branch": "its kernels may never end and run in processes of their own",
    "launch": "its kernels are empty, and what it measures is the host",
}
"""Families that counters say nothing about, with the reason."""
FAMILY_SECONDS = 240
"""No further case of a family is begun after so long; a case takes about 0.2 s a launch."""
ENDED_SECONDS = 120
"""How much longer a family may take before it is ended."""
TROUBLE = (": failed: ", " left out: ")
"""In lines of `bench check` about cases that were wrong or raised, or that time left out."""


@dataclass(frozen=True)
class Tool:
    """The profiler on this machine, and what it is asked for."""

    path: str
    version: str
    metrics: dict[str, str]
    """Counter -> metric."""


def profile(
    wanted: list[str] | None,
    index: int,
    which: str,
    run: str,
    output: Path | None,
    show: Callable[[str], None] = print,
) -> int:
    """Profile families and write `<output>/counters/`; 0, or 2 where one is not whole.

    Args:
        wanted: families, or None for all.
        index: CUDA device.
        which: the profile whose cases are run.
        run: the run that the counters belong to, as results.store.resolve takes it.
        output: a folder instead of that run's.

    Raises:
        UserError: no usable device, no profiler, no permission, no such run or family.
    """
    chosen = families.select(wanted)
    device.usable(index)
    beside = output or _folder(resolve(run))
    tool = _tool(index, show)
    name = str(device.snapshot(index)["name"])
    problems = 0
    for family in chosen:
        if reason := NOT_PROFILED.get(family):
            show(f"{family}: not profiled: {reason}")
            continue
        found = _family(tool, family, which, index, name, beside / counters.FOLDER, show)
        path = counters.save(beside / counters.FOLDER, found)
        show(f"{family}: counters of {len(found.cases)} cases in {path}")
        for problem in found.problems:
            show(f"  {problem}")
        problems += bool(found.problems)
    return 2 if problems else 0


def _folder(run: Path) -> Path:
    return run if run.is_dir() else run.parent


def _tool(index: int, show: Callable[[str], None]) -> Tool:
    path = nsight.find()
    names = nsight.known(path, index)
    metrics = nsight.choose(names) or nsight.choose(set())
    missing = [name for name in counters.COUNTERS if name not in metrics]
    if missing:
        show(f"not to be had on this GPU or with this profiler: {', '.join(missing)}")
    if not names:
        show("the profiler did not tell which metrics it knows: all are asked for")
    return Tool(path, nsight.version(path), metrics)


def _family(
    tool: Tool,
    family: str,
    which: str,
    index: int,
    name: str,
    folder: Path,
    show: Callable[[str], None],
) -> FamilyCounters:
    """Profile one family, keep the profiler's output, and read it."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "ncu.csv"
        program = [sys.executable, "-m", "bench", "check", "--family", family]
        program += ["--profile", which, "--device", str(index), "--seconds", str(FAMILY_SECONDS)]
        said = _run(nsight.command(tool.path, tool.metrics.values(), log, program), show)
        text = log.read_text(errors="replace") if log.exists() else ""
    _keep(folder / f"{family}.csv.gz", text)
    if "ERR_NVGPUCTRPERM" in text:
        raise UserError(nsight.NO_PERMISSION)
    found = nsight.parse(text)
    unnamed = sum(launch.case is None for launch in found.launches)
    if unnamed:
        said.append(f"{unnamed} launches bear no case's name: is NVTX switched off?")
    return FamilyCounters(
        schema=counters.SCHEMA,
        family=family,
        profile=which,
        device=name,
        profiler=tool.version,
        cache="flushed",
        metrics=tool.metrics,
        sources=environment.sources_digest(),
        cases=nsight.add_up(found.launches, tool.metrics),
        problems=[*found.problems, *said],
    )


def _run(command: list[str], show: Callable[[str], None]) -> list[str]:
    """Run it and pass on what it prints; what went wrong, a line each."""
    unbuffered = {**nsight.environment(), "PYTHONUNBUFFERED": "1"}
    child = watching.start(command, subprocess.STDOUT, unbuffered)
    limit = FAMILY_SECONDS + ENDED_SECONDS
    overdue = Event()

    def end() -> None:
        overdue.set()
        watching.end(child)

    timer = Timer(limit, end)
    timer.start()
    problems = []
    try:
        for line in child.stdout or ():
            show(line.rstrip())
            if any(word in line for word in TROUBLE):
                problems.append(line.strip())
        child.wait()
    except BaseException:
        end()
        raise
    finally:
        timer.cancel()
    if overdue.is_set():
        problems.append(f"ended after {limit:.0f} s, before it had written its counters")
    return problems


def _keep(path: Path, text: str) -> None:
    """Store the profiler's own words: what is read from them may be read otherwise one day."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; name a folder that you may write to with "
            "--output"
        ) from None
