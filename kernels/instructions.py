"""Chains of instructions: each op once in a table, then one assembly block per measurement.

A chain is one block of dependent instructions. A Python loop would measure its own counter and
conversions instead: 20 cycles a step where the instruction takes 4. Loops of independent chains
are in `kernels.loops`.
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
"""Most independent chains a thread: past it an SM's schedulers have long been busy."""


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
    step = chosen.template.format(x="$0", a="$2", b="$3", t="t")
    scratch = f".reg {chosen.scratch} t;" if chosen.scratch else ""
    lines = [f"{{ {scratch}", f"mov.{kind.name} $0, $1;", *[step] * steps, "}"]
    return assembly(
        f"chain_{op}_{steps}",
        "\n".join(lines),
        kind,
        (Value(kind),) * 3,
        functools.partial(chain_reference, op, steps),
        summary=f"{steps} dependent {op}.",
    )


def _immediate(value: float) -> str:
    """`value` as PTX writes a float32 constant."""
    return f"0f{np.float32(value).view(np.uint32):08X}"


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
        f"fma.rn.f32 x{place}, $1, $2, {_immediate(place) if place else '$3'};"
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
