"""A child process that hangs or breaks leaves its parent unharmed, and the reason behind."""

from __future__ import annotations

import time

import pytest

from kernels import compat, late_error
from kernels.spec import Unavailable


def test_hands_over_what_it_printed():
    assert late_error.printed("json.tool", "--help").startswith("usage")


def test_a_failure_names_its_last_line():
    with pytest.raises(Unavailable, match=r"code 1.*no_such_module"):
        late_error.printed("no_such_module")


def _ends(limit_s: float) -> None:
    begin = time.monotonic()
    with pytest.raises(Unavailable, match="the child process hung: killed after"):
        late_error.printed("tests.kernels.endless", limit_s=limit_s)
    assert time.monotonic() - begin < limit_s + 10


def test_a_kernel_that_never_ends_is_ended(monkeypatch):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    _ends(4.0)


@pytest.mark.gpu
def test_a_kernel_that_never_ends_on_a_gpu(monkeypatch):
    if compat.SIMULATOR:
        pytest.skip("the simulator has no GPU to hold")
    from numba import cuda

    if not cuda.is_available():
        pytest.skip("needs a GPU")
    _ends(20.0)
    import cupy

    assert int(cupy.arange(10).sum()) == 45, "the device serves this process as before"
