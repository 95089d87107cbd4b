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
from results import schema
from results.errors import UserError
from results.shell import GOOD, NOT_WHOLE, Parser, guarded, no_such

PLACES = 10
MOST_AHEAD = 200 << 20
"""Bytes of the largest array that is allocated in front."""


def placed(case: Case, bench: Bench, places: int = PLACES) -> list[schema.Case]:
    """The case measured in so many placements of its arrays, up to the first without samples.

    Raises:
        UserError: the memory does not hold the arrays in front.
    """
    xp, draw = bench.machine.xp, random.Random(bench.machine.seed)
    records = []
    for arrays in range(places):
        _give_back(xp)
        sizes = [draw.randrange(1 << 20, MOST_AHEAD) for _ in range(arrays)]
        ahead = _allocated(xp, sizes)
        records.append(measure(case, bench))
        del ahead
        if records[-1].samples is None:
            break
    return records


def _give_back(xp: Any) -> None:
    """Freed arrays go back to the device; what CuPy keeps would be handed out again."""
    if hasattr(xp, "get_default_memory_pool"):
        xp.get_default_memory_pool().free_all_blocks()


def _allocated(xp: Any, sizes: Sequence[int]) -> list[Any]:
    try:
        return [xp.empty(size, xp.uint8) for size in sizes]
    except MemoryError as error:  # CuPy's too
        raise UserError(
            f"no room for {sum(sizes) >> 20} MiB in front of the case: fewer --places need less"
        ) from error


def line(case: Case, records: Sequence[schema.Case]) -> str:
    """`axpy[warps=1 ...]: 427.6 to 455.2 µs, 6.4% apart: 429.8 429.7 454.2 ...`, or why not."""
    last = records[-1]
    if last.samples is None:
        return f"{case.label}: {last.status}: {last.reason or 'takes no samples'}"
    times = [median(each.samples.time_s) for each in records if each.samples is not None]
    apart = (max(times) - min(times)) / median(times)
    listed = " ".join(f"{seconds * 1e6:.1f}" for seconds in times)
    least, most = (f"{seconds * 1e6:.1f}" for seconds in (min(times), max(times)))
    return f"{case.label}: {least} to {most} µs, {apart:.1%} apart: {listed}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 2 where a case failed or was throttled."""
    return guarded(lambda: _command(arguments))


def _command(arguments: Sequence[str] | None) -> int:
    from bench import device

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
    code = GOOD
    bench = _checked(family, options.device)
    cases = families.cases(family, "quick", bench.machine)
    chosen = [case for case in cases if case.kernel.name == options.kernel]
    if not chosen:
        raise UserError(f"{family}/{options.kernel} has no case in the quick profile")
    for case in chosen:
        records = placed(case, bench, options.places)
        print(line(case, records), flush=True)
        if records[-1].status in ("failed", "throttled"):
            code = NOT_WHOLE
    return code


def _checked(family: str, index: int) -> Bench:
    from bench.session import SelfCheckError, open_bench, self_check

    bench = open_bench(family, index, "quick")
    try:
        self_check(bench)
    except SelfCheckError as error:
        raise UserError(str(error)) from None
    return bench


if __name__ == "__main__":
    sys.exit(main())
