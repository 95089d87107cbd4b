"""Launch: limits, error names, and what the child's answer must be."""

from __future__ import annotations

from math import prod

import pytest

from bench import clock
from kernels import late_error, launch, peers
from kernels.compat import SIMULATOR
from kernels.cuda_c import compile_cubin
from kernels.spec import WrongAnswer


@pytest.mark.parametrize("limit", launch.LIMITS)
def test_one_more_differs_in_one_place(limit):
    allowed, beyond = launch.LIMITS[limit]
    before, after = (*allowed.grid, *allowed.block), (*beyond.grid, *beyond.block)
    assert sorted(b - a for a, b in zip(before, after, strict=True)) == [0] * 5 + [1]
    assert prod(allowed.block) <= 1024


@pytest.mark.skipif(SIMULATOR, reason="cuda.bindings may be missing beside the simulator")
class TestErrorCode:
    def test_by_name(self):
        def call():
            raise RuntimeError("CUDA_ERROR_INVALID_VALUE: one or more parameters ...")

        assert launch.error_code(call) == 1

    def test_success(self):
        assert launch.error_code(lambda: None) == 0

    def test_another_error_is_not_swallowed(self):
        def call():
            raise RuntimeError("a bug of ours")

        with pytest.raises(RuntimeError, match="a bug of ours"):
            launch.error_code(call)


def late(monkeypatch, answer):
    monkeypatch.setattr(late_error, "printed", lambda module, fault: answer)
    return launch.FAMILY["late_error"].bind({"fault": "trap"}, None)


def test_codes_of_the_child_are_the_reading(monkeypatch):
    bound = late(monkeypatch, "[0, 0, 600, 719, 719, 719]")
    assert bound.check() == 0.0
    assert bound.reading() == {"error_codes": [0, 0, 600, 719, 719, 719]}
    assert len(late_error.STEPS) == 6


def test_a_kernel_that_broke_nothing_is_wrong(monkeypatch):
    with pytest.raises(WrongAnswer, match="broke nothing"):
        late(monkeypatch, "[0, 0, 0, 0, 0, 0]").check()


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
@pytest.mark.parametrize(
    "module", [launch, late_error, clock, peers], ids=lambda module: module.__name__
)
@pytest.mark.parametrize("cc", [(7, 5), (9, 0), (12, 0)])
def test_cuda_c_compiles(module, cc):
    assert compile_cubin(module.SOURCE, cc).code
