"""Schedule: grids from waves, durations, logs that lie; and what the code must be."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import schedule
from kernels.compat import SIMULATOR
from kernels.schedule import (
    BEGIN,
    END,
    FIELDS,
    SM,
    START,
    STOP,
    blocks_of,
    durations,
    observed,
)
from kernels.spec import WrongAnswer

CALLS = ["hold", "arithmetic", "early_exit", "private_memory"]


@pytest.mark.parametrize(
    ("waves", "slots", "blocks"),
    [
        (1.25, 80, 100),
        (1.25, 132, 165),
        (1.0, 132, 132),
        (1.01, 132, 134),
        (0.5, 1, 1),
        (2.01, 7, 15),
    ],
)
def test_blocks_of_waves(waves, slots, blocks):
    assert blocks_of(waves, slots) == blocks


def test_durations():
    assert (durations("equal", 100, 7, seed=1) == 100).all()
    unequal = durations("unequal", 1000, 5000, seed=1)
    assert unequal.min() >= 500
    assert unequal.max() <= 1500
    assert abs(unequal.mean() - 1000) < 20
    assert (unequal == durations("unequal", 1000, 5000, seed=1)).all()


def log(entries: list[tuple[int, int, int]]) -> np.ndarray:
    """(SM, begin, end) of each block, with the shared clock at half the SM's pace."""
    seen = np.zeros((len(entries), FIELDS), np.int64)
    for row, (sm, begin, end) in zip(seen, entries, strict=True):
        row[[SM, BEGIN, END, START, STOP]] = sm, begin, end, begin // 2, end // 2
    return seen


def test_what_a_log_says():
    found = observed(log([(0, 100, 300), (1, 100, 310), (0, 340, 500)]), 1, ("block_start",))
    assert found == {
        "sms_used": 2.0,
        "resident_blocks": 1.0,
        "refill_cycles": 40.0,
        "block_start": [0.0, 0.0, 120e-9],
    }


def test_one_wave_has_no_refill():
    assert "refill_cycles" not in observed(log([(0, 1, 2), (1, 1, 2)]), 1)


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
class TestChecks:
    def bound(self, name: str):
        from bench.machine import simulated

        params = {"block": 32, "residency": "one", "waves": 1.0, "cycles": 2000}
        bound = schedule.FAMILY[name].bind(params, simulated())
        bound.poison()
        return bound

    def test_blocks_that_did_not_run(self):
        with pytest.raises(WrongAnswer, match="2 of 2 blocks did not run"):
            self.bound("timeline").check()

    def test_a_block_that_ended_too_soon(self):
        bound = self.bound("timeline")
        bound.queue(0)
        log = bound.arguments[1]
        log[END] = log[BEGIN] + 5
        with pytest.raises(WrongAnswer, match="block 0 ended before its time"):
            bound.check()

    def test_every_reading_is_a_metric(self):
        from results.metrics import METRICS

        for name in ("timeline", "early_exit", "private_memory"):
            bound = self.bound(name)
            bound.queue(0)
            for metric, value in bound.reading().items():
                assert METRICS[metric].vector == isinstance(value, list)

    def test_nobody_wrote_into_another_blocks_memory(self):
        bound = self.bound("private_memory")
        bound.queue(0)
        assert bound.reading()["foreign_values"] == 0


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
@pytest.mark.parametrize("cc", [(7, 5), (9, 0), (12, 0)])
@pytest.mark.parametrize("name", CALLS)
def test_full_residency_is_not_limited_by_registers(name, cc):
    from kernels.compile import compile_kernel

    compiled = [
        pair
        for kernel in schedule.FAMILY.kernels
        for pair in kernel.compiled
        if pair[0] is getattr(schedule, name)
    ]
    built = compile_kernel(*compiled[0], cc)
    assert built.registers <= 32, "a full SM has 65536 registers for 2048 threads"
    assert built.ptx.count("%globaltimer") >= 2
