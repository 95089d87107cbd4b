"""Chains of synchronisations: one block of assembly with as many as are timed, and no more.

A loop written in Python would add its own counter to each, and one barrier costs little more than
that. What the assembler makes of a chain is part of the answer: in code that it can prove
converged, `bar.warp.sync` becomes a NOP, and repeated ones with the same mask are checked once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernels import compat
from kernels.assembly import KINDS, Value, assembly

_S32 = KINDS["s32"]
PATTERN = 0x2C9F_6A13
"""No rotation of it by 1 to 31 places is itself."""


@dataclass(frozen=True)
class Step:
    """One synchronisation on a value.

    `text` is PTX over ``{x}`` (in and out), ``{o}`` (operand, a lane's or a thread's own), ``{z}``
    (0, which the assembler cannot know), predicates p and q and registers m and t; ``{i}`` makes
    labels unique. `twin` is the same in the simulator; `start` and `operand` are what thread i of
    n brings, `end` the value of thread i after so many steps.
    """

    text: str
    twin: Callable[[Any, Any], Any]
    start: Callable[[int, int], int]
    operand: Callable[[int, int], int]
    end: Callable[[int, int, int], int]
    unrolled: int = 256
    before: str = ""
    after: str = ""

    @property
    def steps(self) -> int:
        """Synchronisations in one round of the loop; few in the simulator, which times nothing."""
        return 2 if compat.SIMULATOR else self.unrolled


def _thread() -> Any:
    return compat.simulated_thread()


def _warp(x: Any, o: Any) -> Any:
    compat.warp_exchange(None, "syncwarp")
    return x


def _shuffle(x: Any, o: Any) -> Any:
    return compat.warp_exchange(x, "shuffle")[int(o)]


def _ballot(x: Any, o: Any) -> Any:
    board = compat.warp_exchange(int(x) & int(o) & compat.FULL_MASK != 0, "vote")
    return _signed(sum(1 << lane for lane, vote in board.items() if vote))


def _block(x: Any, o: Any) -> Any:
    _thread().syncthreads()
    return x


def _voted(name: str) -> Callable[[Any, Any], Any]:
    return lambda x, o: getattr(_thread(), name)(bool(x))


def _signed(value: int) -> int:
    value &= compat.FULL_MASK
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, places: int) -> int:
    places %= 32
    return _signed(value >> places | value << (32 - places))


def _turns(thread: int) -> int:
    """Turns of the loop before the barrier: one in the lower half of a warp, two in the upper."""
    return 1 if thread % 32 < 16 else 2


_LOOP = "mov.s32 t, {o}; P{i}: add.s32 {x}, {x}, t; sub.s32 t, t, 1; "
_LOOP += "setp.gt.s32 q, t, 0; @q bra P{i};"
"""Lanes that go round it different numbers of times have diverged: no assembler can turn a loop
into predicated instructions, as it does with short branches."""


def _after_loop(barrier: str, sync: Callable[[Any, Any], Any]) -> Step:
    """The barrier after a loop that each lane leaves after its operand's number of turns."""

    def twin(x: Any, o: Any) -> Any:
        return sync(x + sum(range(1, int(o) + 1)), o)

    return Step(
        _LOOP + barrier,
        twin,
        start=lambda i, n: i,
        operand=lambda i, n: _turns(i),
        end=lambda i, n, steps: i + steps * sum(range(1, _turns(i) + 1)),
        unrolled=64,
    )


def _still(i: int, n: int) -> int:
    return i


def _unchanged(i: int, n: int, steps: int) -> int:
    return i


def _vote(name: str, start: Callable[[int, int], int], end: int) -> Step:
    """A vote whose outcome is everyone's next vote; one thread's dissent decides it for good."""
    return Step(
        f"bar.red.{name}.pred p, 0, p;",
        _voted(f"syncthreads_{name}"),
        start,
        _still,
        lambda i, n, steps: end,
        before="setp.ne.s32 p, {x}, 0;",
        after="selp.b32 {x}, 1, 0, p;",
    )


_MASKED = "xor.b32 m, m, {z}; bar.warp.sync m;"
"""Without the xor the assembler would check the mask once for the whole chain."""

STEPS: dict[str, Step] = {
    "syncwarp": Step("bar.warp.sync 0xffffffff;", _warp, _still, _still, _unchanged),
    "syncwarp_masked": Step(
        _MASKED,
        _warp,
        _still,
        lambda i, n: _signed(compat.FULL_MASK),
        _unchanged,
        unrolled=64,
        before="mov.b32 m, {o};",
    ),
    "syncwarp_halves": Step(
        _MASKED,
        _warp,
        _still,
        lambda i, n: _signed(0xFFFF if i % 32 < 16 else 0xFFFF0000),
        _unchanged,
        unrolled=64,
        before="mov.b32 m, {o};",
    ),
    "syncwarp_diverged": _after_loop("bar.warp.sync 0xffffffff;", _warp),
    "diverged": _after_loop("", lambda x, o: x),
    "shuffle": Step(
        "shfl.sync.idx.b32 {x}, {x}, {o}, 0x1f, 0xffffffff;",
        _shuffle,
        _still,
        lambda i, n: (i + 1) % 32,
        lambda i, n, steps: i // 32 * 32 + (i + steps) % 32,
    ),
    # Each lane votes with its right neighbour's bit, so that the pattern moves on by one.
    "ballot": Step(
        "and.b32 t, {x}, {o}; setp.ne.b32 p, t, 0; vote.sync.ballot.b32 {x}, p, 0xffffffff;",
        _ballot,
        lambda i, n: _signed(PATTERN),
        lambda i, n: _signed(1 << (i + 1) % 32),
        lambda i, n, steps: _rotated(PATTERN, steps),
    ),
    "syncthreads": Step("bar.sync 0;", _block, _still, _still, _unchanged),
    "syncthreads_diverged": _after_loop("bar.sync 0;", _block),
    # As many threads as the count says vote for it; if one vote were lost, it would stay lost.
    "syncthreads_count": Step(
        "setp.lt.s32 p, {o}, {x}; bar.red.popc.u32 {x}, 0, p;",
        lambda x, o: int(_thread().syncthreads_count(bool(o < x))),
        lambda i, n: n - 1,
        _still,
        lambda i, n, steps: n - 1,
    ),
    "syncthreads_and": _vote("and", lambda i, n: int(i != n // 2), 0),
    "syncthreads_or": _vote("or", lambda i, n: int(i == n // 2), 1),
}


@cache
def chain(name: str) -> Callable:
    """``f(rounds, x, operand, zero) -> x``, int32: `rounds` times ``STEPS[name].steps`` of it.

    Raises:
        KeyError: a name that is not in STEPS.
    """
    step = STEPS[name]
    place = {"x": "$0", "o": "$3", "z": "$4"}
    lines = [".reg .pred p, q, more; .reg .b32 m, t; .reg .s32 left;"]
    lines += ["mov.b32 $0, $2;", "mov.s32 left, $1;", step.before.format(**place)]
    lines += ["TURN:", r".pragma \22nounroll\22;"]
    lines += [step.text.format(**place, i=i) for i in range(step.steps)]
    lines += ["sub.s32 left, left, 1;", "setp.gt.s32 more, left, 0;", "@more bra TURN;"]
    lines += [step.after.format(**place)]

    def twin(rounds: Any, x: Any, operand: Any, zero: Any) -> Any:
        for _ in range(int(rounds) * step.steps):
            x = step.twin(x, operand)
        return np.int32(x)

    return assembly(
        f"chain_{name}",
        "\n".join(["{", *filter(None, lines), "}"]),
        _S32,
        (Value(_S32),) * 4,
        twin,
        summary=f"A chain of {name}.",
        memory=True,
    )


def bounds(name: str, block: int, rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, operand, end) of a block's threads over `rounds` rounds, int32, shape (block,)."""
    step, steps = STEPS[name], STEPS[name].steps * rounds
    columns = (
        [step.start(i, block) for i in range(block)],
        [step.operand(i, block) for i in range(block)],
        [step.end(i, block, steps) for i in range(block)],
    )
    start, operand, end = (np.array(column, np.int64).astype(np.int32) for column in columns)
    return start, operand, end
