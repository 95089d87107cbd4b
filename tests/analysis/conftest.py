"""A synthetic run for the tests of analysis: real record files, numbers made by a formula.

Nothing here was measured. The GPU is called "Synthetic GPU", its peak is a round 1 TB/s, and every
time is a round launch cost plus bytes over a round bandwidth, times 1 + a small ripple that is the
same in every test run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from analysis import accepted
from results.schema import SCHEMA, Case, End, Launch, Run, Samples, Work
from results.store import Writer, file_name, load
from tests.analysis.made_up import write_run

PEAK = 1.0e12  # B/s
L2 = 32 << 20  # B
CLOCK = 1.0e9  # Hz
SMS = 100
DEVICE = {
    "name": "Synthetic GPU",
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "cc": "9.0",
    "sms": SMS,
    "max_threads_per_sm": 2048,
    "max_blocks_per_sm": 32,
    "l2_bytes": L2,
    "memory_bandwidth_peak": PEAK,
    "sm_clock_max_hz": CLOCK,
    "fp32_peak": SMS * 128 * 2 * CLOCK,
    "driver_version": "000.00",
    "numa_node": {"error": "NotSupported"},
    "attributes": {"warp_size": 32},
}
SHARE = {  # of the peak that each kernel reaches, by decree
    "monolithic": 0.80,
    "grid_stride": 0.82,
    "unrolled": 0.86,
    "vector": 0.92,
    "cublas": 0.70,
    "cuda_float4": 0.92,
    "cupy_elementwise": 0.78,
    "memcpy": 0.90,
}
PEERS = ("cublas", "cuda_float4", "cupy_elementwise", "memcpy")
LINES = {"monolithic": 20, "grid_stride": 32, "unrolled": 45, "vector": 60}
CENTRE = 1 << 28
SIZES = [1 << e for e in range(10, 29, 2)]
BLOCKS = [32, 64, 96, 128, 160, 256, 384, 512, 768, 1000, 1024]
EXTRA = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
LATENCY = 600.0  # cycles


def samples(seconds: float, process: int, noise: float = 0.002) -> Samples:
    """Ten samples around `seconds` with a ripple, and a shift of its own for each process."""
    shift = 1 + noise * math.sin(1 + 2 * process)
    times = [round(seconds * shift * (1 + noise * math.sin(i)), 9) for i in range(10)]
    return Samples(times, "precision", "cold", sm_clock_hz=[CLOCK] * 10)


def axpy_case(process: int, kernel: str, **params: int | str) -> Case:
    """One ok case of the synthetic AXPY: 2 us, then bytes over the bandwidth, or arithmetic."""
    n, width = int(params["n"]), 4 if params["dtype"] == "float32" else 8
    work = Work(2 * n * width, n * width, 2 * n * (1 + int(params.get("extra_fma", 0))))
    if kernel == "memcpy":
        work = Work(n * width, n * width)
    moved = work.bytes_read + work.bytes_written
    level = PEAK * (3 if moved < L2 / 2 else 1)
    block = int(params.get("block", 256))
    memory = moved / (level * SHARE.get(kernel, 0.8) * min(1.0, 0.4 + block / 160))
    extra = int(params.get("extra_fma", 0))
    rate = SMS * 128 * CLOCK
    if params.get("warps", "full") != "full":
        rate = SMS * int(params["warps"]) * 32 * CLOCK / 4
        memory *= 3
    seconds = 2e-6 + max(memory, n * extra / rate)
    peer = kernel in PEERS
    registers = 16 if block < 1024 else 18
    blocks_per_sm = min(32, 2048 // block)
    launch = Launch((n // block, 1, 1), (block, 1, 1), registers=registers)
    return Case(
        "axpy",
        kernel,
        dict(params),
        "ok",
        work=work,
        launch=Launch() if peer else _resident(launch, blocks_per_sm),
        samples=samples(seconds, process),
        metrics={"relative_error": 1e-7},
        peer=peer,
        cache_resident=moved < L2 / 2,
        source=None if peer else f"kernels/axpy.py:{LINES.get(kernel, 80)}",
        summary=f"AXPY, {kernel.replace('_', ' ')}",
    )


def _resident(launch: Launch, blocks: int) -> Launch:
    return Launch(launch.grid, launch.block, registers=launch.registers, blocks_per_sm=blocks)


def axpy_cases(process: int) -> Iterator[Case]:
    """Sizes, blocks and extra FMAs, one axis at a time around the centre; then the peers."""
    base: dict[str, int | str] = {"n": CENTRE, "dtype": "float32", "block": 256}
    for kernel in LINES:
        for n in SIZES:
            yield axpy_case(process, kernel, **{**base, "n": n})
        for block in BLOCKS:
            if block != base["block"]:
                yield axpy_case(process, kernel, **{**base, "block": block})
        yield axpy_case(process, kernel, **{**base, "dtype": "float64"})
    for kernel in ("fma_dependent", "fma_independent"):
        for warps in ("full", 4):
            for extra in EXTRA:
                fma = {**base, "n": 1 << 26, "extra_fma": extra, "warps": warps}
                yield axpy_case(process, kernel, **fma)
    for kernel in PEERS:
        for n in SIZES:
            yield axpy_case(process, kernel, n=n, dtype="float32")
        yield axpy_case(process, kernel, n=CENTRE, dtype="float64")


def self_check(process: int) -> Iterator[Case]:
    """What every file begins with: an empty kernel, and a chain of FMAs of 4 cycles."""
    yield Case("selfcheck", "empty", {}, "ok", samples=samples(2e-6, process))
    yield Case("selfcheck", "fma_chain", {}, "ok", metrics={"latency_cycles": 4.0})


def memory_cases() -> Iterator[Case]:
    """A pointer chase through footprints of L2 and of DRAM."""
    for footprint, cycles in ((L2 // 8, LATENCY / 2), (L2 * 8, LATENCY)):
        params: dict[str, int | str] = {"bytes": footprint, "cache": "cg"}
        yield Case("memory", "chase", params, "ok", metrics={"latency_cycles": cycles})


def write_process(
    folder: Path,
    process: int,
    cases: list[Case],
    family: str = "axpy",
    end: bool = True,
    checked: bool = True,
) -> Path:
    """One record file as bench writes it."""
    path = folder / file_name(process, family)
    with Writer(path) as writer:
        writer.write(
            Run(
                schema=SCHEMA,
                family=family,
                process=process,
                started=f"2000-01-01T00:0{process}:00Z",
                profile="standard",
                argv=["-m", "bench", "run"],
                device=DEVICE,
                environment={"python": "3.11.0", "numba-cuda": "0.30.4"},
                sources="0" * 16,
            )
        )
        for case in (*(self_check(process) if checked else ()), *cases):
            writer.write(case)
        if end:
            writer.write(End("ok", f"2000-01-01T00:0{process}:30Z", 30.0))
    return path


@pytest.fixture(scope="session")
def synthetic_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of five whole processes of the families axpy and memory."""
    folder = tmp_path_factory.mktemp("runs") / "synthetic"
    for process in range(5):
        write_process(folder, process, list(axpy_cases(process)))
        write_process(folder, process, list(memory_cases()), "memory")
    return folder


@pytest.fixture(scope="session")
def report(synthetic_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the report of the synthetic run, which was built in time and without error."""
    from analysis.report.build import build

    folder = tmp_path_factory.mktemp("report")
    start = time.perf_counter()
    assert build([load(synthetic_run)], folder) == ([], [])
    assert time.perf_counter() - start < 30
    return folder


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    """record([cases of process 0], [cases of process 1], …, end=True) -> folder of the run.

    Its files have no self-check.
    """

    def write(*processes: list[Case], end: bool = True, family: str = "axpy") -> Path:
        for process, cases in enumerate(processes):
            write_process(tmp_path / "run", process, cases, family, end, checked=False)
        return tmp_path / "run"

    return write


@pytest.fixture
def own_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The committed file of accepted changes is left alone."""
    path = tmp_path / "accepted.jsonl"
    monkeypatch.setattr(accepted, "ACCEPTED", path)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """run(name, make, processes=5, device=…, end=True, …) -> folder of a run of family f."""
    return partial(write_run, tmp_path)


@pytest.fixture
def one_question(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The report asks one question only, for tests of what surrounds the answers."""
    from analysis.report import build
    from analysis.report.question import questions

    asked = [q for q in questions() if q.row == 2 and q.families == ("axpy",)][:1]
    monkeypatch.setattr(build, "questions", lambda: asked)
    return asked
