"""The record: every field that a run stores, with its unit.

A file is JSON Lines: one `run` header, `case` lines, one `end`. What does not apply is
absent, never null. SI units throughout. A number that is not finite is refused on writing,
because JSON has no NaN and msgspec would store it as null.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

SCHEMA = 1
MAXIMUM_SAMPLES = 100
"""At most this many samples a case are kept, so that all baselines stay under 15 MB."""

Scalar = bool | int | float | str
Status = Literal["ok", "skipped", "failed", "throttled"]
Stop = Literal["precision", "plateau", "samples", "time", "counted"]
"""Why sampling ended: the median's target precision; the noise stopped shrinking; the cap on
samples; the wall-clock limit; or a fixed count, for what is read inside the kernel."""


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a case must do at the least, as declared by its kernel."""

    bytes_read: int = 0
    """B, each input once."""
    bytes_written: int = 0
    """B, each output once."""
    operations: int = 0
    """Arithmetic operations on elements; one FMA counts as two."""


class Launch(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the kernel was started, and what the compiler and the driver made of it."""

    grid: tuple[int, int, int] | None = None
    """Blocks in x, y, z."""
    block: tuple[int, int, int] | None = None
    """Threads a block in x, y, z."""
    dynamic_smem: int | None = None
    """Dynamic shared memory a block, B."""
    static_smem: int | None = None
    """Static shared memory a block, B."""
    registers: int | None = None
    """Registers a thread."""
    local_bytes: int | None = None
    """Local memory a thread, B: spills and indexed arrays."""
    cluster: int | None = None
    """Blocks a cluster."""
    blocks_per_sm: int | None = None
    """Resident blocks an SM, by the driver's occupancy calculator."""
    code: str | None = None
    """Hash of the machine code: SHA-256 over the cubin's .text sections, 16 hex digits."""


Seconds = Annotated[float, msgspec.Meta(gt=0, lt=1e6)]
"""A time that was measured: over zero, and no launch takes days."""
Hertz = Annotated[float, msgspec.Meta(gt=0, lt=1e12)]
Vector = Annotated[list[float], msgspec.Meta(min_length=1)]
Moment = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.]+(Z|\+00:00)?)?\Z")
]
"""UTC, ISO 8601."""


class Samples(msgspec.Struct, frozen=True, omit_defaults=True):
    """The clock's samples of one case in one process."""

    time_s: list[Seconds]
    """Device time of each sample, s, rounded to 1 ns."""
    stop: Stop
    """Why sampling ended."""
    cache: Literal["cold", "warm"]
    """cold: L2 was flushed before each sample."""
    sm_clock_hz: list[Hertz] | None = None
    """SM clock during the samples in which it could be read, Hz; absent where in none."""
    launch_bound: int = 0
    """Samples set aside because the gate gave up before the host had queued everything."""
    throttled: int = 0
    """Samples set aside because the SM clock had dropped."""


class Case(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="case"):
    """One measured case. Its key is (family, kernel, params)."""

    family: str
    kernel: str
    params: dict[str, Scalar]
    """What the axes set; nothing measured, nothing that changes over a reboot."""
    status: Status
    reason: str | None = None
    """Why the case is not ok, and what would mend it; absent where it is ok."""
    work: Work | None = None
    launch: Launch | None = None
    samples: Samples | None = None
    metrics: dict[str, float | Vector] = {}
    """Read inside the kernel, by the names of results.metrics; a list holds one entry a sample,
    or a vector (a thread's, a block's, an SM's) where the metric's definition says so."""
    peer: bool = False
    """True for another library's implementation, measured interleaved with ours."""
    cache_resident: bool = False
    """True where the case declares that its data stays in cache: no DRAM peak applies."""
    source: str | None = None
    """File and line of the kernel, relative to the checkout."""
    summary: str | None = None


class Run(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="run"):
    """The header: one a file."""

    schema: int
    family: str
    process: int
    """Index of the process, from 0: the unit of evidence."""
    started: Moment
    profile: str
    argv: list[str]
    """The command, paths relative to the checkout."""
    device: dict[str, Any]
    """bench.device.snapshot(): a value for each field, or {"error": NVML's or CUDA's name}."""
    environment: dict[str, str]
    """Versions of Python, numba, CUDA and what else makes the numbers; whitelisted variables."""
    sources: str
    """Digest over kernels/ and bench/, 16 hex digits."""
    commit: str | None = None
    """Git commit of the checkout, with -dirty where it had changes; absent without git."""

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.started)  # raises ValueError: no such day or time


class End(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="end"):
    """The last line: how the family's process ended."""

    status: Literal["ok", "failed"]
    finished: str
    """UTC, ISO 8601."""
    seconds: float
    """Wall-clock duration of the process, s."""
    reason: str | None = None


Line = Run | Case | End
_decoder: msgspec.json.Decoder[Run | Case | End] = msgspec.json.Decoder(Run | Case | End)
_encoder = msgspec.json.Encoder()


def key(case: Case) -> tuple[str, str, tuple[tuple[str, Scalar], ...]]:
    """Identity of a case across processes and runs."""
    return case.family, case.kernel, tuple(sorted(case.params.items()))


def encode(line: Line) -> bytes:
    """One JSON line, newline included.

    Raises:
        ValueError: a number is NaN or infinite, or a case holds over 100 samples.
    """
    _refuse_non_finite(msgspec.to_builtins(line), type(line).__name__.lower())
    if isinstance(line, Case) and line.samples is not None:
        count = len(line.samples.time_s)
        if count > MAXIMUM_SAMPLES:
            raise ValueError(f"{count} samples in one case; at most {MAXIMUM_SAMPLES} are kept")
    return _encoder.encode(line) + b"\n"


def decode(line: bytes, schema: int = SCHEMA) -> Line:
    """Inverse of encode; a line of an older schema is migrated first.

    Raises:
        msgspec.MsgspecError: not JSON, or not a record of this schema.
        LookupError: a schema that this version cannot read; the message says which.
    """
    if schema == SCHEMA:
        return _decoder.decode(line)
    raw = msgspec.json.decode(line)
    while schema != SCHEMA:
        if schema not in MIGRATIONS:
            raise LookupError(f"schema {schema}; this version reads {SCHEMA}")
        raw, schema = MIGRATIONS[schema](raw), schema + 1
    return msgspec.convert(raw, Run | Case | End)


def schema_of(header: bytes) -> int:
    """The schema number in a file's first line.

    Raises:
        msgspec.MsgspecError: not a header.
    """
    return _peek.decode(header).schema


class _Peek(msgspec.Struct, tag_field="kind", tag="run"):
    schema: int


_peek = msgspec.json.Decoder(_Peek)

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Schema number -> function that turns one raw line of it into the next schema's."""


def _refuse_non_finite(value: Any, where: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}: only finite numbers are stored")
    elif isinstance(value, dict):
        for name, item in value.items():
            _refuse_non_finite(item, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_non_finite(item, where)
