"""sanitize: compute-sanitizer over `python -m bench check`, and over planted faults.

Every kernel must be clean under memcheck, racecheck, initcheck and synccheck; each planted fault
must be reported as it is expected to be, or the silence elsewhere would prove nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bench import families
from kernels.races import FAULTS, Fault
from results.errors import UserError
from results.shell import Parser, guarded

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
RACY = ("exchange",)
"""Families with races on purpose: racecheck runs on their kernels as planted faults instead."""
REMEDY = "pip install 'cuda-toolkit[sanitizer]==13.0.*', or put the CUDA toolkit's bin on PATH"
TIMEOUT_S = 600
JOBS = 8
"""Runs at a time: a tool keeps one core busy and the device hardly at all."""
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Findings:
    """What one run of a tool reported. `complete` is False where its summary is missing."""

    errors: int
    warnings: int
    first: str
    complete: bool = True

    @property
    def verdict(self) -> str:
        """clean, warning or error, as faults expect it."""
        if not self.complete:
            return "incomplete"
        return "error" if self.errors else "warning" if self.warnings else "clean"


def parse(output: str) -> Findings:
    """Findings in a tool's output.

    The summary is `ERROR SUMMARY: 3 errors` or `RACECHECK SUMMARY: 2 hazards displayed (1
    error, 1 warning)`; a report begins with `========= Error:`, `Warning:` or `Invalid`.
    """
    race = re.search(r"RACECHECK SUMMARY: .*\((\d+) errors?, (\d+) warnings?\)", output)
    plain = re.search(r"ERROR SUMMARY: (\d+) errors?", output)
    reports = re.search(
        r"^=+ ((?:Error:|Warning:|Invalid|Uninitialized|Barrier) ?.*)", output, re.M
    )
    first = reports.group(1).strip() if reports else ""
    if race:
        return Findings(int(race.group(1)), int(race.group(2)), first)
    if plain:
        return Findings(int(plain.group(1)), 0, first)
    return Findings(0, 0, first, complete=False)


def find() -> str:
    """Path of compute-sanitizer.

    Raises:
        UserError: it is not installed.
    """
    found = shutil.which("compute-sanitizer") or _in_packages()
    if found is None:
        raise UserError(f"compute-sanitizer is not installed: {REMEDY}")
    return found


def _in_packages() -> str | None:
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:
        return None
    return find_nvidia_binary_utility("compute-sanitizer")


def run_tool(sanitizer: str, tool: str, command: Sequence[str]) -> tuple[Findings, str]:
    """Run `python -m bench ...` under a tool: what it found, and the last line of our own."""
    options = ["--tool", tool, "--report-api-errors", "no", "--print-limit", "100"]
    try:
        done = subprocess.run(
            [sanitizer, *options, sys.executable, *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return Findings(0, 0, "", complete=False), f"no end within {TIMEOUT_S} s"
    own = [line for line in done.stdout.splitlines() if line and not line.startswith("=====")]
    own = own or done.stderr.strip().splitlines() or [""]
    return parse(done.stdout + done.stderr), own[-1].strip()


def sanitize(wanted: list[str] | None, show: Callable[[str], None] = print) -> int:
    """Everything; 0 where all is as expected, 2 where not.

    Raises:
        UserError: an unknown family, or no compute-sanitizer.
    """
    chosen = families.select(wanted)
    sanitizer = find()
    for family in RACY:
        if family in chosen:
            show(f"  racecheck {family}: see the planted faults")
    watched = [
        (tool, family)
        for tool in TOOLS
        for family in chosen
        if tool != "racecheck" or family not in RACY
    ]

    def clean(item: tuple[str, str]) -> Report:
        tool, family = item
        command = ["-m", "bench", "check", "--family", family]
        return _report(f"{tool} {family}", *run_tool(sanitizer, tool, command), "clean")

    def planted(fault: Fault) -> Report:
        command = ["-m", "bench.sanitize", "--fault", fault.name]
        label = f"{fault.tool} planted {fault.name}"
        return _report(label, *run_tool(sanitizer, fault.tool, command), fault.expected)

    unexpected = 0
    with ThreadPoolExecutor(JOBS) as pool:
        for report in chain(pool.map(clean, watched), pool.map(planted, FAULTS.values())):
            show(report.text)
            unexpected += not report.good
    show(f"{unexpected} unexpected")
    return 2 if unexpected else 0


@dataclass(frozen=True)
class Report:
    """One run of a tool, as lines for a person, and whether it found what it should."""

    text: str
    good: bool


def _report(label: str, found: Findings, said: str, wanted: str) -> Report:
    good = found.verdict == wanted
    counts = f"{found.errors} errors, {found.warnings} warnings"
    mark = "as expected" if good else f"UNEXPECTED, should be {wanted}"
    first = f"\n      {found.first}" if found.first else ""
    return Report(f"  {label}: {found.verdict} ({counts}): {mark}; {said}{first}", good)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; `--fault NAME` runs one planted fault, which is what the sanitizer watches."""
    return guarded(lambda: _command(arguments))


def _command(arguments: Sequence[str] | None) -> int:
    parser = Parser(prog="python -m bench.sanitize", description=__doc__)
    parser.add_argument("--family", nargs="*", help="families to check; all where left out")
    parser.add_argument("--fault", choices=FAULTS, help="run this planted fault and nothing else")
    options = parser.parse_args(arguments)
    if options.fault:
        print(FAULTS[options.fault].run())
        return 0
    return sanitize(options.family)


if __name__ == "__main__":
    sys.exit(main())
