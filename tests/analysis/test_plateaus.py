"""Plateaus in latency curves: made by formula, with levels, slopes and noise that are known."""

import math

import pytest

from analysis.plateaus import find, levels

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
OCTAVES = [1 << exponent for exponent in range(12, 33)]


def curve(*steps: tuple[float, float], noise: float = 0.0) -> tuple[list[int], list[float]]:
    """Footprints of every octave; (up to bytes, cycles) in order, with a ripple."""
    values = []
    for index, size in enumerate(OCTAVES):
        cycles = next(cycles for limit, cycles in steps if size <= limit)
        values.append(cycles * (1 + noise * math.sin(3 * index)))
    return OCTAVES, values


def test_levels_are_found_wherever_they_end():
    for l1, l2 in ((128 * KIB, 32 * MIB), (64 * KIB, 4 * MIB), (256 * KIB, 96 * MIB)):
        ca = curve((l1, 35), (l2, 260), (math.inf, 700), noise=0.01)
        cg = curve((l2, 260), (math.inf, 700), noise=0.01)
        found = levels(ca, cg)
        assert list(found) == ["l1", "l2_near", "dram"]
        assert found["l1"].latency == pytest.approx(35, rel=0.01)
        assert found["l2_near"].latency == pytest.approx(260, rel=0.01)
        assert found["dram"].latency == pytest.approx(700, rel=0.01)
        assert found["l1"].last <= l1 < 2 * found["l1"].last
        assert found["l2_near"].last <= l2 < found["dram"].first


def test_a_second_partition_of_l2_is_told_from_dram():
    cg = curve((8 * MIB, 260), (32 * MIB, 330), (math.inf, 700), noise=0.005)
    found = levels(curve((64 * KIB, 35), (8 * MIB, 260), (32 * MIB, 330), (math.inf, 700)), cg)
    assert list(found) == ["l1", "l2_near", "l2_far", "dram"]
    assert found["l2_far"].latency == pytest.approx(330, rel=0.01)
    assert (found["l2_far"].first, found["l2_far"].last) == (16 * MIB, 32 * MIB)


def test_a_far_partition_is_told_from_dram_though_the_step_to_it_is_the_steeper():
    """As on an H200: 280, 525 and 686 cycles."""
    cg = curve((16 * MIB, 280), (64 * MIB, 525), (math.inf, 686))
    found = levels(curve((128 * KIB, 32), (16 * MIB, 280), (64 * MIB, 525), (math.inf, 686)), cg)
    assert list(found) == ["l1", "l2_near", "l2_far", "dram"]
    assert found["dram"].latency == 686


def test_a_slope_is_no_plateau():
    sizes = [1 << exponent for exponent in range(12, 24)]
    assert [p.points for p in find(sizes, [40 * 1.3**index for index in range(12)])] == []
    mixed = [40.0] * 4 + [60.0, 100.0, 160.0] + [260.0] * 5
    found = find(sizes, mixed)
    assert [(plateau.points, plateau.latency) for plateau in found] == [(4, 40.0), (5, 260.0)]


def test_page_tables_do_not_split_dram():
    """Latency that creeps by 3% an octave stays one level; its median is given."""
    sizes = OCTAVES[-7:]
    found = find(sizes, [690 * 1.02**index for index in range(7)])
    assert len(found) == 1
    assert found[0].latency == pytest.approx(690 * 1.02**3)


def test_order_does_not_matter_and_one_level_is_one():
    sizes, cycles = curve((math.inf, 260), noise=0.01)
    assert find(sizes[::-1], cycles[::-1]) == find(sizes, cycles)
    assert len(find(sizes, cycles)) == 1
    assert list(levels((sizes, cycles), (sizes, cycles))) == ["l2_near"]


def test_what_was_not_measured_is_absent():
    assert levels(([], []), ([], [])) == {}
    assert find([4096], [40.0]) == []
    ca = ([4 * KIB, 8 * KIB], [35.0, 35.0])
    assert list(levels(ca, ([], []))) == ["l1"]


def test_refuses_what_is_no_latency():
    with pytest.raises(ValueError, match="positive"):
        find([1, 2], [0.0, 5.0])
    with pytest.raises(ValueError, match="2 footprints and 1 latencies"):
        find([1, 2], [5.0])
