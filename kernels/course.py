"""The course's if (c) {A; B;} else {X; Y;} P; Q; and when each lane came to each statement."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from kernels.compat import argument, jit, on_host
from kernels.paths import STATEMENT_STEPS, follow, statement
from kernels.probes import pointer
from kernels.spec import Bound, Kernel, Launch, Machine, Params, Work, WrongAnswer

BEGIN, FIRST, SECOND, JOIN, P, Q, END = range(7)
"""When a lane came to the if, to A or X, to B or Y, to the end of its branch, to P, to Q, and to
the end."""
POINTS = 7


def _course(load: bool, sync: bool) -> Any:
    at_if = statement("begin", 1, 1)
    a, b = statement("A", 3, load=load), statement("B", 5)
    x, y = statement("X", 7, load=load), statement("Y", 9)
    end_then, end_else = statement("then_ends", 11, 1), statement("else_ends", 13, 1)
    p, q, end = statement("P", 15), statement("Q", 17), statement("end", 19, 1)

    def body(goes, v, m, zero, address):
        v, c0, m0 = at_if(v, m, zero, address)
        if goes != 0:
            v, c1, m1 = a(v, m, zero, address)
            v, c2, m2 = b(v, m, zero, address)
            v, c3, m3 = end_then(v, m, zero, address)
        else:
            v, c1, m1 = x(v, m, zero, address)
            v, c2, m2 = y(v, m, zero, address)
            v, c3, m3 = end_else(v, m, zero, address)
        if sync:
            cuda.syncwarp()
        v, c4, m4 = p(v, m, zero, address)
        v, c5, m5 = q(v, m, zero, address)
        v, c6, m6 = end(v, m, zero, address)
        return v, (c0, c1, c2, c3, c4, c5, c6), (m0, m1, m2, m3, m4, m5, m6)

    # Inlined: the branch must be the kernel's own.
    inner = jit(body, device=True, inline="always")

    @jit
    def course(taken, turns, v, m, zero, address, out, clocks, masks):
        """if (taken) {A; B;} else {X; Y;} P; Q; with the clock and the mask of every lane."""
        lane = cuda.threadIdx.x
        own = address + np.uint64(128) * np.uint64(lane)
        for _ in range(turns):  # the first turn fetches instructions and data
            cuda.syncwarp()
            value, seen, active = inner(taken[lane], v[lane], m, zero, own)
            for point in range(POINTS):
                clocks[POINTS * lane + point] = seen[point]
                masks[POINTS * lane + point] = active[point]
            out[lane] = value

    return course


COURSES = {(load, sync): _course(load, sync) for load in (False, True) for sync in (False, True)}


def course_reference(goes: bool, x: int, m: int) -> int:
    """What the statements that a lane goes through make of x."""
    own = [(3, STATEMENT_STEPS), (5, STATEMENT_STEPS), (11, 1)]
    if not goes:
        own = [(7, STATEMENT_STEPS), (9, STATEMENT_STEPS), (13, 1)]
    common = [(15, STATEMENT_STEPS), (17, STATEMENT_STEPS), (19, 1)]
    return int(follow(x, m, [(1, 1), *own, *common]))


def overlap(clocks: np.ndarray, goes: np.ndarray) -> float:
    """Cycles that the two branches were both under way.

    Args:
        clocks: shape (lanes, POINTS), cycles.
        goes: shape (lanes,): who takes the if, who the else.

    From a branch's first statement to the end of its last, over its lanes. Paths that run one
    after another have none.
    """
    if goes.all() or not goes.any():
        return 0.0
    begins = [clocks[side, FIRST].min() for side in (goes, ~goes)]
    ends = [clocks[side, JOIN].max() for side in (goes, ~goes)]
    return float(max(0, min(ends) - max(begins)))


PATTERNS = {
    "half": lambda lane: lane < 16,
    "alternate": lambda lane: lane % 2 == 0,
    "one": lambda lane: lane == 0,
    "all": lambda lane: lane >= 0,
}
"""Which lanes take the if."""


def _bind_course(params: Params, machine: Machine) -> Bound:
    if params["taken"] not in PATTERNS:
        raise ValueError(f"taken '{params['taken']}' is none of {', '.join(PATTERNS)}")
    xp, lane = machine.xp, np.arange(32)
    goes = PATTERNS[params["taken"]](lane)
    multiplier = 0x9E3779B1
    x = (lane * 7 + 1).astype(np.uint32)
    zeros = xp.zeros(32 * 32, np.uint32)
    out = xp.empty(32, np.uint32)
    clocks, masks = xp.zeros(32 * POINTS, np.uint32), xp.zeros(32 * POINTS, np.uint32)

    def poison() -> None:
        out.fill(0)
        zeros.fill(0)  # kept alive here: the kernel knows their address alone

    def check() -> float:
        for one in lane:
            wanted = course_reference(bool(goes[one]), int(x[one]), multiplier)
            if int(on_host(out)[one]) != wanted:
                raise WrongAnswer(f"lane {one} did not go A, B, P, Q or X, Y, P, Q")
        return 0.0

    def reading() -> dict[str, Any]:
        raw = on_host(clocks).reshape(32, POINTS)
        # Differences of 32 bits are right even where the clock wrapped in between.
        seen = (raw - raw[0, BEGIN]).astype(np.int32).astype(np.int64)
        seen -= seen.min()
        return {
            "statement_clock": seen.ravel().tolist(),
            "statement_mask": on_host(masks).tolist(),
            "overlap_cycles": overlap(seen, goes),
            "arrivals": float(len(np.unique(seen[:, P]))),
        }

    return Bound(
        Launch.linear(1, 32),
        Work(),
        check=check,
        poison=poison,
        function=COURSES[params["load"], params["syncwarp"]],
        arguments=(
            argument(xp.asarray(goes.astype(np.int32))),
            2,
            argument(xp.asarray(x)),
            np.uint32(multiplier),
            np.uint32(0),
            np.uint64(pointer(zeros)),
            *map(argument, (out, clocks, masks)),
        ),
        reading=reading,
        cache_resident=True,
    )


_COURSE_SIGNATURE = (
    "void(int32[::1], int64, uint32[::1], uint32, uint32, uint64, uint32[::1], uint32[::1], "
    "uint32[::1])"
)
COURSE = Kernel(
    "course",
    "if {A; B;} else {X; Y;} P; Q: the clock of every lane at every statement",
    _bind_course,
    examples=tuple({"taken": "half", "load": load, "syncwarp": sync} for load, sync in COURSES),
    source=COURSES[False, False],
    compiled=tuple((course, _COURSE_SIGNATURE) for course in COURSES.values()),
)
