"""`python -m bench` as a person without a GPU meets it."""

from __future__ import annotations

import pytest

from bench import check, families
from bench.__main__ import main
from bench.measure import Bench, Case
from kernels.compat import SIMULATOR
from kernels.spec import WrongAnswer
from results import schema
from results.errors import UserError


def test_list_aligns_what_each_kernel_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in families.names():
        kernels = families.family(name).kernels
        start = next(i for i, line in enumerate(lines) if line.startswith(f"{name}: "))
        listed = lines[start + 1 : start + 1 + len(kernels)]
        assert [line.split("  ")[1] for line in listed] == [kernel.name for kernel in kernels]
        columns = {line.index(kernel.summary) for line, kernel in zip(listed, kernels, strict=True)}
        assert len(columns) == 1, name


def test_check_without_a_gpu_names_the_simulator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(index: int) -> None:
        raise UserError("no NVIDIA driver")

    monkeypatch.setattr("bench.device.usable", missing)
    monkeypatch.setattr(check, "SIMULATOR", False)
    assert main(["check"]) == 3
    message = capsys.readouterr().err
    assert message.startswith("warpgauge: no NVIDIA driver; ")
    assert "NUMBA_ENABLE_CUDASIM=1 checks every kernel" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("seconds", ["nan", "-1", "0", "soon"])
def test_a_time_limit_that_is_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "--seconds", seconds])
    assert ended.value.code == 3
    assert "--seconds" in capsys.readouterr().err


def test_a_family_that_is_misspelt(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--family", "axpi"]) == 3
    assert "did you mean 'axpy'?" in capsys.readouterr().err


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
def test_what_time_leaves_out_is_not_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--family", "identity", "--seconds", "1e-9"]) == 2
    assert "4 left out" in capsys.readouterr().out


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
def test_a_brief_check_is_a_line_a_family(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--family", "identity", "cluster", "--brief"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == "  identity: 4 cases, 0 wrong, 0 skipped"
    assert second == "  cluster: 0 cases, 0 wrong, 7 skipped"
    assert last == "4 cases in numba's simulator: 0 wrong, 7 skipped"

    def wrong(case: Case, bench: Bench) -> schema.Case:
        raise WrongAnswer("2 is not 3")

    monkeypatch.setattr(check, "check_case", wrong)
    assert main(["check", "--family", "identity", "--brief"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert sum(": failed: WrongAnswer: 2 is not 3" in line for line in lines) == 4
    assert lines[-2] == "  identity: 4 cases, 4 wrong, 0 skipped"


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
def test_a_check_of_nothing_is_not_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--family", "cluster", "--brief"]) == 2
    assert capsys.readouterr().out.endswith("0 cases in numba's simulator: 0 wrong, 7 skipped\n")
