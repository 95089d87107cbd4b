"""What the report says of hardware counters. All numbers are made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import plots
from analysis.__main__ import main
from analysis.report.question import RunData
from analysis.views import counters as view
from analysis.views import waiting
from results.schema import Work
from results.store import load

from .conftest import CLOCK, SMS
from .counted import READ, SECONDS, beside, counted, measured


@pytest.fixture
def run(record: Callable[..., Path]) -> Callable[..., Path]:
    return beside(record)


def made_of(family: str, kernel: str, state: str, **params: int | str):
    case = measured(kernel, family=family, **(params or {"bytes": 4096}))
    return case, counted(case, states=state)


WAITS = [
    made_of("memory", "chase", "long_scoreboard"),
    made_of("memory", "chase_shared", "short_scoreboard"),
    made_of("instruction", "chain", "wait", op="fma.f32"),
    made_of("instruction", "chain", "imc_miss", op="add.f64"),
    *(
        made_of("occupancy", "read", "long_scoreboard", **{**at, "by": "shared_memory"})
        for at in ({"warps": w, "loads": 1, "width": 4} for w in (1, 8, 64))
    ),
]


def test_waiting(run):
    answer = waiting.waiting(RunData(load(run(*WAITS))))
    assert answer is not None
    assert answer.verdict == "confirmed"
    # of fma.f32, not of the other op
    assert "instruction/chain 70.0% of its warps' time in wait" in answer.text
    assert "From 1 to 64 resident warps" in answer.text
    assert len(answer.plots) == 2


def test_waiting_for_something_else(run):
    odd = made_of("memory", "chase", "short_scoreboard")
    answer = waiting.waiting(RunData(load(run(odd))))
    assert answer is not None
    assert answer.verdict == "contradicted"
    assert "where long scoreboard was expected" in answer.text


@pytest.mark.parametrize(("time", "found"), [(SECONDS, True), (10e-6, False)])
def test_waiting_for_neither_operand_nor_barrier(run, time, found):
    case, brief, unknown = (measured(name, family="contention") for name in ("store", "b", "u"))
    cases = [
        (case, counted(case, states="mio_throttle", time=time)),
        (brief, counted(brief, time=10e-6)),
        (unknown, counted(unknown, warps_wait=60 * SMS * CLOCK * SECONDS)),
    ]
    answer = waiting.waiting(RunData(load(run(*WAITS, *cases))))
    assert answer is not None
    assert answer.verdict == ("contradicted" if found else "confirmed")
    assert (f"in 1 of {len(WAITS) + 1} cases" in answer.text) == found
    assert ("contention/store 70.0% in mio throttle (the queue to" in answer.text) == found


def test_declared_and_clock(run):
    good, odd = measured(), measured("unrolled")
    data = RunData(load(run((good, counted(good)), (odd, counted(odd, dram_read=1.2 * READ)))))
    found = view.declared(data)
    assert found is not None
    assert found.verdict == "measured"
    assert "1 of 2 cold streaming cases" in found.text
    assert "axpy/unrolled" in found.text
    clock = view.clock(data)
    assert clock is not None
    assert clock.verdict == "measured"
    assert "2 of 2 cold kernels over 50 µs" in clock.text


@pytest.mark.parametrize("question", view.QUESTIONS, ids=lambda question: question.slug)
def test_answers_are_sentences_and_figures_draw(run, question):
    sizes = [measured(n=2**e, work=Work(2**e * 8, 2**e * 4)) for e in (24, 26, 28)]
    data = RunData(load(run(*WAITS, *((case, counted(case)) for case in sizes))))
    answer = question.answer(data)
    assert answer is not None
    assert answer.text.endswith(".")
    assert "nan" not in answer.text
    assert answer.sources
    for plot in answer.plots:
        with plots.theme():
            assert "<svg" in plots.svg(plot.draw(plot.data))


@pytest.mark.parametrize("question", view.QUESTIONS, ids=lambda question: question.slug)
def test_a_run_without_counters_is_not_measured(record, question):
    assert question.answer(RunData(load(record([case for case, _ in WAITS])))) is None


def test_a_device_that_does_not_tell_its_l2(run, capsys):
    """What is not written may lie in an L2 of any size; reads are judged all the same."""
    wrote, read = measured(), measured("unrolled")
    pairs = (
        (wrote, counted(wrote, dram_written=0.0)),
        (read, counted(read, dram_read=1.2 * READ)),
    )
    folder = run(*pairs)
    for path in folder.glob("*.jsonl"):
        path.write_text(path.read_text().replace('"l2_bytes"', '"l2"'))
    assert main(["counters", str(folder)]) == 2
    told = capsys.readouterr()
    assert "the size of L2 is not recorded: missing writes are not judged" in told.err
    suspects = told.out.split("suspects")[1]
    assert "axpy/unrolled" in suspects
    assert "axpy/vector" not in suspects
    assert view.declared(RunData(load(folder))) is None
