"""measure: cases in, records out. Binds, checks the answer, samples, and says what went wrong.

It belongs to no test runner: `python -m bench run` writes what it returns, and the pytest front
hands the same samples to pytest-benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from bench import isolation
from bench.clock import Clock, Flush, Sample
from bench.inspection import launch_record
from bench.stopping import Rule
from kernels.spec import Bound, Family, Kernel, Machine, Params, Unavailable, WrongAnswer
from results import schema
from results.errors import in_one_line
from results.metrics import METRICS

THROTTLED = 0.9
"""A sample is set aside where the SM clock is under this share of the self-check's."""
LAUNCH_BOUND_IN_A_ROW = 3
PEAK_MARGIN = 1.02
"""A bandwidth over this share of the device's peak is an error of ours, not a measurement; the
margin covers one tick of the timer on the shortest kernels that can come near."""


@dataclass(frozen=True)
class Case:
    """One point of a family's axes: what bench_<family>.cases yields."""

    kernel: Kernel
    params: Params
    group: Any = None
    """Cases in a row with the same group (not None) are sampled in turns, so that drift falls on
    all alike: ours and its peers."""
    cache: Literal["cold", "warm"] = "cold"
    count: int | None = None
    """Take just so many samples: for what is read inside the kernel."""

    @property
    def label(self) -> str:
        return f"{self.kernel.name}[{' '.join(f'{k}={v}' for k, v in self.params.items())}]"


@dataclass
class Bench:
    """Everything that measuring needs: the device as kernels see it, the clock, the rule."""

    family: Family
    machine: Machine
    clock: Clock
    synchronise: Callable[[], None]
    device: Mapping[str, Any] = field(default_factory=dict)
    rule: Rule = field(default_factory=Rule)
    reference_clock_hz: float | None = None
    """SM clock of the self-check; None until it has run, and nothing is throttled then."""
    stream: Any = 0


@dataclass
class _Sampling:
    """One case between its first and its last sample."""

    case: Case
    bound: Bound
    error: float
    launch: schema.Launch
    flush: Flush | None
    elapsed: float = 0.0
    times: list[float] = field(default_factory=list)
    clocks: list[float] = field(default_factory=list)
    readings: dict[str, Any] = field(default_factory=dict)
    launch_bound: int = 0
    in_a_row: int = 0
    throttled: int = 0
    slow_clock: float = 0.0
    stop: schema.Stop | None = None
    failure: str | None = None


def measure(case: Case, bench: Bench) -> schema.Case:
    """One case, measured alone. Never raises for what the kernel does wrong: the record says."""
    return measure_together([case], bench)[0]


def measure_together(cases: list[Case], bench: Bench) -> list[schema.Case]:
    """Cases sampled in turns; one record each, in order. One that raises fails by itself."""
    if cases and all(case.kernel.may_hang for case in cases):
        try:
            return _isolated(cases, bench)
        except Exception as error:
            return [failed(case, bench, error) for case in cases]
    records: dict[int, schema.Case] = {}
    samplings: dict[int, _Sampling] = {}
    for index, case in enumerate(cases):
        try:
            prepared = _prepare(case, bench)
        except Exception as error:
            prepared = failed(case, bench, error)
        if isinstance(prepared, _Sampling):
            samplings[index] = prepared
        else:
            records[index] = prepared
    while running := [index for index, each in samplings.items() if each.stop is None]:
        for index in running:
            try:
                _take(samplings[index], bench)
            except Exception as error:  # it alone: its peers' samples are good
                records[index] = failed(samplings.pop(index).case, bench, error)
    for index, sampling in samplings.items():
        records[index] = _record(sampling, bench)
    bench.machine.release()
    return [records[index] for index in range(len(cases))]


def check(case: Case, bench: Bench) -> schema.Case:
    """Run a case once against its reference: no gate, no clock."""
    if case.kernel.may_hang and not bench.machine.simulator:
        return _isolated([case], bench)[0]
    prepared = _prepare(case, bench)
    bench.machine.release()
    if isinstance(prepared, schema.Case):
        return prepared
    return _base(case, bench, "ok", metrics={"relative_error": prepared.error})


def _isolated(cases: list[Case], bench: Bench) -> list[schema.Case]:
    """Cases that may hang: what each read, or that it had to be ended, and no samples."""
    jobs = [isolation.Job(bench.family.name, case.kernel.name, case.params) for case in cases]
    outcomes = isolation.run(jobs, bench.device)
    return [
        _base(
            case,
            bench,
            outcome.status,
            reason=outcome.reason,
            launch=outcome.launch,
            metrics=outcome.metrics,
        )
        for case, outcome in zip(cases, outcomes, strict=True)
    ]


def _base(case: Case, bench: Bench, status: schema.Status, **more: Any) -> schema.Case:
    return schema.Case(
        family=bench.family.name,
        kernel=case.kernel.name,
        params=dict(case.params),
        status=status,
        peer=case.kernel.peer,
        source=case.kernel.location,
        summary=case.kernel.summary,
        **more,
    )


def failed(case: Case, bench: Bench, error: Exception) -> schema.Case:
    """The record of a case that raised what nobody foresaw."""
    return _base(case, bench, "failed", reason=in_one_line(error))


def _prepare(case: Case, bench: Bench) -> _Sampling | schema.Case:
    """Bind and check; a record where the case ends here."""
    try:
        bound = case.kernel.bind(case.params, bench.machine)
    except Unavailable as unavailable:
        return _base(case, bench, "skipped", reason=str(unavailable))
    except Exception as problem:
        if type(problem).__name__ in ("OutOfMemoryError", "MemoryError"):
            bench.machine.release()
            reason = f"not enough device memory ({problem}); a GPU with more runs it"
            return _base(case, bench, "skipped", reason=reason)
        raise
    work = schema.Work(**asdict(bound.work))
    try:
        bound.poison()
        bench.synchronise()
        bound.queue(bench.stream)
        bench.synchronise()
        error = float(bound.check())
        if bound.reading is not None:
            bound.reading()
    except WrongAnswer as wrong:
        return _base(case, bench, "failed", reason=f"wrong answer: {wrong}", work=work)
    flush: Flush | None = None
    if case.cache == "cold":
        flush = "dirty" if bound.work.bytes_written else "clean"
    return _Sampling(case, bound, error, launch_record(bound), flush)


def _take(sampling: _Sampling, bench: Bench) -> None:
    """One sample, judged."""
    begin = bench.clock.now()
    sample = bench.clock.sample(sampling.bound.queue, sampling.flush)
    sampling.elapsed += bench.clock.now() - begin
    # Read after every launch, counted or not: a reading may make its counters ready for the next.
    reading = sampling.bound.reading() if sampling.bound.reading is not None else {}
    if sample.launch_bound:
        sampling.launch_bound += 1
        sampling.in_a_row += 1
        if sampling.in_a_row >= LAUNCH_BOUND_IN_A_ROW:
            sampling.stop = "time"
            sampling.failure = (
                "the gate gave up before the launch was queued: the launch waits for the device, "
                "or this host is overloaded"
            )
    elif _is_throttled(sample, bench):
        sampling.throttled += 1
        sampling.slow_clock = sample.sm_clock_hz or 0.0
    else:
        sampling.in_a_row = 0
        sampling.times.append(round(sample.seconds, 9))
        if sample.sm_clock_hz is not None:
            sampling.clocks.append(round(sample.sm_clock_hz, -4))
        _keep(sampling, reading)
    if sampling.stop is None:
        sampling.stop = _stop(sampling, bench)


def _is_throttled(sample: Sample, bench: Bench) -> bool:
    reference, clock = bench.reference_clock_hz, sample.sm_clock_hz
    return reference is not None and clock is not None and clock < THROTTLED * reference


def _keep(sampling: _Sampling, reading: dict[str, Any]) -> None:
    for name, value in reading.items():
        if METRICS[name].vector:
            sampling.readings[name] = [float(item) for item in value]
        else:
            sampling.readings.setdefault(name, []).append(float(value))


def _stop(sampling: _Sampling, bench: Bench) -> schema.Stop | None:
    count = sampling.case.count
    if count is not None:
        if len(sampling.times) >= count:
            return "counted"
        over = sampling.elapsed >= 10 * bench.rule.seconds
        return "time" if over else None
    return bench.rule.stop(sampling.times, sampling.elapsed)


def _record(sampling: _Sampling, bench: Bench) -> schema.Case:
    case, bound = sampling.case, sampling.bound
    work = schema.Work(**asdict(bound.work))
    known: dict[str, Any] = {
        "work": work,
        "launch": sampling.launch,
        "cache_resident": bound.cache_resident,
        "metrics": {"relative_error": sampling.error, **sampling.readings},
    }
    if sampling.failure:
        return _base(case, bench, "failed", reason=sampling.failure, **known)
    if not sampling.times:
        return _base(case, bench, "throttled", reason=_why_throttled(sampling, bench), **known)
    times = sampling.times
    moved = work.bytes_read + work.bytes_written
    peak = bench.device.get("memory_bandwidth_peak")
    typical = sorted(times)[len(times) // 2]
    if (
        case.cache == "cold"
        and not bound.cache_resident
        and isinstance(peak, int | float)
        and moved / typical > PEAK_MARGIN * peak
    ):
        reason = (
            f"{moved / typical:.3g} B/s is over the device's peak of {peak:.3g} B/s: the kernel "
            "moves fewer bytes than it declares, or its data stays in cache"
        )
        return _base(case, bench, "failed", reason=reason, **known)
    samples = schema.Samples(
        time_s=times,
        sm_clock_hz=sampling.clocks or None,
        cache="cold" if sampling.flush else "warm",
        stop=sampling.stop or "time",
        launch_bound=sampling.launch_bound,
        throttled=sampling.throttled,
    )
    return _base(case, bench, "ok", samples=samples, **known)


def _why_throttled(sampling: _Sampling, bench: Bench) -> str:
    reference = (bench.reference_clock_hz or 0.0) / 1e6
    return (
        f"no sample at full clock in {sampling.elapsed:.1f} s: {sampling.slow_clock / 1e6:.0f} MHz "
        f"where the self-check saw {reference:.0f} MHz; let the GPU cool or end what shares it"
    )
