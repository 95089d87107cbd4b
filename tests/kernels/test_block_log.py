"""Residency and refills read off logs of blocks that were made by hand."""

from __future__ import annotations

import numpy as np

from kernels.block_log import most_resident, refills

SMS = np.array([0, 0, 0, 1])
STARTS = np.array([100, 130, 205, 100])
STOPS = np.array([200, 190, 300, 900])


def test_blocks_of_other_sms_do_not_count():
    assert most_resident(SMS, STARTS, STOPS) == 2


def test_a_block_that_starts_as_another_ends_replaces_it():
    assert most_resident(np.zeros(2), np.array([0, 10]), np.array([10, 20])) == 1


def test_a_refill_takes_the_place_that_became_free_first():
    assert refills(SMS, STARTS, STOPS, slots=2) == [205 - 190]
    assert refills(SMS, STARTS, STOPS, slots=3) == []


def test_one_slot_is_refilled_again_and_again():
    starts, stops = np.array([0, 15, 32]), np.array([10, 30, 40])
    assert refills(np.zeros(3), starts, stops, slots=1) == [5, 2]
