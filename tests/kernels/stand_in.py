"""A GPU that is none: launches are written down, and the driver's limits hold.

What the host does for a kernel on a GPU and nowhere else runs here on any machine: binding, the
attributes that it sets, the arguments and the shape of each launch. No kernel runs, so that the
arrays keep what the host has put there. Registers and static shared memory are the assembler's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import prod
from typing import Any

from analysis.occupancy import resident
from bench.machine import from_snapshot
from kernels.compile import Compiled, compile_kernel
from kernels.cubin import sections
from kernels.spec import Machine
from results import schema, store
from tests.kernels.stand_in_arrays import ArrayModule

BASELINE = store.BASELINES / "nvidia-h200"
MEMORY_BYTES = 64 << 20
"""Arrays that are a share of the device's memory stay small here."""
ROOM = {"loaded_latency": 16 << 30}
"""Memory, B, where a family refuses a smaller device."""
EASY_SMEM = 16 << 10
"""Dynamic shared memory, B, that is taken without a compilation: every kernel here leaves so much
of the 48 KiB that need no leave. The thorough tier compiles all the same, and sees to it."""


def recorded_device() -> dict[str, Any]:
    """The snapshot of the H200 that the baseline was measured on."""
    path = BASELINE / "0-axpy.jsonl"
    with path.open("rb") as lines:
        header = schema.decode(next(lines))
    assert isinstance(header, schema.Run)
    return header.device


class Refused(RuntimeError):
    """The driver would not take this launch; the message begins with its own name for why."""


@dataclass
class Loaded:
    """A kernel that is loaded; it is its own handle."""

    gpu: Gpu
    static_smem: Callable[[], int]
    """Static shared memory a block, B: asked for where it matters, for it takes a compilation."""
    allowed: int | None = None
    """Dynamic shared memory that it was allowed, B."""

    @property
    def handle(self) -> Loaded:
        return self

    def set(self, attribute: Any, value: int) -> bool:
        """Whether the driver takes it."""
        if attribute.name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES":
            if not 0 <= value <= self.gpu.device["shared_memory_per_block_optin"] - self.static:
                return False
            self.allowed = value
        if attribute.name == "CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT":
            return -1 <= value <= 100
        return True

    @cached_property
    def static(self) -> int:
        return self.static_smem()

    def refuse(self, dynamic_smem: int, easy: int = EASY_SMEM) -> None:
        """Raises Refused where a block of it may not have so much; up to `easy`, none is asked."""
        if dynamic_smem <= easy:
            return
        most = self.allowed
        if most is None:
            most = self.gpu.device["shared_memory_per_block"] - self.static
        if dynamic_smem > most:
            raise Refused(
                f"CUDA_ERROR_INVALID_VALUE: {dynamic_smem} bytes of dynamic shared memory beside "
                f"{self.static} of its own; this kernel may have {most}"
                + ("" if self.allowed else ", for it was allowed no more")
            )


@cache
def _compiled(function: Any, types: tuple[Any, ...], cc: tuple[int, int]) -> Compiled:
    return compile_kernel(function, types, cc)


class Overload:
    """A numba kernel for some argument types: what the driver would say is the assembler's."""

    def __init__(self, gpu: Gpu, function: Any, types: tuple[Any, ...]) -> None:
        self.gpu, self.function, self.types = gpu, function, types
        self.loaded = Loaded(gpu, lambda: self.shared_mem_per_block)

    @cached_property
    def compiled(self) -> Compiled:
        return _compiled(self.function, self.types, self.gpu.machine.cc)

    @property
    def cooperative(self) -> bool:
        """Whether it holds a barrier over the grid, as far as it has been compiled."""
        return "compiled" in vars(self) and "cudaCGGetIntrinsicHandle" in self.compiled.ptx

    @property
    def regs_per_thread(self) -> int:
        return self.compiled.registers

    @property
    def shared_mem_per_block(self) -> int:
        (name,) = re.findall(r"\.entry (\w+)\(", self.compiled.ptx)
        return self.gpu.static_smem(self.compiled.cubin, name)

    @property
    def local_mem_per_thread(self) -> int:
        return self.compiled.local_bytes

    def max_cooperative_grid_blocks(self, block: int, dynamic_smem: int = 0) -> int:
        return self.gpu.machine.sms * self.gpu.active_blocks(self, block, dynamic_smem)


@dataclass(frozen=True)
class Launched:
    """One launch that was queued."""

    function: Any
    """numba's dispatcher; None for a kernel in CUDA C."""
    grid: tuple[int, ...]
    block: tuple[int, ...]
    dynamic_smem: int
    arguments: tuple[Any, ...]

    @property
    def types(self) -> tuple[Any, ...]:
        """The arguments as numba types them."""
        from numba import typeof

        return tuple(map(typeof, self.arguments))


@dataclass
class Gpu:
    """The H200 of the baseline, which takes launches and runs none."""

    device: dict[str, Any] = field(default_factory=recorded_device)
    launches: list[Launched] = field(default_factory=list)
    overloads: dict[Any, Overload] = field(default_factory=dict)

    @cached_property
    def machine(self) -> Machine:
        known = from_snapshot(self.device)
        return replace(known, xp=ArrayModule(), memory_bytes=MEMORY_BYTES)

    def machine_for(self, family: str) -> Machine:
        """This device, with the memory that the family needs, and without data of an earlier."""
        return replace(self.machine, memory_bytes=ROOM.get(family, MEMORY_BYTES), data={})

    def overload(self, function: Any, types: tuple[Any, ...]) -> Overload:
        key = function, types
        if key not in self.overloads:
            self.overloads[key] = Overload(self, function, types)
        return self.overloads[key]

    def active_blocks(self, overload: Overload, block: int, dynamic_smem: int) -> int:
        """As the project's own calculator has it, which agrees with the driver's."""
        if (
            overload.shared_mem_per_block + dynamic_smem
            > self.device["shared_memory_per_block_optin"]
        ):
            return 0
        registers, static = overload.regs_per_thread, overload.shared_mem_per_block
        return resident(self.device["cc"], block, registers, static, dynamic_smem)[0]

    def static_smem(self, cubin: bytes, name: str) -> int:
        """Shared memory, B, of one kernel's own arrays: what the system reserves is left out."""
        sizes = {section: size for section, size, _ in sections(cubin)}
        assert f".text.{name}" in sizes, f"no kernel {name} in this code"
        reserved = self.device["reserved_shared_memory_per_block"]
        return max(0, sizes.get(f".nv.shared.{name}", 0) - reserved)

    def launch(self, launched: Launched, loaded: Loaded) -> None:
        """Note a launch down.

        Raises:
            Refused: The driver would not take it.
        """
        limits = self.device["attributes"]
        for name, shape in (("grid", launched.grid), ("block", launched.block)):
            for axis, extent in zip("xyz", shape, strict=True):
                most = limits[f"max_{name}_dim_{axis}"]
                if not 1 <= extent <= most:
                    raise Refused(f"CUDA_ERROR_INVALID_VALUE: {extent} in {name}.{axis} of {most}")
        if prod(launched.block) > self.device["max_threads_per_block"]:
            raise Refused(f"CUDA_ERROR_INVALID_VALUE: a block of {prod(launched.block)} threads")
        loaded.refuse(launched.dynamic_smem)
        self.launches.append(launched)
