"""Which SMs belong together, from clusters made by hand; and the CUDA C compiles."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.compat import SIMULATOR
from kernels.gpc import SOURCE, UNSEEN, Groups
from kernels.spec import Unavailable


def test_groups_are_joined_through_common_sms():
    groups = Groups()
    groups.add(np.array([[0, 2], [5, 4]]))
    assert groups.numbers() == [0, UNSEEN, 0, UNSEEN, 1, 1]
    groups.add(np.array([[2, 6, 0], [1, 3, 1]]))
    assert groups.numbers() == [0, 1, 0, 1, 2, 2, 0]
    groups.add(np.array([[6, 4], [6, 5]]))
    assert groups.numbers() == [0, 1, 0, 1, 0, 0, 0]


def test_random_clusters_recover_the_groups_they_were_drawn_from():
    random = np.random.default_rng(3)
    truth = np.repeat([0, 1, 2], [18, 16, 16])
    groups = Groups()
    for size in (2, 3, 5, 8) * 12:
        rows = [
            random.choice(np.flatnonzero(truth == group), size, replace=False)
            for group in (0, 1, 2)
        ]
        groups.add(np.array(rows))
    assert groups.numbers() == truth.tolist()


def test_nothing_below_compute_capability_9():
    from kernels.gpc import bind
    from kernels.spec import Machine

    with pytest.raises(Unavailable, match=r"clusters need cc 9\.0"):
        bind({}, Machine((8, 0), 108, 2048, 32, 1, 1, np))


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
def test_compiles():
    from kernels.cuda_c import compile_cubin

    assert compile_cubin(SOURCE, (9, 0)).code
