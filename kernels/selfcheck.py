"""What every process measures first: an empty kernel, and a dependent FMA chain (4 cycles)."""

from __future__ import annotations

from typing import Any

from numba import cuda

from kernels import ptx
from kernels.compat import argument, jit
from kernels.instructions import chain, chain_reference
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Work, scalar_error

STEPS, TURNS = 256, 8
_fma = chain("fma.f32", STEPS)


@jit
def empty():
    """Nothing: what is left is the cost of a launch on the device."""


@jit
def fma_chain(x, a, b, cycles):
    """TURNS x STEPS dependent FMAs between two reads of the SM's clock."""
    v = x[0]
    for _ in range(2):  # the first turn fetches the instructions
        start = ptx.clock64()
        for _ in range(TURNS):
            v = _fma(v, a, b)
        stop = ptx.clock64()
    if cuda.threadIdx.x == 0:
        cycles[0] = stop - start
    x[cuda.threadIdx.x] = v


def _bind_empty(params: Params, machine: Machine) -> Bound:
    return Bound(Launch.linear(1, 32), Work(), check=lambda: 0.0, function=empty)


def _bind_chain(params: Params, machine: Machine) -> Bound:
    x = machine.xp.empty(32, machine.xp.float32)
    cycles = machine.xp.zeros(1, machine.xp.int64)
    one = x.dtype.type

    def check() -> float:
        expected = chain_reference("fma.f32", 2 * TURNS * STEPS, 0.5, 0.5, 0.25)
        return scalar_error(float(x[31]), float(expected), 1e-6)

    def poison() -> None:
        x[:] = 0.5

    def reading() -> dict[str, Any]:
        poison()
        return {"latency_cycles": float(cycles[0]) / (TURNS * STEPS)}

    return Bound(
        Launch.linear(1, 32),
        Work(operations=32 * 2 * 2 * TURNS * STEPS),
        check=check,
        poison=poison,
        function=fma_chain,
        arguments=(argument(x), one(0.5), one(0.25), argument(cycles)),
        reading=reading,
    )


FAMILY = Family(
    "selfcheck",
    "what must come out right before anything else is believed",
    (
        Kernel(
            "empty",
            "No work at all",
            _bind_empty,
            examples=({},),
            source=empty,
            compiled=((empty, "void()"),),
        ),
        Kernel(
            "fma_chain",
            "Dependent float32 FMAs: 4 cycles each on every chip since Volta",
            _bind_chain,
            examples=({},),
            source=fma_chain,
            compiled=((fma_chain, "void(float32[::1], float32, float32, int64[::1])"),),
        ),
    ),
)
