"""Where a case's arrays lie: the tool, with a clock and a memory that are made up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, repeat
from typing import Any

import pytest

from bench import placement
from bench.clock import Sample
from bench.measure import Bench, Case
from kernels.spec import Bound, Kernel, Machine, Unavailable, Work
from results.errors import UserError

NewBench = Callable[..., Bench]


def test_each_placement_has_its_median_and_other_arrays_in_front(
    bench_with: NewBench, monkeypatch: pytest.MonkeyPatch
):
    seconds = iter(cycle([1e-4, 2e-4]))
    now = [0.0]
    alive: list[int] = []

    def bind(params: Any, machine: Machine) -> Bound:
        now[0] = next(seconds)
        alive.append(len(ahead))
        return Bound(None, Work(bytes_read=8), lambda: 0.0, queue=lambda stream: None)

    bench = bench_with(iter(lambda: Sample(now[0], 1.98e9), None))
    ahead: list[int] = []

    class Memory:
        """NumPy's arrays, counted while they live."""

        uint8 = "uint8"

        def empty(self, size: int, kind: str) -> Any:
            class Array:
                def __init__(self) -> None:
                    ahead.append(size)

                def __del__(self) -> None:
                    ahead.remove(size)

            return Array()

    monkeypatch.setattr(bench.machine, "xp", Memory(), raising=False)
    case = Case(Kernel("made_up", "", bind, examples=({},)), {"n": 1})
    times = placement.medians(case, bench, places=4)
    assert times == [1e-4, 2e-4, 1e-4, 2e-4]
    assert alive == [0, 1, 2, 3]
    assert placement.line(case, times) == (
        "made_up[n=1]: 100.0 to 200.0 µs, 66.7% apart: 100.0 200.0 100.0 200.0"
    )


def test_a_case_that_cannot_be_measured_says_why(bench_with: NewBench):
    def bind(params: Any, machine: Machine) -> Bound:
        raise Unavailable("no clusters here")

    case = Case(Kernel("made_up", "", bind, examples=({},)), {})
    with pytest.raises(UserError, match=r"made_up.* skipped: no clusters here"):
        placement.medians(case, bench_with(repeat(Sample(1e-4, 1.98e9))))


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
