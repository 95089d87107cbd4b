"""The random cycle through memory: every line once, in no order that a prefetcher could guess."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.ring import LINE, Ring, place
from kernels.spec import WrongAnswer


def order(lines: int) -> list[int]:
    bits = max(1, (lines - 1).bit_length())
    return [place(step, lines, bits) for step in range(lines)]


@pytest.mark.parametrize("lines", [1, 2, 3, 31, 32, 33, 48, 1000, 1024, 3 << 9])
def test_visits_every_line_once(lines: int):
    assert sorted(order(lines)) == list(range(lines))


def test_neighbours_in_the_cycle_are_unrelated():
    visited = np.array(order(1 << 14))
    steps = np.diff(visited)
    assert abs(np.corrcoef(visited[:-1], visited[1:])[0, 1]) < 0.05
    # Uniformly random neighbours are a third of the range apart, and no distance is common.
    assert np.abs(steps).mean() / len(visited) == pytest.approx(1 / 3, abs=0.02)
    assert np.unique(steps, return_counts=True)[1].max() < 12


def test_pages_are_visited_in_random_order_too():
    pages = np.array(order(1 << 14)) >> 8
    assert (np.diff(pages) == 0).mean() < 0.05


def test_large_cycles_stay_in_range():
    lines = 1 << 25  # 4 GiB
    assert all(0 <= place(step, lines, 25) < lines for step in range(0, lines, lines // 1000))


def test_where_a_chase_must_end_wraps_around():
    ring = Ring(nodes=None, lines=32, bits=5, base=4096)
    assert ring.address(32) == ring.address(0) == 4096 + place(0, 32, 5) * LINE
    assert ring.check(ring.address(7), 39) == 0.0
    with pytest.raises(WrongAnswer, match="after 40 steps"):
        ring.check(ring.address(7), 40)


def test_a_line_that_was_not_read_is_noticed():
    bits, lines, base = 5, 24, 1 << 40
    ring = Ring(nodes=None, lines=lines, bits=bits, base=base)
    following = [base + place((step + 1) % lines, lines, bits) * LINE for step in range(lines)]
    assert ring.check_read(np.array([sum(following)], np.uint64)) == 0.0
    with pytest.raises(WrongAnswer, match="all 24 lines"):
        ring.check_read(np.array([sum(following[1:])], np.uint64))
