"""How often the verdict cries wolf, and what it finds: `python -m analysis.calibration RUN`.

From recorded processes of one machine whole suites are resampled: two sides of processes drawn
without replacement, all cases of a process together, so that what a process shares stays shared.
Each is judged as `verdict` would, the confirmation in SM cycles included. Without RUN, normal
noise: the law behind the constants of `analysis.evidence`, checked by integration.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.evidence import (
    FALSE_ALARMS,
    MINIMUM,
    NOISY_ALARMS,
    PROMISE,
    QUIET,
    STEADY,
    TIMER_TICK,
    Suite,
    noise_threshold,
    spread,
)
from analysis.readings import Key, Reading, Side, label, sides
from analysis.verdict import judge_case, suite_of
from results.errors import UserError
from results.shell import Parser, guarded, not_whole
from results.store import Recording, load

PROMISED = 0.95


@dataclass(frozen=True)
class Series:
    """One case over all recorded processes."""

    key: Key
    readings: list[Reading]

    @property
    def label(self) -> str:
        return label(self.key[0], self.key[1], dict(self.key[2]))

    @property
    def spread(self) -> float:
        return spread([reading.value for reading in self.readings])

    @property
    def coarse(self) -> bool:
        """Whether two ticks of the timer are over PROMISE in some process."""
        fastest = min(reading.value for reading in self.readings)
        return self.readings[0].quantity.name == "time" and fastest * PROMISE < 2 * TIMER_TICK

    def side(self, processes: Sequence[int]) -> Side:
        return Side([self.readings[process] for process in processes])


@dataclass(frozen=True)
class Figures:
    """What resampling found."""

    suites: int
    side: int
    cases: int
    alarmed: int
    """Suites with at least one false SLOWER or FASTER."""
    alarms: Counter[str]
    """False alarms by case."""
    ambiguous: float
    """Mean number of AMBIGUOUS cases a suite."""
    steady: int
    """Cases whose spread over all processes is at most STEADY."""
    coarse: int
    """Steady cases for which two ticks of the timer are over PROMISE: no rule can find 2%."""
    found: dict[str, float]
    """Steady case that is not coarse -> share of suites that found its injected slow-down."""


def series(recording: Recording) -> list[Series]:
    """Every case that all processes of a run measured in one quantity.

    Raises:
        UserError: there is none.
    """
    found = []
    count = len(recording.processes)
    for key, side in sides(recording).items():
        quantities = {reading.quantity for reading in side.readings}
        if len(side.readings) == count and len(quantities) == 1:
            found.append(Series(key, side.readings))
    if not found:
        raise UserError(f"{recording.path}: no case has a number in each of {count} processes")
    return found


def resample(cases: Sequence[Series], side: int, suites: int, seed: int = 1) -> Figures:
    """Compare `suites` times `side` processes with `side` others, as they are and with 2% added.

    Raises:
        UserError: fewer than 2 x side processes.
    """
    count = len(cases[0].readings)
    if count < 2 * side:
        raise UserError(f"{count} processes do not make two sides of {side}; record more")
    generator = random.Random(seed)
    alarms: Counter[str] = Counter()
    alarmed = ambiguous = 0
    steady = [case for case in cases if case.spread <= STEADY]
    hits = {case.label: 0 for case in steady if not case.coarse}
    for _ in range(suites):
        drawn = generator.sample(range(count), 2 * side)
        pairs = [(case.side(drawn[:side]), case.side(drawn[side:])) for case in cases]
        suite = suite_of(pairs)
        wrong = []
        for case, (base, new) in zip(cases, pairs, strict=True):
            verdict = judge_case(case.key, base, new, suite).verdict
            ambiguous += verdict == "AMBIGUOUS"
            if verdict in ("SLOWER", "FASTER"):
                wrong.append(case.label)
            if case.label in hits:
                hits[case.label] += (
                    judge_case(case.key, base, slowed(new), suite).verdict == "SLOWER"
                )
        alarms.update(wrong)
        alarmed += bool(wrong)
    return Figures(
        suites,
        side,
        len(cases),
        alarmed,
        alarms,
        ambiguous / suites,
        len(steady),
        len(steady) - len(hits),
        {name: hit / suites for name, hit in hits.items()},
    )


def slowed(side: Side) -> Side:
    """The same side, slower by PROMISE in what it is judged in."""
    return Side(
        [
            replace(reading, value=reading.value * (1 + PROMISE))
            if reading.quantity.better == "lower"
            else replace(reading, value=reading.value / (1 + PROMISE))
            for reading in side.readings
        ]
    )


def tell(figures: Figures) -> str:
    """The figures as text, worst cases by name."""
    f = figures
    lines = [
        f"{f.suites} whole-suite comparisons of {f.side} with {f.side} processes, {f.cases} cases",
        f"false alarms without a change: {f.alarmed} of {f.suites} suites "
        f"({f.alarmed / f.suites:.2%}, by these draws {_interval(f.alarmed, f.suites)}; at most "
        f"{FALSE_ALARMS:.0%} is promised); "
        f"{f.ambiguous:.1f} AMBIGUOUS cases a suite",
    ]
    lines += [f"  {count} × {name}" for name, count in f.alarms.most_common(5)]
    lines.append(
        f"spread at most {STEADY:.1%}: {f.steady} of {f.cases} cases ({f.steady / f.cases:.0%}), "
        f"{f.coarse} of them so short that {PROMISE:.0%} are under two ticks of the timer"
    )
    if f.found:
        mean = sum(f.found.values()) / len(f.found)
        under = sum(share < PROMISED for share in f.found.values())
        lines.append(
            f"{PROMISE:.0%} slow-down found in those {len(f.found)}: {mean:.1%} of comparisons "
            f"(at least {PROMISED:.0%} is promised); {under} cases are under {PROMISED:.0%}"
        )
        worst = sorted(f.found.items(), key=lambda item: item[1])[:3]
        lines += [f"  {share:.1%} {name}" for name, share in worst if share < 1]
    return "\n".join(lines)


def _interval(count: int, of: int) -> str:
    """Wilson's 95% interval of a share: what drawing more suites from these processes may show."""
    from scipy.stats import binomtest

    ends = binomtest(count, of).proportion_ci(0.95, "wilson")
    return f"{ends.low:.2%} to {ends.high:.2%}"


def theory(cases: int = 500, side: int = MINIMUM) -> str:
    """The same two figures for normal noise, by true spread, integrated and not drawn.

    Difference of means and pooled variance of normal logarithms are independent, so that the
    chance of passing the threshold is the mean of 2 Q(T(s) / (sigma c)) over s, a chi variable
    of 2 side - 2 degrees of freedom, with c = sqrt(2 / side). That all processes have to be apart
    as well makes it smaller still.
    """
    import numpy as np
    from scipy import stats

    grid = np.concatenate([np.logspace(-14, -3, 3000), np.linspace(1e-3, 1, 3001)[1:-1]])
    weights = np.gradient(grid)
    freedom, reach = 2 * side - 2, (2 / side) ** 0.5
    heads = "true spread   quiet suite: alarms a suite   noisy suite   2% found"
    lines = [f"normal noise, {cases} cases, {side} processes a side", heads]
    quiet, noisy = Suite(cases, 0), Suite(cases, cases)
    for sigma in (0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.02, 0.05):
        widths = sigma * np.sqrt(stats.chi2.ppf(grid, freedom) / freedom)
        chances = []
        for suite in (quiet, noisy):
            bound = np.array([noise_threshold(w, side, side, suite) for w in widths])
            chances.append(float(np.sum(weights * 2 * stats.norm.sf(bound / sigma / reach))))
        bound = np.array([noise_threshold(w, side, side, quiet) for w in widths])
        found = float(np.sum(weights * stats.norm.sf((bound - PROMISE) / sigma / reach)))
        lines.append(
            f"{sigma:10.1%}   {chances[0] * cases:14.5f} ({chances[0]:.1e} a case)   "
            f"{chances[1] * cases:9.5f}   {min(found, 1):8.1%}"
        )
    lines.append(f"a quiet suite has at most {0.005 / NOISY_ALARMS:.0f} cases over {QUIET:.2%}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the false alarms of a run, or those to expect in theory; 2: the run is not whole."""
    return guarded(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    parser = Parser(prog="python -m analysis.calibration", description=__doc__.partition("\n")[0])
    parser.add_argument("RUN", nargs="?", help="a run of many processes; absent: theory")
    parser.add_argument("--side", type=int, default=MINIMUM, help="processes a side")
    parser.add_argument("--suites", type=int, default=1000, help="comparisons to resample")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    if arguments.side < MINIMUM:
        raise UserError(f"--side {arguments.side}: a verdict needs {MINIMUM} processes a side")
    if arguments.suites < 1:
        raise UserError(f"--suites {arguments.suites}: at least one is drawn")
    if arguments.RUN is None:
        print(theory(side=arguments.side))
        return 0
    recording = load(arguments.RUN)
    cases = series(recording)
    print(f"{recording.device.get('name')}, {len(recording.processes)} processes recorded")
    print(tell(resample(cases, arguments.side, arguments.suites, arguments.seed)))
    return not_whole(recording.problems)


if __name__ == "__main__":
    sys.exit(main())
