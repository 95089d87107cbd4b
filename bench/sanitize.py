"""sanitize: compute-sanitizer over `python -m bench check`, and over planted faults.

Every kernel must be clean under memcheck, racecheck, initcheck and synccheck, but for those that
are faulty on purpose, which must be reported; so must each planted fault, or the silence elsewhere
would prove nothing.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from bench import device, families, watching
from kernels.races import FAULTS, GIVES_UP, ON_PURPOSE, Expected, Fault
from results.errors import UserError, in_one_line
from results.shell import Parser, guarded

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
REMEDY = "pip install 'cuda-toolkit[sanitizer]==13.0.*', or put the CUDA toolkit's bin on PATH"
TIMEOUT_S = 600
JOBS = 12
"""Runs at a time: a tool keeps one core busy and the device hardly at all."""
RUNNING: set[subprocess.Popen[str]] = set()
"""Tools that have not ended."""
PRINTED = 10_000
"""Reports that a tool may print, more than any family gives cause for."""
RAN = r"(\d+) cases on the GPU: (\d+) wrong, (\d+) skipped$"
"""The last line of `bench check` where none was left out: a tool has nothing to say of kernels that
did not run."""
ENDED, CUT = "ran: ", "the launch was ended: "
"""How a planted fault begins its line: it has come to its end, or the tool has ended it."""
RACE = r"^=+ (Error|Warning): Race reported between \w+ access at (.+)"
PLACED = r"^=+ (\S.*)\n=+ +at (.+)"
"""How a report begins: what was found and, there or on the line below, in which kernel."""


@dataclass(frozen=True)
class Findings:
    """What one run of a tool reported. `complete` is False where its summary is missing."""

    errors: int
    warnings: int
    first: str
    """The first report's own words."""
    complete: bool = True
    kernels: Mapping[str, Expected] = field(default_factory=dict)
    """The worst that was reported of each kernel, by its function's name."""
    named: int = 0
    """Reports that name a kernel."""
    failed: frozenset[str] = frozenset()
    """Kernels of which a case failed by our own check."""
    failures: int = 0
    """Cases that failed by it."""
    code: int = 0
    """Exit code of the command, negative for a signal."""

    @property
    def verdict(self) -> str:
        """clean, warning or error, as faults expect it."""
        if not self.complete:
            return "incomplete"
        return "error" if self.errors else "warning" if self.warnings else "clean"


def parse(output: str) -> Findings:
    """Findings in the output of a tool and of `bench check` under it.

    The summary is `ERROR SUMMARY: 3 errors` or `RACECHECK SUMMARY: 2 hazards displayed (1
    error, 1 warning)`.
    """
    reports = [(what.lower(), place) for what, place in re.findall(RACE, output, re.M)]
    reports += [("error", place) for _, place in re.findall(PLACED, output, re.M)]
    kernels: dict[str, Expected] = {}
    for severity, place in reports:
        name = function_name(place)
        kernels[name] = "error" if "error" in (severity, kernels.get(name)) else "warning"
    report = re.search(f"{RACE}|{PLACED}", output, re.M)
    first = report.group().splitlines()[0].lstrip("= ") if report else ""
    failed = re.findall(r"^  \w+ (\w+)\[.*\]: failed: ", output, re.M)
    # Of a process and its children each has a summary, or all have one together.
    counts = re.findall(r"RACECHECK SUMMARY: .*\((\d{1,9}) errors?, (\d{1,9}) warnings?\)", output)
    counts += [
        (many, "0") for many in re.findall(r"ERROR SUMMARY: (\d{1,9}) errors?$", output, re.M)
    ]
    summaries = re.findall(r"SUMMARY: (?!.* were not printed)", output)
    return Findings(
        errors=sum(int(errors) for errors, _ in counts),
        warnings=sum(int(warnings) for _, warnings in counts),
        first=first,
        complete=len(counts) == len(summaries) > 0 and "Internal Sanitizer Error" not in output,
        kernels=kernels,
        named=len(reports),
        failed=frozenset(failed),
        failures=len(failed),
    )


def function_name(place: str) -> str:
    """The function's own name in `kernels::meeting::programs::later[abi:v1](int)+0x60`."""
    name = re.search(r"([\w$.]+)(?:[\[(<+>]|$)", place)
    return name.group(1) if name else place


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


def under(sanitizer: str, tool: str, *arguments: str) -> list[str]:
    """The command line of `python -m arguments` under a tool."""
    options = ["--tool", tool, "--report-api-errors", "no", "--print-limit", str(PRINTED)]
    return [sanitizer, *options, sys.executable, "-m", *arguments]


def run_tool(command: Sequence[str]) -> tuple[Findings, str]:
    """Run what `under` gives: what the tool found, and the last line of our own."""
    try:
        child = watching.start(command, subprocess.PIPE)
    except OSError as error:
        raise UserError(f"{command[0]} does not run ({error.strerror}): {REMEDY}") from None
    RUNNING.add(child)
    try:
        printed, told = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        watching.end(child)
        child.communicate()
        return Findings(0, 0, "", complete=False), f"no end within {TIMEOUT_S} s"
    finally:
        RUNNING.discard(child)
    own = [line for line in printed.splitlines() if line and not line.startswith("=====")]
    own = own or told.strip().splitlines() or [""]
    return replace(parse(printed + told), code=child.returncode), own[-1].strip()


def sanitize(wanted: list[str] | None, show: Callable[[str], None] = print) -> int:
    """Everything; 0 where all is as expected, 2 where not.

    Raises:
        UserError: an unknown family, no usable GPU, or no compute-sanitizer.
    """
    chosen = families.select(wanted)
    device.usable()
    sanitizer = find()
    watched = [(tool, family) for tool in TOOLS for family in chosen]

    def checked(item: tuple[str, str]) -> Report:
        tool, family = item
        command = under(sanitizer, tool, "bench", "check", "--family", family)
        return _of_family(tool, family, command, *run_tool(command))

    def planted(fault: Fault) -> Report:
        command = under(sanitizer, fault.tool, "bench.sanitize", "--fault", fault.name)
        return _of_fault(fault, command, *run_tool(command))

    unexpected = 0
    with ThreadPoolExecutor(JOBS) as pool:
        jobs = [pool.submit(checked, item) for item in watched]
        jobs += [pool.submit(planted, fault) for fault in FAULTS.values()]
        try:
            for job in jobs:
                report = job.result()
                show(report.text)
                unexpected += not report.good
        except BaseException:  # Ctrl-C, too, which does not reach sessions of their own
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(job.done() for job in jobs):
                for child in tuple(RUNNING):
                    watching.end(child)
                time.sleep(0.05)
            raise
    show(f"{unexpected} unexpected")
    return 2 if unexpected else 0


@dataclass(frozen=True)
class Report:
    """One run of a tool, as lines for a person, and whether it found what it should."""

    text: str
    good: bool


def _of_family(
    tool: str, family: str, command: Sequence[str], found: Findings, said: str
) -> Report:
    """Good where just those kernels are reported that are faulty on purpose, and no others fail."""
    wanted = ON_PURPOSE.get((tool, family), {})
    may_fail = wanted.keys() | GIVES_UP.get((tool, family), frozenset())
    # A report that names no kernel could be anyone's.
    unnamed = found.errors + found.warnings - found.named
    seen = [f"{verdict} in {name}" for name, verdict in found.kernels.items()]
    seen += [f"{unnamed} reports without a kernel"] if unnamed > 0 else []
    seen += [f"{name} failed" for name in sorted(found.failed - may_fail)]
    ran = re.match(RAN, said)
    cases, wrong, skipped = map(int, ran.groups()) if ran else (0, 0, 0)
    if cases <= skipped or wrong != found.failures:
        seen.append("a check that did not run to its end")
    if found.code != (2 if wrong else 0):
        seen.append(f"exit code {found.code}")
    seen += [] if found.complete else ["no summary of the tool"]
    should = [f"{verdict} in {name}" for name, verdict in wanted.items()]
    label = f"{tool} {family}"
    if sorted(seen) == sorted(should):
        known = should + [f"{name} gives up there" for name in found.failed - wanted.keys()]
        mark = f"as expected, {', '.join(known)}" if known else ""
        return Report(_line(label, found, mark, said), good=True)
    mark = f"UNEXPECTED, should be {', '.join(should) or 'clean'}, not {', '.join(seen) or 'clean'}"
    return Report(_line(label, found, mark, said, command), good=False)


def _of_fault(fault: Fault, command: Sequence[str], found: Findings, said: str) -> Report:
    """Good where it ended as its tool lets it, and the tool says of it what it should."""
    label = f"{fault.tool} planted {fault.name}"
    ended = said.startswith(CUT if fault.is_ended else ENDED)
    # How Python ends over a context that is broken is no matter.
    ended = ended and (found.code == 0 or fault.is_ended)
    if ended and found.verdict == fault.expected:
        return Report(_line(label, found, "as expected", said), good=True)
    mark = f"UNEXPECTED, should be {fault.expected}"
    return Report(_line(label, found, mark, said, command), good=False)


def _line(label: str, found: Findings, mark: str, said: str, command: Sequence[str] = ()) -> str:
    """What was found, and under it the first report and the command that shows them all."""
    counts = f"{found.errors} errors, {found.warnings} warnings"
    verdict = found.verdict if found.verdict == "clean" else f"{found.verdict} ({counts})"
    lines = [f"  {label}: {'; '.join(filter(None, (verdict, mark, said)))}"]
    lines += [f"      {found.first}"] if found.first else []
    lines += [f"      all of it: {shlex.join(command)}"] if command else []
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; `--fault NAME` runs one planted fault, which is what the sanitizer watches."""
    return guarded(lambda: _command(arguments))


def _command(arguments: Sequence[str] | None) -> int:
    parser = Parser(prog="python -m bench.sanitize", description=__doc__)
    parser.add_argument("--family", nargs="+", help="families to check; all where left out")
    parser.add_argument("--fault", choices=FAULTS, help="run this planted fault and nothing else")
    options = parser.parse_args(arguments)
    if options.fault:
        return _run_fault(FAULTS[options.fault])
    return sanitize(options.family)


def _run_fault(fault: Fault) -> int:
    from numba.cuda.cudadrv.driver import CudaAPIError

    device.usable()
    try:
        print(f"{ENDED}{fault.run()}")
    except CudaAPIError as error:  # what a checker does with a launch that it has found faulty
        print(f"{CUT}{in_one_line(error)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
