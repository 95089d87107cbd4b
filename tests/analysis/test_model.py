"""The models against closed forms and limits; no recorded run and no GPU."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from analysis.model import (
    LITTLE,
    MODELS,
    NAIVE,
    QUEUEING,
    Parameters,
    Value,
    Workload,
    axpy,
    grid_time,
    knee,
    theta_from_curve,
    waves,
    with_extra_fma,
)
from analysis.model.naive import counting_the_waiting_warp, warps_needed, warps_needed_per_sm
from analysis.model.parameters import issue_capacity, memory_capacity, unloaded_time
from analysis.model.queueing import loaded_latency, utilisation
from analysis.model.waves import blocks_of_waves

H200 = Parameters(
    gpu="h200-like",
    cc="9.0",
    sms=132,
    max_warps=64,
    clock=Value(1.98e9, 0, "Hz"),
    dram_latency=Value(690, 0.01, "cycle"),
    dram_bandwidth=Value(4.1e12, 0.01, "B/s"),
    theta=Value(0.9, 0.03),
    l2_latency=Value(260, 0.01, "cycle"),
    l2_bandwidth=Value(8e12, 0.02, "B/s"),
    l1_latency=Value(34, 0.01, "cycle"),
)
NO_ISSUE = {"instructions": 0.0, "alpha": 0.0}  # leaves memory as the only resource


# naive


def test_naive_gives_the_notes_25_warps_and_each_correction():
    assert warps_needed(100, 4) == 25
    assert counting_the_waiting_warp(100, 4) == 26
    assert warps_needed_per_sm(100, 4) == 100


def test_naive_refuses_no_work():
    with pytest.raises(ValueError, match="must be positive"):
        warps_needed(100, 0)


def test_naive_is_a_line_to_the_plateau_at_25_warps():
    gpu = replace(H200, dram_latency=Value(100))
    kernel = Workload(warps=25, alpha=4)
    top = NAIVE.throughput(gpu, kernel)
    assert top == memory_capacity(gpu, kernel).throughput
    assert NAIVE.throughput(gpu, replace(kernel, warps=5)) == pytest.approx(top / 5)
    assert NAIVE.throughput(gpu, replace(kernel, warps=64)) == top
    assert NAIVE.warps_to(1.0, gpu, kernel) == 25
    assert NAIVE.warps_to(0.9, gpu, kernel) == 23
    assert NAIVE.warps_to(0.9, H200, kernel) is None  # 690/4 = 172 warps: not reached by 64


# Little


def test_little_takes_the_least_of_latency_memory_and_issue():
    few = Workload(warps=4)
    assert LITTLE.throughput(H200, few) == pytest.approx(4 / 690)
    assert LITTLE.predict(H200, few).limiter == "latency"

    many = LITTLE.predict(H200, Workload(warps=64, loads=4))
    assert many.throughput == pytest.approx(4.1e12 / (1.98e9 * 132 * 128))
    assert many.bandwidth == pytest.approx(4.1e12)
    assert (many.limiter, many.resource) == ("bandwidth", "dram")

    busy = LITTLE.predict(H200, Workload(warps=64, instructions=1000))
    assert busy.throughput == pytest.approx(4 / 1000)
    assert (busy.limiter, busy.resource) == ("issue", "issue")


def test_unloaded_time_adds_chain_issue_cost_and_turnover():
    gpu = replace(H200, load_issue=Value(6), block_turnover=Value(400))
    kernel = Workload(warps=1, loads=4, alpha=10, batches=2)
    assert unloaded_time(gpu, kernel) == 690 + 10 * 4 + 3 * 6 + 400 / 2
    assert unloaded_time(gpu, replace(kernel, batches=math.inf)) == 690 + 40 + 18


def test_independent_arithmetic_takes_a_lone_warp_its_issue_time():
    assert unloaded_time(H200, Workload(warps=1, arithmetic=512)) == 690 + 512
    half = replace(H200, fma_rate=Value(2))  # 64 lanes an SM: V100, A100
    assert unloaded_time(half, Workload(warps=1, arithmetic=512)) == 690 + 1024
    assert issue_capacity(half, Workload(warps=1, arithmetic=512)).resource == "fma"


def test_levels_mix_by_share():
    kernel = Workload(warps=8, l2_share=0.5)
    assert unloaded_time(H200, kernel) == pytest.approx((690 + 260) / 2)
    # half of the traffic reaches DRAM, all of it L2: L2's 8 TB/s bind before 2 x 4.1
    assert memory_capacity(H200, kernel).resource == "l2"
    assert LITTLE.predict(H200, replace(kernel, warps=64, loads=8)).bandwidth == pytest.approx(8e12)
    cached = Workload(warps=64, l1_share=1)
    assert memory_capacity(H200, cached).throughput == math.inf
    assert LITTLE.predict(H200, cached).throughput == pytest.approx(64 / 34)


def test_a_level_without_latency_is_refused():
    with pytest.raises(ValueError, match="no l1 latency"):
        LITTLE.predict(replace(H200, l1_latency=None), Workload(warps=1, l1_share=1))


def test_writes_are_traffic_that_holds_no_warp():
    kernel = axpy(warps=2)
    assert kernel.bytes + kernel.written == 192  # of 2 loads an element: 12 bytes a lane
    plain = replace(kernel, written=0)
    assert unloaded_time(H200, kernel) == unloaded_time(H200, plain)
    assert LITTLE.predict(H200, kernel).bandwidth == pytest.approx(
        1.5 * LITTLE.predict(H200, plain).bandwidth
    )
    assert LITTLE.predict(H200, replace(kernel, warps=64)).bandwidth == pytest.approx(4.1e12)


def test_fewer_sms_share_the_same_dram():
    kernel = Workload(warps=64, loads=4, sms=33)
    assert memory_capacity(H200, kernel).throughput == pytest.approx(
        4 * memory_capacity(H200, replace(kernel, sms=None)).throughput
    )


# queueing


@pytest.mark.parametrize(
    ("x", "theta", "rho"),
    [(1, 0.9, 0.760), (1, 0.95, 0.817), (1, 0.98, 0.876), (0.5, 0.9, 0.461)],
)
def test_utilisation_closed_form(x, theta, rho):
    assert utilisation(x, theta) == pytest.approx(rho, abs=5e-4)


@pytest.mark.parametrize("theta", [0.3, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("x", [0, 1e-9, 0.2, 1, 3, 1e6])
def test_utilisation_solves_little_on_the_loaded_curve(x, theta):
    rho = utilisation(x, theta)
    assert rho <= min(x, 1)
    if rho < 1 - 1e-9:
        assert rho * loaded_latency(rho, theta) == pytest.approx(x, rel=1e-6)
    if theta == 1:
        assert rho == pytest.approx(min(x, 1))


@pytest.mark.parametrize(("x", "theta"), [(-1, 0.9), (1, 0), (1, 1.1)])
def test_utilisation_refuses_what_has_no_meaning(x, theta):
    with pytest.raises(ValueError, match=r"theta lies in|cannot be negative"):
        utilisation(x, theta)


@pytest.mark.parametrize("warps", [1, 7, 30, 64])
@pytest.mark.parametrize("turnover", [0, 400])
def test_queueing_for_memory_alone_is_the_closed_form(warps, turnover):
    gpu = replace(H200, block_turnover=Value(turnover))
    kernel = Workload(warps=warps, batches=1, **NO_ISSUE)
    top = memory_capacity(gpu, kernel).throughput
    time = unloaded_time(gpu, kernel)
    theta = 1 - (1 - 0.9) * 690 / time
    expected = top * utilisation(warps / (time * top), theta)
    assert QUEUEING.throughput(gpu, kernel) == pytest.approx(expected, rel=1e-9)


def test_queueing_meets_little_as_the_knees_harden():
    hard = replace(H200, theta=Value(1), theta_issue=Value(1))
    for kernel in (Workload(warps=5), Workload(warps=64, loads=4), axpy(warps=40)):
        assert QUEUEING.throughput(hard, kernel) == pytest.approx(
            LITTLE.throughput(hard, kernel), rel=1e-9
        )


def test_queueing_never_exceeds_little_and_rises_with_warps():
    for extra in (0, 30, 100, 400):
        kernel = with_extra_fma(axpy(warps=1), extra)
        series = [QUEUEING.throughput(H200, replace(kernel, warps=n)) for n in range(1, 65)]
        bound = [LITTLE.throughput(H200, replace(kernel, warps=n)) for n in range(1, 65)]
        assert all(a < b for a, b in pairwise(series))
        assert all(a <= b for a, b in zip(series, bound, strict=True))


def test_issue_port_is_a_second_queue():
    mixed = Workload(warps=64, loads=2, alpha=4, instructions=90)
    memory = memory_capacity(H200, mixed).throughput
    issue = issue_capacity(H200, mixed).throughput
    assert issue == pytest.approx(memory, rel=0.5)  # both near full
    alone = QUEUEING.throughput(replace(H200, theta_issue=Value(1)), mixed)
    assert QUEUEING.throughput(H200, mixed) < alone


# bands and saturation


def test_band_follows_the_parameter_that_binds():
    late = LITTLE.predict(H200, Workload(warps=4))
    assert late.band[0] == pytest.approx(late.bandwidth * (1 / 1.01), rel=1e-6)
    assert late.band[1] == pytest.approx(late.bandwidth * (1 / 0.99), rel=1e-6)
    full = LITTLE.predict(H200, Workload(warps=64, loads=4))
    assert full.band == pytest.approx((0.99 * 4.1e12, 1.01 * 4.1e12))


def test_band_adds_in_quadrature_and_vanishes_without_uncertainty():
    both = replace(H200, dram_latency=Value(600, 0.01), arithmetic_latency=Value(4, 0.06))
    answer = LITTLE.predict(both, Workload(warps=4, alpha=25))
    sigma = math.hypot(6, 6) / 700
    assert answer.band[1] / answer.bandwidth - 1 == pytest.approx(sigma, rel=0.02)
    exact = replace(
        H200,
        dram_latency=Value(690),
        dram_bandwidth=Value(4.1e12),
        theta=Value(0.9),
        theta_issue=Value(0.5),
        l2_latency=None,
        l2_bandwidth=None,
        l1_latency=None,
    )
    for model in MODELS:
        answer = model.predict(exact, Workload(warps=9))
        assert answer.band == (answer.bandwidth, answer.bandwidth)


def test_theta_beyond_one_is_the_hard_minimum():
    sharp = replace(H200, theta=Value(0.99, 0.05))
    low, high = QUEUEING.predict(sharp, Workload(warps=40)).band
    assert 0 < low < high < math.inf


@pytest.mark.parametrize("model", MODELS)
def test_warps_to_is_the_first_that_reaches_the_share(model):
    kernel = Workload(warps=1, loads=4, alpha=80, bytes=512)
    warps = model.warps_to(0.9, H200, kernel)
    top = memory_capacity(H200, kernel).throughput
    assert model.throughput(H200, replace(kernel, warps=warps)) >= 0.9 * top
    assert model.throughput(H200, replace(kernel, warps=warps - 1)) < 0.9 * top


def test_not_reached_is_an_answer():
    alone = Workload(warps=1, bytes=32)
    assert QUEUEING.warps_to(0.9, H200, alone) is None
    measured_top = QUEUEING.throughput(H200, replace(alone, warps=64))
    assert QUEUEING.warps_to(0.9, H200, alone, plateau=measured_top) < 64


# the loaded-latency curve


def test_theta_comes_back_from_a_noisy_curve_with_an_outlier():
    rng = np.random.default_rng(7)
    rho = np.linspace(0.02, 0.97, 40)
    latency = 690 * (1 - 0.93 * rho) / (1 - rho) * rng.normal(1, 0.01, rho.size)
    latency[20] *= 1.5
    fit = theta_from_curve(rho, latency, "synthetic")
    assert fit.theta.value == pytest.approx(0.93, abs=0.01)
    assert fit.latency.value == pytest.approx(690, rel=0.02)
    assert 0 < fit.theta.uncertainty < 0.02
    assert fit.theta.source == "synthetic"


def test_exact_curve_is_fitted_exactly_and_saturated_points_are_left_out():
    rho = [0.1, 0.4, 0.8, 0.95, 1.0, 1.02]
    latency = [500 * (1 - 0.8 * r) / (1 - r) if r < 1 else 9999 for r in rho]
    fit = theta_from_curve(rho, latency)
    assert fit.theta.value == pytest.approx(0.8, rel=1e-5)
    assert fit.latency.value == pytest.approx(500, rel=1e-5)


def test_a_curve_without_points_below_saturation_is_refused():
    with pytest.raises(ValueError, match="at least three points"):
        theta_from_curve([0.5, 1.0, 1.0], [1, 2, 3])


# grids


def test_100_blocks_on_80_sms_run_as_80_then_20():
    assert waves(100, 80) == 2
    assert blocks_of_waves(100, 80) == [80, 20]
    assert grid_time(100, 80, 1, block_time=1e-3, launch=5e-6) == pytest.approx(2.005e-3)


@pytest.mark.parametrize(("blocks", "expected"), [(0, 0), (1, 1), (160, 1), (161, 2), (320, 2)])
def test_waves_at_two_resident_blocks(blocks, expected):
    assert waves(blocks, 80, 2) == expected
    assert sum(blocks_of_waves(blocks, 80, 2)) == blocks


def test_a_grid_without_sms_is_refused():
    with pytest.raises(ValueError, match="no grid"):
        waves(1, 0)


# AXPY with extra arithmetic


@pytest.mark.parametrize("clock", [1.755e9, 1.98e9])
def test_axpy_knee_by_hand(clock):
    gpu = replace(H200, clock=Value(clock))
    full = axpy(warps=64)
    # 4.1e12 B/s / 12 B / 32 lanes / 132 SMs warp-elements a second; 4 FMAs a clock for them
    room = 4 * clock / (4.1e12 / 12 / 32 / 132)
    at = knee(gpu, full, dependent=False)
    assert at.extra_fma == pytest.approx(room - 4)  # two loads, one FMA, one store besides
    assert at.cause == "issue"
    assert 80 < at.extra_fma < 95


def test_axpy_knee_of_a_dependent_chain_comes_from_latency():
    full = knee(H200, axpy(warps=64), dependent=True)
    concurrency_room = 128 / memory_capacity(H200, axpy(warps=64)).throughput - 690 - 4
    assert full.extra_fma == pytest.approx(min(94.0, concurrency_room / 4), rel=0.01)
    some = axpy(warps=32)
    chain = knee(H200, some, dependent=True)
    assert chain.cause == "latency"
    room = some.concurrency / memory_capacity(H200, some).throughput - unloaded_time(H200, some)
    assert chain.extra_fma == pytest.approx(room / 4)
    assert chain.extra_fma < knee(H200, some, dependent=False).extra_fma
    assert knee(H200, axpy(warps=4), dependent=True).extra_fma == 0
    assert knee(H200, axpy(warps=4), dependent=False).cause == "latency"


def test_four_chains_side_by_side_fill_a_scheduler_as_independent_fmas_do():
    vector = axpy(warps=9, width=16)
    dependent, free = (knee(H200, vector, elements=4, dependent=d) for d in (True, False))
    assert dependent.extra_fma == pytest.approx(free.extra_fma)


def test_doubling_the_arithmetic_below_the_knee_costs_nothing():
    base = axpy(warps=64)
    once, twice = (LITTLE.predict(H200, with_extra_fma(base, e, dependent=False)) for e in (40, 80))
    assert twice.bandwidth == once.bandwidth
    far = [LITTLE.predict(H200, with_extra_fma(base, e, dependent=False)) for e in (256, 512)]
    assert far[0].time(12e9) * 2 == pytest.approx(far[1].time(12e9), rel=0.02)
    assert far[0].limiter == "issue"


def test_few_warps_pay_for_a_chain_at_once():
    base = axpy(warps=4)
    slow = LITTLE.predict(H200, with_extra_fma(base, 100))
    assert slow.limiter == "latency"
    assert slow.throughput == pytest.approx(8 / (690 + 404))


# inputs


@pytest.mark.parametrize(
    "values",
    [{"warps": 0}, {"loads": 0}, {"alpha": -1}, {"l2_share": 1.5}, {"written": -1}, {"sms": 0}],
)
def test_a_workload_that_cannot_be_is_refused(values):
    with pytest.raises(ValueError, match=r"must be|cannot be negative"):
        Workload(**{"warps": 1, **values})


def test_a_value_must_be_finite():
    with pytest.raises(ValueError, match="finite"):
        Value(math.nan)
