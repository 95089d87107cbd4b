"""The verdict on made-up runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from analysis import accepted
from analysis.evidence import MINIMUM
from analysis.verdict import CaseVerdict, Comparison, compare
from results.errors import UserError
from results.schema import Case, Work
from results.store import load
from tests.analysis.made_up import RIPPLE, Make, bad, both, timed

pytestmark = pytest.mark.usefixtures("own_accepted")


@pytest.fixture
def judged(run: Callable[..., Path]) -> Callable[..., Comparison]:
    """judged(make of BASE, make of NEW, **options of NEW) -> comparison."""

    def verdict(base: Make, new: Make, **options: object) -> Comparison:
        options = {"started": "2000-01-02", **options}
        return compare(load(run("base", base)), load(run("new", new, **options)), accepted.load())

    return verdict


def only(found: Comparison) -> CaseVerdict:
    assert len(found.cases) == 1
    return found.cases[0]


def test_the_same_is_the_same(judged: Callable[..., Comparison]) -> None:
    found = judged(timed(), timed())
    assert only(found).verdict == "SAME"
    assert found.exit_code == 0


@pytest.mark.parametrize(
    ("factor", "verdict", "code"),
    [(1.02, "SLOWER", 1), (0.98, "FASTER", 0), (1.005, "SAME", 0), (1.5, "SLOWER", 1)],
)
def test_a_change_of_time(
    judged: Callable[..., Comparison], factor: float, verdict: str, code: int
) -> None:
    found = judged(timed(), timed(seconds=1e-3 * factor))
    assert only(found).verdict == verdict
    assert only(found).effect == pytest.approx(factor - 1, abs=1e-3)
    assert found.exit_code == code


def test_all_equal_samples_are_judged_without_a_spread(judged: Callable[..., Comparison]) -> None:
    assert only(judged(timed(ripple=False), timed(ripple=False))).verdict == "SAME"


def test_all_equal_samples_do_not_hide_a_change(judged: Callable[..., Comparison]) -> None:
    case = only(judged(timed(ripple=False), timed(seconds=1.02e-3, ripple=False)))
    assert case.verdict == "SLOWER"
    assert case.spread == 0


def test_two_ticks_of_the_timer_are_no_change(judged: Callable[..., Comparison]) -> None:
    short = judged(timed(seconds=2.00e-6, ripple=False), timed(seconds=2.06e-6, ripple=False))
    assert only(short).verdict == "SAME", "3% of 2 µs are under two ticks of 32 ns"


@pytest.mark.parametrize("processes", [1, 4])
def test_too_few_processes_say_what_is_needed(
    judged: Callable[..., Comparison], processes: int
) -> None:
    found = judged(timed(), timed(seconds=2e-3), processes=processes)
    assert only(found).verdict == "AMBIGUOUS"
    assert f"{processes} in NEW: at least {MINIMUM} processes" in only(found).reason
    assert found.exit_code == 2


def test_a_case_too_noisy_for_the_promise_is_named(judged: Callable[..., Comparison]) -> None:
    def noisy(process: int) -> list[Case]:
        return timed(seconds=1e-3 * (1 + 20 * RIPPLE[process]))(process)

    case = only(judged(noisy, noisy))
    assert case.verdict == "AMBIGUOUS"
    assert case.reason.startswith("too noisy: ")
    assert "processes a side would resolve 2%" in case.reason


def test_a_noisy_case_still_shows_a_large_change(judged: Callable[..., Comparison]) -> None:
    def noisy(scale: float) -> Make:
        return lambda process: timed(seconds=scale * (1 + 20 * RIPPLE[process]))(process)

    assert only(judged(noisy(1e-3), noisy(2e-3))).verdict == "SLOWER"


def test_a_new_that_lacks_cases_is_not_whole(judged: Callable[..., Comparison]) -> None:
    found = judged(both(timed("a"), timed("b")), timed("a"))
    assert [case.verdict for case in found.cases] == ["SAME", "NO_DATA"]
    assert found.cases[1].reason == "not in NEW"
    assert found.exit_code == 2


def test_a_case_that_base_did_not_have_is_no_fault(judged: Callable[..., Comparison]) -> None:
    found = judged(timed("a"), both(timed("a"), timed("b")))
    assert found.cases[1].reason == "not in BASE: a new case"
    assert found.exit_code == 0


def test_between_profiles_no_change_is_called_one(judged: Callable[..., Comparison]) -> None:
    found = judged(
        both(timed("a"), timed("b")), both(timed("a", 1.1e-3), timed("b")), profile="standard"
    )
    assert [case.verdict for case in found.cases] == ["AMBIGUOUS", "SAME"]
    assert "quick in BASE, standard in NEW" in found.cases[0].reason
    assert found.problems == [
        "other profiles, quick in BASE, standard in NEW: no change is called one in f; "
        "record both with one --profile"
    ]
    assert found.exit_code == 2


def test_an_unfinished_run_is_not_whole(judged: Callable[..., Comparison]) -> None:
    found = judged(timed(), timed(), end=False)
    assert only(found).verdict == "SAME"
    assert "NEW: 0-f.jsonl: no end line" in found.problems[0]
    assert found.exit_code == 2


@pytest.mark.parametrize("status", ["failed", "throttled"])
def test_newly_failing_is_slowers_equal(judged: Callable[..., Comparison], status: str) -> None:
    found = judged(timed(), bad(status))
    assert only(found).verdict == "SLOWER"
    assert only(found).reason == f"newly {status} in 5 of 5 processes: it broke"
    assert found.exit_code == 1


def test_one_wrong_answer_in_many_processes_counts(judged: Callable[..., Comparison]) -> None:
    found = judged(
        timed(), lambda process: (bad("failed") if process == 6 else timed())(process), processes=7
    )
    assert found.exit_code == 1


def test_one_throttled_process_of_many_does_not(judged: Callable[..., Comparison]) -> None:
    found = judged(
        timed(),
        lambda process: (bad("throttled") if process == 6 else timed())(process),
        processes=7,
    )
    assert only(found).verdict == "SAME"
    assert only(found).processes == (5, 6)


def test_failing_on_both_sides_cannot_be_compared(judged: Callable[..., Comparison]) -> None:
    found = judged(bad("failed"), bad("failed"))
    assert only(found).verdict == "NO_DATA"
    assert found.exit_code == 2


def test_skipped_on_both_sides_is_no_fault(judged: Callable[..., Comparison]) -> None:
    found = judged(both(timed("a"), bad("skipped")), both(timed("a"), bad("skipped")))
    assert found.cases[1].verdict == "NO_DATA"
    assert found.exit_code == 0


def test_nothing_in_common_is_not_good(judged: Callable[..., Comparison]) -> None:
    assert judged(bad("skipped"), bad("skipped")).exit_code == 2


def test_newly_skipped_is_not_whole(judged: Callable[..., Comparison]) -> None:
    found = judged(timed(), bad("skipped", reason="needs cc 9.0"))
    assert only(found).reason == "skipped in NEW: needs cc 9.0"
    assert found.exit_code == 2


def test_sides_in_different_units_are_not_compared(judged: Callable[..., Comparison]) -> None:
    def cycles(process: int) -> list[Case]:
        return [msgspec.structs.replace(timed()(process)[0], metrics={"latency_cycles": 4.0})]

    found = judged(timed(), cycles)
    assert only(found).verdict == "NO_DATA"
    assert "name latency_cycles and time; unit cycle and s" in only(found).reason
    assert found.exit_code == 2


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (timed(work=Work(1, 1, 1)), "work (1, 1, 1) and"),
        (timed(cache="warm"), "cache cold and warm"),
    ],
)
def test_other_work_or_cache_is_not_compared(
    judged: Callable[..., Comparison], new: Make, told: str
) -> None:
    case = only(judged(timed(), new))
    assert case.verdict == "NO_DATA"
    assert told in case.reason


@pytest.mark.parametrize(
    ("metric", "factor", "verdict"),
    [
        ("latency_cycles", 1.03, "SLOWER"),
        ("operations_per_clock_per_sm", 1.03, "FASTER"),
        ("operations_per_clock_per_sm", 0.97, "SLOWER"),
    ],
)
def test_what_the_kernel_measured_is_gated_in_its_own_direction(
    judged: Callable[..., Comparison], metric: str, factor: float, verdict: str
) -> None:
    def make(value: float) -> Make:
        # The time differs by half: it must not count.
        return lambda process: [
            msgspec.structs.replace(
                timed(seconds=1e-3 * value)(process)[0],
                metrics={metric: 30.0 * value * (1 + RIPPLE[process])},
            )
        ]

    case = only(judged(make(1.0), make(factor)))
    assert (case.metric, case.verdict) == (metric, verdict)


COMPUTE = Work(0, 0, 10**9)


def test_cycles_of_a_part_of_the_kernel_do_not_stand_for_its_time(
    judged: Callable[..., Comparison],
) -> None:
    def tail(seconds: float) -> Make:
        metrics: dict[str, float | list[float]] = {"batch_cycles": 2879.0}
        return lambda process: [
            msgspec.structs.replace(case, metrics=metrics) for case in timed("k", seconds)(process)
        ]

    found = judged(tail(805e-6), tail(825e-6))
    assert (only(found).metric, only(found).verdict) == ("time", "SLOWER")


def test_a_change_in_seconds_alone_is_a_clock_change(judged: Callable[..., Comparison]) -> None:
    found = judged(
        timed(work=COMPUTE, clock=2.0e9), timed(seconds=1.25e-3, work=COMPUTE, clock=1.6e9)
    )
    case = only(found)
    assert (case.verdict, case.cause) == ("SAME", "clock")
    assert "SM clock 2000 → 1600 MHz" in case.reason
    assert found.exit_code == 0


def test_a_change_in_cycles_is_confirmed(judged: Callable[..., Comparison]) -> None:
    case = only(judged(timed(work=COMPUTE), timed(seconds=1.1e-3, work=COMPUTE)))
    assert case.verdict == "SLOWER"
    assert case.reason.startswith("confirmed: +10.0% in seconds, +10.0% in SM cycles")


def test_a_faster_clock_hides_no_change(judged: Callable[..., Comparison]) -> None:
    found = judged(timed(work=COMPUTE, clock=1.6e9), timed(work=COMPUTE, clock=2.0e9))
    assert only(found).verdict == "AMBIGUOUS"
    assert "the clock hides a change" in only(found).reason


def test_the_clock_is_no_excuse_for_what_memory_binds(judged: Callable[..., Comparison]) -> None:
    moved = Work(5 * 10**8, 4 * 10**8, 10)  # 0.9 of the peak in 1 ms
    found = judged(timed(work=moved, clock=2.0e9), timed(seconds=1.25e-3, work=moved, clock=1.6e9))
    assert only(found).verdict == "SLOWER"


def test_the_same_code_makes_it_the_environments(judged: Callable[..., Comparison]) -> None:
    found = judged(
        timed(),
        timed(seconds=1.1e-3),
        device={"driver_version": "2.0", "uuid": "GPU-2", "temperature_c": 60},
    )
    case = only(found)
    assert (case.verdict, case.cause) == ("SLOWER", "environment")
    for told in ("driver_version 1.0 → 2.0", "uuid GPU-1 → GPU-2", "temperature_c 40 °C → 60 °C"):
        assert told in case.reason
    assert found.exit_code == 1, "whose fault it is does not change what a CI is told"


def test_other_code_is_named(judged: Callable[..., Comparison]) -> None:
    case = only(judged(timed(), timed(seconds=1.1e-3, code="bbbb"), device={"uuid": "GPU-2"}))
    assert (case.cause, case.reason) == ("code", "machine code changed")


def test_different_gpu_models_are_never_gated(judged: Callable[..., Comparison]) -> None:
    with pytest.raises(UserError, match="different GPU models are never gated"):
        judged(timed(), timed(), device={"name": "Other GPU"})
