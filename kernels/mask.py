"""Masks of a warp: who is active where, lanes that meet in part, and a full mask in half a warp."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba import cuda, int32

from kernels import meeting
from kernels.assembly import KINDS, assembly
from kernels.compat import FULL_MASK, SIMULATOR, argument, jit, on_host
from kernels.flags import look, put
from kernels.instructions import chain, chain_reference
from kernels.spec import (
    Bound,
    Family,
    Kernel,
    Launch,
    Machine,
    Params,
    Work,
    WrongAnswer,
    relative_error,
)

BLOCK = 128
A, B = np.float32(0.999), np.float32(0.001)
LENGTHS = (4, 5, 6, 7, 8) if SIMULATOR else (24, 32, 40, 48, 56)
"""FMAs of each branch: no two alike, so that the compiler cannot merge them."""
_then, _nested, _otherwise, _turn, _after = (chain("fma.f32", length) for length in LENGTHS)
POINTS = ("before", "then", "nested", "otherwise", "after", "after_loop", "synchronised")
"""Where the mask is read: before the branch, in it, in a branch within it, in the else, after both
with nothing to bring the lanes together, after a loop that lanes leave at different turns, and
after `syncwarp`."""
ROUNDS = 8


def _active(point: str) -> Any:
    return assembly(
        f"active_{point}",
        f"activemask.b32 $0; // {point}",
        KINDS["u32"],
        (),
        lambda: np.uint32(FULL_MASK),
        summary="The lanes that run with this one, now (uint32).",
        memory=True,
    )


_at = {point: _active(point) for point in POINTS}
_before, _in_then, _in_nested, _in_otherwise, _at_after, _at_loop_end, _at_sync = _at.values()


@jit
def points(taken, x, a, b, out, ballots, seen):
    """activemask at each of POINTS, and the ballot on the condition before the branch."""
    thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    lane = cuda.threadIdx.x % 32
    goes = (taken >> lane) & 1
    value = x[thread]
    ballots[thread] = cuda.ballot_sync(FULL_MASK, goes == 1)
    before = _before()
    nested = before * 0
    if goes == 1:
        value = _then(value, a, b)
        inside = _in_then()
        if lane % 2 == 1:
            value = _nested(value, a, b)
            nested = _in_nested()
    else:
        value = _otherwise(value, a, b)
        inside = _in_otherwise()
    value = _after(value, a, b)
    after = _at_after()
    for _ in range(lane % 4 + 1):
        value = _turn(value, a, b)
    after_loop = _at_loop_end()
    cuda.syncwarp()
    synchronised = _at_sync()
    out[thread] = value
    at = 6 * thread
    seen[at] = before
    seen[at + 1] = inside
    seen[at + 2] = nested
    seen[at + 3] = after
    seen[at + 4] = after_loop
    seen[at + 5] = synchronised


@jit
def disjoint(taken, partner, x, a, b, out, wrong):
    """Two branches at once: in each the lanes exchange words and meet under a mask of their own."""
    words = cuda.shared.array(BLOCK, int32)
    thread = cuda.threadIdx.x
    lane = thread % 32
    base = thread - lane
    goes = (taken >> lane) & 1
    value = x[thread]
    misses = 0
    mask = cuda.ballot_sync(FULL_MASK, goes == 1)
    if goes == 1:
        for turn in range(ROUNDS):
            value = _then(value, a, b)
            put(words, thread, 64 * turn + lane)
            cuda.syncwarp(mask)
            if look(words, base + partner[lane]) != 64 * turn + partner[lane]:
                misses += 1
            cuda.syncwarp(mask)
    else:
        for turn in range(ROUNDS):
            value = _otherwise(value, a, b)
            put(words, thread, 64 * turn + lane)
            cuda.syncwarp(~mask)
            if look(words, base + partner[lane]) != 64 * turn + partner[lane]:
                misses += 1
            cuda.syncwarp(~mask)
    out[thread] = value
    wrong[thread] = misses


def promised(taken: int) -> dict[str, np.ndarray]:
    """The mask that the branch implies for each lane at each point, uint32 of shape (32,); 0
    where the lane does not come."""
    lane = np.arange(32)
    goes = (taken >> lane) & 1 == 1
    odd = 0xAAAAAAAA
    full = np.full(32, FULL_MASK)
    return {
        "before": full,
        "then": np.where(goes, taken, 0),
        "nested": np.where(goes & (lane % 2 == 1), taken & odd, 0),
        "otherwise": np.where(goes, 0, ~taken & FULL_MASK),
        "after": full,
        "after_loop": full,
        "synchronised": full,
    }


def by_point(seen: np.ndarray, taken: int) -> np.ndarray:
    """What each lane saw at each of POINTS, shape (lanes, POINTS), from the kernel's log of shape
    (lanes, 6), which has one place for both branches; 0 where the lane does not come."""
    goes = (taken >> (np.arange(len(seen)) % 32)) & 1 == 1
    then, otherwise = np.where(goes, seen[:, 1], 0), np.where(goes, 0, seen[:, 1])
    return np.stack([seen[:, 0], then, seen[:, 2], otherwise, *seen[:, 3:].T], axis=1)


def _bind_points(params: Params, machine: Machine) -> Bound:
    taken, xp = _taken(params), machine.xp
    blocks = 2 * machine.sms
    threads = blocks * BLOCK
    x = machine.uniform("mask", threads, "float32")
    out = xp.empty(threads, np.float32)
    ballots = xp.zeros(threads, np.int32)
    seen = xp.zeros(6 * threads, np.uint32)
    lane = np.arange(threads) % 32
    goes = (taken >> lane) & 1 == 1
    then, nested, otherwise, turn, after = LENGTHS
    steps = np.where(goes, then + nested * (lane % 2), otherwise) + after + turn * (lane % 4 + 1)
    power = np.float64(A) ** steps
    expected = on_host(x) * power + float(B) * (1 - power) / (1 - float(A))

    def check() -> float:
        voted = on_host(ballots).astype(np.int64) & FULL_MASK
        if (voted != taken).any():
            raise WrongAnswer(f"a ballot gave 0x{int(voted[voted != taken][0]):08x}")
        return relative_error(on_host(out), lambda part: expected[part], 1e-4, np)

    def reading() -> dict[str, Any]:
        found = by_point(on_host(seen).reshape(threads, 6), taken)
        wanted = np.tile(np.stack(list(promised(taken).values()), axis=1), (threads // 32, 1))
        comes = wanted != 0
        deviates = ((found != wanted) & comes).sum(axis=0) / np.maximum(comes.sum(axis=0), 1)
        return {
            "mask_seen": found[:32].ravel().tolist(),
            "mask_deviations": [float(share) for share in deviates],
        }

    return Bound(
        Launch.linear(blocks, BLOCK),
        Work(),
        check=check,
        poison=lambda: out.fill(np.nan),
        function=points,
        arguments=(taken, argument(x), A, B, *map(argument, (out, ballots, seen))),
        reading=reading,
        cache_resident=True,
    )


def _taken(params: Params) -> int:
    taken = params["taken"]
    if not 1 <= taken < FULL_MASK:
        raise ValueError(f"taken {taken:#x}: a mask of some lanes, not of none and not of all")
    return taken


def partners(taken: int) -> np.ndarray:
    """Of each lane, the next lane on its own side of the branch (int32, shape (32,))."""
    lane = np.arange(32)
    goes = (taken >> lane) & 1
    result = np.empty(32, np.int32)
    for side in (0, 1):
        members = lane[goes == side]
        result[members] = np.roll(members, -1)
    return result


def _bind_disjoint(params: Params, machine: Machine) -> Bound:
    taken, xp = _taken(params), machine.xp
    x = machine.uniform("mask", BLOCK, "float32")
    out, wrong = xp.empty(BLOCK, np.float32), xp.zeros(BLOCK, np.int32)
    goes = (taken >> (np.arange(BLOCK) % 32)) & 1 == 1

    def check() -> float:
        steps = {True: LENGTHS[0] * ROUNDS, False: LENGTHS[2] * ROUNDS}
        for thread in (0, 31):
            wanted = chain_reference(
                "fma.f32", steps[bool(goes[thread])], float(x[thread]), float(A), float(B)
            )
            if not abs(float(out[thread]) - float(wanted)) <= 1e-5:
                raise WrongAnswer(f"thread {thread} has {float(out[thread])}, not {wanted}")
        missed = int(on_host(wrong).sum())
        if missed:
            raise WrongAnswer(f"{missed} reads came before the partner's write")
        return 0.0

    return Bound(
        Launch.linear(1, BLOCK),
        Work(),
        check=check,
        poison=lambda: out.fill(np.nan),
        function=disjoint,
        arguments=(
            taken,
            argument(xp.asarray(partners(taken))),
            argument(x),
            A,
            B,
            argument(out),
            argument(wrong),
        ),
        reading=lambda: {"wrong_reads": float(on_host(wrong).sum())},
        cache_resident=True,
    )


PROGRAMS = meeting.programs(meeting.warp_barrier)
FULL = {
    "returned": "Half a warp calls syncwarp with the full mask, the other half has returned",
    "both_sides": "Half a warp calls syncwarp with the full mask in the if, the other in the else",
    "later": "Half a warp calls syncwarp with the full mask, the other half a later one",
    "spinning": "Half a warp calls syncwarp with the full mask, the other waits for it elsewhere",
}

FAMILY = Family(
    "mask",
    "active lanes and partial barriers",
    (
        Kernel(
            "points",
            "activemask before, in and after a branch, beside the ballot taken before it",
            _bind_points,
            examples=({"taken": 0x0000FFFF},),
            source=points,
            compiled=(
                (
                    points,
                    "void(int64, float32[::1], float32, float32, float32[::1], int32[::1], "
                    "uint32[::1])",
                ),
            ),
            simulator="it does not know which lanes are active",
        ),
        Kernel(
            "disjoint",
            "syncwarp under two disjoint masks in the two branches of an if/else",
            _bind_disjoint,
            examples=({"taken": 0x0000FFFF}, {"taken": 0x55555555}),
            source=disjoint,
            compiled=(
                (
                    disjoint,
                    "void(int64, int32[::1], float32[::1], float32, float32, float32[::1], "
                    "int32[::1])",
                ),
            ),
        ),
        *(
            Kernel(
                f"full_{name}",
                summary,
                partial(meeting.bind, name, PROGRAMS[name]),
                examples=({"block": 32, "split": 16},),
                source=PROGRAMS[name],
                compiled=((PROGRAMS[name], meeting.signature(name)),),
                may_hang=True,
                simulator="its syncwarp insists on every lane of the mask",
            )
            for name, summary in FULL.items()
        ),
    ),
)
