"""Scalability: every SM's share of the work, and what the code must hold in flight."""

from __future__ import annotations

import pytest

from kernels import scalability
from kernels.compat import SIMULATOR
from kernels.spec import Unavailable, WrongAnswer


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
class TestBlocks:
    def bound(self, name: str, **params):
        from bench.machine import simulated

        given = {"sms": 2, "block": 32, "chunks_per_sm": 3, "turns": 1, **params}
        bound = scalability.FAMILY[name].bind(given, simulated())
        bound.poison()
        return bound

    @pytest.mark.parametrize("sms", [1, 2])
    @pytest.mark.parametrize("name", ["blocks_compute", "blocks_memory"])
    def test_work_is_the_same_on_any_number(self, name, sms):
        bound = self.bound(name, sms=sms)
        assert bound.launch.grid == (sms, 1, 1)
        assert bound.work == self.bound(name, sms=2).work
        bound.queue(0)
        bound.check()
        assert bound.reading() == {"sms_used": sms}

    def test_a_chunk_left_out(self):
        with pytest.raises(WrongAnswer, match="a chunk was left out"):
            self.bound("blocks_memory").check()

    def test_more_than_there_are(self):
        with pytest.raises(Unavailable, match="there are 2 SMs, not 3"):
            self.bound("blocks_compute", sms=3)


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
class TestCode:
    def compiled(self, name: str):
        from kernels.compile import compile_kernel

        return compile_kernel(*scalability.FAMILY[name].compiled[0], (9, 0))

    def test_four_loads_before_the_first_store(self):
        ptx = self.compiled("memory").ptx
        before = ptx[: ptx.index("st.global.v4.f32")]
        assert before.count("ld.global.v4.f32") == scalability.UNROLLED

    def test_the_chain_is_whole_and_two_blocks_fit(self):
        compute = self.compiled("compute")
        assert compute.ptx.count("fma.rn.f32") == scalability.STEPS
        assert compute.registers <= 32
        assert self.compiled("memory").registers <= 32
