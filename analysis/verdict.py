"""BASE against NEW on one GPU model: a verdict for every case, and an exit code for all of them.

`analysis.readings` gathers the evidence and `analysis.evidence` has the rule; here each case is
judged, and a change is explained: by other machine code, by another launch, by a clock, or by what
surrounds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from analysis.accepted import Acceptance
from analysis.evidence import (
    MINIMUM,
    QUIET,
    TIMER_TICK,
    Judgement,
    Suite,
    Verdict,
    judge,
    spread,
)
from analysis.provenance import Change, changes
from analysis.readings import Key, Quantity, Side, label, sides
from results.errors import UserError
from results.schema import Scalar
from results.store import Recording


@dataclass(frozen=True)
class CaseVerdict:
    """The verdict of one case."""

    family: str
    kernel: str
    params: dict[str, Scalar]
    verdict: Verdict
    reason: str = ""
    lost: bool = False
    """True where NEW should have a number and has none that can be compared."""
    metric: str | None = None
    unit: str | None = None
    base: float | None = None
    """Geometric mean of the process medians, in `unit`."""
    new: float | None = None
    effect: float | None = None
    threshold: float | None = None
    spread: float | None = None
    processes: tuple[int, int] = (0, 0)
    cause: Literal["code", "launch", "clock", "environment", "unknown"] | None = None
    accepted: str | None = None
    """Reason of the accepted change that was taken into account."""

    @property
    def label(self) -> str:
        return label(self.family, self.kernel, self.params)


@dataclass(frozen=True)
class Comparison:
    """BASE against NEW."""

    base: str
    new: str
    gpu: str
    cases: list[CaseVerdict]
    problems: list[str]
    """Why the runs are not whole, a line each."""
    environment: list[Change]
    suite: Suite
    """The rule's view of the whole, on which its thresholds depend."""

    def of(self, verdict: Verdict) -> list[CaseVerdict]:
        return [case for case in self.cases if case.verdict == verdict]

    @property
    def exit_code(self) -> int:
        """1 a regression; 2 cannot tell or not whole; 0 good."""
        if self.of("SLOWER"):
            return 1
        unsure = self.problems or self.of("AMBIGUOUS") or any(case.lost for case in self.cases)
        # Two runs without one common number say nothing, which is not the same as nothing wrong.
        return 2 if unsure or not (self.of("SAME") or self.of("FASTER")) else 0


def compare(base: Recording, new: Recording, accepted: Sequence[Acceptance] = ()) -> Comparison:
    """Judge every case of two runs.

    Raises:
        UserError: the runs come from different GPU models.
    """
    models = [str(run.device.get("name")) for run in (base, new)]
    if models[0] != models[1]:
        raise UserError(
            f"BASE is a {models[0]} and NEW a {models[1]}: different GPU models are never gated; "
            "'python -m analysis compare' sets them side by side"
        )
    before, after = sides(base), sides(new)
    accepted = [item for item in accepted if item.gpu == models[0]]
    around = changes([file.run for file in base.files], [file.run for file in new.files])
    others = _other_profiles(base, new)
    decided: dict[Key, CaseVerdict] = {}
    open_cases: dict[Key, tuple[Side, Side]] = {}
    for name in dict.fromkeys([*before, *after]):
        pair = before.get(name, Side()), after.get(name, Side())
        verdict = without_numbers(name, *pair, accepted)
        if verdict is None:
            open_cases[name] = pair
        else:
            decided[name] = verdict
    suite = suite_of(open_cases.values())
    for name, pair in open_cases.items():
        found = judge_case(name, *pair, suite, accepted, around)
        decided[name] = _across(found, others[name[0]]) if name[0] in others else found
    problems = [
        f"{side}: {line}" for side, run in (("BASE", base), ("NEW", new)) for line in run.problems
    ]
    problems += [
        f"other profiles, {text}: no change is called one in {', '.join(names)}; "
        "record both with one --profile"
        for text in dict.fromkeys(others.values())
        if (names := sorted(family for family, told in others.items() if told == text))
    ]
    cases = [decided[name] for name in dict.fromkeys([*before, *after])]
    return Comparison(base.name, new.name, models[0], cases, problems, around, suite)


def without_numbers(
    name: Key, base: Side, new: Side, accepted: Sequence[Acceptance]
) -> CaseVerdict | None:
    """The verdict of a case in which there is nothing to measure by; None where there is."""
    here = CaseVerdict(
        name[0],
        name[1],
        dict(name[2]),
        "NO_DATA",
        processes=(len(base.readings), len(new.readings)),
    )
    if not new.processes:
        return replace(here, reason="not in NEW", lost=True)
    if not base.processes:
        return replace(here, reason="not in BASE: a new case")
    for status in ("failed", "throttled"):
        bad = new.reasons.get(status, [])
        enough = status == "throttled" and len(new.readings) >= MINIMUM
        if not bad or enough:
            continue
        text = f"{status} in {len(bad)} of {new.processes} processes: {bad[0]}"
        if status in base.reasons:
            return replace(here, reason=f"{text}; so it was in BASE", lost=True)
        if known := [a for a in accepted if a.ratio is None and a.between(name, base, new)]:
            return replace(here, reason=text, accepted=known[-1].reason)
        return replace(here, verdict="SLOWER", reason=f"newly {text}")
    if not base.readings or not new.readings:
        return replace(here, reason=_absent(base, new), lost=bool(base.readings))
    quantities = {reading.quantity for reading in (*base.readings, *new.readings)}
    if len(quantities) > 1:
        return replace(here, reason=_disagreement(quantities), lost=True)
    return None


def _absent(base: Side, new: Side) -> str:
    for side, name in ((new, "NEW"), (base, "BASE")):
        if not side.readings:
            status, reasons = next(iter(side.reasons.items()))
            return f"{status} in {name}: {reasons[0]}"
    raise AssertionError("unreachable: one side is without readings")


def _disagreement(quantities: set[Quantity]) -> str:
    told = []
    for part in ("name", "unit", "cache", "work"):
        values = {str(getattr(quantity, part)) for quantity in quantities}
        if len(values) > 1:
            told.append(f"{part} {' and '.join(sorted(values))}")
    return f"the sides measured different things: {'; '.join(told)}; record BASE again"


def _other_profiles(base: Recording, new: Recording) -> dict[str, str]:
    """Family -> "standard in BASE, quick in NEW", where both have it with different profiles."""
    told = [
        {
            family: " or ".join(
                sorted({f.run.profile for f in run.files if f.run.family == family})
            )
            for family in run.families
        }
        for run in (base, new)
    ]
    return {
        family: f"{profile} in BASE, {told[1][family]} in NEW"
        for family, profile in told[0].items()
        if told[1].get(family, profile) != profile
    }


def _across(found: CaseVerdict, profiles: str) -> CaseVerdict:
    """Between profiles no change is called one: other cases ran before this one in its process,
    which can move its level. Standard and quick processes of H200s, with the same machine code, are
    apart by 1.0% to 2.4% in five cases, all 5 processes from all 20."""
    if found.verdict not in ("SLOWER", "FASTER"):
        return found
    reason = f"other profiles ({profiles}): other cases ran before it, which can move its level"
    return replace(found, verdict="AMBIGUOUS", reason=reason, cause=None)


def suite_of(pairs: Iterable[tuple[Side, Side]]) -> Suite:
    """How many cases with enough processes a comparison has, and how many of them are noisy."""
    widths = [
        spread(*([reading.value for reading in side.readings] for side in pair))
        for pair in pairs
        if min(len(side.readings) for side in pair) >= MINIMUM
    ]
    return Suite(max(1, len(widths)), sum(width > QUIET for width in widths))


def judge_case(
    name: Key,
    base: Side,
    new: Side,
    suite: Suite,
    accepted: Sequence[Acceptance] = (),
    around: Sequence[Change] = (),
) -> CaseVerdict:
    """The verdict of one case that both sides measured in one quantity.

    Args:
        suite: the comparison that this case is a part of.
        accepted: known changes on this GPU model.
        around: what the headers of the two sides do not share.
    """
    quantity = base.readings[0].quantity
    known = [a for a in accepted if a.ratio is not None and a.between(name, base, new)]
    factor = math.prod(a.ratio for a in known if a.ratio is not None and a.metric == quantity.name)
    values = [reading.value * factor for reading in base.readings]
    others = [reading.value for reading in new.readings]
    tick = TIMER_TICK if quantity.name == "time" else 0.0
    found = judge(values, others, suite, better=quantity.better, tick=tick)
    cause: Any = None
    clock = _clocks(base, new)
    if clock and min(len(values), len(others)) >= MINIMUM:
        found, cause = _confirm(found, base, new, suite, factor, clock)
    if found.verdict in ("SLOWER", "FASTER"):
        cause, text = _explain(base, new, around)
        found = replace(found, reason="; ".join(filter(None, (found.reason, text))))
    low = math.exp(math.fsum(map(math.log, values)) / len(values))
    return CaseVerdict(
        name[0],
        name[1],
        dict(name[2]),
        found.verdict,
        found.reason,
        metric=quantity.name,
        unit=quantity.unit,
        base=low,
        new=low * (1 + found.effect),
        effect=found.effect,
        threshold=found.threshold if math.isfinite(found.threshold) else None,
        spread=found.spread,
        processes=(len(values), len(others)),
        cause=cause,
        accepted="; ".join(a.reason for a in known) or None,
    )


def _clocks(base: Side, new: Side) -> tuple[float, float] | None:
    """Median SM clock of each side, Hz; None where a process could not read it."""
    clocks = [[r.clock for r in side.readings if r.clock] for side in (base, new)]
    if any(len(c) < len(s.readings) for c, s in zip(clocks, (base, new), strict=True)):
        return None
    return median(clocks[0]), median(clocks[1])


def _confirm(
    seconds: Judgement,
    base: Side,
    new: Side,
    suite: Suite,
    factor: float,
    clock: tuple[float, float],
) -> tuple[Judgement, str | None]:
    """A change in seconds stands where SM cycles changed too; else it is the clock's."""
    cycles = judge(
        [reading.value * factor * (reading.clock or 0.0) for reading in base.readings],
        [reading.value * (reading.clock or 0.0) for reading in new.readings],
        suite,
        tick=TIMER_TICK * max(clock),
    )
    both = (
        f"{seconds.effect:+.1%} in seconds, {cycles.effect:+.1%} in SM cycles, "
        f"SM clock {clock[0] / 1e6:.0f} → {clock[1] / 1e6:.0f} MHz"
    )
    changed = ("SLOWER", "FASTER")
    if seconds.verdict in changed:
        if cycles.verdict == seconds.verdict:
            return replace(seconds, reason=f"confirmed: {both}"), None
        if cycles.verdict == "SAME":
            return replace(seconds, verdict="SAME", reason=f"a clock change: {both}"), "clock"
        return replace(seconds, verdict="AMBIGUOUS", reason=f"not confirmed: {both}"), "clock"
    if seconds.verdict == "SAME" and cycles.verdict in changed:
        hidden = f"the clock hides a change: {both}"
        return replace(seconds, verdict="AMBIGUOUS", reason=hidden), "clock"
    return seconds, None


def _explain(base: Side, new: Side, around: Sequence[Change]) -> tuple[str, str]:
    """Cause and its words for a change: machine code, launch, or what surrounds the kernel."""
    codes = [{reading.code for reading in side.readings} for side in (base, new)]
    shapes = [{reading.launch for reading in side.readings} for side in (base, new)]
    what = ", ".join(map(str, around)) or "nothing that is recorded; measure again"
    if None in codes[0] | codes[1]:
        return "unknown", f"machine code not recorded (a library's kernel?); changed: {what}"
    if codes[0] != codes[1]:
        return "code", "machine code changed"
    if shapes[0] != shapes[1]:
        return "launch", "same machine code, another launch (grid, block, shared memory)"
    return "environment", f"same machine code: the environment's; changed: {what}"
