"""The verdict on made-up runs: round numbers with a stated spread between processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from analysis import accepted
from analysis.__main__ import main
from analysis.evidence import MINIMUM
from analysis.verdict import CaseVerdict, Comparison, compare
from results.errors import UserError
from results.schema import SCHEMA, Case, End, Launch, Run, Samples, Work
from results.store import Writer, file_name, load

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


@pytest.fixture(autouse=True)
def own_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The committed file of accepted changes is left alone."""
    path = tmp_path / "accepted.jsonl"
    monkeypatch.setattr(accepted, "ACCEPTED", path)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """run(name, make, processes=5, device=…, end=True, …) -> folder of a run of family f."""

    def write(
        name: str,
        make: Make,
        processes: int = 5,
        device: dict[str, object] | None = None,
        started: str = "2000-01-01",
        end: bool = True,
        **header: object,
    ) -> Path:
        for process in range(processes):
            with Writer(tmp_path / name / file_name(process, "f")) as writer:
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
        return tmp_path / name

    return write


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


def test_the_command_answers_bad_input_with_3(
    run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = str(run("base", timed()))
    (tmp_path / "empty").mkdir()
    wrong = {
        "empty": tmp_path / "empty",
        "schema": run("schema", timed(), **{"schema": SCHEMA + 1}),
        "gpu": run("gpu", timed(), device={"name": "Other GPU"}),
        "missing": tmp_path / "missing",
    }
    for path in wrong.values():
        assert main(["verdict", base, str(path)]) == 3
        message = capsys.readouterr().err
        assert message.startswith("warpgauge: ")
        assert message.count("\n") == 1


@pytest.fixture
def mixed(run: Callable[..., Path]) -> tuple[str, str]:
    """BASE and NEW with a slower, a faster, an equal and a lost case."""
    base = both(timed("slow"), timed("fast"), timed("equal"), timed("lost"))
    new = both(timed("slow", 1.1e-3), timed("fast", 0.9e-3), timed("equal"))
    return str(run("base", base)), str(run("new", new, started="2000-01-02"))


def test_text(mixed: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verdict", *mixed]) == 1
    text = capsys.readouterr().out
    assert text.startswith("base → new on Imaginary GPU: 1 SLOWER, 1 FASTER, 1 NO_DATA, 1 SAME\n")
    assert "f/slow[n=8]  +10.00% (time 1.00 ms → 1.10 ms)  same machine code" in text


def test_many_lost_cases_share_a_line_and_the_summary_comes_again(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def noisy(process: int) -> list[Case]:
        kernels = [timed(f"noisy{i}", 1e-3 * (1 + 0.05 * (process % 3))) for i in range(40)]
        return both(*kernels)(process)

    base = run("base", both(noisy, *(timed(f"lost{i}") for i in range(4))))
    assert main(["verdict", str(base), str(run("new", noisy))]) == 2
    assert "  f: 4 cases  not in NEW" in capsys.readouterr().out.splitlines()
    assert main(["verdict", str(base), str(base.parent / "new"), "--all"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("  f/lost") for line in lines) == 4
    assert lines[0] == lines[-1] == "base → new on Imaginary GPU: 40 AMBIGUOUS, 4 NO_DATA"
    noisy_lines = [line for line in lines if "too noisy" in line]
    assert len({line.index("too noisy") for line in noisy_lines}) == 1


def test_of_the_ambiguous_the_furthest_apart_are_listed(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def side(step: float) -> Make:
        noise = [timed(f"noisy{i}", 1e-3 * (1 + step * i)) for i in range(12)]
        slow = [timed(f"slow{i}", 1e-3 + step) for i in range(12)]
        return lambda process: both(
            *(lambda p, make=make: make(0 if p % 2 else 3) for make in slow),
            *(lambda p, make=make: wide(make, p) for make in noise),
        )(process)

    def wide(make: Make, process: int) -> list[Case]:
        case = make(process)[0]
        assert case.samples is not None
        times = [time * (1 + 20 * RIPPLE[process]) for time in case.samples.time_s]
        samples = msgspec.structs.replace(case.samples, time_s=times)
        return [msgspec.structs.replace(case, samples=samples)]

    base, new = str(run("base", side(0.0))), str(run("new", side(0.0005)))
    assert main(["verdict", base, new]) == 1
    text = capsys.readouterr().out
    assert text.count("f/slow") == 12, "all that are slower"
    listed = [line.split("[")[0].strip() for line in text.splitlines() if "too noisy" in line]
    assert listed == [f"f/noisy{i}" for i in range(11, 1, -1)]
    assert "AMBIGUOUS: 12 spread too widely between processes to show 2%; more processes" in text
    assert "  … and 2 more (--all)\n" in f"{text}\n"
    assert main(["verdict", base, new, "--all"]) == 1
    assert "f/noisy0" in capsys.readouterr().out
    assert main(["verdict", base, new, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["cases"]) == 24


def test_few_processes_and_skipped_cases(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    make = both(timed(), *(bad("failed", f"failed{i}", f"reason {i}") for i in range(12)))
    make = both(make, bad("skipped", "skipped"))
    runs = [str(run(name, make, processes=2)) for name in ("base", "new")]
    assert main(["verdict", *runs]) == 2
    text = capsys.readouterr().out
    assert "AMBIGUOUS: 1 have fewer than 5 processes on a side; more processes help" in text
    assert text.count("f/failed") == 10
    assert "  … and 2 more (--all)" in text
    assert "f/skipped" not in text
    assert main(["verdict", *runs, "--all"]) == 2
    text = capsys.readouterr().out
    assert text.count("f/failed") == 12
    assert "f/skipped" in text


def test_json(mixed: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verdict", *mixed, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == 1
    assert found["counts"] == {"SLOWER": 1, "FASTER": 1, "AMBIGUOUS": 0, "NO_DATA": 1, "SAME": 1}
    assert found["cases"][0]["effect"] == pytest.approx(0.1)


def test_junit(mixed: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "verdict.xml"
    main(["verdict", *mixed, "--junit", str(path)])
    suite = ElementTree.parse(path).getroot().find("testsuite")
    assert suite is not None
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["4", "1", "0", "1"]
    slow = suite.find("testcase[@name='slow[n=8]']/failure")
    assert slow is not None
    assert "+10.00%" in slow.get("message", "")


def test_accepting_starts_anew(
    mixed: tuple[str, str], run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    reason = ["--reason", "the new layout is right"]
    assert main(["accept", *mixed, "--case", "f/equal[n=8]", *reason]) == 3
    assert "is SAME: only SLOWER or FASTER" in capsys.readouterr().err
    assert main(["accept", *mixed, "--case", "f/slow", *reason]) == 0
    assert main(["verdict", *mixed]) == 2, "only the lost case is left"
    assert "the new layout is right" in capsys.readouterr().out
    further = run("further", timed("slow", 1.15e-3), started="2000-01-03")
    assert main(["verdict", mixed[0], str(further)]) == 1, "slower than what was accepted"
    assert "+4.5" in capsys.readouterr().out
    assert main(["verdict", mixed[1], str(further)]) == 1, "an older change is not in this one"


def test_an_accepted_failure_is_none(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    base = str(run("base", both(timed(), timed("other"))))
    new = str(run("new", both(bad("failed"), timed("other")), started="2000-01-02"))
    assert main(["verdict", base, new]) == 1
    assert main(["accept", base, new, "--case", "f/k[n=8]", "--reason", "gone"]) == 0
    assert main(["verdict", base, new]) == 0
    capsys.readouterr()
