"""The figures of the calibration on processes drawn from a known law."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from analysis.calibration import Series, main, resample, tell, theory
from analysis.readings import Quantity, Reading
from results.errors import UserError

TIME = Quantity("time", "s", "lower", "cold", None)


def timed(name: str, values: list[float], clock: float | None = None) -> Series:
    return Series(("f", name, ()), [Reading(TIME, value, clock, "0" * 16, ()) for value in values])


def drawn(name: str, sigma: float, seconds: float = 1e-3, processes: int = 20) -> Series:
    generator = random.Random(name)
    values = [seconds * generator.lognormvariate(0, sigma) for _ in range(processes)]
    return timed(name, values)


def test_quiet_cases_raise_no_alarm_and_show_two_percent() -> None:
    figures = resample([drawn(f"quiet {i}", 0.001) for i in range(20)], side=5, suites=50)
    assert figures.alarmed == 0
    assert figures.steady == 20
    assert min(figures.found.values()) == 1
    assert "20 of 20 cases (100%)" in tell(figures)


def test_a_false_alarm_is_counted_and_named() -> None:
    """Two far levels, half of the processes each: two sides are now and then one of each."""
    two = timed("two levels", [1e-3] * 10 + [1.1e-3] * 10)
    figures = resample([two], side=5, suites=400)
    assert 0 < figures.alarmed < 40
    assert figures.alarms["f/two levels"] == figures.alarmed
    assert "× f/two levels" in tell(figures)


def test_the_confirmation_in_cycles_is_a_part_of_it() -> None:
    """Half of the processes at a lower clock: the same cycles, and no alarm."""
    values = [1e-3] * 10 + [1.1e-3] * 10
    series = timed("clocks", values)
    clocked = [replace(reading, clock=2e6 / reading.value) for reading in series.readings]
    figures = resample([replace(series, readings=clocked)], side=5, suites=400)
    assert figures.alarmed == 0


def test_noisy_and_short_cases_are_told_apart() -> None:
    noisy, short = drawn("noisy", 0.02), timed("short", [2e-6] * 20)
    figures = resample([noisy, short, drawn("quiet", 0.001)], side=5, suites=20)
    assert (figures.steady, figures.coarse, list(figures.found)) == (2, 1, ["f/quiet"])
    assert figures.ambiguous > 0


def test_too_few_processes_are_refused() -> None:
    with pytest.raises(UserError, match="6 processes do not make two sides of 5"):
        resample([drawn("few", 0.001, processes=6)], side=5, suites=1)


def test_theory_keeps_the_promise_where_it_is_made() -> None:
    rows = {line.split()[0]: line.split() for line in theory().splitlines()[2:-1]}
    assert float(rows["0.3%"][-1].rstrip("%")) >= 95
    assert all(float(row[-2]) <= 0.01 for row in rows.values()), "any noise, a noisy suite"


def test_a_missing_run_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no such run"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nvidia-h200-quick", "--side", "0"], "--side 0: a verdict needs 5 processes a side"),
        (["--side", "-3"], "--side -3: a verdict needs 5"),
        (["nvidia-h200-quick", "--suites", "0"], "--suites 0: at least one is drawn"),
    ],
)
def test_numbers_that_ask_nothing_are_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
