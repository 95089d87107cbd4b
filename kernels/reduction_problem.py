"""A reduction to be done: its input, its exact answer, and the error that rounding allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.reduction_warp import OPS, PTX_KIND, identity
from kernels.spec import CHUNK, Machine, Params, Unavailable, scalar_error

FSUM_LIMIT = 1 << 16
"""Up to this n the reference is `math.fsum`, which rounds once; above, a float64 sum."""
LARGEST_INTEGER = 1000
MEMORY_SHARE = 0.8
"""An input over this share of the device's memory leaves too little for the rest."""


@dataclass(frozen=True)
class Problem:
    """`data` of shape (n,) and the place `result` of shape (1,) for its reduction."""

    data: Any
    dtype: str
    op: str
    result: Any

    @property
    def n(self) -> int:
        return int(self.data.size)

    @property
    def itemsize(self) -> int:
        return PTX_KIND[self.dtype].bytes


def of(data: Any, op: str, machine: Machine) -> Problem:
    """The problem of reducing a device array.

    Raises:
        ValueError: what cannot be reduced, and what to do about it.
    """
    dtype = str(getattr(data, "dtype", type(data).__name__))
    if dtype not in PTX_KIND:
        raise ValueError(f"cannot reduce {dtype}: convert to {', '.join(PTX_KIND)} first")
    if op not in OPS:
        raise ValueError(f"no reduction '{op}': there are {', '.join(OPS)}")
    if not data.flags.c_contiguous:
        raise ValueError(
            f"the array of shape {data.shape} is not contiguous: pass a copy made by "
            "ascontiguousarray"
        )
    return Problem(data.reshape(-1), dtype, op, machine.xp.empty(1, dtype))


def from_params(params: Params, machine: Machine) -> Problem:
    """Random input for `n`, `dtype` and `op` ("sum" where absent): uniform in [0, 1) for floats,
    integers within 1000 of zero. Shared by kernels that are measured side by side.

    Raises:
        Unavailable: the device's memory does not hold it.
    """
    n, dtype, op = params["n"], params["dtype"], params.get("op", "sum")
    size = n * PTX_KIND[dtype].bytes
    if size > MEMORY_SHARE * machine.memory_bytes:
        raise Unavailable(
            f"n = {n} {dtype} are {size / 1e9:.1f} GB, this device has "
            f"{machine.memory_bytes / 1e9:.1f} GB"
        )
    data = machine.once(("reduction", n, dtype), lambda: _random(n, dtype, machine))
    return Problem(data, dtype, op, machine.xp.empty(1, dtype))


def _random(n: int, dtype: str, machine: Machine) -> Any:
    xp = machine.xp
    generator = xp.random.default_rng([machine.seed, *b"reduction"])
    data = xp.empty(n, dtype)
    # In parts, so that no second array of this size is needed beside it.
    for start in range(0, n, CHUNK):
        part = data[start : start + CHUNK]
        if dtype == "int32":
            values = generator.random(part.size, dtype="float32") * (2 * LARGEST_INTEGER + 1)
            part[:] = (values - LARGEST_INTEGER).astype(dtype)
        else:
            part[:] = generator.random(part.size, dtype=dtype)
    return data


def check(problem: Problem, depth: int, machine: Machine) -> float:
    """Relative error of `problem.result` against the reference.

    Raises:
        WrongAnswer: not exact for integers or a maximum; over `tolerance(depth)` for a float sum.
    """
    key = ("reduction reference", problem.n, problem.dtype, problem.op)
    expected = machine.once(key, lambda: reference(problem, machine.xp))
    actual = problem.result[0].item()
    if actual == expected:
        return 0.0
    exact = problem.op == "max" or problem.dtype == "int32"
    allowed = 0.0 if exact else tolerance(depth, problem.dtype)
    return scalar_error(actual, expected, allowed)


def reference(problem: Problem, xp: Any) -> Any:
    """The reduction by other means: exact for integers and maxima, correctly rounded for floats
    up to FSUM_LIMIT elements, in float64 above."""
    data, n = problem.data, problem.n
    if n == 0:
        return identity(problem.dtype, problem.op).item()
    if problem.op == "max":
        return data.max().item()
    wide = np.int64 if problem.dtype == "int32" else np.float64
    if wide is np.float64 and n <= FSUM_LIMIT:
        return math.fsum(data.tolist())
    parts = [data[at : at + CHUNK].sum(dtype=wide).item() for at in range(0, n, CHUNK)]
    if wide is np.float64:
        return math.fsum(parts)
    # What int32 holds of it: the sum modulo 2^32.
    return (sum(parts) + 2**31) % 2**32 - 2**31


def tolerance(depth: int, dtype: str) -> float:
    """Bound of the relative error of a sum of values of one sign.

    gamma_d = d u / (1 - d u), with d the additions on the longest way from an element to the
    result and u the unit roundoff (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
    section 4.2). Twice that for float64, because its reference is a float64 sum as well. Where
    d u nears 1 that bound says nothing, and the probabilistic one holds: 6 sqrt(d) u (Higham and
    Mary, SIAM J. Sci. Comput. 41, 2019, theorem 2.4).
    """
    roundoff = float(np.finfo(dtype).eps) / 2
    if depth * roundoff > 0.1:
        return 6 * math.sqrt(depth) * roundoff
    gamma = depth * roundoff / (1 - depth * roundoff)
    return 2 * gamma if dtype == "float64" else gamma


def depth(passes: Sequence[tuple[int, int]], block: int) -> int:
    """Additions on the longest way: `passes` are (elements, blocks) of each pass.

    A thread adds its share of the elements (one after the other at worst), then the block folds
    its threads in halves.
    """
    folds = math.ceil(math.log2(block))
    return sum(math.ceil(n / (blocks * block)) + folds for n, blocks in passes)
