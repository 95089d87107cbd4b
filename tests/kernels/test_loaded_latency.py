"""The load generators and the probe, read in the code: loads in flight, waits that are bounded."""

from __future__ import annotations

import re

import pytest

from kernels import compat
from kernels.loaded_latency import (
    BATCH,
    DEADLINE,
    KERNELS,
    READ,
    ROUNDS,
    SHARE,
    SIGNATURE,
    STEPS,
)

if compat.SIMULATOR:
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

pytestmark = pytest.mark.ptx


@pytest.fixture(scope="module", params=sorted(KERNELS))
def built(request) -> tuple[int, str]:
    from kernels.compile import compile_kernel

    width = request.param
    compiled = compile_kernel(KERNELS[width], SIGNATURE, (9, 0))
    assert compiled.spill_bytes == 0
    assert compiled.registers <= 64, "a block of 1,024 threads must fit"
    return width, compiled.ptx


def test_a_batch_is_64_bytes_a_thread_at_once(built):
    width, ptx = built
    form = "v4.f32" if width == 16 else "f32"
    blocks = re.findall(r"// begin inline asm(.*?)// end inline asm", ptx, re.S)
    batches = [block for block in blocks if f"ld.global.cg.{form}" in block]
    assert batches
    for block in batches:
        assert block.count(f"ld.global.cg.{form}") == BATCH // width


def test_what_others_write_is_loaded_anew(built):
    _, ptx = built
    assert ptx.count("ld.volatile.global.s64") >= 4
    assert "ld.global.cv" not in ptx


def test_every_wait_gives_up_by_the_clock(built):
    """The two waits for another block, and the generators' loop, compare with the deadline."""
    _, ptx = built
    assert len(re.findall(rf"\b{DEADLINE}\b|\b{DEADLINE - 1}\b|\b{DEADLINE + 1}\b", ptx)) >= 3


def test_the_probe_is_one_chain_of_loads(built):
    _, ptx = built
    blocks = re.findall(r"// begin inline asm(.*?)// end inline asm", ptx, re.S)
    chains = [block for block in blocks if "ld.global.cg.u64" in block]
    assert chains
    assert all(block.count("ld.global.cg.u64") == STEPS for block in chains)


def test_a_launch_reads_less_than_there_is():
    """At 5 TB/s for the 0.4 ms that a chase under full load takes, a slice is not read twice."""
    assert READ > 5e12 * 0.4e-3
    assert READ // 132 > 32 * SHARE
    assert ROUNDS * STEPS >= 512
