"""Parameters and scores from runs that the queueing law made, so that the answer is known."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import plots
from analysis.__main__ import main
from analysis.model import LITTLE, MODELS, NAIVE, QUEUEING, Parameters, Value, Workload
from analysis.model.feeds import FEEDS
from analysis.model.measured import measure
from analysis.model.parameters import batch_time, block_capacity, unloaded_time
from analysis.model.scoring import MEMORY_BOUND, SCORED, WAVES, Point, points, scores, warps_to
from analysis.model.stream import Stream
from analysis.report.question import RunData
from analysis.views import model as view
from results.errors import UserError
from results.schema import Case, Launch, Work
from results.store import load

from .conftest import CLOCK, SMS, samples, write_process

LAUNCH = 3e-6
THETA = 0.95
RHO = [step / 100 for step in range(1, 99)]
LAW = tuple((rho, (1 - THETA * rho) / (1 - rho)) for rho in RHO)
BATCH = tuple((2.0**power, 1 + 0.05 * power) for power in range(6))
READ = Stream(Value(2.7e12), Value(700.0), BATCH, LAW)
TRUE = Parameters(
    gpu="Synthetic GPU",
    cc="9.0",
    sms=SMS,
    max_warps=64,
    clock=Value(CLOCK),
    dram_latency=Value(650.0),
    dram_bandwidth=READ.bandwidth,
    theta=Value(THETA),
    read=READ,
    update=replace(READ, bandwidth=Value(2.4e12), latency=Value(800.0)),
    launch=Value(LAUNCH),
)
TURNS = 1000
WARPS = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64)
SWEPT = [(loads, width) for loads in (1, 2, 4, 8) for width in (4, 8, 16)]
UPDATED = [(loads, width) for loads in (2, 8) for width in (4, 16)]
FED = {
    **dict.fromkeys(((1, 4), (2, 4), (8, 8)), (3,)),
    (4, 4): (3, 11, 18, 26, 36, 44, 60),
    (8, 4): (3, 36, 60),
    (8, 16): (3, 18, 44),
}


@functools.cache
def law(written: float, warps: int, loads: int, width: int) -> float:
    """What the law says to read a byte, s; each process asks again."""
    workload = Workload(warps=warps, loads=loads, bytes=32.0 * width, written=written)
    return QUEUEING.predict(TRUE, workload).time(1 + written / (32 * width))


def walk(process: int, kernel: str, warps: int, loads: int, width: int, noise: float) -> Case:
    """One point of the occupancy family, as the law says."""
    written = 16.0 * width if "axpy" in kernel else 0.0
    read = TURNS * warps * loads * 32 * width * SMS
    moved = read * (1 + written / (32 * width))
    seconds = LAUNCH + read * law(written, warps, loads, width)
    params = {"warps": warps, "loads": loads, "width": width, "by": "shared_memory"}
    return Case(
        "occupancy",
        kernel,
        dict(params),
        "ok",
        work=Work(read, int(moved) - read),
        launch=Launch((SMS * warps, 1, 1), (32, 1, 1), blocks_per_sm=warps),
        samples=samples(seconds, process, noise),
        source="kernels/occupancy.py:1",
    )


def cases(process: int, noise: float = 0.0) -> Iterator[Case]:
    sweeps = {
        "read": dict.fromkeys(SWEPT, WARPS),
        "axpy": dict.fromkeys(UPDATED, WARPS),
        "calibration": FED,
        "calibration_axpy": {point: FED[point] for point in FED if point != (1, 4)},
    }
    for kernel, points_ in sweeps.items():
        for (loads, width), resident in points_.items():
            for warps in resident:
                yield walk(process, kernel, warps, loads, width, noise)
    yield Case("launch", "numba", {"arguments": 0}, "ok", samples=samples(LAUNCH, process, 0))
    chase = {"bytes": 1 << 31, "cache": "cg"}
    yield Case("memory", "chase", chase, "ok", metrics={"latency_cycles": 650.0})
    for rho, slower in LAW[::10]:
        yield Case(
            "loaded_latency",
            "probe",
            {"width": 4, "warps": 32, "pause": round(1000 / rho)},
            "ok",
            metrics={"latency_cycles": 650.0 * slower, "load_bandwidth": 2.7e12 * rho},
        )


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, list[list[Case]]], Path]:
    """write(name, cases of each process) -> folder of the run."""

    def record(name: str, processes: list[list[Case]]) -> Path:
        folder = tmp_path_factory.mktemp(name)
        for process, own in enumerate(processes):
            write_process(folder, process, own, "occupancy", checked=False)
        return folder

    return record


@pytest.fixture(scope="module")
def lawful(write: Callable[..., Path]) -> Path:
    return write("lawful", [list(cases(process, 0.002)) for process in range(3)])


@pytest.fixture(scope="module")
def predicted(lawful: Path) -> list[Point]:
    return points(lawful)


# parameters


def test_parameters_come_back_from_the_law(lawful):
    found = measure(lawful).persistent
    assert found.launch.value == pytest.approx(LAUNCH, rel=0.01)
    assert found.dram_latency.value == 650
    assert found.theta.value == pytest.approx(THETA, abs=0.02)
    assert found.read.bandwidth.value == pytest.approx(2.7e12, rel=0.02)
    assert found.update.bandwidth.value == pytest.approx(2.4e12, rel=0.02)
    for lines in (1, 2, 4, 8, 16, 32):
        assert found.read.batch_time(lines) == pytest.approx(READ.batch_time(lines), rel=0.02)
    for rho in (0.2, 0.5, 0.8, 0.9):
        law = (1 - THETA * rho) / (1 - rho)
        assert found.read.slowdown(rho) == pytest.approx(law, rel=0.06)


def test_uncertainty_is_the_spread_between_processes(write):
    def noisy(process: int) -> list[Case]:
        return [
            replace_time(case, 1 + 0.02 * (process - 1)) if case.family == "occupancy" else case
            for case in cases(process)
        ]

    def replace_time(case: Case, factor: float) -> Case:
        times = [round(seconds * factor, 9) for seconds in case.samples.time_s]
        case.samples.time_s[:] = times
        return case

    found = measure(write("noisy", [noisy(process) for process in range(3)])).persistent
    assert found.read.latency.uncertainty == pytest.approx(0.02, rel=0.2)
    exact = measure(write("exact", [list(cases(0))])).persistent
    assert exact.read.latency.uncertainty == 0


def test_a_run_without_calibration_is_refused(write):
    run = write("bare", [[case for case in cases(0) if "calibration" not in case.kernel]])
    with pytest.raises(UserError, match="record the family occupancy"):
        measure(run)


# what is scored


def test_nothing_that_feeds_the_model_is_scored():
    assert not FEEDS & {*SCORED, *WAVES}
    assert ("occupancy", "calibration") in FEEDS
    assert ("occupancy", "read") in SCORED


def test_scored_points_do_not_move_the_parameters(write, lawful):
    """The scored cases may say anything: no parameter changes."""
    odd = []
    for process in range(3):
        every = list(cases(process, 0.002))
        for case in every:
            if (case.family, case.kernel) in SCORED:
                case.samples.time_s[:] = [round(3 * s, 9) for s in case.samples.time_s]
        odd.append(every)
    assert measure(write("odd", odd)) == measure(lawful)


def test_calibration_cases_are_no_points(predicted):
    assert predicted
    assert not [point for point in predicted if "calibration" in point.case]


# scores


def test_the_law_that_made_the_run_is_found_to_hold(predicted):
    overall = {score.model: score for score in scores(predicted)[: len(MODELS)]}
    assert {score.group for score in overall.values()} == {MEMORY_BOUND}
    assert overall["queueing"].mean_relative_error < 0.015
    assert overall["queueing"].maximum_relative_error < 0.05
    assert overall["little"].mean_relative_error > 2 * overall["queueing"].mean_relative_error
    assert overall["naive"].mean_relative_error > overall["little"].mean_relative_error
    count = len(WARPS) * (len(SWEPT) + len(UPDATED))
    assert overall["queueing"].cases == count


def test_the_worst_case_is_the_one_that_was_spoilt(write):
    spoilt = list(cases(0))
    wrong = next(case for case in spoilt if case.kernel == "read" and case.params["warps"] == 16)
    wrong.samples.time_s[:] = [round(2 * s, 9) for s in wrong.samples.time_s]
    worst = scores(points(write("spoilt", [spoilt])))[2]
    assert worst.model == "queueing"
    assert worst.maximum_relative_error == pytest.approx(1, abs=0.1)
    assert "warps=16" in worst.worst


def test_curves_have_the_warps_of_the_law(lawful):
    curves = {(score.curve, score.model): score for score in scores(points(lawful)) if score.curve}
    score = curves["4 x 16 bytes", "queueing"]
    assert score.warps_to_90_measured == pytest.approx(score.warps_to_90_predicted, rel=0.1)
    assert curves["1 x 4 bytes", "queueing"].warps_to_90_measured is None


def test_a_band_holds_the_prediction_and_widens_with_the_processes(write, predicted):
    for point in predicted:
        assert point.low <= point.predicted <= point.high
    one = points(write("one", [list(cases(0))]))

    def width(found: list[Point]) -> float:
        return sum(p.high - p.low for p in found if p.model == "queueing" and p.warps == 1)

    assert width(predicted) > width(one)


def test_warps_to_is_straight_between_points_and_wants_a_plateau():
    assert warps_to(0.9, [(1, 1.0), (2, 2.0), (4, 4.0), (8, 4.0)]) == pytest.approx(3.6)
    assert warps_to(0.9, [(1, 1.0), (2, 2.0), (4, 4.0)]) is None
    assert warps_to(0.9, [(4, 1.0), (8, 1.0)]) == 4


# the stream and the doors


def test_a_batch_ends_with_its_slowest_line():
    assert READ.batch_time(1) == 700
    assert READ.batch_time(4) == pytest.approx(770)
    assert READ.batch_time(64) == pytest.approx(700 * 1.3)  # on with the last slope
    wide = Workload(warps=1, loads=1, bytes=512)
    assert batch_time(TRUE, wide) == batch_time(TRUE, Workload(warps=1, loads=4))


def test_slowdown_goes_on_as_a_queue_beyond_its_last_point():
    stream = replace(READ, stretch=((0.5, 1.2), (0.9, 1.45)))
    assert stream.slowdown(0) == 1
    assert stream.slowdown(0.7) == pytest.approx(1.325)
    assert stream.knee == pytest.approx(0.95)
    assert stream.slowdown(0.99) == pytest.approx((1 - 0.95 * 0.99) / 0.01)
    with pytest.raises(ValueError, match="utilisation"):
        stream.slowdown(1.0)
    with pytest.raises(ValueError, match="no curve"):
        replace(READ, stretch=()).slowdown(0.5)


def test_the_measured_curve_gives_what_its_law_gives():
    workload = Workload(warps=48, loads=2)
    batch = READ.batch_time(2)
    x = QUEUEING.throughput(TRUE, workload)
    rho = x / (2.7e12 / (CLOCK * SMS * 128))
    assert x * batch * (1 - THETA * rho) / (1 - rho) == pytest.approx(96, rel=0.01)


def test_arithmetic_on_the_first_load_runs_beside_the_second():
    both = Workload(warps=1, loads=2, alpha=10)
    first = replace(both, first=1)
    assert unloaded_time(TRUE, both) == READ.batch_time(2) + 40
    assert unloaded_time(TRUE, first) == pytest.approx(READ.batch_time(1) + 40)
    assert unloaded_time(TRUE, replace(first, alpha=1)) == READ.batch_time(2)


def test_a_block_waits_for_its_slowest_warp_and_for_its_start():
    parameters = replace(TRUE, block_turnover=Value(300.0), warp_start=Value(5.0))
    block = Workload(warps=64, batches=1, block_warps=8)
    expected = READ.batch_time(8) + 300 + 7 * 5
    assert unloaded_time(parameters, block) == pytest.approx(expected)
    endless = replace(block, batches=math.inf)
    assert unloaded_time(parameters, endless) == READ.batch_time(1)


def test_small_blocks_are_bound_by_how_many_the_device_starts():
    parameters = replace(TRUE, block_rate=Value(1e9))
    small = Workload(warps=32, batches=1, block_warps=1)
    door = block_capacity(parameters, small)
    assert door.throughput == pytest.approx(1e9 / (CLOCK * SMS))
    for model in (LITTLE, NAIVE, QUEUEING):
        assert model.throughput(parameters, small) <= door.throughput
    prediction = LITTLE.predict(replace(parameters, block_rate=Value(1e7)), small)
    assert (prediction.limiter, prediction.resource) == ("blocks", "blocks")
    assert math.isinf(block_capacity(parameters, Workload(warps=32)).throughput)


# the command and the views


def test_the_command_lists_every_score(lawful, capsys):
    assert main(["model", str(lawful), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"model", "cases", "mean_relative_error", "maximum_relative_error"} <= set(listed[0])
    assert {"warps_to_90_predicted", "warps_to_90_measured"} <= set(listed[0])
    assert main(["model", str(lawful)]) == 0
    text = capsys.readouterr().out
    assert "memory-bound" in text
    assert "worst case" in text


@pytest.mark.thorough
def test_the_view_tells_the_error_and_draws_it(lawful):
    answer = view.predicted(RunData(load(lawful)))
    assert answer is not None
    assert "the queueing model is off by" in answer.text
    with plots.theme():
        for plot in answer.plots:
            assert plots.svg(plot.draw(plot.data)).startswith("<?xml")


def test_a_run_that_feeds_no_model_answers_nothing(write):
    run = RunData(load(write("bare", [[walk(0, "read", 4, 1, 4, 0.0)]])))
    assert view.predicted(run) is None
    assert view.warps(run) is None
