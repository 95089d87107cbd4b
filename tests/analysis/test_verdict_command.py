"""The commands `verdict` and `accept` on made-up runs: text, JSON, JUnit and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from analysis.__main__ import main
from results.schema import SCHEMA, Case
from tests.analysis.made_up import RIPPLE, Make, bad, both, timed

pytestmark = pytest.mark.usefixtures("own_accepted")


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


@pytest.mark.parametrize(("noisy", "strict"), [(71, False), (72, True)])
def test_a_noisy_suite_says_that_its_thresholds_are_wider(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str], noisy: int, strict: bool
) -> None:
    def cases(process: int) -> list[Case]:
        kernels = [timed(f"k{i}", 1e-3 * (1 + 0.01 * (process % 3))) for i in range(noisy)]
        return both(*kernels, timed("equal"))(process)

    runs = str(run("base", cases)), str(run("new", cases))
    assert main(["verdict", *runs]) == 2
    told = f"{noisy} of {noisy + 1} cases spread over 0.45%" in capsys.readouterr().out
    assert told == strict
    main(["verdict", *runs, "--json"])
    suite = json.loads(capsys.readouterr().out)["suite"]
    assert suite == {"cases": noisy + 1, "noisy": noisy, "quiet": not strict}


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


def test_junit_of_a_reason_that_xml_cannot_hold(run: Callable[..., Path], tmp_path: Path) -> None:
    base = run("base", timed())
    new = run("new", bad("failed", reason="\x1b[31mit\x00 broke\x1b[0m"), started="2000-01-02")
    path = tmp_path / "verdict.xml"
    assert main(["verdict", str(base), str(new), "--junit", str(path)]) == 1
    failure = ElementTree.parse(path).getroot().find(".//failure")
    assert failure is not None
    assert "\ufffd[31mit\ufffd broke" in failure.get("message", "")


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


def test_families_may_be_judged_alone(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    base, new = run("base", timed()), run("new", timed(seconds=1.1e-3), started="2000-01-02")
    assert main(["verdict", str(base), str(new), "--family", "f"]) == 1
    capsys.readouterr()
    assert main(["verdict", str(base), str(new), "--family", "g"]) == 3
    assert capsys.readouterr().err == "warpgauge: no family of the two runs 'g': there are f\n"
