"""Whatever happens to a family's process, its finished cases are kept and the others go on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from bench import run, session
from bench.clock import Sample
from bench.measure import Bench, Case
from bench.run import child
from bench.session import Order, SelfCheckError, groups, progress, record, self_check
from kernels.spec import Bound, Family, Kernel, Machine, Work
from results.schema import Case as Record
from results.schema import Run
from results.store import Writer, load

FORK = multiprocessing.get_context("fork")
HEADER = Run(1, "axpy", 0, "2026-01-01", "quick", [], {"name": "made up"}, {}, "0" * 16)


def order(folder: Path) -> Order:
    return Order("axpy", 0, "quick", 0, folder, ["python", "-m", "bench"])


def _two_cases_then(end: Any) -> Any:
    def target(item: Order) -> None:
        writer = Writer(item.path)
        writer.write(HEADER)
        writer.write(Record("axpy", "vector", {"n": 1}, "ok"))
        writer.write(Record("axpy", "vector", {"n": 2}, "ok"))
        end()

    return target


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "signal 15"),
        (lambda: os._exit(7), "code 7"),
        (lambda: time.sleep(60), "hung"),
    ],
)
def test_a_child_that_dies_or_hangs_keeps_its_cases(tmp_path: Path, end: Any, words: str):
    assert not child(FORK, order(tmp_path), _two_cases_then(end), limit_s=1.0)
    file = load(tmp_path).files[0]
    assert [case.params["n"] for case in file.cases] == [1, 2]
    assert words in file.end.reason


def test_a_child_that_says_it_failed_wrote_its_own_end(tmp_path: Path):
    assert not child(FORK, order(tmp_path), lambda item: sys.exit(2))
    assert not list(tmp_path.iterdir())


def _kernel(name: str, queue: Any = lambda stream: None) -> Kernel:
    def bind(params: Any, machine: Machine) -> Bound:
        return Bound(None, Work(), lambda: 0.0, queue=queue)

    return Kernel(name, "made up", bind, examples=({},))


def _boom(stream: Any) -> None:
    raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS\nmore lines")


def _record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: list[Case], bench: Bench
) -> tuple[bool, Any]:
    monkeypatch.setattr(session, "open_bench", lambda *_: bench)
    monkeypatch.setattr(session, "self_check", lambda _: [])
    monkeypatch.setattr(session.families, "cases", lambda *_: cases)
    good = record(order(tmp_path), show=lambda _: None)
    return good, load(tmp_path).files[0]


def test_an_exception_fails_its_case_and_the_family_goes_on(tmp_path, monkeypatch, bench_with):
    cases = [Case(_kernel("one"), {}), Case(_kernel("two", _boom), {}), Case(_kernel("three"), {})]
    good, file = _record(tmp_path, monkeypatch, cases, bench_with())
    assert good
    assert [(case.kernel, case.status) for case in file.cases] == [
        ("one", "ok"),
        ("two", "failed"),
        ("three", "ok"),
    ]
    assert file.cases[1].reason == "RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS"


def test_one_that_raises_leaves_its_group_the_samples(tmp_path, monkeypatch, bench_with):
    names = (("ours", lambda stream: None), ("peer", _boom), ("ours too", lambda stream: None))
    cases = [Case(_kernel(name, queue), {}, group="all") for name, queue in names]
    good, file = _record(tmp_path, monkeypatch, cases, bench_with())
    assert good
    assert [(case.kernel, case.status) for case in file.cases] == [
        ("ours", "ok"),
        ("peer", "failed"),
        ("ours too", "ok"),
    ]
    assert file.cases[0].samples.time_s


def test_a_reader_that_leaves_costs_no_case(tmp_path, monkeypatch, bench_with):
    """`bench run | head -1`: the pipe is closed, and everything is measured all the same."""
    cases = [Case(_kernel(name), {}, group="all") for name in ("one", "two", "three")]
    reader, writer = os.pipe()
    os.close(reader)
    kept = os.dup(1)

    def measured(item: Order) -> None:
        os.dup2(writer, 1)
        monkeypatch.setattr(sys, "stdout", open(1, "w", closefd=False))  # noqa: SIM115
        monkeypatch.setattr(session, "open_bench", lambda *_: bench_with())
        monkeypatch.setattr(session, "self_check", lambda _: [])
        monkeypatch.setattr(session.families, "cases", lambda *_: cases)
        sys.exit(0 if record(item) else 2)

    try:
        assert child(FORK, order(tmp_path), measured)
    finally:
        os.dup2(kept, 1)
    file = load(tmp_path).files[0]
    assert [case.kernel for case in file.cases] == ["one", "two", "three"]
    assert file.incomplete is None


def test_a_file_of_another_run_is_left_alone(tmp_path: Path, monkeypatch, capfd):
    """Two runs into one folder: the second says so, and adds nothing to the record of the first."""

    def other_run_first(item: Order) -> None:
        with Writer(item.path) as first:
            first.write(HEADER)
            run._measure(item)

    monkeypatch.setattr(run, "record", lambda item: bool(Writer(item.path)))
    assert not child(FORK, order(tmp_path), other_run_first)
    assert "exists already" in capfd.readouterr().err
    before = order(tmp_path).path.read_bytes()
    assert before.count(b"\n") == 1
    assert not child(FORK, order(tmp_path), other_run_first)
    assert order(tmp_path).path.read_bytes() == before


def test_a_corrupted_context_ends_the_family_with_its_reason(tmp_path, monkeypatch, bench_with):
    broken: list[bool] = []

    def corrupt(stream: Any) -> None:
        broken.append(True)
        _boom(stream)

    def synchronise() -> None:
        if broken:
            raise RuntimeError("an illegal memory access was encountered")

    cases = [Case(_kernel("one"), {}), Case(_kernel("two", corrupt), {}), Case(_kernel("x"), {})]
    good, file = _record(tmp_path, monkeypatch, cases, bench_with(synchronise=synchronise))
    assert not good
    assert [case.kernel for case in file.cases] == ["one", "two"]
    assert "illegal memory access" in file.end.reason
    assert file.incomplete


@pytest.mark.parametrize(
    ("cycles", "empty_s", "words"),
    [(5.2, 2e-6, "5.20 cycles"), (4.0, 3e-5, "launch cost"), (4.0, 2e-6, None)],
)
def test_the_self_check_gates_everything(
    cycles: float, empty_s: float, words: str | None, bench_with, monkeypatch
):
    def made_up(name: str, reading: Any = None) -> Kernel:
        def bind(params: Any, machine: Machine) -> Bound:
            return Bound(None, Work(), lambda: 0.0, queue=lambda stream: None, reading=reading)

        return Kernel(name, "made up", bind, examples=({},))

    kernels = (made_up("fma_chain", lambda: {"latency_cycles": cycles}), made_up("empty"))
    family = Family("selfcheck", "", kernels)
    monkeypatch.setattr(session, "declared", lambda: {"selfcheck": family})
    bench = bench_with(repeat(Sample(empty_s, 1.7e9)), reference_clock_hz=None)
    if words is None:
        assert [case.kernel for case in self_check(bench)] == ["fma_chain", "empty"]
        assert bench.reference_clock_hz == 1.7e9
    else:
        with pytest.raises(SelfCheckError, match=words):
            self_check(bench)


def test_cases_in_a_row_with_one_group_belong_together():
    one = _kernel("one")
    cases = [
        Case(one, {}),
        Case(one, {}, group="a"),
        Case(one, {}, group="a"),
        Case(one, {}, group=("b", 1)),
        Case(one, {}),
    ]
    assert [len(group) for group in groups(cases)] == [1, 2, 1, 1]


def test_progress_says_why_a_case_is_not_ok():
    line = progress(Record("mask", "x", {"n": 3}, "skipped", reason="needs cc 9.0"), {})
    assert line == "  mask x n=3: skipped: needs cc 9.0"


def test_a_record_names_no_home_folder():
    from bench.__main__ import _relative

    assert _relative("--output") == "--output"
    assert _relative("results/data/x") == "results/data/x"
    assert _relative("/home/someone/runs/x") == ".../x"
    assert _relative(str(Path.cwd() / "results" / "x")) == "results/x"
