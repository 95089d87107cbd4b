"""The profile command against a profiler that is a script."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import marks, nsight, profile
from bench.__main__ import main
from bench.measure import Case
from kernels.spec import Bound, Kernel, Machine, Work
from results import counters
from results.errors import UserError

NCU = """#!{python}
import sys
if "--version" in sys.argv:
    print("Version 2025.3.1.0 (build 1) (public-release)")
elif "--query-metrics" in sys.argv:
    print("gpu__time_duration  Counter  ns  time")
    print("dram__bytes_read    Counter  byte  bytes")
else:
    asked = sys.argv[sys.argv.index("--metrics") + 1]
    assert asked == "gpu__time_duration.sum,dram__bytes_read.sum", asked
    print("  axpy vector[n=8]: right")
    {extra}
    with open(sys.argv[sys.argv.index("--log-file") + 1], "w") as log:
        log.write({log!r})
"""
LOG = """\
==PROF== Connected to process 1
"ID","Domain:Push/Pop_Range:Msg","Kernel Name","dram__bytes_read.sum","gpu__time_duration.sum"
"","","","byte","ns"
"0","1 ""<default domain>:axpy/vector[n=8]:none"" ","vector","64","2000"
"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Makes the script; `extra` is a statement that it runs when it profiles."""

    def make(log: str = LOG, extra: str = "pass") -> Path:
        script = tmp_path / "ncu"
        script.write_text(NCU.format(python=sys.executable, log=log, extra=extra))
        script.chmod(0o755)
        return script

    monkeypatch.setattr(nsight, "find", lambda: str(tmp_path / "ncu"))
    monkeypatch.setattr(profile.device, "usable", lambda index: None)
    monkeypatch.setattr(profile.device, "snapshot", lambda index: {"name": "Made-up GPU"})
    return make


def run(tmp_path, *, families=("axpy",)):
    lines: list[str] = []
    code = profile.profile(list(families), 0, "quick", "latest", tmp_path / "run", lines.append)
    return code, lines


def test_counters_are_stored_beside_the_run(tool, tmp_path):
    tool()
    code, lines = run(tmp_path)
    assert code == 0, lines
    (found,) = counters.load(tmp_path / "run")
    assert (found.family, found.device, found.profiler) == ("axpy", "Made-up GPU", "2025.3.1.0")
    assert found.metrics == {"time": "gpu__time_duration.sum", "dram_read": "dram__bytes_read.sum"}
    (case,) = found.cases
    assert case.case == counters.label("axpy", "vector", {"n": 8})
    assert case.counters == {"time": pytest.approx(2e-6), "dram_read": 64.0}
    raw = gzip.decompress((tmp_path / "run" / "counters" / "axpy.csv.gz").read_bytes())
    assert raw.decode() == LOG
    assert any("not to be had" in line and "dram_written" in line for line in lines)


def test_what_went_wrong_is_kept(tool, tmp_path):
    tool(log="", extra="print('  axpy vector[n=9]: failed: wrong answer')")
    code, _ = run(tmp_path)
    assert code == 2
    (found,) = counters.load(tmp_path / "run")
    assert found.cases == []
    assert "the profiler wrote no table" in found.problems
    assert "axpy vector[n=9]: failed: wrong answer" in found.problems


def test_a_profiler_that_hangs_is_ended(tool, tmp_path, monkeypatch):
    tool(extra="import time; time.sleep(60)")
    monkeypatch.setattr(profile, "FAMILY_SECONDS", 0)
    monkeypatch.setattr(profile, "ENDED_SECONDS", 1)
    code, lines = run(tmp_path)
    assert code == 2
    assert any("ended after 1 s" in line for line in lines)


def test_no_permission_is_one_line(tool, tmp_path):
    tool(log="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")
    with pytest.raises(UserError, match="ERR_NVGPUCTRPERM"):
        run(tmp_path)


def test_empty_launches_are_not_profiled(tool, tmp_path):
    tool()
    code, lines = run(tmp_path, families=("launch",))
    assert code == 0
    assert any("not profiled" in line for line in lines)
    assert counters.load(tmp_path / "run") == []


def test_without_a_profiler(tmp_path, monkeypatch, capsys):
    def absent():
        raise UserError(nsight.NOT_FOUND)

    monkeypatch.setattr(nsight, "find", absent)
    monkeypatch.setattr(profile.device, "usable", lambda index: None)
    assert main(["profile", "--output", str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "is not installed" in error


def test_only_the_queue_is_marked():
    """What poisons and checks launches kernels as well; those are not in the range."""
    seen: list[str] = []

    class Range:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            seen.append(f"enter {self.name}")

        def __exit__(self, *_: object) -> None:
            seen.append("leave")

    def bind(params, machine):
        return Bound(
            None,
            Work(),
            check=lambda: seen.append("check") or 0.0,
            queue=lambda stream: seen.append("queue"),
            poison=lambda: seen.append("poison"),
        )

    case = marks.marked(Case(Kernel("k", "", bind, ()), {"n": 8}), "f", Range)
    machine = Machine((9, 0), 1, 2048, 32, 1, 1, np)
    bound = case.kernel.bind(case.params, machine)
    bound.poison()
    bound.queue(0)
    bound.check()
    assert seen == ["poison", "enter f/k[n=8]", "queue", "leave", "check"]
