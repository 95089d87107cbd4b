"""Loops of instructions: what the assembler makes of them, and what their twins compute."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels import compat, loops
from kernels.instruction import ILP, OPERANDS, PROGRAMS, SURFACE, expected
from kernels.instructions import OPS, chain_reference
from kernels.loops import Streams, repeated

ptx_tier = pytest.mark.skipif(compat.SIMULATOR, reason="the simulator compiles nothing")


@pytest.mark.parametrize("op", ["fma.f32", "add.f64", "mad.s32", "popc.b32", "cos.f32"])
@pytest.mark.parametrize("steps", [1, 2, 7, 300])
def test_periods_are_skipped_without_changing_the_end(op: str, steps: int):
    given = OPERANDS[op]
    expected_end = chain_reference(op, steps, given.x, given.a, given.b)
    assert repeated(OPS[op], steps, given.x, given.a, given.b) == expected_end


def test_a_loop_is_as_long_whatever_its_ilp():
    for ilp in (1, 2, 4, 8):
        streams = Streams(OPS["fma.f32"], ilp)
        assert streams.steps * ilp == loops.BODY
    assert Streams(OPS["sin.f32"]).steps == loops.BODY // 2


def test_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="ilp 17"):
        Streams(OPS["fma.f32"], 17)
    with pytest.raises(ValueError, match="one kind"):
        loops.streams((Streams(OPS["fma.f32"]), Streams(OPS["fma.f64"])))


def test_every_op_has_operands_that_stay_finite():
    for program in PROGRAMS:
        for streams in program.choices:
            assert streams.op.name in OPERANDS
            if streams.op.name not in ("ex2.f32", "lg2.f32"):  # no operand keeps these
                assert np.isfinite(expected(streams, 64))


def test_a_dropped_step_would_be_noticed():
    """Chains with a fixed point could hide a loop that never ran, but not from their start."""
    for op in SURFACE:
        given = OPERANDS[op]
        assert expected(Streams(OPS[op]), 2) != given.x


def test_chain_over_takes_whole_turns():
    assert all(loops.chain_over_steps(held) % held == 0 for held in (1, 14, 48, 112, 236))


@pytest.mark.ptx
@ptx_tier
def test_the_code_is_there_once_and_whole():
    """One jump table and, for each op, a body of exactly its steps: nothing unrolled or dropped."""
    from kernels.compile import compile_kernel

    for program in PROGRAMS[:4]:
        ptx = compile_kernel(program.function, program.signature, (9, 0)).ptx
        assert ptx.count("brx.idx") == 1
        bodies = re.findall(r"\nL\d+:\n.*?@more bra L\d+;", ptx, re.S)
        assert len(bodies) == len(program.choices)
        for streams, body in zip(program.choices, bodies, strict=True):
            first = streams.op.template.split()[0]
            lines = [line for line in body.splitlines() if line.startswith(first)]
            assert len(lines) == streams.steps * streams.ilp
            assert len(set(lines)) <= streams.ilp


@pytest.mark.ptx
@ptx_tier
def test_the_clock_is_read_after_the_chain_has_ended():
    from kernels.compile import compile_kernel

    ptx = compile_kernel(PROGRAMS[0].function, PROGRAMS[0].signature, (9, 0)).ptx
    after = ptx[ptx.index("DONE:") :]
    compare = re.search(r"setp.ne.b32 p, (%\w+), 0x7fb0c1d3", after)
    result = re.search(r"mov.f32 (%\w+), x0;", after)
    assert compare.group(1) == result.group(1)
    assert after.index(compare.group(0)) < after.index("%clock64")


@pytest.mark.thorough
@pytest.mark.ptx
@ptx_tier
def test_registers_that_a_chain_goes_over_are_really_held():
    from kernels.compile import compile_kernel
    from kernels.switching import HELD, SWITCH_SIGNATURE, switch

    for limit, held in HELD.items():
        built = compile_kernel(switch(held), SWITCH_SIGNATURE, (9, 0))
        assert held < built.registers <= limit
        assert built.spill_bytes == 0


@pytest.mark.ptx
@ptx_tier
def test_a_chase_is_loads_and_nothing_else():
    from kernels.compile import compile_kernel
    from kernels.memory import _CHASE, STEPS, chase_ca, chase_cg

    for function, operator in ((chase_ca, "ca"), (chase_cg, "cg")):
        ptx = compile_kernel(function, _CHASE, (9, 0)).ptx
        blocks = re.findall(r"// begin inline asm(.*?)// end inline asm", ptx, re.S)
        # The single load reads the footprint before the clock.
        found = [block.strip().splitlines() for block in blocks if "ld.global" in block]
        chases = [lines for lines in found if len(lines) > 1]
        assert len(chases) >= 2
        for lines in chases:
            assert lines[0].startswith("mov.u64")
            assert len(lines) == STEPS + 1
            assert set(lines[1:]) == {lines[1]}
            register = re.fullmatch(rf"ld\.global\.{operator}\.u64 (%\w+), \[(%\w+)\];", lines[1])
            assert register.group(1) == register.group(2)


@pytest.mark.thorough
@pytest.mark.ptx
@ptx_tier
def test_the_footprint_is_really_read_before_a_chase(disassembled):
    """A load whose value nobody needs is dropped by the assembler, though volatile in the PTX."""
    from kernels.compile import compile_kernel
    from kernels.memory import _CHASE, chase_cg
    from kernels.ring import read_all

    signature = "void(uint64[::1], int64, int64, uint64[::1])"
    (code,) = disassembled(compile_kernel(read_all, signature, (9, 0)).cubin).values()
    assert sum(line.startswith("LDG") for line in code) == 1
    code = max(disassembled(compile_kernel(chase_cg, _CHASE, (9, 0)).cubin).values(), key=len)
    barrier = next(at for at, line in enumerate(code) if line.startswith("BAR.SYNC"))
    assert sum(line.startswith("LDG") for line in code[:barrier]) == 2  # the cursor and a line


@pytest.mark.ptx
@ptx_tier
def test_fma_reads_one_new_register_where_its_throughput_is_taken(disassembled):
    """An FMA reads three registers and a sub-partition has two banks of them, so that the full
    rate needs operands kept from the FMA before. A lone chain does not keep them."""
    from kernels.compile import compile_kernel

    program = PROGRAMS[0]
    (code,) = disassembled(
        compile_kernel(program.function, program.signature, (9, 0)).cubin
    ).values()
    fmas = [line for line in code if line.startswith("FFMA")]
    bodies = [fmas[at : at + loops.BODY] for at in range(0, len(fmas), loops.BODY)]
    assert len(bodies) == len(ILP)
    kept = {
        ilp: sum(line.count(".reuse") == 2 for line in body)
        for ilp, body in zip(ILP, bodies, strict=True)
    }
    assert kept[1] == 0
    assert all(kept[ilp] >= loops.BODY - 1 for ilp in ILP if ilp >= loops.ACCUMULATORS)


@pytest.mark.ptx
@ptx_tier
@pytest.mark.parametrize(("op", "mnemonic"), [("fma.f32", "FFMA"), ("fma.f64", "DFMA")])
def test_assembler_keeps_the_chains_interleaved(disassembled, op: str, mnemonic: str):
    """It could run one chain after the other, to save registers."""
    from kernels.compile import compile_kernel

    (program,) = [program for program in PROGRAMS if program.choices[0].op.name == op]
    (code,) = disassembled(
        compile_kernel(program.function, program.signature, (9, 0)).cubin
    ).values()
    fmas = [line for line in code if line.startswith(mnemonic)]
    ilps = [streams.ilp for streams in program.choices if streams.op.name == op]
    bodies = [fmas[at : at + loops.BODY] for at in range(0, len(fmas), loops.BODY)]
    for ilp, body in zip(ilps, bodies, strict=True):
        last: dict[str, int] = {}
        for place, line in enumerate(body):
            target, source = re.findall(r"\bR\d+", line)[:2]
            assert place - last.get(source, place - ilp) == ilp
            last[target] = place


def test_library_functions_are_matched_to_their_twins():
    """`_by_library` tells them apart by number: its order must be that of the table."""
    from kernels.instruction import CHOICES, LIBRARY_OPS

    numbers = [CHOICES[name, 1][1] for name in LIBRARY_OPS]
    assert numbers == list(range(len(LIBRARY_OPS)))
    ends = {name: expected(Streams(op), 2) for name, op in LIBRARY_OPS.items()}
    assert len(set(ends.values())) == len(ends), "two functions end alike: one could be the other"
