"""What may hang is ended in time, named, and costs no other case; the parent always goes on."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from bench import isolation, measure
from bench.isolation import Job, Outcome, run
from bench.measure import Case
from kernels.compat import SIMULATOR
from kernels.spec import Bound, Kernel, Work
from results import schema
from results.schema import Launch

LAUNCH = Launch(grid=(1, 1, 1), block=(32, 1, 1))
GOOD = Outcome("ok", None, {"hung": 0.0}, LAUNCH)
JOBS = [Job("made_up", name, {}) for name in ("a", "b", "c")]


def _play(messages: Any, jobs: list[Job], snapshot: Any, index: int) -> None:
    """What each job does is in the snapshot, by its name."""
    for job in jobs:
        what = snapshot[job.kernel]
        if what == "is not ready":
            time.sleep(3600)
        if what == "dies at once":
            os._exit(1)
        if what == "fails and ends":
            messages.send(Outcome("failed", "RuntimeError: no"))
            return
        messages.send(LAUNCH)
        if what == "hangs":
            time.sleep(3600)
        if what == "dies":
            os._exit(1)
        messages.send(GOOD)


def played(*what: str) -> tuple[list[Outcome], float]:
    begin = time.monotonic()
    script = dict(zip(("a", "b", "c"), what, strict=True))
    outcomes = run(JOBS, script, limit_s=0.5, prepare_s=20.0, target=_play)
    return outcomes, time.monotonic() - begin


@pytest.fixture(autouse=True)
def _no_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(isolation, "_index", lambda: 0)
    monkeypatch.setattr(isolation, "PRELOADED", [__name__])  # each child is a copy of one server


def test_jobs_that_end_share_one_child():
    assert played("ends", "ends", "ends")[0] == [GOOD] * 3


def test_one_that_hangs_is_ended_and_the_others_go_on():
    outcomes, seconds = played("ends", "hangs", "ends")
    assert outcomes == [GOOD, Outcome("ok", None, {"hung": 1.0}, LAUNCH), GOOD]
    assert seconds < 30


def test_all_hang():
    outcomes, seconds = played("hangs", "hangs", "hangs")
    assert [outcome.metrics for outcome in outcomes] == [{"hung": 1.0}] * 3
    assert seconds < 60


@pytest.mark.parametrize("what", ["dies", "dies at once"])
def test_a_child_that_dies_fails_its_job_alone(what):
    outcomes, _ = played(what, "ends", "ends")
    assert [outcome.status for outcome in outcomes] == ["failed", "ok", "ok"]
    assert "without an answer" in outcomes[0].reason


def test_a_job_after_a_failure_gets_a_new_child():
    outcomes, _ = played("fails and ends", "ends", "fails and ends")
    assert [outcome.status for outcome in outcomes] == ["failed", "ok", "failed"]


def test_a_child_that_never_comes_to_its_launch():
    outcomes = run(JOBS[:1], {"a": "is not ready"}, prepare_s=0.5, target=_play)
    assert outcomes == [Outcome("failed", "its process was not ready after 0.5 s")]


def _both_end(snapshot: dict[str, Any], limit_s: float) -> None:
    names = ("ending", "endless", "ending")
    jobs = [Job("never_ending", name, {}, package="tests.bench") for name in names]
    begin = time.monotonic()
    outcomes = run(jobs, snapshot, limit_s=limit_s)
    assert [outcome.metrics["hung"] for outcome in outcomes] == [0.0, 1.0, 0.0]
    assert time.monotonic() - begin < 2 * isolation.PREPARE_S


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
def test_a_kernel_that_never_ends():
    _both_end({}, limit_s=5.0)


@pytest.mark.gpu
@pytest.mark.skipif(SIMULATOR, reason="the simulator has no GPU to hold")
def test_a_kernel_that_never_ends_on_a_gpu():
    from bench import device

    if reason := device.why_not():
        pytest.skip(reason)
    _both_end(device.snapshot(), limit_s=1.0)
    import cupy

    assert int(cupy.arange(10).sum()) == 45, "the device serves this process as before"


def _may_hang(name: str) -> Kernel:
    def bind(params: Any, machine: Any) -> Bound:
        return Bound(None, Work(), lambda: 0.0, queue=lambda stream: pytest.fail("run here"))

    return Kernel(name, "made up", bind, examples=({},), may_hang=True)


def test_measure_and_check_run_it_elsewhere_and_take_no_sample(bench_with, monkeypatch):
    asked: list[list[Job]] = []

    def outcomes(jobs: list[Job], snapshot: Any) -> list[Outcome]:
        asked.append(jobs)
        return [GOOD, Outcome("ok", None, {"hung": 1.0}, LAUNCH)][: len(jobs)]

    monkeypatch.setattr(isolation, "run", outcomes)
    bench = bench_with()
    cases = [Case(_may_hang(name), {"split": 3}, group="isolated") for name in ("a", "b")]
    records = measure.measure_together(cases, bench)
    assert [record.metrics for record in records] == [{"hung": 0.0}, {"hung": 1.0}]
    assert all(record.status == "ok" and record.samples is None for record in records)
    assert all(schema.encode(record) for record in records)
    assert measure.check(cases[0], bench).metrics == {"hung": 0.0}
    assert [len(jobs) for jobs in asked] == [2, 1]
    assert asked[0][1] == Job("axpy", "b", {"split": 3})
