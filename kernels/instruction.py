"""Instructions: latency of dependent chains, throughput of a busy SM, and what lies between.

Everything runs on one SM and is timed by its own clock, from the first warp's start to the last
warp's stop. Which op runs, for how long and on which of an SM's four sub-partitions are arguments,
so that a few kernels serve all measurements (`kernels.loops`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, types

from kernels import loops, ptx
from kernels.compat import argument, device, jit, on_host
from kernels.instructions import OPS, Op
from kernels.loops import BODY, Streams
from kernels.probes import shared_address
from kernels.ptx import KINDS
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Work, WrongAnswer
from kernels.switching import LOAD_USE, PARTITIONS, SWITCH

ROUNDS = 64
"""Rounds of a loop in one timing: 16,384 instructions a warp, 65,000 cycles of dependent FMAs."""
ILP = (1, 2, 4, 8, 16)
"""Independent chains a warp for which the ops of `SURFACE` are compiled."""
SURFACE = ("fma.f32", "ex2.f32", "fma.f64")
MOST_WARPS, MOST_THREADS = 32, 1024
"""In a block, at most."""

_F32, _F64, _S32 = KINDS["f32"], KINDS["f64"], KINDS["s32"]


# --- Which ops there are, beyond those of kernels.instructions. ---

SHARED_OPS = {
    op.name: op
    for op in (
        # Each lane's word holds its own address: no bank conflict, and a chain all the same.
        Op("ld.shared.b32", _S32, "ld.shared.b32 {x}, [{x}];", lambda x, a, b: x),
        Op("atom.shared.add.u32", _S32, "atom.shared.add.u32 {x}, [{x}], {b};", lambda x, a, b: x),
    )
}


def _library(name: str, function: Callable[[float, float, float], float]) -> Op:
    return Op(name, _F32, "", lambda x, a, b: np.float32(function(float(x), float(a), float(b))))


LIBRARY_OPS = {
    op.name: op
    for op in (
        _library("sinf", lambda x, a, b: math.sin(x)),
        _library("cosf", lambda x, a, b: math.cos(x)),
        _library("expf", lambda x, a, b: math.exp(-x)),
        _library("logf_add", lambda x, a, b: math.log(x) + a),
        _library("sqrtf", lambda x, a, b: math.sqrt(x)),
        _library("divf", lambda x, a, b: a / x),
    )
}
"""CUDA's functions of full precision, as numba's `math` calls them, in the order of `_by_library`:
several instructions each, some with a slow path that these operands do not take."""


@device
def _by_library(choice, rounds, x, a, b):
    """`rounds` times BODY calls of one of `LIBRARY_OPS`, two in a row."""
    turns = rounds * (BODY // 2)
    if choice == 0:
        for _ in range(turns):
            x = math.sin(math.sin(x))
    elif choice == 1:
        for _ in range(turns):
            x = math.cos(math.cos(x))
    elif choice == 2:
        for _ in range(turns):
            x = math.exp(-math.exp(-x))
    elif choice == 3:
        for _ in range(turns):
            x = math.log(math.log(x) + a) + a
    elif choice == 4:
        for _ in range(turns):
            x = math.sqrt(math.sqrt(x))
    elif choice == 5:
        for _ in range(turns):
            x = a / (a / x)
    return x


# --- The kernels. ---


@device
def _element(x, thread):
    """Where a thread's chain starts. Read from memory, lest the compiler see that all lanes hold
    the same value: of a shuffle of such values it leaves nothing."""
    return x[thread]


@device
def _own_word(x, thread):
    """The address of a shared word that holds this very address."""
    words = cuda.shared.array(MOST_THREADS, types.int32)
    address = x[thread] + (shared_address(words) & 0x7FFFFFFF) + 4 * thread
    words[thread] = address
    return address


def _timed(run: Callable, kind: str, first: Callable) -> Any:
    after = ptx.clock_after(kind)

    @jit
    def timed(choice, rounds, partitions, x, a, b, out, start, stop):
        """Run one loop twice, first a single round that fetches its instructions, and time it.

        Only warps on the sub-partitions of the mask `partitions` run; the others leave 0 as
        their clocks.
        """
        thread = cuda.threadIdx.x
        value = first(x, thread)
        begin = end = ptx.clock64() * 0
        turns = 1
        # A loop whose end the compiler cannot foretell, so that it does not copy the code.
        while turns <= rounds:
            cuda.syncthreads()
            if (partitions >> (ptx.warpid() & 3)) & 1:
                begin = ptx.clock64()
                value = run(choice, turns, value, a, b)
                end = after(value)
            turns *= rounds
        out[thread] = value
        if thread % 32 == 0:
            start[thread // 32] = begin
            stop[thread // 32] = end

    return timed


@dataclass(frozen=True)
class Program:
    """One compiled kernel and the loops in it."""

    function: Any
    choices: tuple[Streams, ...]

    @property
    def signature(self) -> str:
        kind = self.choices[0].op.kind.type
        values, clocks = f"{kind}[::1], {kind}, {kind}, {kind}[::1]", "int64[::1], int64[::1]"
        return f"void(int64, int64, int64, {values}, {clocks})"


def _program(ops: Mapping[str, Op], kind: str) -> Program:
    """All ops of one kind, and those of `SURFACE` once more for each ILP."""
    choices = [Streams(op) for op in ops.values() if op.kind.name == kind]
    choices += [
        Streams(ops[op], ilp)
        for op in SURFACE
        if op in ops
        for ilp in ILP[1:]
        if ops[op].kind.name == kind
    ]
    first = _own_word if ops is SHARED_OPS else _element
    return Program(_timed(loops.streams(tuple(choices)), kind, first), tuple(choices))


PROGRAMS = (
    _program(OPS, "f32"),
    _program(OPS, "f64"),
    _program(OPS, "s32"),
    _program(SHARED_OPS, "s32"),
    Program(_timed(_by_library, "f32", _element), tuple(map(Streams, LIBRARY_OPS.values()))),
)
CHOICES = {
    (streams.op.name, streams.ilp): (program, number)
    for program in PROGRAMS
    for number, streams in enumerate(program.choices)
}
"""(op, ilp) -> the program that has it, and its number there."""


@dataclass(frozen=True)
class Operands:
    """Values with which a chain of any length stays finite, and how near its end must come."""

    x: float
    a: float = 0
    b: float = 0
    tolerance: float = 1e-5


OPERANDS = {
    "fma.f32": Operands(1, 0.5, 1),
    "add.f32": Operands(1, 0.5),
    "mul.f32": Operands(1.5, -1),
    "fma.f64": Operands(1, 0.5, 1, 1e-12),
    "add.f64": Operands(1, 0.5, 0, 0),
    "mul.f64": Operands(1.5, -1, 0, 0),
    "mad.s32": Operands(3, -1, 7, 0),
    "add_xor.s32": Operands(3, 1, -1, 0),
    "shl.b32": Operands(3, 0, 0, 0),
    "popc.b32": Operands(255, 0, 0, 0),
    "rsqrt.f32": Operands(2),
    "rcp_add.f32": Operands(1, 1),
    "sqrt.f32": Operands(2),
    "ex2.f32": Operands(0),
    "lg2.f32": Operands(3),
    # sin has no fixed point but 0, which it nears so slowly that errors add up.
    "sin.f32": Operands(1, tolerance=0.05),
    "cos.f32": Operands(1),
    "cvt.f32.s32": Operands(3.7),
    "cvt.f32.f64": Operands(3.7),
    "shfl.b32": Operands(3, 1, 0, 0),
    "vote.b32": Operands(3, 0, 0, 0),
    "ld.shared.b32": Operands(0, 0, 0, 0),
    "atom.shared.add.u32": Operands(0, 0, 0, 0),
    "sinf": Operands(1, tolerance=0.05),
    "cosf": Operands(1),
    "expf": Operands(1),
    "logf_add": Operands(3, 2),
    "sqrtf": Operands(2),
    "divf": Operands(1.5, 3),
}
_ACROSS_LANES = {"shfl.b32": lambda x: x, "vote.b32": lambda x: -1}
"""What lanes that all hold x make of it, in any number of steps."""


@cache
def expected(streams: Streams, rounds: int) -> float:
    """Where `_timed` ends: after one round, and `rounds` more from what that one returned."""
    operands = OPERANDS[streams.op.name]
    if streams.op.name in _ACROSS_LANES:
        return float(_ACROSS_LANES[streams.op.name](operands.x))
    x = streams.twin(1, operands.x, operands.a, operands.b)
    return float(streams.twin(rounds, x, operands.a, operands.b))


def _difference(actual: np.ndarray, right: float) -> float:
    """Largest |actual - right| over max(1, |right|); 0 where both are the same infinity or NaN."""
    actual = actual.astype(np.float64)
    same = (actual == right) | (np.isnan(actual) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(actual - right) / max(1.0, abs(right)))
    return float(np.where(np.isnan(error), np.inf, error).max())


def _bind(op: str, ilp: int, warps: int, partitions: int, machine: Machine) -> tuple[Bound, Any]:
    """One block of `warps` warps, of which those on the first `partitions` sub-partitions run.

    Also returns a function that gives (cycles from first start to last stop, warps that ran).
    """
    if (op, ilp) not in CHOICES:
        raise ValueError(f"no loop of '{op}' with ilp {ilp}")
    if not 1 <= warps <= MOST_WARPS:
        raise ValueError(f"{warps} warps: 1 to {MOST_WARPS} fit in a block")
    program, number = CHOICES[op, ilp]
    streams, operands = program.choices[number], OPERANDS[op]
    rounds = 2 if machine.simulator else ROUNDS
    xp, kind = machine.xp, streams.op.kind.dtype
    x = xp.full(32 * warps, operands.x, kind)
    out = xp.empty(32 * warps, kind)
    start, stop = xp.zeros(warps, np.int64), xp.zeros(warps, np.int64)

    def ran() -> np.ndarray:
        return on_host(stop) > 0

    def check() -> float:
        right = expected(streams, rounds)
        lanes = on_host(out).reshape(warps, 32)
        if op in SHARED_OPS:  # the lane's own address: how far it is from the first lane's
            lanes = lanes - lanes[0, 0] - 4 * np.arange(32 * warps).reshape(warps, 32)
        if not ran().any():
            raise WrongAnswer(f"no warp was on sub-partitions 0 to {partitions - 1}")
        error = _difference(lanes[ran()], right)
        if not error <= operands.tolerance:
            raise WrongAnswer(f"a chain of {op} ends {error:.3g} from {right!r}")
        return error

    def poison() -> None:
        out.fill(-77)
        start.fill(0)
        stop.fill(0)

    def timing() -> tuple[int, int]:
        on = ran()
        return int(on_host(stop)[on].max() - on_host(start)[on].min()), int(on.sum())

    bound = Bound(
        Launch.linear(1, 32 * warps),
        Work(),
        check=check,
        poison=poison,
        function=program.function,
        arguments=(
            number,
            rounds,
            (1 << partitions) - 1,
            argument(x),
            kind(operands.a),
            kind(operands.b),
            argument(out),
            argument(start),
            argument(stop),
        ),
        cache_resident=True,
    )
    return bound, timing


def _bind_chain(params: Params, machine: Machine) -> Bound:
    bound, timing = _bind(params["op"], 1, 1, PARTITIONS, machine)
    steps = _steps(params["op"], 1, bound)
    bound.reading = lambda: {"latency_cycles": timing()[0] / steps}
    return bound


def _steps(op: str, ilp: int, bound: Bound) -> int:
    program, number = CHOICES[op, ilp]
    return bound.arguments[1] * program.choices[number].steps


def _throughput(bound: Bound, timing: Any, op: str, ilp: int) -> Bound:
    steps = _steps(op, ilp, bound)

    def reading() -> dict[str, Any]:
        cycles, warps = timing()
        return {"operations_per_clock_per_sm": 32 * warps * ilp * steps / cycles}

    bound.reading = reading
    return bound


def _bind_streams(params: Params, machine: Machine) -> Bound:
    op, ilp, warps = params["op"], params["ilp"], params["warps"]
    return _throughput(*_bind(op, ilp, warps, PARTITIONS, machine), op, ilp)


def _bind_partitions(params: Params, machine: Machine) -> Bound:
    op, ilp = params["op"], params["ilp"]
    warps = PARTITIONS if machine.simulator else MOST_WARPS
    return _throughput(*_bind(op, ilp, warps, params["partitions"], machine), op, ilp)


_COMPILED = tuple((program.function, program.signature) for program in PROGRAMS)

FAMILY = Family(
    "instruction",
    "latency and throughput of instructions, and how warps share a scheduler",
    (
        Kernel(
            "chain",
            "One warp, each instruction waiting for the one before: latency",
            _bind_chain,
            examples=tuple({"op": op} for op in OPERANDS),
            source=PROGRAMS[0].function,
            compiled=_COMPILED,
        ),
        Kernel(
            "streams",
            "Independent chains on many warps of one SM: throughput",
            _bind_streams,
            examples=tuple({"op": op, "ilp": 4, "warps": 2} for op in SURFACE),
            source=PROGRAMS[0].function,
        ),
        Kernel(
            "partitions",
            "Independent chains on the warps of some sub-partitions only: four schedulers an SM",
            _bind_partitions,
            examples=({"op": "fma.f32", "ilp": 4, "partitions": 2},),
            source=PROGRAMS[0].function,
        ),
        SWITCH,
        LOAD_USE,
    ),
)
