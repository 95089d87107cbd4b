"""Hardware counters of a run: what each one means, and the file that holds those of a family.

A run's counters lie beside its records as `<run>/counters/<family>.json`, one object a file, with
the profiler's own output next to it as `<family>.csv.gz`. Counters are sums over all SMs and over
all launches of a case, in SI units, so that those of several launches add up and every share is a
quotient of two of them. A counter that the profiler did not give is absent, never null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from results.errors import UserError
from results.schema import Scalar

SCHEMA = 1
FOLDER = "counters"
SECTOR = 32
"""Bytes a sector, the unit in which the caches count: CUDA C++ Best Practices Guide, 10.2.1."""


@dataclass(frozen=True)
class Counter:
    """One quantity. `metrics` are its names at the profiler; the first that it knows is read."""

    name: str
    unit: str
    """SI unit, or 1 for a count."""
    meaning: str
    metrics: tuple[str, ...]
    factor: float = 1.0
    """What one of the profiler's base units is worth in `unit`, after ns became s."""


@dataclass(frozen=True)
class State:
    """What a resident warp does in a cycle: exactly one of these."""

    name: str
    ready: bool
    """True where nothing holds the warp back: its next instruction is issued, or could be."""
    meaning: str

    @property
    def counter(self) -> str:
        return f"warps_{self.name}"


STATES: dict[str, State] = {
    state.name: state
    for state in (
        State("selected", True, "its instruction is issued"),
        State("not_selected", True, "could issue, but another warp was chosen"),
        State("long_scoreboard", False, "waits for L1, L2 or DRAM: global, local, texture"),
        State("short_scoreboard", False, "waits for shared memory or a special function"),
        State("barrier", False, "waits for the other warps of its block at a barrier"),
        State("membar", False, "waits at a memory fence"),
        State("wait", False, "waits the fixed latency of its previous instruction"),
        State("math_pipe_throttle", False, "the arithmetic unit it needs is busy"),
        State("mio_throttle", False, "the queue to shared memory and special units is full"),
        State("lg_throttle", False, "the queue for global and local loads and stores is full"),
        State("tex_throttle", False, "the texture queue is full"),
        State("dispatch_stall", False, "the dispatcher holds it back"),
        State("drain", False, "has ended, but its stores are not yet out"),
        State("no_instruction", False, "its next instruction is not yet fetched"),
        State("branch_resolving", False, "waits for the target of a branch"),
        State("imc_miss", False, "waits for a constant that missed its cache"),
        State("sleeping", False, "sleeps by nanosleep, or yields"),
        State("misc", False, "held back for another reason"),
        State("gmma", False, "waits for the tensor unit (cc 9.0)"),
    )
}
"""Nsight Compute's warp states: its Profiling Guide, "Warp Stall Reasons"."""

COUNTERS: dict[str, Counter] = {
    counter.name: counter
    for counter in (
        Counter("time", "s", "Time of the kernel on the GPU", ("gpu__time_duration.sum",)),
        Counter(
            "dram_read",
            "B",
            "Bytes read from DRAM",
            ("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
        ),
        Counter(
            "dram_written",
            "B",
            "Bytes written to DRAM by the end of the kernel; lines that L2 still holds are not",
            ("dram__bytes_write.sum", "dram__bytes_op_write.sum"),
        ),
        Counter(
            "l2_bytes",
            "B",
            "Bytes that L2 was asked for, by anyone",
            ("lts__t_sectors.sum",),
            SECTOR,
        ),
        Counter(
            "l2_from_l1",
            "B",
            "Bytes that L1 asked L2 for, read and written",
            ("lts__t_sectors_srcunit_tex.sum",),
            SECTOR,
        ),
        Counter(
            "local_loaded",
            "B",
            "Bytes of local memory loaded: spills and indexed arrays",
            ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",),
            SECTOR,
        ),
        Counter(
            "local_stored",
            "B",
            "Bytes of local memory stored",
            ("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",),
            SECTOR,
        ),
        Counter(
            "shared_wavefronts",
            "1",
            "Cycles in which shared memory served a part of an access",
            ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
        ),
        Counter(
            "bank_conflicts",
            "1",
            "Those of them that a conflict of banks made necessary",
            ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
        ),
        Counter(
            "sm_cycles_elapsed",
            "1",
            "Cycles of all SMs from the kernel's start to its end: over time, their clock",
            ("sm__cycles_elapsed.sum",),
        ),
        Counter("sm_cycles", "1", "Cycles in which an SM had a warp", ("sm__cycles_active.sum",)),
        Counter(
            "sm_warp_cycles",
            "1",
            "Resident warps, summed over those cycles: achieved occupancy",
            ("sm__warps_active.sum",),
        ),
        Counter(
            "scheduler_cycles",
            "1",
            "Cycles in which a scheduler had a warp: its issue slots",
            ("smsp__cycles_active.sum",),
        ),
        Counter("issued", "1", "Issue slots that were used", ("smsp__inst_issued.sum",)),
        Counter(
            "warp_cycles",
            "1",
            "Resident warps of the schedulers, summed over their cycles",
            ("smsp__warps_active.sum",),
        ),
        Counter(
            "eligible",
            "1",
            "Ready warps, summed over the schedulers' cycles",
            ("smsp__warps_eligible.sum",),
        ),
        *(
            Counter(
                state.counter,
                "1",
                f"Cycles of resident warps of which each {state.meaning}",
                (f"smsp__warps_issue_stalled_{state.name}.sum",),
            )
            for state in STATES.values()
        ),
    )
}
"""Everything that is asked of the profiler, once."""


class CaseCounters(msgspec.Struct, frozen=True):
    """The counters of one case: one queue of it, all launches together."""

    case: str
    """label() of the case."""
    kernels: list[str]
    """The kernels that were launched, in order: for our own cases as a rule one."""
    counters: dict[str, Annotated[float, msgspec.Meta(ge=0)]]
    """By the names of COUNTERS, in their units."""


class FamilyCounters(msgspec.Struct, frozen=True):
    """The counters of one family on one GPU."""

    schema: int
    family: str
    profile: str
    """quick, standard or full: which cases were profiled."""
    device: str
    """The GPU's name."""
    profiler: str
    """Version of Nsight Compute."""
    cache: str
    """flushed: L1 and L2 were invalidated before each pass, as before each of our cold samples."""
    metrics: dict[str, str]
    """Counter -> the profiler's metric that was read for it."""
    sources: str
    """Digest over kernels/ and bench/, as in the records."""
    cases: list[CaseCounters]
    problems: list[str] = []
    """What is not whole about it, a line each."""


_decoder = msgspec.json.Decoder(FamilyCounters)


def label(family: str, kernel: str, params: Mapping[str, Scalar]) -> str:
    """`axpy/vector[block=256 dtype=float32 n=268435456]`: a case's key as one text.

    It names the case in the profiler's ranges, and joins counters to records.
    """
    words = " ".join(f"{name}={value}" for name, value in sorted(params.items()))
    return f"{family}/{kernel}[{words}]"


def save(folder: Path, found: FamilyCounters) -> Path:
    """Write `<folder>/<family>.json`, replacing it whole.

    Raises:
        UserError: the folder cannot be written to.
    """
    path = folder / f"{found.family}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; name a folder that you may write to with "
            "--output"
        ) from None
    return path


def load(run: Path) -> list[FamilyCounters]:
    """The counters beside a run (its folder, or a file of it), by family; empty without any.

    Raises:
        UserError: a file is damaged or of another schema; one line says which.
    """
    folder = (run if run.is_dir() else run.parent) / FOLDER
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> FamilyCounters:
    try:
        found = _decoder.decode(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise UserError(
            f"{path} holds no counters ({error}); delete it, or profile again with 'make profile'"
        ) from None
    if found.schema != SCHEMA:
        raise UserError(
            f"{path}: schema {found.schema}, this version reads {SCHEMA}: profile again with "
            "'make profile'"
        )
    if found.family != path.stem or len({case.case for case in found.cases}) < len(found.cases):
        raise UserError(
            f"{path} is of another family ({found.family}) or holds a case twice; delete it, or "
            "profile again with 'make profile'"
        )
    unknown = {name for case in found.cases for name in case.counters} - COUNTERS.keys()
    if unknown:
        raise UserError(
            f"{path} has counters that this version does not know ({', '.join(sorted(unknown))}); "
            "delete it, or profile again with 'make profile'"
        )
    return found
