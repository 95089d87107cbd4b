"""What a kernel declares: its work, its launch, its reference and its examples.

A family is a module of this package with a `FAMILY`; it is discovered, nothing lists it. A kernel
knows nothing of time, files or plots: it binds itself to data and hands over what to queue.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Params = Mapping[str, Any]
Queue = Callable[[Any], None]
"""Queues work on the stream that it is given, without waiting."""


@dataclass(frozen=True)
class Work:
    """The least that must be done: bytes read and written, each once, and operations."""

    bytes_read: int = 0
    bytes_written: int = 0
    operations: int = 0


@dataclass(frozen=True)
class Launch:
    """Grid in blocks and block in threads (x, y, z); dynamic shared memory in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem: int = 0
    cluster: int | None = None

    @staticmethod
    def linear(grid: int, block: int, dynamic_smem: int = 0) -> Launch:
        return Launch((grid, 1, 1), (block, 1, 1), dynamic_smem)


def whole_warps(block: int) -> int:
    """`block`, threads. ValueError: it is not of whole warps, 32 to 1024 threads."""
    if block % 32 or not 32 <= block <= 1024:
        raise ValueError(f"{block} threads a block: whole warps are needed, 32 to 1024 threads")
    return block


class WrongAnswer(Exception):
    """A kernel's output differs from its float64 reference by more than the tolerance."""


class Unavailable(Exception):
    """This device or machine cannot run the kernel; the message is the reason for a skip."""


@dataclass
class Machine:
    """The device as a kernel may know it when it binds: scale, array module, random numbers.

    `data` memoises inputs by (name, n, dtype), so that kernels measured side by side share them;
    whoever binds calls `release` when a group of cases is done.
    """

    cc: tuple[int, int]
    sms: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    l2_bytes: int
    memory_bytes: int
    xp: Any
    """cupy on a GPU, numpy in the simulator."""
    simulator: bool = False
    seed: int = 20_260
    data: dict[Any, Any] = field(default_factory=dict)

    def uniform(self, name: str, n: int, dtype: str) -> Any:
        """Random values in [0, 1) of shape (n,), the same for the same name, n and dtype."""
        key = (name, n, dtype)
        if key not in self.data:
            # Not hash(): Python salts it, and each process would draw other inputs.
            generator = self.xp.random.default_rng([self.seed, *name.encode()])
            self.data[key] = generator.random(n, dtype=dtype)
        return self.data[key]

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """`make()` at the first call with this key, the same object afterwards."""
        if key not in self.data:
            self.data[key] = make()
        return self.data[key]

    def release(self) -> None:
        self.data.clear()


@dataclass
class Bound:
    """A kernel with its data on the device, ready to be queued any number of times.

    A numba kernel gives `function` and `arguments`, and is queued as one launch; what takes
    several launches, and every peer, gives `queue`.
    """

    launch: Launch | None
    """None for a peer, whose launch is its own affair."""
    work: Work
    check: Callable[[], float]
    """After a queue and a synchronisation: the largest error relative to the float64 reference.
    Raises WrongAnswer over the tolerance."""
    function: Any = None
    """The numba dispatcher, from which registers and machine code are read; None for peers."""
    arguments: tuple[Any, ...] = ()
    """What the kernel takes: numba-ready arrays (compat.argument) and scalars."""
    queue: Queue = None  # type: ignore[assignment]
    """Queue everything up to the final result on the given stream, without waiting."""
    poison: Callable[[], None] = lambda: None
    """Overwrite the outputs (or restore in-place inputs), so that a write left out shows."""
    reading: Callable[[], dict[str, float | list[float]]] | None = None
    """What the kernel measured in itself in the latest launch, by names of the metrics. Called
    once after every launch, counted or not, so that it may make counters ready for the next."""
    cache_resident: bool = False
    """True where the data stays in cache by design, so that no DRAM peak applies."""

    def __post_init__(self) -> None:
        if self.queue is None:
            self.queue = self._launch_once

    def _launch_once(self, stream: Any) -> None:
        launch = self.launch
        if launch is None:
            raise ValueError("a bound kernel without a launch must give queue")
        self.function[launch.grid, launch.block, stream, launch.dynamic_smem](*self.arguments)

    def overload(self) -> Any:
        """The compiled kernel for these arguments (GPU only)."""
        from numba import typeof

        return self.function.compile(tuple(typeof(value) for value in self.arguments))


@dataclass(frozen=True)
class Kernel:
    """One kernel of a family."""

    name: str
    summary: str
    """One line for the table and the report."""
    bind: Callable[[Params, Machine], Bound]
    """Raises Unavailable with the reason where the machine cannot run it."""
    examples: tuple[Params, ...]
    """Small parameters for the simulator, the checkers and `python -m bench check`: at most
    3 blocks of 128 threads except where an edge needs more."""
    source: Any = None
    """The kernel's Python function, for its file and line."""
    compiled: tuple[tuple[Any, str], ...] = ()
    """(function, numba signature) pairs that the PTX tier compiles for every architecture."""
    peer: bool = False
    simulator: str | None = None
    """Why the simulator cannot show it; None where it can."""
    may_hang: bool = False
    """True where it may never end on a GPU: it is then run once, untimed, in a process of its
    own that is ended at a time limit, and what it reads is what there is to record."""

    @property
    def location(self) -> str | None:
        """`kernels/axpy.py:41`, relative to the checkout."""
        function = getattr(self.source, "py_func", self.source)
        if function is None:
            return None
        module = inspect.getmodule(function)
        line = inspect.getsourcelines(function)[1]
        return f"{(module.__name__ if module else '?').replace('.', '/')}.py:{line}"


@dataclass(frozen=True)
class Family:
    """The kernels of one file."""

    name: str
    summary: str
    kernels: tuple[Kernel, ...]

    def __getitem__(self, name: str) -> Kernel:
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(f"family {self.name} has no kernel {name}")


@cache
def families() -> dict[str, Family]:
    """Every family of this package, by name."""
    found = {}
    for module in pkgutil.iter_modules(importlib.import_module("kernels").__path__):
        family = getattr(importlib.import_module(f"kernels.{module.name}"), "FAMILY", None)
        if family is not None:
            found[family.name] = family
    return found


CHUNK = 1 << 25
"""Elements compared at a time, so that float64 copies of large arrays fit beside them."""


def relative_error(
    actual: Any, expected: Callable[[slice], Any], tolerance: float, xp: Any
) -> float:
    """Largest |actual - expected| over the largest |expected|, for arrays of shape (n,).

    `expected(part)` gives the float64 reference of one slice.

    Raises:
        WrongAnswer: over the tolerance, or not a number.
    """
    worst, scale, where = 0.0, 0.0, 0
    for start in range(0, len(actual), CHUNK):
        part = slice(start, min(start + CHUNK, len(actual)))
        reference = expected(part)
        difference = xp.abs(actual[part].astype(xp.float64) - reference)
        difference = xp.where(xp.isnan(difference), xp.inf, difference)
        position = int(xp.argmax(difference))
        if float(difference[position]) >= worst:
            worst, where = float(difference[position]), start + position
        scale = max(scale, float(xp.abs(reference).max()))
    error = worst / scale if scale else worst
    if not error <= tolerance:
        raise WrongAnswer(
            f"element {where}: is {float(actual[where])!r}, should be "
            f"{float(expected(slice(where, where + 1))[0])!r}; relative error {error:.3g} "
            f"over the tolerance {tolerance:.3g}"
        )
    return error if math.isfinite(error) else math.inf


def scalar_error(actual: float, expected: float, tolerance: float, scale: float = 0.0) -> float:
    """|actual - expected| over max(|expected|, scale).

    Raises:
        WrongAnswer: over the tolerance, or not a number.
    """
    difference = abs(actual - expected)
    reference = max(abs(expected), scale)
    error = difference / reference if reference else difference
    if not error <= tolerance:
        raise WrongAnswer(
            f"is {actual!r}, should be {expected!r}; relative error {error:.3g} over the "
            f"tolerance {tolerance:.3g}"
        )
    return error
