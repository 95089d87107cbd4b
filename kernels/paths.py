"""Assembly whose branches stay branches, and statements that note when each lane ran them.

A compiler turns a short if/else into predicated instructions, and merges what two branches have
in common. Long chains that differ in a constant leave it nothing to predicate or to merge; the
constant also shows in a lane's result which way the lane went.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from kernels import compat
from kernels.assembly import KINDS, Value, assembly

PATHS = 32
"""A warp cannot go more ways than it has lanes."""
STEPS = 4 if compat.SIMULATOR else 64
"""Dependent FMAs of one path: 256 cycles, long beside the branch itself."""

_F32, _S32, _U32, _U64 = KINDS["f32"], KINDS["s32"], KINDS["u32"], KINDS["u64"]


def constant(path: int) -> np.float32:
    """What path number `path` adds at each step, exact in float32."""
    return np.float32((path + 1) / 64)


def switch_reference(path: Any, rounds: int, x: Any, a: float) -> Any:
    """What `rounds` calls of `switch` make of x, in float64; `path` and `x` may be arrays."""
    power = float(a) ** (rounds * STEPS)
    added = (np.asarray(path) + 1) / 64
    return np.asarray(x, np.float64) * power + added * (1 - power) / (1 - float(a))


def _switch_twin(path: Any, x: Any, a: Any) -> np.float32:
    for _ in range(STEPS):
        x = np.float32(float(x) * float(a) + float(constant(int(path))))
    return x


def _switch() -> Callable:
    labels = ", ".join(f"P{path}" for path in range(PATHS))
    lines = ["{ .reg .f32 v;", f"entries: .branchtargets {labels};", "mov.f32 v, $2;"]
    lines += ["brx.idx $1, entries;"]
    for path in range(PATHS):
        bits = f"0f{struct.pack('>f', constant(path)).hex()}"
        lines += [f"P{path}:", *[f"fma.rn.f32 v, v, $3, {bits};"] * STEPS, "bra DONE;"]
    lines += ["DONE: mov.f32 $0, v; }"]
    return assembly(
        "switch",
        "\n".join(lines),
        _F32,
        (Value(_S32), Value(_F32), Value(_F32)),
        _switch_twin,
        summary=f"A switch of {PATHS} paths of {STEPS} dependent FMAs: ``f(path, x, a) -> x``.",
    )


switch = _switch()


STATEMENT_STEPS = 2 if compat.SIMULATOR else 32
_NEVER = "0x7fb0c1d3"
"""A value that no lane comes upon."""
ALL_LANES = 0xFFFFFFFF


@cache
def statement(name: str, number: int, steps: int = STATEMENT_STEPS, load: bool = False) -> Callable:
    """A statement of the course's if/else: ``f(x, m, zero, address) -> (x, clock, mask)``.

    It reads the clock (its low 32 bits, cycles) once the statement before it is complete, and
    the mask of the lanes that run with it, and then does x <- x * m + number, `steps` times, in
    32 bits. With `load` it first fetches the word at `address` (uint64), which must hold 0, past
    L1. All are uint32; `zero` is 0 in an argument, so that nothing can start before the clock is
    read. `name` appears as a comment in the PTX.
    """
    lines = ["{ .reg .pred there; .reg .u32 v, c, m, t; .reg .u64 a;", f"// statement {name}"]
    # A warp issues in order: the comparison waits for x, and the clock read for the comparison.
    lines += [f"setp.ne.u32 there, $3, {_NEVER};", "mov.u32 c, 0;", "@there mov.u32 c, %clock;"]
    lines += ["activemask.b32 m;", "and.b32 t, c, $5;", "add.u32 v, $3, t;"]
    if load:
        lines += ["cvt.u64.u32 a, t;", "add.u64 a, a, $6;"]
        lines += ["ld.volatile.global.u32 t, [a];", "add.u32 v, v, t;"]
    lines += [f"mad.lo.u32 v, v, $4, {number};"] * steps
    lines += ["mov.u32 $0, v; mov.u32 $1, c; mov.u32 $2, m; }"]

    def twin(x: Any, m: Any, zero: Any, address: Any) -> tuple[Any, Any, Any]:
        clock = np.uint32(time.perf_counter_ns() & ALL_LANES)
        return follow(x, m, [(number, steps)]), clock, np.uint32(ALL_LANES)

    return assembly(
        f"statement_{name}",
        "\n".join(lines),
        (_U32, 3),
        (Value(_U32), Value(_U32), Value(_U32), Value(_U64)),
        twin,
        summary=f"Statement {name}.",
        memory=True,
    )


def follow(x: Any, m: Any, statements: list[tuple[int, int]]) -> np.uint32:
    """What statements of (number, steps) make of x, one after another."""
    value = int(x)
    for number, steps in statements:
        for _ in range(steps):
            value = (value * int(m) + number) & ALL_LANES
    return np.uint32(value)
