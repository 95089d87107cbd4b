"""Identity: shapes, the claims counted over made-up logs, and the command in the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.compat import SIMULATOR
from kernels.identity import (
    FIELDS,
    LANE,
    LATER_SM,
    LINEAR,
    SLOT,
    SLOTS,
    SM,
    holders,
    shape,
    summary,
)


def log(blocks: int, threads: int) -> np.ndarray:
    """Block b on SM b, warps in slots from 0."""
    seen = np.zeros((blocks, threads, FIELDS), np.int32)
    linear = np.arange(threads)
    seen[:, :, LINEAR] = linear
    seen[:, :, SLOT] = linear // 32
    seen[:, :, LANE] = linear % 32
    seen[:, :, SM] = seen[:, :, LATER_SM] = np.arange(blocks)[:, None]
    seen[:, :, SLOTS] = 64
    return seen


@pytest.mark.parametrize(
    ("text", "numbers"), [("16x16", (16, 16, 1)), ("33", (33, 1, 1)), ("4x5x2", (4, 5, 2))]
)
def test_shapes(text, numbers):
    assert shape(text) == numbers


@pytest.mark.parametrize("text", ["", "0", "16x", "1x2x3x4", "16*16"])
def test_no_shapes(text):
    with pytest.raises(ValueError, match=r"shape|invalid"):
        shape(text)


def test_a_small_launch_shows_no_difference():
    found = summary(log(4, 256))
    assert found == {
        "lane_differs": 0.0,
        "slot_differs": 0.0,
        "warps_per_block": 8.0,
        "sms_per_block": 1.0,
        "sms_per_slot": 4.0,
        "warp_slots": 64.0,
    }


def test_a_partial_warp_is_a_warp():
    assert summary(log(1, 33))["warps_per_block"] == 2.0


def test_a_full_sm_shows_the_slots():
    seen = log(2, 64)
    seen[:, :, [SM, LATER_SM]] = 7
    seen[1, :, SLOT] += 2
    assert summary(seen)["slot_differs"] == 0.5
    slots = holders(seen)
    assert slots["slot_block"][:5] == [0, 0, 1, 1, -1]
    assert slots["slot_warp"][:5] == [0, 1, 0, 1, -1]


def test_a_block_that_moved_would_be_seen():
    seen = log(2, 32)
    seen[1, 5, LATER_SM] = 9
    assert summary(seen)["sms_per_block"] == 2.0


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
def test_command_prints_the_notes_thread_21():
    from bench.identity import identity

    lines = identity((16, 16), (2, 2)).splitlines()
    assert lines[0].startswith("In numba's simulator")
    thread = next(line for line in lines if "(5,1,0)" in line)
    assert thread.split()[2:5] == ["21", "0", "21"]
    assert sum(line.startswith("(") for line in lines) == 1024


@pytest.mark.parametrize(
    ("block", "grid", "why"),
    [
        ((2000,), (1,), "at most 1024 threads"),
        ((16, 0), (1,), "--block takes one to three positive numbers"),
        ((1,), (1, 1, 1, 1), "--grid takes one to three"),
        ((1024,), (1000,), "give a smaller --grid"),
    ],
)
def test_command_refuses(block, grid, why):
    from bench.identity import identity
    from results.errors import UserError

    with pytest.raises(UserError, match=why):
        identity(block, grid)
