"""Loops over memory: how many loads are in flight, read off the machine code."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest

from kernels import mixed
from kernels.compat import SIMULATOR
from kernels.compile import compile_kernel
from kernels.cubin import sections
from kernels.occupancy import FAMILY, reader, writer

from .tiers import every_capability

READ = FAMILY["read"].compiled[0][1]
AXPY = FAMILY["axpy"].compiled[0][1]
MIXED = mixed.FAMILY["mixed"].compiled[0][1]


ADDITIONS = {
    0x210: ("IADD3", (24, 32, 64)),
    0x824: ("IMAD, times a constant", (24, 64)),
    0x221: ("FADD", (24, 32)),
    0x223: ("FFMA", (24, 32, 64)),
    0x623: ("FFMA, plus a kernel argument", (24, 64)),
    0xA23: ("FFMA, times a kernel argument", (24, 64)),
    0xC23: ("FFMA, times a uniform register", (24, 64)),
}
"""Opcode -> name, and where its registers stand in the instruction's 128 bits."""


@dataclass(frozen=True)
class Instruction:
    """One 16-byte instruction, as every architecture since Volta encodes it: the opcode in the
    low 12 bits, then a byte each for the registers of result (16), first (24), second (32) and
    third operand (64). Found by disassembling; the tests of known loops below would fail."""

    at: int
    low: int
    high: int

    @property
    def opcode(self) -> int:
        return self.low & 0xFFF

    @property
    def is_load(self) -> bool:
        return self.opcode in (0x381, 0x981)  # LDG, with and without a descriptor

    @property
    def is_store(self) -> bool:
        return self.opcode in (0x386, 0x986)

    @property
    def is_branch_back(self) -> bool:
        """The offset's sign is bit 63 in every encoding."""
        return self.opcode == 0x947 and bool(self.low >> 63)

    @property
    def words(self) -> int:
        """Registers that a load fills: size 4, 5, 6 in bits 73 to 75 is 4, 8, 16 bytes."""
        return {4: 1, 5: 2, 6: 4}[self.high >> 9 & 7]

    @property
    def results(self) -> set[int]:
        first = self.low >> 16 & 0xFF
        return set(range(first, first + self.words))

    @property
    def operands(self) -> set[int]:
        """Registers that a load's address or an addition takes; none for the rest, whose fields
        may be immediates or uniform registers."""
        first = self.low >> 24 & 0xFF
        if self.is_load:
            return {first, first + 1}
        if self.opcode in ADDITIONS:
            _, places = ADDITIONS[self.opcode]
            return {(self.high << 64 | self.low) >> place & 0xFF for place in places}
        return set()


def instructions(cubin: bytes) -> list[Instruction]:
    (code,) = [content for name, *_, content in sections(cubin) if name.startswith(".text.")]
    return [Instruction(at, *struct.unpack_from("<QQ", code, at)) for at in range(0, len(code), 16)]


def turn(cubin: bytes) -> list[Instruction]:
    """From the first load to the branch back."""
    code = instructions(cubin)
    first = next(one.at for one in code if one.is_load)
    back = next(one.at for one in code if one.is_branch_back and one.at > first)
    return [one for one in code if first <= one.at <= back]


def assert_in_flight(cubin: bytes, loads: int, width: int) -> None:
    body = turn(cubin)
    issued = [one for one in body if one.is_load]
    everywhere = [one for one in instructions(cubin) if one.is_load]
    assert len(everywhere) == loads, "unrolled: more loads than one turn has"
    assert all(one.words == width // 4 for one in issued)
    filled: set[int] = set()
    for one in body:
        if one.at > issued[-1].at:
            break
        assert not one.operands & filled, "a load is used before the last one is issued"
        if one.is_load:
            filled |= one.results
    after = [one for one in body if one.at > issued[-1].at]
    used = set().union(*(one.operands for one in after))
    assert filled <= used, "a turn ends without using what it loaded"


ptx_tier = pytest.mark.ptx
not_simulated = pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")


@ptx_tier
@not_simulated
@every_capability
@pytest.mark.parametrize(("loads", "width"), [(1, 4), (2, 8), (3, 16), (4, 16), (8, 4), (8, 16)])
def test_a_read_has_exactly_its_loads_in_flight(loads: int, width: int, cc: tuple[int, int]):
    assert_in_flight(compile_kernel(reader(loads, width), READ, cc).cubin, loads, width)


@ptx_tier
@not_simulated
@every_capability
@pytest.mark.parametrize(("loads", "width"), [(2, 4), (4, 8), (8, 16)])
def test_an_axpy_has_exactly_its_loads_in_flight(loads: int, width: int, cc: tuple[int, int]):
    assert_in_flight(compile_kernel(writer(loads, width), AXPY, cc).cubin, loads, width)


@ptx_tier
@not_simulated
@every_capability
@pytest.mark.parametrize("extra_fma", [0, 4, 64])
def test_a_mixed_turn_is_one_load_and_its_arithmetic(extra_fma: int, cc: tuple[int, int]):
    cubin = compile_kernel(mixed.loop(extra_fma, "cg"), MIXED, cc).cubin
    assert_in_flight(cubin, 1, 4)
    arithmetic = [one for one in turn(cubin) if one.opcode & 0x1FF in (0x21, 0x23)]  # FADD, FFMA
    assert len(arithmetic) == max(1, extra_fma)


@ptx_tier
@not_simulated
def test_the_assembler_unrolls_without_the_pragma():
    """Why the pragma is there; when this fails the assembler has learnt to leave loops alone."""
    from kernels.compile import _link

    ptx = compile_kernel(reader(1, 4), READ, (9, 0)).ptx
    assert '.pragma "nounroll";' in ptx
    cubin, _ = _link(ptx.replace('.pragma "nounroll";', ""), (9, 0), None)
    assert sum(one.is_load for one in instructions(cubin)) > 1
