"""One family's process: open the device, check ourselves, measure, write. Runs in a child."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from bench import device, environment, families
from bench.clock import GateClock
from bench.machine import from_snapshot
from bench.measure import Bench, Case, measure, measure_together
from bench.speech import say
from bench.stopping import RULES
from kernels.spec import families as declared
from results import metrics, schema
from results.store import Writer, file_name

FMA_CYCLES = (3.9, 4.3)
"""Dependent float32 FMA, cycles: 4 on every chip since Volta (Jia et al., 2018, table 4.1)."""
EMPTY_SECONDS = 20e-6
"""An empty kernel takes 2.7 µs between two events on an H200; over this the gate does not hold."""


@dataclass(frozen=True)
class Order:
    """What a child is asked to do."""

    family: str
    process: int
    profile: str
    index: int
    output: Path
    argv: list[str]

    @property
    def path(self) -> Path:
        return self.output / file_name(self.process, self.family)


class SelfCheckError(Exception):
    """The empty kernel or the FMA chain came out wrong: nothing else may be recorded."""


def open_bench(family: str, index: int, profile: str) -> Bench:
    """Device, clock and rule for one family on a GPU. Compiles the clock's kernels, warms them up.

    Raises:
        KeyError: no such family in kernels/.
        numba.cuda.cudadrv.error.CudaSupportError: CUDA does not start; `device.usable` says why.
        UserError: the device `index` cannot be read.
    """
    from numba import cuda

    cuda.select_device(index)
    snapshot = device.snapshot(index)
    clock = GateClock(index, snapshot["l2_bytes"], snapshot["sms"])
    return Bench(
        family=declared()[family],
        machine=from_snapshot(snapshot),
        clock=clock,
        synchronise=clock.synchronise,
        device=snapshot,
        rule=RULES[profile],
        stream=clock.stream,
    )


def groups(cases: list[Case]) -> Iterator[list[Case]]:
    """Cases in a row with one group, which are sampled in turns; others alone."""
    for _, members in groupby(cases, _turn):
        yield list(members)


def _turn(case: Case) -> Any:
    """What cases in a row must share to be sampled in turns; a new `object` equals nothing."""
    return object() if case.group is None else case.group


def record(order: Order, show: Callable[[str], None] = say) -> bool:
    """Measure one family and write its file. True where the family ended well."""
    started = time.monotonic()
    bench = open_bench(order.family, order.index, order.profile)
    with Writer(order.path) as writer:
        writer.write(_header(order, bench))
        status, reason = "ok", None
        try:
            for case in self_check(bench):
                writer.write(case)
            if problem := _measure_all(order, bench, writer, show):
                status, reason = "failed", problem
        except SelfCheckError as error:
            status, reason = "failed", str(error)
        end = schema.End(status, _now(), round(time.monotonic() - started, 3), reason)  # type: ignore[arg-type]
        writer.write(end)
    if reason:
        show(f"{order.family}: {reason}")
    return status == "ok"


def _measure_all(
    order: Order, bench: Bench, writer: Writer, show: Callable[[str], None]
) -> str | None:
    """Every group; the reason where the device cannot go on."""
    for group in groups(families.cases(order.family, order.profile, bench.machine)):
        records = measure_together(group, bench)
        for measured in records:
            writer.write(measured)
        for measured, row in zip(records, metrics.derive(records, bench.device), strict=True):
            show(progress(measured, row))
        if any(measured.status == "failed" for measured in records) and (dead := _dead(bench)):
            return f"the device cannot go on after {group[-1].label}: {dead}"
    return None


def _dead(bench: Bench) -> str | None:
    """A sticky CUDA error, if the context has one."""
    try:
        bench.synchronise()
    except Exception as error:
        return str(error).strip().splitlines()[-1]
    return None


def self_check(bench: Bench) -> list[schema.Case]:
    """Measure the empty kernel and the FMA chain, and set the reference SM clock.

    Raises:
        SelfCheckError: one came out wrong.
    """
    family = declared()["selfcheck"]
    own = replace(bench, family=family, rule=RULES["standard"])
    chain = measure(Case(family["fma_chain"], {}, cache="warm", count=11), own)
    empty = measure(Case(family["empty"], {}, cache="warm"), own)
    chained, emptied = (_sampled(case) for case in (chain, empty))
    cycles = metrics.scalar(chain.metrics["latency_cycles"])
    if not FMA_CYCLES[0] <= cycles <= FMA_CYCLES[1]:
        raise SelfCheckError(
            f"a dependent FMA read {cycles:.2f} cycles where it takes 4: the clock cannot be "
            "trusted here; is the GPU shared, or is a profiler attached?"
        )
    seconds = median(emptied.time_s)
    if not 0 < seconds <= EMPTY_SECONDS:
        raise SelfCheckError(
            f"an empty kernel read {seconds * 1e6:.1f} µs: launch cost is inside the sample; is "
            "CUDA_LAUNCH_BLOCKING set, or the host overloaded?"
        )
    clocks = chained.sm_clock_hz
    bench.reference_clock_hz = median(clocks) if clocks else None
    return [chain, empty]


def _sampled(case: schema.Case) -> schema.Samples:
    """What a self-check measured. SelfCheckError: nothing."""
    if case.status != "ok" or case.samples is None:
        raise SelfCheckError(f"self-check {case.kernel} is {case.status}: {case.reason}")
    return case.samples


def progress(case: schema.Case, row: dict[str, float]) -> str:
    """One line for a person."""
    label = " ".join([case.family, case.kernel, *(f"{k}={v}" for k, v in case.params.items())])
    if case.status != "ok":
        return f"  {label}: {case.status}: {case.reason}"
    words = []
    if case.samples and not case.metrics.keys() - {"relative_error"}:
        words.append(f"{median(case.samples.time_s) * 1e6:.2f} µs")
    for name, value in row.items():
        metric = metrics.METRICS[name]
        if name not in ("relative_error", "sm_clock", "occupancy", "latency_seconds"):
            words.append(f"{name.replace('_', ' ')} {metrics.pretty(value, metric.unit)}")
    count = len(case.samples.time_s) if case.samples else 0
    return f"  {label}: {', '.join(words)} ({count} samples)"


def _header(order: Order, bench: Bench) -> schema.Run:
    return schema.Run(
        schema=schema.SCHEMA,
        family=order.family,
        process=order.process,
        started=_now(),
        profile=order.profile,
        argv=order.argv,
        device=dict(bench.device),
        environment=environment.environment(),
        sources=environment.sources_digest(),
        commit=environment.commit(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
