"""What compute-sanitizer says, read; and what is expected of it."""

from __future__ import annotations

from typing import Any

import pytest

from bench import sanitize
from bench.sanitize import Findings, parse
from kernels.races import FAULTS
from results.errors import UserError

RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at missing_syncthreads+0x6d0 and Read access at missing_syncthreads+0x5f0 [1016 hazards]
=========     Saved host backtrace up to driver entry point at kernel launch time
=========
========= Warning: Race reported between Write access at missing_syncthreads+0x6d0 and Read access at missing_syncthreads+0x5f0 [12 hazards]
=========
256 ones add up to 128
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""  # noqa: E501 - as the tool prints it
WARNED = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at missing_syncwarp+0x710 and Read access at missing_syncwarp+0x6d0 [16 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""  # noqa: E501
MEMORY = """\
========= COMPUTE-SANITIZER
========= Invalid __shared__ read of size 4 bytes
=========     at reduce4_as_published+0x4a0
=========     by thread (32,0,0) in block (0,0,0)
=========     Address 0x280 is out of bounds
=========
========= Program hit unspecified launch failure (error 719) on CUDA API call to cuCtxSynchronize.
========= ERROR SUMMARY: 97 errors
========= ERROR SUMMARY: 92 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""  # noqa: E501
CLEAN = (
    "========= COMPUTE-SANITIZER\n65 cases on the GPU: 0 wrong\n========= ERROR SUMMARY: 0 errors\n"
)


def test_a_race_between_warps_is_an_error():
    found = parse(RACE)
    assert (found.errors, found.warnings, found.verdict) == (1, 1, "error")
    assert found.first.startswith("Error: Race reported between Write access at missing_syncth")


def test_a_race_within_a_warp_is_a_warning():
    assert parse(WARNED).verdict == "warning"


def test_a_bad_access_is_an_error():
    found = parse(MEMORY)
    assert (found.errors, found.verdict) == (97, "error")
    assert found.first == "Invalid __shared__ read of size 4 bytes"


def test_silence_is_clean_only_with_a_summary():
    assert parse(CLEAN) == Findings(0, 0, "")
    assert parse(CLEAN).verdict == "clean"
    assert parse("========= COMPUTE-SANITIZER\nkilled").verdict == "incomplete"


def test_one_line_with_the_remedy_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sanitize.shutil, "which", lambda name: None)
    monkeypatch.setattr(sanitize, "_in_packages", lambda: None)
    assert sanitize.main(["--family", "exchange"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "not installed" in line
    assert "pip install" in line


def test_an_unknown_family_is_named():
    with pytest.raises(UserError, match="no family 'reductoin'"):
        sanitize.sanitize(["reductoin"])


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A sanitizer that answers each planted fault as told, "as expected" at first."""
    answers = {fault.name: fault.expected for fault in FAULTS.values()}
    outputs = {"clean": CLEAN, "warning": WARNED, "error": RACE}

    def run_tool(path: str, name: str, command: Any) -> tuple[Findings, str]:
        fault = command[-1] if "--fault" in command else None
        return parse(outputs[answers[fault] if fault else "clean"]), "said"

    monkeypatch.setattr(sanitize, "find", lambda: "compute-sanitizer")
    monkeypatch.setattr(sanitize, "run_tool", run_tool)
    return answers


def test_all_as_expected(tool: dict[str, str]):
    lines: list[str] = []
    assert sanitize.sanitize(["reduction"], lines.append) == 0
    assert lines[-1] == "0 unexpected"
    assert sum("planted" in line for line in lines) == len(FAULTS)


@pytest.mark.parametrize("said", ["clean", "warning"])
def test_a_fault_that_is_not_reported_fails_the_run(tool: dict[str, str], said: str):
    tool["missing syncthreads"] = said
    lines: list[str] = []
    assert sanitize.sanitize(["reduction"], lines.append) == 2
    assert any("UNEXPECTED, should be error" in line for line in lines)


def test_the_racy_family_is_not_expected_to_be_clean_of_races(tool: dict[str, str]):
    lines: list[str] = []
    sanitize.sanitize(["exchange"], lines.append)
    assert "  racecheck exchange: see the planted faults" in lines
    assert any(line.startswith("  memcheck exchange: clean") for line in lines)
