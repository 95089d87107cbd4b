"""Where a case's arrays lie: the tool, with a clock and a memory that are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from bench import placement
from bench.clock import Sample
from bench.measure import Bench, Case
from bench.session import SelfCheckError
from kernels.spec import Bound, Kernel, Machine, Unavailable, Work
from results.errors import UserError

NewBench = Callable[..., Bench]


class Memory:
    """Arrays and a pool that write down what happens to them."""

    uint8 = "uint8"

    def __init__(self) -> None:
        self.alive: list[int] = []
        self.said: list[str] = []

    def empty(self, size: int, kind: str) -> Any:
        memory = self
        if size >= 150 << 20 and "full" in self.said:
            raise MemoryError

        class Array:
            def __init__(self) -> None:
                memory.alive.append(size)
                memory.said.append("empty")

            def __del__(self) -> None:
                memory.alive.remove(size)

        return Array()

    def get_default_memory_pool(self) -> Any:
        return self

    def free_all_blocks(self) -> None:
        assert self.alive == [], "what is still in use cannot go back"
        self.said.append("free")


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def bench(bench_with: NewBench, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Every binding of a case takes another time: 100 µs, 200 µs, 100 µs ..."""
    made = bench_with(iter(lambda: Sample(made.seconds, 1.98e9), None))  # type: ignore[attr-defined]
    monkeypatch.setattr(made.machine, "xp", memory)
    return made


def case_of(bench: Bench, reason: str | None = None, **more: Any) -> Case:
    seconds = cycle([1e-4, 2e-4])

    def bind(params: Any, machine: Machine) -> Bound:
        if reason:
            raise Unavailable(reason)
        bench.seconds = next(seconds)  # type: ignore[attr-defined]
        machine.xp.said.append(f"bind beside {len(machine.xp.alive)}")
        return Bound(None, Work(bytes_read=8), lambda: 0.0, queue=lambda stream: None)

    return Case(Kernel("made_up", "", bind, examples=({},), **more), {"n": 1})


def test_each_placement_has_its_median_and_other_arrays_in_front(bench: Bench, memory: Memory):
    case = case_of(bench)
    records = placement.placed(case, bench, places=4)
    assert placement.line(case, records) == (
        "made_up[n=1]: 100.0 to 200.0 µs, 66.7% apart: 100.0 200.0 100.0 200.0"
    )
    assert memory.said == [
        *("free", "bind beside 0"),
        *("free", "empty", "bind beside 1"),
        *("free", "empty", "empty", "bind beside 2"),
        *("free", "empty", "empty", "empty", "bind beside 3"),
    ]


def test_a_case_that_is_not_measured_says_why(bench: Bench):
    case = case_of(bench, "no clusters here")
    records = placement.placed(case, bench)
    assert placement.line(case, records) == "made_up[n=1]: skipped: no clusters here"


def test_no_room_is_one_line(bench: Bench, memory: Memory):
    memory.said.append("full")
    with pytest.raises(UserError, match=r"no room for \d+ MiB .* fewer --places"):
        placement.placed(case_of(bench), bench, places=40)


def test_the_command_goes_on_after_a_case_that_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def wrong(params: Any, machine: Machine) -> Bound:
        raise RuntimeError("it broke")

    kernel = Kernel("vector", "", wrong, examples=({},))
    good = case_of(bench)
    cases = [Case(kernel, {"n": 2}), Case(replace(good.kernel, name="vector"), {"n": 3})]
    monkeypatch.setattr("bench.device.usable", lambda index: None)
    monkeypatch.setattr("bench.session.open_bench", lambda *which: bench)
    monkeypatch.setattr("bench.session.self_check", lambda bench: [])
    monkeypatch.setattr(placement.families, "cases", lambda *which: [*cases, good])
    assert placement.main(["--family", "axpy", "--kernel", "vector", "--places", "2"]) == 2
    first, second = capsys.readouterr().out.splitlines()
    assert first == "vector[n=2]: failed: RuntimeError: it broke"
    assert second == "vector[n=3]: 100.0 to 200.0 µs, 66.7% apart: 100.0 200.0"


def test_a_device_that_fails_its_check_is_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fails(bench: Bench) -> list[Any]:
        raise SelfCheckError("an FMA took 9 cycles: is the GPU shared?")

    monkeypatch.setattr("bench.device.usable", lambda index: None)
    monkeypatch.setattr("bench.session.open_bench", lambda *which: bench)
    monkeypatch.setattr("bench.session.self_check", fails)
    assert placement.main(["--family", "axpy", "--kernel", "vector"]) == 3
    assert capsys.readouterr().err == "warpgauge: an FMA took 9 cycles: is the GPU shared?\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--family", "axpi", "--kernel", "vector"], "no family 'axpi': did you mean 'axpy'"),
        (["--family", "axpy", "--kernel", "vectr"], "no kernel 'vectr': did you mean 'vector'"),
        (["--family", "axpy", "--kernel", "vector", "--places", "1"], "two placements at least"),
        (["--family", "axpy"], "required: --kernel"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    try:
        code = placement.main(arguments)
    except SystemExit as end:  # argparse's own
        code = end.code
    assert code == 3
    assert told in capsys.readouterr().err.splitlines()[-1]
