"""Chains of instructions: each op once in a table, then one assembly block per measurement.

A chain is one block of dependent instructions (latency), streams are several independent chains
interleaved in one block (throughput). A Python loop would measure its own counter and
conversions instead: 20 cycles a step where the instruction takes 4.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels import compat
from kernels.assembly import KINDS, Kind, Value, assembly

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_ILP = 16
"""Most streams in one block: past it an SM's schedulers have long been busy."""


@dataclass(frozen=True)
class Op:
    """One instruction, or the shortest sequence whose result feeds itself.

    `template` is PTX over ``{x}`` (in and out), ``{a}`` and ``{b}`` (operands of the same kind)
    and, where `scratch` declares it, ``{t}``. `instructions` counts what the assembler makes of
    one template; `twin(x, a, b)` is the same step in NumPy.
    """

    name: str
    kind: Kind
    template: str
    twin: Callable[[Any, Any, Any], Any]
    instructions: int = 1
    scratch: str = ""


def _wrap(value: int) -> np.int32:
    return np.int32((int(value) + 0x80000000) % 0x100000000 - 0x80000000)


def _single(function: Callable[[float], float]) -> Callable[[Any, Any, Any], np.float32]:
    def step(x: Any, a: Any, b: Any) -> np.float32:
        try:
            return np.float32(function(float(x)))
        except OverflowError:
            return np.float32(np.inf)
        except (ValueError, ZeroDivisionError):  # outside the domain, as the hardware: NaN
            return np.float32(np.nan)

    return step


def _fma(x: Any, a: Any, b: Any) -> np.float32:
    # The product of two float32 is exact in float64; so is nearly always the sum.
    return np.float32(float(x) * float(a) + float(b))


def _shuffle(x: Any, a: Any, b: Any) -> Any:
    lane = compat.simulated_thread().thread_id % compat.WARP_SIZE
    return compat.warp_exchange(x, "shuffle").get(lane ^ int(a), x)


def _ballot(x: Any, a: Any, b: Any) -> np.int32:
    board = compat.warp_exchange(x != 0, "vote")
    return _wrap(sum(1 << lane for lane, value in board.items() if value))


_F32, _F64, _S32 = KINDS["f32"], KINDS["f64"], KINDS["s32"]

OPS: dict[str, Op] = {
    op.name: op
    for op in (
        Op("fma.f32", _F32, "fma.rn.f32 {x}, {x}, {a}, {b};", _fma),
        Op("add.f32", _F32, "add.rn.f32 {x}, {x}, {a};", lambda x, a, b: np.float32(x + a)),
        Op("mul.f32", _F32, "mul.rn.f32 {x}, {x}, {a};", lambda x, a, b: np.float32(x * a)),
        Op("fma.f64", _F64, "fma.rn.f64 {x}, {x}, {a}, {b};", lambda x, a, b: x * a + b),
        Op("add.f64", _F64, "add.rn.f64 {x}, {x}, {a};", lambda x, a, b: x + a),
        Op("mul.f64", _F64, "mul.rn.f64 {x}, {x}, {a};", lambda x, a, b: x * a),
        Op("mad.s32", _S32, "mad.lo.s32 {x}, {x}, {a}, {b};", lambda x, a, b: _wrap(x * a + b)),
        # Alone, additions of the same operand are gathered into a shift and an addition.
        Op(
            "add_xor.s32",
            _S32,
            "add.s32 {x}, {x}, {a}; xor.b32 {x}, {x}, {b};",
            lambda x, a, b: _wrap((int(x) + int(a)) ^ int(b)),
            instructions=2,
        ),
        Op("shl.b32", _S32, "shl.b32 {x}, {x}, {a};", lambda x, a, b: _wrap(int(x) << int(a))),
        Op(
            "popc.b32",
            _S32,
            "popc.b32 {x}, {x};",
            lambda x, a, b: np.int32((int(x) & 0xFFFFFFFF).bit_count()),
        ),
        # `ftz` leaves the one multi-function unit instruction: without it the assembler adds
        # a test and two multiplications for denormal operands.
        Op(
            "rsqrt.f32", _F32, "rsqrt.approx.ftz.f32 {x}, {x};", _single(lambda x: 1 / math.sqrt(x))
        ),
        # Alone, a reciprocal of a reciprocal is folded away.
        Op(
            "rcp_add.f32",
            _F32,
            "rcp.approx.ftz.f32 {x}, {x}; add.rn.f32 {x}, {x}, {a};",
            lambda x, a, b: np.float32(np.float32(1) / x) + a,
            instructions=2,
        ),
        Op("sqrt.f32", _F32, "sqrt.approx.ftz.f32 {x}, {x};", _single(math.sqrt)),
        Op("ex2.f32", _F32, "ex2.approx.ftz.f32 {x}, {x};", _single(lambda x: 2.0**x)),
        Op("lg2.f32", _F32, "lg2.approx.ftz.f32 {x}, {x};", _single(math.log2)),
        Op("sin.f32", _F32, "sin.approx.ftz.f32 {x}, {x};", _single(math.sin), instructions=2),
        Op("cos.f32", _F32, "cos.approx.ftz.f32 {x}, {x};", _single(math.cos), instructions=2),
        Op(
            "cvt.f32.s32",
            _F32,
            "cvt.rzi.s32.f32 {t}, {x}; cvt.rn.f32.s32 {x}, {t};",
            _single(lambda x: float(math.trunc(x))),
            instructions=2,
            scratch=".b32",
        ),
        Op(
            "cvt.f32.f64",
            _F32,
            "cvt.f64.f32 {t}, {x}; cvt.rn.f32.f64 {x}, {t};",
            _single(float),
            instructions=2,
            scratch=".f64",
        ),
        Op(
            "shfl.b32",
            _S32,
            "shfl.sync.bfly.b32 {x}, {x}, {a}, 0x1f, 0xffffffff;",
            _shuffle,
        ),
        Op(
            "vote.b32",
            _S32,
            "setp.ne.s32 {t}, {x}, 0; vote.sync.ballot.b32 {x}, {t}, 0xffffffff;",
            _ballot,
            instructions=2,
            scratch=".pred",
        ),
    )
}


# A basic block of its own, behind a branch that no launch takes (a grid has a block) and no
# assembler can foresee. With the starts and ends of the streams in the same block, it would run
# a few streams to their end before it starts the others, to save registers: of 6 streams of FMAs
# four came first and then two. All streams alive on both sides leave nothing to save.
_ENTER = (
    ".reg .pred never; .reg .u32 blocks;",
    "mov.u32 blocks, %nctaid.x;",
    "setp.eq.u32 never, blocks, 0;",
    "@never bra LEAVE;",
    "bra ENTER;",
    "ENTER:",
)
_LEAVE = ("LEAVE:",)


def _steps(op: Op, registers: list[str], a: str, b: str, steps: int) -> list[str]:
    """`steps` rounds of the op over each register in turn."""
    lines = []
    for _ in range(steps):
        for place, x in enumerate(registers):
            lines.append(op.template.format(x=x, a=a, b=b, t=f"t{place}"))
    return lines


def _block(op: Op, lines: list[str], declared: str = "", ilp: int = 1) -> str:
    scratch = f".reg {op.scratch} t<{ilp}>;" if op.scratch else ""
    return "\n".join(["{", declared, scratch, *lines, "}"])


def _op(op: str, steps: int) -> Op:
    if op not in OPS:
        raise ValueError(f"op '{op}' is none of {', '.join(OPS)}")
    if steps < 1:
        raise ValueError(f"{steps} steps: at least one is needed")
    return OPS[op]


def chain_reference(op: str, steps: int, x: Any, a: Any, b: Any) -> Any:
    """What `chain(op, steps)` returns, step by step in the op's own precision."""
    chosen = _op(op, steps)
    with np.errstate(all="ignore"):
        x, a, b = (chosen.kind.dtype(value) for value in (x, a, b))
        for _ in range(steps):
            x = chosen.twin(x, a, b)
    return x


@functools.cache
def chain(op: str, steps: int) -> Callable:
    """`steps` dependent instructions in one block: ``f(x, a, b) -> x``, all of the op's kind.

    Give it an ``x`` that differs between lanes: the assembler folds the shuffle of a uniform
    value away, and may compute on a uniform value in the scalar unit. The difference of two
    lengths is free of what lies between the clock reads besides the chain.

    Raises:
        ValueError: An op that is not in `OPS`, or no steps.
    """
    chosen = _op(op, steps)
    kind = chosen.kind
    lines = [f"mov.{kind.name} $0, $1;", *_steps(chosen, ["$0"], "$2", "$3", steps)]
    return assembly(
        f"chain_{op}_{steps}",
        _block(chosen, lines),
        kind,
        (Value(kind),) * 3,
        functools.partial(chain_reference, op, steps),
        summary=f"{steps} dependent {op}.",
    )


def streams_reference(op: str, ilp: int, steps: int, x: Any, a: Any, b: Any) -> Any:
    """What `streams(op, ilp, steps)` returns."""
    kind = _op(op, steps).kind
    with np.errstate(all="ignore"):
        ends = [chain_reference(op, steps, _offset(kind, x, place), a, b) for place in range(ilp)]
        total = ends[0]
        for end in ends[1:]:
            total = _wrap(int(total) + int(end)) if kind is _S32 else kind.dtype(total + end)
    return total


def _offset(kind: Kind, x: Any, place: int) -> Any:
    return _wrap(int(x) + place) if kind is _S32 else kind.dtype(kind.dtype(x) + kind.dtype(place))


@functools.cache
def streams(op: str, ilp: int, steps: int) -> Callable:
    """`ilp` independent chains of `steps` instructions, interleaved: ``f(x, a, b) -> sum``.

    Stream i starts at ``x + i``, since equal streams would be merged into one; the sum of their
    ends comes back, so that none can be dropped. Both add `ilp` - 1 additions at the edges.
    Give it an ``x`` that differs between lanes, as `chain` asks.

    Raises:
        ValueError: An op that is not in `OPS`, no steps, or `ilp` outside 1 to `MAX_ILP`.
    """
    chosen = _op(op, steps)
    if not 1 <= ilp <= MAX_ILP:
        raise ValueError(f"ilp {ilp} is outside 1 to {MAX_ILP}")
    kind = chosen.kind
    registers = [f"x{place}" for place in range(ilp)]
    add = f"add.{kind.name}" if kind is _S32 else f"add.rn.{kind.name}"
    lines = [f"mov.{kind.name} x0, $1;"]
    lines += [f"{add} x{place}, $1, {_immediate(kind, place)};" for place in range(1, ilp)]
    lines += _ENTER
    lines += _steps(chosen, registers, "$2", "$3", steps)
    lines += _LEAVE
    lines += [f"{add} x0, x0, x{place};" for place in range(1, ilp)]
    lines += [f"mov.{kind.name} $0, x0;"]
    return assembly(
        f"streams_{op}_{ilp}_{steps}",
        _block(chosen, lines, f".reg .{kind.name} x<{ilp}>;", ilp),
        kind,
        (Value(kind),) * 3,
        functools.partial(streams_reference, op, ilp, steps),
        summary=f"{ilp} independent chains of {steps} {op}.",
    )


def _immediate(kind: Kind, value: float) -> str:
    """`value` as PTX writes a constant of this kind."""
    if kind is _F32:
        return f"0f{np.float32(value).view(np.uint32):08X}"
    if kind is _F64:
        return f"0d{np.float64(value).view(np.uint64):016X}"
    return str(int(value))


def fma_chain_reference(count: int, accumulators: int, v: Any, b: Any, c: Any) -> Any:
    """What `fma_chain(count, accumulators)` returns, in float64; `v` may be an array."""
    if count == 0:
        return np.float64(1) * v
    total = np.float64(0)
    for place, share in enumerate(_shares(count, accumulators)):
        end = np.asarray(v, np.float64) * b + (c if place == 0 else place)
        for _ in range(share - 1):
            end = end * b + c
        total = total + end
    return total


def _shares(count: int, accumulators: int) -> list[int]:
    """How many of `count` FMAs each accumulator does; none does nothing."""
    return [
        count // accumulators + (place < count % accumulators)
        for place in range(min(count, accumulators))
    ]


@functools.cache
def fma_chain(count: int, accumulators: int = 1) -> Callable:
    """`count` float32 FMAs on a value: ``f(v, b, c)``, for kernels with extra arithmetic.

    One accumulator makes them dependent: v <- v * b + c. More accumulators share them out and
    are independent; accumulator i > 0 starts with v * b + i, and their sum comes back, which
    costs one addition for each accumulator past the first.

    Raises:
        ValueError: A negative count, or accumulators outside 1 to `MAX_ILP`.
    """
    if count < 0 or not 1 <= accumulators <= MAX_ILP:
        raise ValueError(f"no chain of {count} FMAs on {accumulators} accumulators")
    shares = _shares(count, accumulators)
    lines = [
        f"fma.rn.f32 x{place}, $1, $2, {_immediate(_F32, place) if place else '$3'};"
        for place in range(len(shares))
    ]
    for turn in range(1, max(shares, default=0)):
        lines += [
            f"fma.rn.f32 x{place}, x{place}, $2, $3;"
            for place, share in enumerate(shares)
            if turn < share
        ]
    lines += [f"add.rn.f32 x0, x0, x{place};" for place in range(1, len(shares))]
    lines += ["mov.f32 $0, x0;" if shares else "mov.f32 $0, $1;"]
    block = [f"{{ .reg .f32 x<{max(1, len(shares))}>;", *lines, "}"]
    return assembly(
        f"fma_chain_{count}_{accumulators}",
        "\n".join(block),
        _F32,
        (Value(_F32),) * 3,
        lambda v, b, c: np.float32(fma_chain_reference(count, accumulators, v, b, c)),
        summary=f"{count} FMAs on {accumulators} accumulators.",
    )
