"""Persistent loops over memory, written whole in PTX: so many loads in flight and no more.

Python source does not say how many loads are in flight: LLVM unrolls loops, and the assembler
moves loads up. Here loop, loads and arithmetic are one block of assembly with `nounroll`. A warp
issues in order and stops at the first use of a register that a load has not yet filled, and every
turn uses what it loaded: between two uses there are the loads of one turn. Tests read this off
the machine code.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.assembly import KINDS, Element, Value, Values, assembly

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTHS = (4, 8, 16)
"""Bytes of one load of one lane."""
MAX_LOADS = 8
WARP = 32

_U32, _F32, _S64 = KINDS["u32"], KINDS["f32"], KINDS["s64"]


_NOUNROLL = r".pragma \22nounroll\22;"
"""First in the block that the loop jumps back to; \22 is how LLVM's text spells a quotation mark.
Without it the assembler does four turns at once, with all of their loads in flight."""


def _turns(body: list[str], tail: list[str]) -> list[str]:
    """`body` and `tail` again and again; `left` turns (int32), at least one."""
    return [
        "TURN:",
        _NOUNROLL,
        *body,
        "sub.s32 left, left, 1;",
        *tail,
        "setp.gt.s32 more, left, 0;",
        "@more bra TURN;",
    ]


def _vector(kind: str, registers: list[str]) -> tuple[str, str]:
    """How `ld` and `st` spell these registers: (type suffix, operand)."""
    if len(registers) == 1:
        return f".{kind}", registers[0]
    return f".v{len(registers)}.{kind}", f"{{{', '.join(registers)}}}"


def _words(width: int, loads: int, least: int = 1) -> int:
    if width not in WIDTHS:
        raise ValueError(f"width {width}: a load has 4, 8 or 16 bytes")
    if not least <= loads <= MAX_LOADS:
        raise ValueError(f"loads {loads} is outside {least} to {MAX_LOADS}")
    return width // 4


@functools.cache
def read(loads: int, width: int) -> Callable:
    """A loop of `loads` independent loads: ``f(data, index, step, turns) -> sum``, uint32.

    ``data[index]`` (uint32) is the lane's first word; the loads of a turn lie one warp-load
    (32 x `width` bytes) apart, so a warp reads `loads` x 32 x `width` contiguous bytes a turn;
    the next turn is ``step`` bytes on. Every word is added, modulo 2^32, so that the answer is
    exact in any order.

    Raises:
        ValueError: A width that is none of `WIDTHS`, or loads outside 1 to `MAX_LOADS`.
    """
    words = _words(width, loads)
    names = [[f"w{load}_{word}" for word in range(words)] for load in range(loads)]
    body = []
    for load, registers in enumerate(names):
        suffix, operand = _vector("u32", registers)
        body.append(f"ld.global{suffix} {operand}, [at+{load * WARP * width}];")
    # One sum a word: a single one would be a chain of dependent additions.
    tail = [f"add.u32 s{word}, s{word}, {row[word]};" for row in names for word in range(words)]
    lines = [
        ".reg .pred more; .reg .u64 at; .reg .s32 left;",
        f".reg .u32 {', '.join(name for row in names for name in row)};",
        f".reg .u32 s<{words}>;",
        "mov.u64 at, $1; cvt.s32.s64 left, $3;",
        *(f"mov.u32 s{word}, 0;" for word in range(words)),
        *_turns([*body, "add.s64 at, at, $2;"], tail),
        *(f"add.u32 s0, s0, s{word};" for word in range(1, words)),
        "mov.u32 $0, s0;",
    ]

    def twin(data: Any, index: int, step: int, turns: int) -> np.uint32:
        total = 0
        for turn in range(turns):
            for load in range(loads):
                at = index + (turn * step + load * WARP * width) // 4
                total += sum(int(data[at + word]) for word in range(words))
        return np.uint32(total & 0xFFFFFFFF)

    return assembly(
        f"read_{loads}_{width}",
        "\n".join(["{", *lines, "}"]),
        _U32,
        (Element(_U32), Value(_S64), Value(_S64)),
        twin,
        summary=f"A loop of {loads} independent loads of {width} bytes.",
        memory=True,
    )


@functools.cache
def axpy(loads: int, width: int) -> Callable:
    """The same for y <- a*x + y: ``f(xy, index, a, (distance, step, turns))``, float32.

    Of the `loads` of a turn, which are all in flight together, half read x and half read y, and
    half as many stores follow. ``xy[index]`` is the lane's first x, its y lies ``distance``
    bytes on.

    Raises:
        ValueError: as `read`, or an odd number of loads.
    """
    words = _words(width, loads, least=2)
    if loads % 2:
        raise ValueError(f"loads {loads}: half of them read x and half read y")
    pairs = range(loads // 2)
    x = [[f"x{pair}_{word}" for word in range(words)] for pair in pairs]
    y = [[f"y{pair}_{word}" for word in range(words)] for pair in pairs]
    body, stores = [], []
    for pair in pairs:
        offset = pair * WARP * width
        for base, rows in (("ax", x), ("ay", y)):
            suffix, operand = _vector("f32", rows[pair])
            body.append(f"ld.global{suffix} {operand}, [{base}+{offset}];")
        suffix, operand = _vector("f32", y[pair])
        stores += [
            f"fma.rn.f32 {y[pair][word]}, {x[pair][word]}, $1, {y[pair][word]};"
            for word in range(words)
        ]
        stores.append(f"st.global{suffix} [ay+{offset}], {operand};")
    lines = [
        ".reg .pred more; .reg .u64 ax, ay; .reg .s32 left;",
        f".reg .f32 {', '.join(name for row in x + y for name in row)};",
        "mov.u64 ax, $0; add.s64 ay, ax, $2; cvt.s32.s64 left, $4;",
        *_turns([*body, "add.s64 ax, ax, $3;"], [*stores, "add.s64 ay, ay, $3;"]),
    ]

    def twin(xy: Any, index: int, a: Any, walk: Any) -> None:
        distance, step, turns = (int(value) for value in walk)
        for turn in range(turns):
            for pair in pairs:
                at = index + (turn * step + pair * WARP * width) // 4
                for word in range(at, at + words):
                    xy[word + distance // 4] += a * xy[word]

    return assembly(
        f"axpy_{loads}_{width}",
        "\n".join(["{", *lines, "}"]),
        None,
        (Element(_F32), Value(_F32), Values(_S64, 3)),
        twin,
        summary=f"A loop of {loads} independent loads of {width} bytes, and y <- a*x + y.",
        memory=True,
    )


@functools.cache
def mixed(extra_fma: int, cache: str) -> Callable:
    """A loop of one load and `extra_fma` dependent FMAs on what it brought, float32.

    ``f(data, index, (offset, step, mask, turns), (b, c)) -> sum``. A turn reads the word at byte
    ``offset & mask`` behind ``data[index]``, and then `offset` grows by ``step``: a mask of all
    ones streams, a footprint (a power of two) minus one goes round in it. Each FMA is
    v <- v*b + c, the last one sum <- v*b + sum. Without any, one addition still consumes the
    load: no loop can do with less.

    Raises:
        ValueError: A negative count.
    """
    if extra_fma < 0:
        raise ValueError(f"extra_fma {extra_fma} is negative")
    chain = ["fma.rn.f32 v, v, $6, $7;"] * (extra_fma - 1)
    last = "fma.rn.f32 sum, v, $6, sum;" if extra_fma else "add.rn.f32 sum, sum, v;"
    body = [
        "add.s64 at, $1, here;",
        f"ld.global{cache and '.'}{cache}.f32 v, [at];",
        "add.s64 here, here, $3;",
        "and.b64 here, here, $4;",
    ]
    lines = [
        ".reg .pred more; .reg .s64 at, here; .reg .s32 left; .reg .f32 v, sum;",
        "and.b64 here, $2, $4; cvt.s32.s64 left, $5; mov.f32 sum, 0f00000000;",
        *_turns(body, [*chain, last]),
        "mov.f32 $0, sum;",
    ]

    def twin(data: Any, index: int, walk: Any, coefficients: Any) -> np.float32:
        offset, step, mask, turns = (int(value) for value in walk)
        b, c = coefficients
        total = np.float32(0)
        for turn in range(turns):
            v = data[index + ((offset + turn * step) & mask) // 4]
            for _ in range(extra_fma - 1):
                v = np.float32(v * b + c)
            total = np.float32(total + (v * b if extra_fma else v))
        return total

    return assembly(
        f"mixed_{extra_fma}_{cache}",
        "\n".join(["{", *lines, "}"]),
        _F32,
        (Element(_F32), Values(_S64, 4), Values(_F32, 2)),
        twin,
        summary=f"A loop of one load and {extra_fma} dependent FMAs.",
        memory=True,
    )


LIVE_PITCH = 256
"""Elements between two values of one thread in the table that `live` reads."""


@functools.cache
def live(count: int) -> Callable:
    """`count` values of a thread, all alive at once: ``f(table, index, a, turns) -> sum``, float32.

    Loads value i from ``table[index + LIVE_PITCH * i]``; each turn does v_i <- a*v_(i+1) + v_i
    for every i, the last with v_0; the sum comes back. So a thread needs `count` registers, or
    the assembler spills.

    Raises:
        ValueError: Fewer than 2 values.
    """
    if count < 2:
        raise ValueError(f"{count} values: at least 2 are needed")
    body = [f"fma.rn.f32 v{place}, v{(place + 1) % count}, $2, v{place};" for place in range(count)]
    sums = [f"add.rn.f32 v0, v0, v{place};" for place in range(1, count)]
    lines = [
        f".reg .pred more; .reg .s32 left; .reg .f32 v<{count}>;",
        *(f"ld.global.f32 v{place}, [$1+{4 * LIVE_PITCH * place}];" for place in range(count)),
        "cvt.s32.s64 left, $3;",
        *_turns(body, []),
        *sums,
        "mov.f32 $0, v0;",
    ]

    def twin(table: Any, index: int, a: Any, turns: int) -> np.float32:
        values = [table[index + LIVE_PITCH * place] for place in range(count)]
        return np.float32(sum(live_turns(values, a, turns)))

    return assembly(
        f"live_{count}",
        "\n".join(["{", *lines, "}"]),
        _F32,
        (Element(_F32), Value(_F32), Value(_S64)),
        twin,
        summary=f"A loop over {count} values that are all alive.",
        memory=True,
    )


def live_turns(values: list[Any], a: float, turns: int) -> list[Any]:
    """The values after `turns` of `live`'s loop; each may be an array over threads."""
    values = list(values)
    for _ in range(turns):
        for place in range(len(values)):
            values[place] = values[place] + a * values[(place + 1) % len(values)]
    return values
