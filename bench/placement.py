"""How much of a case's time is where its arrays lie: bound anew and timed, again and again.

    python -m bench.placement --family occupancy --kernel axpy

Before each time other arrays are allocated in front, so that the case's own come to lie elsewhere
in memory. Few warps that wait for one load after another show it; a stream that fills the memory's
bandwidth does not. It is why the process, and not the sample, is the unit of evidence.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from bench import families
from bench.measure import Bench, Case, measure
from results.errors import UserError
from results.shell import Parser, guarded, no_such

PLACES = 10
MOST_AHEAD = 200 << 20
"""Bytes of the largest array that is allocated in front."""


def medians(case: Case, bench: Bench, places: int = PLACES) -> list[float]:
    """Median device time of the case, s, for each of so many placements of its arrays.

    Raises:
        UserError: the case was skipped, failed or throttled; the message says why.
    """
    xp, draw = bench.machine.xp, random.Random(bench.machine.seed)
    found = []
    for arrays in range(places):
        _give_back(xp)
        ahead = [xp.empty(draw.randrange(1 << 20, MOST_AHEAD), xp.uint8) for _ in range(arrays)]
        record = measure(case, bench)
        del ahead
        if record.samples is None:
            raise UserError(f"{case.label} {record.status}: {record.reason}")
        found.append(median(record.samples.time_s))
    return found


def _give_back(xp: Any) -> None:
    """Freed arrays go back to the device; what CuPy keeps would be handed out again."""
    if hasattr(xp, "get_default_memory_pool"):
        xp.get_default_memory_pool().free_all_blocks()


def line(case: Case, times: Sequence[float]) -> str:
    """`axpy[warps=1 ...]: 427.6 to 455.2 µs, 6.4% apart: 429.8 429.7 454.2 ...`"""
    apart = (max(times) - min(times)) / median(times)
    each = " ".join(f"{seconds * 1e6:.1f}" for seconds in times)
    least, most = (f"{seconds * 1e6:.1f}" for seconds in (min(times), max(times)))
    return f"{case.label}: {least} to {most} µs, {apart:.1%} apart: {each}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    return guarded(lambda: _command(arguments))


def _command(arguments: Sequence[str] | None) -> int:
    from bench import device
    from bench.session import open_bench, self_check

    parser = Parser(prog="python -m bench.placement", description=__doc__)
    parser.add_argument("--family", required=True)
    parser.add_argument("--kernel", required=True, help="all of its cases in the quick profile")
    parser.add_argument("--device", type=int, default=0, help="CUDA device")
    parser.add_argument("--places", type=int, default=PLACES, help="placements a case")
    options = parser.parse_args(arguments)
    (family,) = families.select([options.family])
    known = [kernel.name for kernel in families.family(family).kernels]
    if options.kernel not in known:
        raise no_such("kernel", options.kernel, known)
    if options.places < 2:
        raise UserError(f"--places {options.places}: two placements at least are compared")
    device.usable(options.device)
    bench = open_bench(family, options.device, "quick")
    self_check(bench)
    for case in families.cases(family, "quick", bench.machine):
        if case.kernel.name == options.kernel:
            print(line(case, medians(case, bench, options.places)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
