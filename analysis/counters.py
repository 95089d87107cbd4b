"""Is the number what we think it is? Hardware counters beside the record, case by case.

Three judgements, each with the cause that the other counters point to: bytes counted at DRAM
against bytes declared, resident warps against the launch's prediction, the profiler's time against
ours. Nothing is judged where the comparison would be unfair; the constants say where that is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from analysis import units
from analysis.frame import frame
from results.counters import STATES, FamilyCounters, label, load
from results.errors import UserError
from results.store import Recording

BYTES = 0.05
"""Counted and declared bytes may differ by this share of the declared ones."""
STREAMING = 16 << 20
"""Bytes from which on a case is judged: below, code, constants and page tables weigh in."""
TIME = 0.03
"""The profiler's time and ours may differ by this share, and its by what a clean L2 spares it."""
LONG = 50e-6
"""Seconds from which on times are compared: below, starting and ending weigh in."""
RESIDENCY = 0.10
"""Resident warps may be this share under the prediction; blocks come and go in between."""
MORE = 0.02
"""And this share over it: more than fit cannot be resident, so the prediction is wrong."""
STEADY = 20e-6
"""Seconds from which on residency is judged: a few µs pass until every SM is full."""
BRIEF = 20e-6
"""A block that has its place for less is short: its warps come and go for about a tenth of that
(the H200's short blocks, 0.8 to 11 µs, are without half a wave of warps for 0.2 to 2 µs)."""
WHOLE = 0.05
"""The states' shares add up to 1 within this, or are left out: they are counted in several replays
of the launch, and very short kernels differ from one to the next."""
FEW = 4
"""Warps an SM for which the time was seen to depend on where the arrays lie: docs/verdict.md."""

Kind = Literal["bytes", "residency", "time"]


@dataclass(frozen=True)
class Suspect:
    """A case of which a number is not what we think, as it seems."""

    case: str
    kind: Kind
    deviation: float
    """Relative, with its sign: counted over expected, minus one."""
    text: str
    """What was found."""
    cause: str
    """The likely cause."""


def of_run(recording: Recording) -> list[FamilyCounters]:
    """The counters beside a run, by family; empty without any.

    Raises:
        UserError: a file is damaged, of another schema, or of another GPU than the run's.
    """
    found = load(recording.path)
    for item in found:
        if item.device != (gpu := str(recording.device.get("name"))):
            raise UserError(
                f"{recording.name}: the counters of {item.family} are of a {item.device}, the run "
                f"of a {gpu}; delete them, or profile again with 'make profile'"
            )
    return found


def strangers(recording: Recording, found: list[FamilyCounters]) -> list[str]:
    """Counted cases that the run does not have, a line a family."""
    known = {
        label(case.family, case.kernel, case.params)
        for file in recording.files
        for case in file.cases
    }
    lost = {item.family: [c.case for c in item.cases if c.case not in known] for item in found}
    return [
        f"{family}: {len(names)} counted cases are not in the run, {names[0]} for one"
        for family, names in lost.items()
        if names
    ]


def table(
    recording: Recording,
    found: list[FamilyCounters] | None = None,
    cases: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row a case that both were measured and profiled, in the order of the run.

    Columns: `case` (label), `family`, `kernel`, `params`, `peer`, `cold` (its samples were taken
    with L2 flushed), `cache_resident`, `launches`, `seconds` (our median), `work` and `launch` (as
    in analysis.frame), every counter under its name, and the shares made of them: `achieved` and
    `predicted` warps an SM (the least and the most that the launch can give: `at_least`,
    `at_most`), `waves` (blocks over all that fit at once), `issue_used` (of the issue slots),
    `share_<state>` (of the resident warps' cycles), `ready`, `conflicts` (of shared memory's
    cycles), `clock` (Hz, while profiled). SI units; absent: NaN. `found` (of_run) and `cases`
    (analysis.frame) are read where they are not given.
    """
    found = of_run(recording) if found is None else found
    counted = {case.case: case for family in found for case in family.cases}
    cold = _cold(recording)
    device = recording.device
    rows = []
    for row in (frame(recording) if cases is None else cases).to_dict("records"):
        name = label(row["family"], row["kernel"], row["params"])
        if (case := counted.get(name)) is None or row["status"] != "ok":
            continue
        rows.append(
            {
                "case": name,
                **{key: row[key] for key in ("family", "kernel", "params", "peer", "work")},
                "launch": row["launch"],
                "cold": cold.get(name, False),
                "cache_resident": row["cache_resident"],
                "launches": len(case.kernels),
                "seconds": row["median_seconds"],
                **case.counters,
                **_shares(case.counters, _number(device, "sms")),
                **_residency(row["launch"], len(case.kernels), _sms(row, device)),
            }
        )
    return pd.DataFrame(rows, columns=_columns(rows))


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """What judging reads is there even where no case has it."""
    always = ["case", "family", "kernel", "params", "peer", "work", "launch", "cold"]
    always += ["cache_resident", "launches", "seconds", "time", "dram_read", "dram_written"]
    always += ["achieved", "at_least", "at_most", "waves", "issue_used", "ready", "conflicts"]
    always += ["clock", "l2_from_l1", "local_loaded", "local_stored"]
    return list(dict.fromkeys([*always, *(name for row in rows for name in row)]))


def _cold(recording: Recording) -> dict[str, bool]:
    return {
        label(case.family, case.kernel, case.params): case.samples.cache == "cold"
        for file in recording.files
        for case in file.cases
        if case.samples is not None
    }


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    return float(value) if isinstance(value, int | float) else None


def _shares(counters: Mapping[str, float], sms: float | None) -> dict[str, float]:
    """Quotients of counters; one whose parts are not there is left out."""
    found = {}
    for name, part, whole in (
        ("achieved", "sm_warp_cycles", "sm_cycles"),
        ("issue_used", "issued", "scheduler_cycles"),
        ("conflicts", "bank_conflicts", "shared_wavefronts"),
        ("ready", "eligible", "warp_cycles"),
        *((f"share_{state.name}", state.counter, "warp_cycles") for state in STATES.values()),
    ):
        if part in counters and counters.get(whole):
            found[name] = counters[part] / counters[whole]
    states = [name for name in found if name.startswith("share_")]
    if abs(sum(found[name] for name in states) - 1) > WHOLE:
        for name in states:
            del found[name]
    if sms and counters.get("time") and "sm_cycles_elapsed" in counters:
        found["clock"] = counters["sm_cycles_elapsed"] / sms / counters["time"]
    return found


def _sms(row: Mapping[Any, Any], device: Mapping[str, Any]) -> float | None:
    """SMs that the case ran on: a green context has some of the device's."""
    used = row.get("sms_used", math.nan)
    return _number(device, "sms") if pd.isna(used) else float(used)


def _residency(launch: Mapping[str, Any], launches: int, sms: float | None) -> dict[str, float]:
    """Warps that a busy SM holds, on average over the kernel: the least and the most.

    At most what the driver lets be resident, or what there is where the grid is smaller. At least
    an equal share of the grid where every block takes equally long: of 1.5 waves, 0.75 a wave.
    """
    if launches != 1 or not sms or not {"grid", "block", "blocks_per_sm"} <= launch.keys():
        return {}
    blocks, resident = math.prod(launch["grid"]), launch["blocks_per_sm"]
    warps = -(-math.prod(launch["block"]) // 32)
    if blocks <= 0 or resident <= 0 or warps <= 0:
        return {}
    waves = math.ceil(blocks / (sms * resident))
    least = min(max(blocks / (sms * waves), 1.0), resident)
    return {
        "at_least": least * warps,
        "at_most": min(resident, math.ceil(blocks / sms) if blocks > sms else 1) * warps,
        "waves": blocks / (sms * resident),
    }


def suspects(rows: pd.DataFrame, l2_bytes: float) -> list[Suspect]:
    """What is not as declared or predicted among the rows of `table`, the worst first of a kind.

    `l2_bytes` is the size of L2, B: that much of what a kernel writes may still lie there when it
    ends, and is not counted at DRAM.
    """
    judges: tuple[Callable[[Mapping[str, Any]], Iterator[Suspect]], ...] = (
        lambda row: _bytes(row, l2_bytes),
        _warps,
        _time,
    )
    records: list[dict[Any, Any]] = rows.to_dict("records")
    found = []
    for judge in judges:
        of_kind = [item for row in records for item in judge(row)]
        found += sorted(of_kind, key=lambda item: -abs(item.deviation))
    return found


def streaming(row: Mapping[str, Any]) -> bool:
    """Are its declared bytes to be met at DRAM: cold, too much to be noise, not meant for cache?"""
    moved = sum(declared(row))
    return bool(
        row["cold"]
        and not row["cache_resident"]
        and moved >= STREAMING
        and not math.isnan(row["dram_read"] + row["dram_written"])
    )


def declared(row: Mapping[str, Any]) -> tuple[float, float]:
    """Bytes that the kernel says it reads and writes."""
    work = row["work"]
    return float(work.get("bytes_read", 0)), float(work.get("bytes_written", 0))


def deviation(row: Mapping[str, Any], l2_bytes: float) -> float:
    """Counted bytes beyond those that are explained, over the declared ones; 0 where all are.

    Reads must be met; of the writes up to `l2_bytes` may be missing.
    """
    read, written = declared(row)
    reads = row["dram_read"] - read
    writes = row["dram_written"] - written
    if writes < 0:
        writes = min(0.0, writes + l2_bytes)
    worse = max(reads, writes, reads + writes, key=abs)
    return float(worse / (read + written))


def _bytes(row: Mapping[str, Any], l2_bytes: float) -> Iterator[Suspect]:
    if not streaming(row):
        return
    off = deviation(row, l2_bytes)
    if abs(off) <= BYTES:
        return
    read, written = declared(row)
    text = (
        f"DRAM read {units.size(row['dram_read'])} of {units.size(read)} declared, "
        f"wrote {units.size(row['dram_written'])} of {units.size(written)}"
    )
    yield Suspect(row["case"], "bytes", off, text, _why_bytes(row, off))


def _why_bytes(row: Mapping[str, Any], off: float) -> str:
    """What the traffic above DRAM says about it."""
    total = sum(declared(row))
    asked, local = row["l2_from_l1"], row["local_loaded"] + row["local_stored"]
    if off > 0 and local > BYTES * total:
        return f"local memory moves {units.size(local)}, so registers were spilled"
    if math.isnan(asked):
        return "why is not known, for what L1 asked L2 for was not counted"
    if off > 0 and asked > (1 + BYTES) * total:
        return f"L1 asked L2 for {units.size(asked)}, so accesses repeat or use parts of sectors"
    if off > 0:
        return "L1 did not ask for more than is declared, so L2 fetched lines more than once"
    if asked < (1 - BYTES) * total:
        return (
            f"L1 asked L2 for {units.size(asked)} only, so the kernel moves less than it declares"
        )
    return "L1 asked for all of it, so L2 had a part: the kernel meets its data more than once"


def _warps(row: Mapping[str, Any]) -> Iterator[Suspect]:
    achieved, least, most = row["achieved"], row["at_least"], row["at_most"]
    if any(map(math.isnan, (achieved, least, most))) or not row["time"] >= STEADY:
        return
    if achieved > (1 + MORE) * most:
        off = achieved / most - 1
        why = "more than the driver said would fit, so it was asked about another launch"
    elif achieved < (1 - RESIDENCY) * least:
        off = achieved / least - 1
        why = _why_fewer(row)
    else:
        return
    expected = f"{least:.1f}" if round(least, 1) == round(most, 1) else f"{least:.1f} to {most:.1f}"
    text = f"{achieved:.1f} warps were resident on an SM, {expected} were predicted"
    if row["waves"] > 1:
        text += f"; a block has its place for {units.seconds(_place(row))}"
    yield Suspect(row["case"], "residency", off, text, why)


def _why_fewer(row: Mapping[str, Any]) -> str:
    """What the launch says about it."""
    if row["waves"] <= 1:
        return (
            "all blocks start together, and some warps end long before the last: their work is "
            "unequal, or the schedulers let some go first"
        )
    if _place(row) >= BRIEF:
        return "blocks take unequally long"
    return (
        "blocks are short beside the time until a successor's warps are there, or some of their "
        "warps end at once"
    )


def _place(row: Mapping[str, Any]) -> float:
    """How long a block has its place on an SM, s: equal blocks end wave by wave."""
    return float(row["time"] / math.ceil(row["waves"]))


def timed(row: Mapping[str, Any]) -> bool:
    """Are the two times to be compared? Both must be cold and long."""
    return bool(row["cold"] and row["seconds"] >= LONG and row["time"] > 0)


def _time(row: Mapping[str, Any]) -> Iterator[Suspect]:
    if not timed(row):
        return
    off = row["time"] / row["seconds"] - 1
    if -TIME - spared(row) <= off <= TIME:
        return
    if row["launches"] > 1:
        why = f"ours holds the gaps between {row['launches']} launches, the profiler's sum does not"
    elif row["achieved"] <= FEW and streaming(row):
        why = (
            "few warps wait for one load after another, and how long that takes may depend on "
            "where a process's arrays lie (python -m bench.placement)"
        )
    elif not math.isnan(row["clock"]):
        why = f"the SMs ran at {units.hertz(row['clock'])} while profiled"
    else:
        why = "the clocks while profiled are not known"
    text = f"the profiler counted {units.seconds(row['time'])}, we {units.seconds(row['seconds'])}"
    yield Suspect(row["case"], "time", off, text, why)


def spared(row: Mapping[str, Any]) -> float:
    """Share of the declared bytes that were written in the profiler's launch and not to DRAM.

    There L2 is clean at first, and keeps what is written last. Ours starts among as many dirty
    lines as it leaves, and pays for them. A few warps wait for what they read alone.
    """
    if not streaming(row) or row["achieved"] <= FEW:
        return 0.0
    read, written = declared(row)
    return max(0.0, written - float(row["dram_written"])) / (read + written)


def top_states(row: Mapping[str, Any], count: int = 3) -> list[tuple[str, float]]:
    """The states in which the case's warps spent most of their time, with their shares."""
    shares = [(name, row.get(f"share_{name}", math.nan)) for name in STATES]
    known = [(name, share) for name, share in shares if share > 0]
    return sorted(known, key=lambda item: -item[1])[:count]
