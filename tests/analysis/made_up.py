"""Made-up runs for the tests of the verdict: round numbers, a stated spread between processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from results.schema import SCHEMA, Case, End, Launch, Run, Samples, Work
from results.store import Writer, file_name

GPU = {
    "name": "Imaginary GPU",
    "uuid": "GPU-1",
    "driver_version": "1.0",
    "temperature_c": 40,
    "memory_bandwidth_peak": 1e12,
}
RIPPLE = (0.0, 0.001, -0.001, 0.0005, -0.0005, 0.0008, -0.0008)
"""Process medians around their mean: 0.08% spread, and no two sides alike by chance."""
Make = Callable[[int], list[Case]]


def write_run(
    folder: Path,
    name: str,
    make: Make,
    processes: int = 5,
    device: dict[str, object] | None = None,
    started: str = "2000-01-01",
    end: bool = True,
    **header: object,
) -> Path:
    """The folder `name` of a run of family f, as `bench` writes it."""
    for process in range(processes):
        with Writer(folder / name / file_name(process, "f")) as writer:
            fields = {
                "schema": SCHEMA,
                "family": "f",
                "process": process,
                "started": f"{started}T00:0{process}:00Z",
                "profile": "quick",
                "argv": ["run"],
                "device": {**GPU, **(device or {})},
                "environment": {"numba-cuda": "1"},
                "sources": "0" * 16,
            }
            writer.write(Run(**{**fields, **header}))  # type: ignore[arg-type]
            for case in make(process):
                writer.write(case)
            if end:
                writer.write(End("ok", f"{started}T00:1{process}:00Z", 1.0))
    return folder / name


def timed(
    kernel: str = "k",
    seconds: float = 1e-3,
    *,
    code: str = "aaaa",
    clock: float = 1e9,
    work: Work | None = None,
    cache: str = "cold",
    ripple: bool = True,
) -> Make:
    """One case of so many seconds, each process with its own ripple."""

    def make(process: int) -> list[Case]:
        time = seconds * (1 + (RIPPLE[process % len(RIPPLE)] if ripple else 0))
        samples = Samples([time] * 5, "precision", cache, sm_clock_hz=[clock] * 5)  # type: ignore[arg-type]
        return [
            Case(
                "f",
                kernel,
                {"n": 8},
                "ok",
                work=work or Work(4 * 10**8, 4 * 10**8, 10),
                launch=Launch((1, 1, 1), (32, 1, 1), code=code),
                samples=samples,
            )
        ]

    return make


def both(*makes: Make) -> Make:
    return lambda process: [case for make in makes for case in make(process)]


def bad(status: str, kernel: str = "k", reason: str = "it broke") -> Make:
    return lambda process: [Case("f", kernel, {"n": 8}, status, reason=reason)]  # type: ignore[arg-type]


def slower(case: Case, factor: float) -> Case:
    """The same case with its times stretched."""
    samples = case.samples
    assert samples is not None
    stretched = [t * factor for t in samples.time_s]
    return Case(
        **{name: getattr(case, name) for name in case.__struct_fields__ if name != "samples"},
        samples=type(samples)(stretched, samples.stop, samples.cache, samples.sm_clock_hz),
    )
