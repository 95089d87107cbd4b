"""The course notes' own kernel: one load, then dependent arithmetic, one load in flight a warp.

Its data lie in L1, in L2 or in DRAM. How many warps must an SM hold until more of them bring no
more? Blocks are persistent and pinned, as in the occupancy sweep.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from kernels import walk
from kernels.compat import SIMULATOR, argument, jit
from kernels.occupancy import arrange, pin, residency, stream_bytes
from kernels.residency import new_log, note_start, note_stop
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Work, relative_error
from kernels.walk import WARP

B, C = np.float32(0.999), np.float32(0.001)
"""v <- v*B + C keeps any number of FMAs near one."""
LINE = 4 * WARP
"""Bytes of one warp-load."""
CYCLES = 600 if SIMULATOR else 800_000
"""Aim of a launch: half a millisecond at 1.6 GHz."""
ROUGH_LATENCY = {"l1": 40, "l2": 280, "dram": 700}
"""Cycles, good enough to choose how many turns last so long."""
L1_BYTES = 2048
"""16 lines that all warps of an SM walk through: L1 holds them at any carve-out, and the first
visits, which miss, are few beside the later ones."""
SCATTER = 1025
"""Lines from one load of a warp to its next in L2: odd, so that each line is visited, and far
enough that neighbours do not follow each other through one slice of L2."""


@cache
def loop(extra_fma: int, cache: str) -> Any:
    """One load, `extra_fma` dependent FMAs, again and again."""
    turn = walk.mixed(extra_fma, cache)

    @jit
    def mixed(data, apart, step, mask, turns, b, c, out, log):
        """Sum of what this thread reads, each word after its FMAs."""
        note_start(log)
        thread = cuda.grid(1)
        offset = thread // WARP * apart + thread % WARP * 4
        out[thread] = turn(data, 0, (offset, step, mask, turns), (b, c))
        note_stop(log)

    return mixed


def affine(extra_fma: int) -> tuple[float, float]:
    """(p, q) such that a load v adds p*v + q to the sum."""
    if extra_fma == 0:
        return 1.0, 0.0
    b, c = float(B), float(C)
    power = b ** (extra_fma - 1)
    return power * b, c * (1 - power) / (1 - b) * b


def _turns(level: str, params: Params, warps: int, machine: Machine) -> int:
    """Turns a warp that take about CYCLES: bound by latency, by issue, or by what DRAM holds."""
    fma = params["extra_fma"]
    alone = ROUGH_LATENCY[level] + 4 * fma + 20
    issued = params["warps"] / 4 * (fma + 10)
    turns = max(1, int(CYCLES / max(alone, issued)))
    if level == "dram":
        return min(turns, stream_bytes(machine) // (warps * LINE))
    return turns


def _bind(params: Params, machine: Machine) -> Bound:
    level, fma = params["level"], params["extra_fma"]
    block, blocks = arrange(params["warps"], "block", machine)
    warps = machine.sms * blocks * block // WARP
    footprint = {
        "l1": L1_BYTES,
        "l2": 1 << (machine.l2_bytes // 8).bit_length() - 1,
        "dram": stream_bytes(machine),
    }[level]
    turns = _turns(level, params, warps, machine)
    # (bytes between the starts of neighbouring warps, bytes from turn to turn)
    apart, step = {
        "l1": (LINE, LINE),
        "l2": (max(1, footprint // LINE // warps) * LINE, SCATTER * LINE),
        "dram": (LINE, warps * LINE),
    }[level]
    data = machine.uniform(level, footprint // 4, "float32")
    out = machine.xp.zeros(warps * WARP, "float32")
    log = new_log(machine.sms * blocks, machine.xp)

    def check() -> float:
        xp = machine.xp
        if level == "dram":
            walked = data[: turns * warps * WARP].reshape(turns, warps * WARP)
            sums = walked.sum(axis=0, dtype="float64")
        else:
            sums = _round_sums(data, warps, apart // LINE, step // LINE, turns, xp)
        p, q = affine(fma)
        expected = p * sums + q * turns
        # Every addition to the sum rounds once, and so does every FMA.
        return relative_error(out, lambda part: expected[part], 6e-8 * (turns + fma + 1), xp)

    cache_operator = {"l1": "ca", "l2": "cg", "dram": "ca"}[level]
    arguments = (argument(data), apart, step, footprint - 1, turns, B, C)
    bound = Bound(
        launch=Launch.linear(machine.sms * blocks, block),
        work=Work(bytes_read=turns * warps * LINE, operations=2 * turns * warps * WARP * fma),
        check=check,
        poison=lambda: out.fill(np.nan),
        function=loop(fma, cache_operator),
        arguments=(*arguments, argument(out), argument(log)),
        reading=lambda: residency(log, turns),
        cache_resident=level != "dram",
    )
    pin(bound, blocks)
    return bound


def _round_sums(data: Any, warps: int, apart: int, step: int, turns: int, xp: Any) -> Any:
    """Sum of each lane's words when warps go round in the data; all arguments in lines.

    In the order of visits a warp reads a window of `turns` lines, so that sums of windows are
    differences of running sums. Returns float64 of shape (warps * WARP,).
    """
    lines = len(data) // WARP
    order = xp.arange(lines) * step % lines  # the k-th line from line 0 on
    place = xp.zeros_like(order)
    place[order] = xp.arange(lines)
    visited = data.reshape(lines, WARP)[order].astype("float64")
    running = xp.zeros((2 * lines + 1, WARP))
    running[1:] = xp.concatenate([visited, visited]).cumsum(axis=0)
    first = place[xp.arange(warps) * apart % lines]
    rounds, rest = divmod(turns, lines)
    return (rounds * running[lines] + running[first + rest] - running[first]).ravel()


_SIGNATURE = (
    "void(float32[::1], int64, int64, int64, int64, float32, float32, float32[::1], int64[::1])"
)

FAMILY = Family(
    "mixed",
    "one load and dependent arithmetic a turn: warps against latency in L1, L2 and DRAM",
    (
        Kernel(
            "mixed",
            "One load in flight a warp, then dependent FMAs",
            _bind,
            examples=tuple(
                {"warps": warps, "extra_fma": fma, "level": level}
                for warps, fma, level in ((1, 0, "l1"), (2, 4, "l2"), (1, 4, "dram"))
            ),
            source=loop,
            compiled=tuple((loop(fma, op), _SIGNATURE) for fma, op in ((0, "cg"), (4, "ca"))),
        ),
        Kernel(
            "calibration",
            "The same with another number of FMAs: feeds the model and is never scored",
            _bind,
            examples=({"warps": 1, "extra_fma": 3, "level": "l1"},),
            source=loop,
            compiled=((loop(3, "ca"), _SIGNATURE),),
        ),
    ),
)
