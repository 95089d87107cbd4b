"""check: every case once against its reference. No gate, no clock, no record.

The simulator tier, the profiler and the checkers run this: a gate would deadlock under tools that
serialise launches.
"""

from __future__ import annotations

import math
import time
from typing import Any

from bench import families
from bench.machine import from_snapshot, simulated
from bench.marks import marked
from bench.measure import Bench, Case, failed
from bench.measure import check as check_case
from kernels.compat import SIMULATOR
from kernels.spec import families as declared
from results import schema
from results.errors import UserError
from results.shell import no_such

WITHOUT_GPU = "without a GPU, NUMBA_ENABLE_CUDASIM=1 checks every kernel in numba's simulator"


class _NoClock:
    """check takes no sample."""

    def sample(self, queue: Any, flush: Any) -> Any:
        raise RuntimeError("check measures nothing")

    def now(self) -> float:
        return time.perf_counter()


def check(
    wanted: list[str] | None,
    index: int,
    profile: str | None,
    seconds: float = math.inf,
    brief: bool = False,
) -> int:
    """Print a line a case; 0 where all are right, 2 where one is wrong or left out, or none ran.

    `brief`: a line a family, and one for each case that is not right or was skipped on the GPU.

    No further case is begun after so many seconds; the last line says how many were left out.

    Raises:
        UserError: an unknown family, or no usable device outside the simulator.
    """
    chosen = _select(wanted)
    make = _simulator if SIMULATOR else _gpu(index)
    detail = _unsaid if brief else print
    wrong = count = skipped = left = 0
    end = time.monotonic() + seconds
    for name in chosen:
        bench = make(name)
        before = count, wrong, skipped
        for case in _cases(name, profile, bench):
            if time.monotonic() > end:
                left += 1
                continue
            if SIMULATOR and case.kernel.simulator:
                detail(f"  {name} {case.label}: skipped: {case.kernel.simulator}")
                skipped += 1
                continue
            record = _checked(case, bench)
            count += 1
            if record.status == "ok":
                detail(f"  {name} {case.label}: right")
            else:
                print(f"  {name} {case.label}: {record.status}: {record.reason}")
                skipped += record.status == "skipped"
                wrong += record.status == "failed"
        if brief:
            print(
                f"  {name}: {count - before[0]} cases, {wrong - before[1]} wrong, "
                f"{skipped - before[2]} skipped",
                flush=True,
            )
    where = "in numba's simulator" if SIMULATOR else "on the GPU"
    late = f", {left} left out: {seconds:g} s were over" if left else ""
    print(f"{count} cases {where}: {wrong} wrong, {skipped} skipped{late}")
    return 2 if wrong or left or not count else 0


def _unsaid(text: str) -> None:
    """A line that is left out."""


def _checked(case: Case, bench: Bench) -> schema.Case:
    """The record of one case; what a kernel raises is its own failure, not the others'."""
    try:
        return check_case(case if SIMULATOR else marked(case, bench.family.name), bench)
    except Exception as error:
        bench.machine.release()
        return failed(case, bench, error)


def _select(wanted: list[str] | None) -> list[str]:
    """Any declared family may be checked, also one without axes (the self-check)."""
    known = sorted(declared())
    for name in wanted or ():
        if name not in known:
            raise no_such("family", name, known)
    return wanted or known


def _cases(name: str, profile: str | None, bench: Bench) -> list[Case]:
    if profile and name in families.names():
        return families.cases(name, profile, bench.machine)
    return [
        Case(kernel, example) for kernel in declared()[name].kernels for example in kernel.examples
    ]


def _simulator(name: str) -> Bench:
    return Bench(declared()[name], simulated(), _NoClock(), synchronise=lambda: None)


def _gpu(index: int) -> Any:
    from bench import device

    try:
        device.usable(index)
    except UserError as error:
        raise UserError(f"{error}; {WITHOUT_GPU}") from None
    import cupy
    from numba import cuda

    cuda.select_device(index)
    snapshot = device.snapshot(index)
    own = cupy.cuda.Stream(non_blocking=True)
    own.__enter__()  # inputs and answers in order with the kernel; see GateClock
    stream = cuda.external_stream(own.ptr)

    def make(name: str) -> Bench:
        return Bench(
            declared()[name],
            from_snapshot(snapshot),
            _NoClock(),
            synchronise=own.synchronize,  # and keeps CuPy's stream alive
            device=snapshot,
            stream=stream,
        )

    return make
