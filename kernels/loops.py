"""Many loops of instructions in one kernel: a block of assembly that jumps to the one asked for.

Compiling a kernel costs a quarter of a second, the chain in it next to nothing. So all ops of a
kind share a kernel, and which of them runs is an argument. The loop is in the assembly too: its
counter, comparison and jump are 3 instructions to a body of `BODY`, 1.2% of the issue slots.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernels import compat
from kernels.assembly import KINDS, Kind, Value, assembly
from kernels.instructions import MAX_ILP, Op
from kernels.probes import followed

BODY = 8 if compat.SIMULATOR else 256
"""Instructions in a loop's body. 256 are 4 KiB, which an SM's innermost instruction cache holds;
the simulator, which times nothing, needs no more than a few."""

ACCUMULATORS = 4
"""Independent FMAs a warp needs to issue one a clock, where a dependent one takes 4 clocks."""

_S32, _F32, _U64 = KINDS["s32"], KINDS["f32"], KINDS["u64"]
_CONSTANT: dict[str, Callable[[int], str]] = {
    "f32": lambda value: f"0f{struct.pack('>f', value).hex()}",
    "f64": lambda value: f"0d{struct.pack('>d', value).hex()}",
    "s32": str,
}
"""How PTX writes a constant of each kind."""


@dataclass(frozen=True)
class Streams:
    """`ilp` independent chains of one op, interleaved; one chain measures latency."""

    op: Op
    ilp: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.ilp <= MAX_ILP:
            raise ValueError(f"ilp {self.ilp} is outside 1 to {MAX_ILP}")

    @property
    def steps(self) -> int:
        """Steps of each chain in one round of the loop."""
        return max(1, BODY // (self.ilp * self.op.instructions))

    def lines(self) -> tuple[list[str], list[str], list[str]]:
        """Before the loop, in it, and after it. Chain i starts at x + i: equal chains would be
        merged into one. The sum of their ends is the result, so that none can be dropped."""
        kind = self.op.kind.name
        add = f"add.{'' if kind == 's32' else 'rn.'}{kind}"
        before = [f"mov.{kind} x0, $3;"]
        before += [f"{add} x{i}, $3, {_CONSTANT[kind](i)};" for i in range(1, self.ilp)]
        scratch = [f".reg {self.op.scratch} t<{self.ilp}>;"] if self.op.scratch else []
        turn = [
            self.op.template.format(x=f"x{i}", a="$4", b="$5", t=f"t{i}") for i in range(self.ilp)
        ]
        after = [f"{add} x0, x0, x{i};" for i in range(1, self.ilp)]
        return before, scratch + turn * self.steps, after

    def twin(self, rounds: int, x: Any, a: Any, b: Any) -> Any:
        """The same in NumPy, step by step."""
        return total(
            self.op.kind,
            [repeated(self.op, rounds * self.steps, start, a, b) for start in self.starts(x)],
        )

    def starts(self, x: Any) -> list[Any]:
        """Where each chain starts."""
        return [total(self.op.kind, [x, i]) for i in range(self.ilp)]


def total(kind: Kind, values: Sequence[Any]) -> Any:
    """The sum as hardware forms it: in order, rounded or wrapped at each step."""
    with np.errstate(all="ignore"):
        result = kind.dtype(values[0])
        for value in values[1:]:
            result = result + kind.dtype(value)
    return result


def repeated(op: Op, steps: int, x: Any, a: Any, b: Any) -> Any:
    """What `steps` of `op` make of x. Once a value comes back, the rest follows from its period."""
    kind = op.kind.dtype
    with np.errstate(all="ignore"):
        x, a, b = kind(x), kind(a), kind(b)
        seen: dict[bytes, int] = {}
        values: list[Any] = []
        while len(values) < steps and x.tobytes() not in seen:
            seen[x.tobytes()] = len(values)
            values.append(x)
            x = kind(op.twin(x, a, b))
    if len(values) == steps:
        return x
    first = seen[x.tobytes()]
    return values[first + (steps - first) % (len(values) - first)]


_WHOLE = r".pragma \22nounroll\22;"
"""Keeps the assembler from copying a short body and mixing the copies. The quotation marks are
written as LLVM does inside a string."""


def _menu(loops: Sequence[tuple[list[str], list[str], list[str]]], declared: str) -> str:
    """PTX that runs loop number $1 for $2 rounds."""
    entries = ", ".join(f"E{i}" for i in range(len(loops)))
    lines = [declared, ".reg .s32 left; .reg .pred more;"]
    lines += [f"entries: .branchtargets {entries};", "brx.idx $1, entries;"]
    for i, (before, body, after) in enumerate(loops):
        lines += [f"E{i}:", *before, "mov.s32 left, $2;", f"L{i}:", _WHOLE, "{", *body, "}"]
        lines += ["sub.s32 left, left, 1;", "setp.gt.s32 more, left, 0;", f"@more bra L{i};"]
        lines += [*after, "bra DONE;"]
    return "\n".join(["{", *lines, "DONE:"])


@cache
def streams(choices: tuple[Streams, ...]) -> Callable:
    """``f(choice, rounds, x, a, b) -> x``: `rounds` (at least 1) of ``choices[choice]``.

    `choice` and `rounds` are int32, the rest is of the kind that all the ops share.

    Raises:
        ValueError: The ops are of different kinds.
    """
    kinds = {choice.op.kind for choice in choices}
    if len(kinds) != 1:
        raise ValueError("the ops of one kernel must be of one kind")
    (kind,) = kinds
    declared = f".reg .{kind.name} x<{max(choice.ilp for choice in choices)}>;"
    template = _menu([choice.lines() for choice in choices], declared)
    return assembly(
        f"streams_{kind.name}",
        f"{template}\nmov.{kind.name} $0, x0;\n}}",
        kind,
        (Value(_S32), Value(_S32), Value(kind), Value(kind), Value(kind)),
        lambda choice, rounds, x, a, b: choices[choice].twin(int(rounds), x, a, b),
        summary="One of several loops of instructions.",
        memory=True,
    )


@cache
def load_then_fma(counts: tuple[int, ...], cache_operator: str = "cg") -> Callable:
    """``f(choice, rounds, address, a, b) -> address``: a chase with arithmetic beneath each load.

    One round is a load of the next address (uint64, absolute), ``counts[choice]`` float32 FMAs
    that do not need it, and the next round's load, which does. The FMAs go over `ACCUMULATORS`
    registers, and what they make is compared at the end, so that none can be dropped.
    """
    loops = []
    for count in counts:
        before = ["mov.u64 p, $3;", "mov.f32 x0, $4;"]
        before += [f"add.rn.f32 x{i}, $4, {_CONSTANT['f32'](i)};" for i in range(1, ACCUMULATORS)]
        body = [f"ld.global.{cache_operator}.u64 p, [p];"]
        body += [f"fma.rn.f32 {x}, {x}, $4, $5;" for x in _in_turn(count, "x", ACCUMULATORS)]
        after = [f"add.rn.f32 x0, x0, x{i};" for i in range(1, ACCUMULATORS)]
        loops.append((before, body, after))
    template = _menu(loops, f".reg .u64 p; .reg .f32 x<{ACCUMULATORS}>; .reg .pred odd;")
    result = f"setp.eq.f32 odd, x0, {_CONSTANT['f32'](-12345)}; @odd add.u64 p, p, 1;"

    def twin(choice: int, rounds: int, address: Any, a: Any, b: Any) -> np.uint64:
        return followed(address, rounds)

    return assembly(
        f"load_then_fma_{cache_operator}",
        f"{template}\n{result}\nmov.u64 $0, p;\n}}",
        _U64,
        (Value(_S32), Value(_S32), Value(_U64), Value(_F32), Value(_F32)),
        twin,
        summary="One of several loops of a load and independent FMAs.",
        memory=True,
    )


def _in_turn(count: int, name: str, of: int) -> list[str]:
    return [f"{name}{i % of}" for i in range(count)]


@cache
def chain_over(held: int) -> Callable:
    """``f(rounds, table, x, a) -> x``: dependent FMAs, each of which needs another register.

    Step i is x <- x * a + r[i mod held], with the r read once from `table` (uint64, absolute
    address of `held` float32), so that all of them stay in registers while the warp lives.
    """
    steps = chain_over_steps(held)
    lines = [f".reg .f32 r<{held}>; .reg .f32 x; .reg .s32 left; .reg .pred more;"]
    lines += [f"ld.global.f32 r{i}, [$2+{4 * i}];" for i in range(held)]
    lines += ["mov.f32 x, $3;", "mov.s32 left, $1;", "TURN:", _WHOLE]
    lines += [f"fma.rn.f32 x, x, $4, {r};" for r in _in_turn(steps, "r", held)]
    lines += ["sub.s32 left, left, 1;", "setp.gt.s32 more, left, 0;", "@more bra TURN;"]

    def twin(rounds: int, table: Any, x: Any, a: Any) -> np.float32:
        values = (ctypes.c_float * held).from_address(int(table))
        for i in range(int(rounds) * steps):
            x = np.float32(x * a + values[i % held])
        return x

    return assembly(
        f"chain_over_{held}",
        "\n".join(["{", *lines, "mov.f32 $0, x;", "}"]),
        _F32,
        (Value(_S32), Value(_U64), Value(_F32), Value(_F32)),
        twin,
        summary=f"Dependent FMAs over {held} registers.",
        memory=True,
    )


def chain_over_steps(held: int) -> int:
    """FMAs in one round of `chain_over`: whole turns over its registers, near `BODY`."""
    return held * max(1, BODY // held)
