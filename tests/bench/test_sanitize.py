"""compute-sanitizer run over the kernels: what is expected of it, and what is not believed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench import sanitize
from bench.sanitize import Findings, parse
from kernels import late_error
from kernels.races import FAULTS, GIVES_UP, ON_PURPOSE, Fault
from kernels.spec import families
from results.errors import UserError
from tests.bench.sanitizer_output import (
    BROKEN,
    CLEAN,
    GAVE_UP,
    NOT_RUN,
    RACE,
    SYNC,
    UNNAMED,
    WARNED,
)


@pytest.mark.parametrize(
    ("said", "failures", "code", "good"),
    [
        ("36 cases on the GPU: 0 wrong, 0 skipped", 0, 0, True),
        ("36 cases on the GPU: 0 wrong, 35 skipped", 0, 0, True),
        ("36 cases on the GPU: 0 wrong, 36 skipped", 0, 0, False),
        ("0 cases on the GPU: 0 wrong, 0 skipped", 0, 0, False),
        ("4 cases on the GPU: 0 wrong, 0 skipped, 32 left out: 1 s were over", 0, 2, False),
        ("5 cases on the GPU: 0 wrong, 6 skipped", 0, 0, False),
        ("36 cases on the GPU: 0 wrong, 0 skipped", 0, 2, False),
        ("36 cases on the GPU: 7 wrong, 0 skipped", 0, 2, False),
        ("36 cases on the GPU: 0 wrong, 0 skipped", 0, -11, False),
        ("Traceback", 0, 1, False),
    ],
)
def test_clean_is_what_ran_and_was_right(
    monkeypatch: pytest.MonkeyPatch, tool: Tool, said: str, failures: int, code: int, good: bool
):
    found = replace(parse(CLEAN), failures=failures, code=code)
    run_tool = sanitize.run_tool
    monkeypatch.setattr(
        sanitize,
        "run_tool",
        lambda command: run_tool(command) if "--fault" in command else (found, said),
    )
    assert sanitized("axpy")[0] == (0 if good else 2)


def test_a_tool_that_does_not_start_or_speaks_no_utf8(tmp_path: Path):
    tool = tmp_path / "compute-sanitizer"
    tool.write_bytes(b"no program")
    tool.chmod(0o755)
    with pytest.raises(UserError, match=r"does not run .*pip install"):
        sanitize.run_tool([str(tool)])
    tool.write_bytes(b"#!/bin/sh\nprintf '\\377\\376\\n'; exit 5\n")
    found, said = sanitize.run_tool([str(tool)])
    assert (found.complete, found.code, said) == (False, 5, "\ufffd\ufffd")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def watched(tmp_path: Path) -> tuple[list[str], Path]:
    """A tool that starts a program which outlives it, and the file that tells the program's pid."""
    pid = tmp_path / "pid"
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\nsleep 60 & echo $! > {pid}; wait\n")
    tool.chmod(0o755)
    return [str(tool)], pid


def test_a_tool_that_hangs_takes_its_program_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    command, pid = watched(tmp_path)
    monkeypatch.setattr(sanitize, "TIMEOUT_S", 1)
    found, said = sanitize.run_tool(command)
    assert (found.complete, said) == (False, "no end within 1 s")
    assert not alive(int(pid.read_text()))


def test_an_interrupt_ends_what_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    command, pid = watched(tmp_path)

    def show(text: str) -> None:
        raise KeyboardInterrupt

    def one_hangs(given: list[str]) -> tuple[Findings, str]:
        if given[-1] == "axpy" and "memcheck" in given:
            while not pid.exists():
                time.sleep(0.01)
            return parse(CLEAN), "7 cases on the GPU: 0 wrong, 0 skipped"
        return run_tool(command) if "racecheck" in given else (parse(CLEAN), "said")

    run_tool = sanitize.run_tool
    monkeypatch.setattr(sanitize.device, "usable", lambda: None)
    monkeypatch.setattr(sanitize, "find", lambda: "compute-sanitizer")
    monkeypatch.setattr(sanitize, "run_tool", one_hangs)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sanitize.sanitize(["axpy"], show)
    assert time.monotonic() - begin < 30
    assert not sanitize.RUNNING
    assert not alive(int(pid.read_text()))


def test_without_a_gpu_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def usable() -> None:
        raise UserError("no NVIDIA driver")

    monkeypatch.setattr(sanitize.device, "usable", usable)
    for arguments in (["--family", "axpy"], ["--fault", "missing syncwarp"]):
        assert sanitize.main(arguments) == 3
        assert capsys.readouterr().err == "warpgauge: no NVIDIA driver\n"


def test_one_line_with_the_remedy_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sanitize.device, "usable", lambda: None)
    monkeypatch.setattr(sanitize.shutil, "which", lambda name: None)
    monkeypatch.setattr(sanitize, "_in_packages", lambda: None)
    assert sanitize.main(["--family", "exchange"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "not installed" in line
    assert "pip install" in line


def test_an_unknown_family_is_named():
    with pytest.raises(UserError, match="no family 'reductoin'"):
        sanitize.sanitize(["reductoin"])


def test_what_is_faulty_on_purpose_is_there():
    for (tool, family), kernels in {**ON_PURPOSE, **GIVES_UP}.items():
        assert tool in sanitize.TOOLS
        numba = {
            function.py_func.__name__
            for kernel in families()[family].kernels
            for function, _ in kernel.compiled
        }
        for name in kernels:
            assert name in numba or f" {name}(" in late_error.SOURCE, name


Tool = dict[tuple[str, str], str]


def tell(kernels: dict[str, str]) -> str:
    """racecheck's output with these findings."""
    lines = [
        f"========= {verdict.title()}: Race reported between Write access at {name}+0x60 and ..."
        for name, verdict in kernels.items()
    ]
    count = list(kernels.values()).count
    summary = f"{count('error')} errors, {count('warning')} warnings"
    return "\n".join([*lines, f"========= RACECHECK SUMMARY: 0 hazards displayed ({summary})"])


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A sanitizer that says of everything what is expected, but for what a test puts in here.

    By (tool, family) or ("fault", its name): the output.
    """
    outputs: Tool = {
        **{place: tell(kernels) for place, kernels in ON_PURPOSE.items()},
        **{
            ("fault", f.name): {"clean": CLEAN, "warning": WARNED, "error": RACE}[f.expected]
            for f in FAULTS.values()
        },
    }

    def run_tool(command: list[str]) -> tuple[Findings, str]:
        fault = "--fault" in command
        tool = "fault" if fault else command[command.index("--tool") + 1]
        output = outputs.get((tool, command[-1]), CLEAN)
        if fault and output != NOT_RUN:
            fault = FAULTS[command[-1]]
            cut = (fault.tool, fault.expected) == ("memcheck", "error")
            return parse(output), "the launch was ended: it" if cut else "ran: 256 ones add up"
        if output == NOT_RUN:
            return parse(output), "no CUDA device"
        found = parse(output)
        found = replace(found, code=2 if found.failures else 0)
        return found, f"7 cases on the GPU: {found.failures} wrong, 0 skipped"

    monkeypatch.setattr(sanitize.device, "usable", lambda: None)
    monkeypatch.setattr(sanitize, "find", lambda: "compute-sanitizer")
    monkeypatch.setattr(sanitize, "run_tool", run_tool)
    return outputs


def sanitized(*wanted: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    return sanitize.sanitize(list(wanted), lines.append), lines


def test_all_as_expected(tool: Tool):
    code, lines = sanitized("reduction", "exchange", "branch", "mask", "contention", "launch")
    assert (code, lines[-1]) == (0, "0 unexpected")
    assert sum("planted" in line for line in lines) == len(FAULTS)
    assert any(line.startswith("  memcheck exchange: clean; 7 cases") for line in lines)
    assert any(
        "racecheck exchange: error" in line and "as expected, error in" in line for line in lines
    )


@pytest.mark.parametrize("said", [CLEAN, WARNED, NOT_RUN])
def test_a_fault_that_is_not_reported_fails_the_run(tool: Tool, said: str):
    tool["fault", "missing syncthreads"] = said
    code, lines = sanitized("reduction")
    assert code == 2
    (line,) = (line for line in lines if "UNEXPECTED, should be error" in line)
    assert "-m bench.sanitize --fault 'missing syncthreads'" in line


@pytest.mark.parametrize("said", ["no CUDA device", "the launch was ended: it", "ran: so", "died"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_a_fault_that_did_not_end_as_it_should_shows_nothing(fault: Fault, said: str):
    found = parse({"clean": CLEAN, "warning": WARNED, "error": RACE}[fault.expected])
    cut = (fault.tool, fault.expected) == ("memcheck", "error")
    good = said == ("the launch was ended: it" if cut else "ran: so")
    assert sanitize._of_fault(fault, ["tool"], found, said).good == good
    crashed = sanitize._of_fault(fault, ["tool"], replace(found, code=1), said)
    assert crashed.good == (good and cut)


def test_a_report_is_shown_with_its_own_words(tool: Tool):
    _, lines = sanitized("reduction")
    fault = next(line for line in lines if "planted missing syncwarp" in line)
    assert fault.splitlines()[1].startswith("      Warning: Race reported between Write access")


@pytest.mark.parametrize(
    ("place", "output", "told"),
    [
        (("racecheck", "reduction"), RACE, "should be clean, not error in missing_syncthreads"),
        (("memcheck", "reduction"), UNNAMED, "clean, not 1 reports without a kernel"),
        (("memcheck", "launch"), BROKEN, "error in broken, not error in broken, 1 reports without"),
        (("initcheck", "reduction"), "killed", "should be clean, not no summary of the tool"),
        (("initcheck", "reduction"), NOT_RUN, "clean, not a check that did not run to its end"),
        (("racecheck", "reduction"), GAVE_UP, "not atomic_barrier failed"),
        (("racecheck", "exchange"), CLEAN, "should be error in exchange, not clean"),
        (("racecheck", "exchange"), WARNED, "error in exchange, not warning in missing_syncwarp"),
        (("racecheck", "mask"), tell({"later": "error"}), "warning in later, not error in later"),
        (
            ("racecheck", "branch"),
            tell({"later": "error", "after": "warning"}),
            "should be error in later, not error in later, warning in after",
        ),
    ],
)
def test_what_is_not_expected_is_told_with_the_command_that_shows_it(
    tool: Tool, place: tuple[str, str], output: str, told: str
):
    tool[place] = output
    code, lines = sanitized(place[1])
    (line,) = (line for line in lines if "UNEXPECTED" in line)
    assert code == 2
    assert told in line
    assert f"compute-sanitizer --tool {place[0]} " in line
    assert f"-m bench check --family {place[1]}" in line


def test_a_launch_that_the_tool_ends_may_fail_where_it_is_faulty_on_purpose(tool: Tool):
    tool["synccheck", "branch"] = SYNC
    tool["racecheck", "barrier"] = GAVE_UP
    code, lines = sanitized("branch", "barrier")
    assert code == 0
    assert any("clean; as expected, atomic_barrier gives up there; 7 cases" in one for one in lines)


def test_a_fault_that_ends_the_launch_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from numba.cuda.cudadrv.driver import CudaAPIError

    def run() -> str:
        raise CudaAPIError(719, "unspecified launch failure")

    monkeypatch.setattr(sanitize.device, "usable", lambda: None)
    fault = replace(FAULTS["missing syncwarp"], run=run)
    monkeypatch.setitem(FAULTS, "missing syncwarp", fault)
    assert sanitize.main(["--fault", "missing syncwarp"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("the launch was ended: CudaAPIError: ")
    assert said.endswith("unspecified launch failure\n")
