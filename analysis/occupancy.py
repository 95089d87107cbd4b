"""Blocks resident on one SM by NVIDIA's allocation rules, why not more, and what would raise it.

The rules are those of cuda_occupancy.h (CUDA 13.0) for a kernel that may opt in to all the shared
memory a block can have, partitioned global caching off (what the runtime assumes). The limits come
from `analysis.occupancy_limits`; nothing here asks a driver, so the two can check each other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from analysis.occupancy_limits import (
    KB,
    MAX_BARRIERS_PER_BLOCK,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    REGISTER_UNIT,
    STATIC_LIMIT,
    WARP,
    SMLimits,
    limits_of,
)
from results.errors import UserError

UNLIMITED = 2**31 - 1  # blocks: the resource is not used


@dataclass(frozen=True)
class Occupancy:
    """The answer for one launch. Sizes in bytes, `occupancy` a share of the SM's warps (0 to 1).

    `limiters` names every resource that holds `blocks` down ('warps', 'blocks', 'registers',
    'shared_memory', 'barriers'); `limits` says how many blocks each allows, None where it sets no
    limit. `reason` is a text when nothing can run, else None. `advice` lists single steps that
    raise the resident warps, cheapest first; `working` shows the arithmetic line by line.
    """

    cc: str
    threads: int
    regs: int
    static_smem: int
    dynamic_smem: int
    carveout: int | None
    barriers: int
    blocks: int
    warps: int
    resident_threads: int
    occupancy: float
    limiters: tuple[str, ...]
    limits: dict[str, int | None]
    reason: str | None
    advice: tuple[str, ...]
    working: tuple[str, ...]


@dataclass(frozen=True)
class _Launch:
    """One checked launch; `shared` is static plus dynamic, which the rules never tell apart."""

    sm: SMLimits
    threads: int
    regs: int
    shared: int
    carveout: int | None
    barriers: int

    @property
    def warps(self) -> int:
        return -(-self.threads // WARP)

    def limits(self) -> dict[str, int]:
        return _limits(self.sm, self.warps, self.regs, self.shared, self.carveout, self.barriers)


def occupancy(
    cc: str,
    threads: int,
    regs: int,
    static_smem: int = 0,
    dynamic_smem: int = 0,
    carveout: int | None = None,
    barriers: int = 1,
) -> Occupancy:
    """Return how many blocks of a kernel are resident on one SM of compute capability `cc`.

    `threads` a block, `regs` a thread as the compiler reports them, `static_smem` and
    `dynamic_smem` bytes a block, `carveout` the preferred share of shared memory in percent (None
    or -1: the default, all of it), `barriers` the named barriers of a block.
    An impossible launch is 0 blocks with a reason. Raises UserError for values that no kernel can
    have: an unknown `cc`, threads outside 1..1024, registers outside 0..255, negative sizes.
    Source of the rules: cuda_occupancy.h, CUDA 13.0.
    """
    launch = _checked(cc, threads, regs, static_smem, dynamic_smem, carveout, barriers)
    sm, limits = launch.sm, launch.limits()
    blocks = min(limits.values())
    warps = blocks * launch.warps
    return Occupancy(
        cc=sm.cc,
        threads=launch.threads,
        regs=launch.regs,
        static_smem=operator.index(static_smem),
        dynamic_smem=operator.index(dynamic_smem),
        carveout=launch.carveout,
        barriers=launch.barriers,
        blocks=blocks,
        warps=warps,
        resident_threads=blocks * launch.threads,
        occupancy=warps / sm.warps,
        limiters=_limiters(limits),
        limits={name: None if n == UNLIMITED else n for name, n in limits.items()},
        reason=_reason(launch, limits),
        advice=_advice(launch, limits),
        working=_working(launch, limits, operator.index(static_smem)),
    )


def resident(
    cc: str,
    threads: int,
    regs: int,
    static_smem: int = 0,
    dynamic_smem: int = 0,
    carveout: int | None = None,
    barriers: int = 1,
) -> tuple[int, tuple[str, ...]]:
    """Return the blocks and limiters of `occupancy` alone, without advice: for batches and curves.

    Raises UserError as `occupancy` does.
    """
    launch = _checked(cc, threads, regs, static_smem, dynamic_smem, carveout, barriers)
    limits = launch.limits()
    return min(limits.values()), _limiters(limits)


def _checked(
    cc: str,
    threads: int,
    regs: int,
    static_smem: int,
    dynamic_smem: int,
    carveout: int | None,
    barriers: int,
) -> _Launch:
    sm = limits_of(cc)
    values = (
        ("threads", threads, 1, MAX_THREADS_PER_BLOCK, "a block"),
        ("registers", regs, 0, MAX_REGISTERS_PER_THREAD, "a thread"),
        ("static shared memory", static_smem, 0, UNLIMITED, "bytes a block"),
        ("dynamic shared memory", dynamic_smem, 0, UNLIMITED, "bytes a block"),
        ("carve-out", -1 if carveout is None else carveout, -1, 100, "percent (-1: default)"),
        ("barriers", barriers, 0, MAX_BARRIERS_PER_BLOCK, "a block"),
    )
    numbers = []
    for name, value, low, high, unit in values:
        try:
            number = operator.index(value)  # NumPy's integers become Python's
        except TypeError:
            raise UserError(f"{name} is {value!r}: give a whole number") from None
        if not low <= number <= high:
            raise UserError(f"{name} is {number}: give {low} to {high} {unit}")
        numbers.append(number)
    threads, regs, static_smem, dynamic_smem, share, barriers = numbers
    shared = static_smem + dynamic_smem
    return _Launch(sm, threads, regs, shared, None if share == -1 else share, barriers)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _limits(
    sm: SMLimits, warps: int, regs: int, shared: int, carveout: int | None, barriers: int
) -> dict[str, int]:
    limits = {
        "warps": sm.warps // warps,
        "blocks": sm.blocks,
        "registers": _by_registers(sm, warps, regs),
        "shared_memory": _by_shared_memory(sm, shared, carveout),
    }
    # One barrier a block never holds less than the block limit, so it would only repeat 'blocks'.
    if sm.barriers and barriers > 1:
        limits["barriers"] = sm.barriers // barriers
    return limits


def _by_registers(sm: SMLimits, warps: int, regs: int) -> int:
    per_warp = _round_up(regs * WARP, REGISTER_UNIT)
    if not per_warp:
        return UNLIMITED
    # The launch check behaves as if every sub-partition took as many warps as the fullest one.
    if per_warp * _round_up(warps, sm.check_warps) > sm.registers_per_block:
        return 0
    # A warp's registers lie in one sub-partition: what is left over in each is lost.
    per_partition = sm.registers // sm.sub_partitions // per_warp
    return per_partition * sm.sub_partitions // warps


def _by_shared_memory(sm: SMLimits, shared: int, carveout: int | None) -> int:
    if shared > sm.shared_per_block:
        return 0
    allocated = _round_up(shared + sm.shared_reserved, sm.shared_unit)
    return _capacity(sm, allocated, carveout) // allocated if allocated else UNLIMITED


def _capacity(sm: SMLimits, allocated: int, carveout: int | None) -> int:
    """Bytes of shared memory on the SM once the preference is rounded up to a size it has."""
    if carveout is None or not sm.carveouts:
        return sm.shared_per_sm
    # A preference too small for one block gives way to the block.
    wanted = max(carveout * sm.shared_per_sm // 100, allocated)
    return next(size for size in sm.carveouts if size >= wanted)


def _limiters(limits: dict[str, int]) -> tuple[str, ...]:
    lowest = min(limits.values())
    return tuple([name for name, n in limits.items() if n == lowest])


def _reason(launch: _Launch, limits: dict[str, int]) -> str | None:
    sm, reasons = launch.sm, []
    if limits["registers"] == 0:
        warps = _round_up(launch.warps, sm.check_warps)
        per_warp = _round_up(launch.regs * WARP, REGISTER_UNIT)
        reasons.append(
            f"too many registers for one block: {warps} warps x {per_warp} = {warps * per_warp}, "
            f"the limit is {sm.registers_per_block}"
        )
    if limits["shared_memory"] == 0:
        reasons.append(
            f"too much shared memory for one block: {launch.shared} bytes, "
            f"the opt-in limit is {sm.shared_per_block}"
        )
    return "; ".join(reasons) or None


def _largest(high: int, fits: Callable[[int], bool]) -> int | None:
    """Largest value in 0..high that fits, for a condition that only large values break."""
    if not fits(0):
        return None
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _advice(launch: _Launch, limits: dict[str, int]) -> tuple[str, ...]:
    """Steps that raise the resident warps, sorted by the share of the resource they change."""
    if min(limits.values()) * launch.warps == launch.sm.warps:
        return ()
    steps = [_leaner_block(launch, limits), _larger_carveout(launch, limits), _other_block(launch)]
    return tuple(text for _, text in sorted(step for step in steps if step))


def _leaner_block(launch: _Launch, limits: dict[str, int]) -> tuple[float, str] | None:
    """More blocks of the same size: the fewest registers and bytes that must go for it."""
    sm, blocks = launch.sm, min(limits.values())
    goal = blocks + 1
    if min(limits["warps"], limits["blocks"]) < goal:
        return None
    regs, shared = (
        _largest(launch.regs, lambda r: _by_registers(sm, launch.warps, r) >= goal),
        _largest(launch.shared, lambda s: _by_shared_memory(sm, s, launch.carveout) >= goal),
    )
    if regs is None or shared is None:
        return None
    barriers = min(launch.barriers, sm.barriers // goal) if sm.barriers else launch.barriers
    changes = (
        (launch.regs, regs, "register", "fewer"),
        (launch.shared, shared, "byte", "less shared memory"),
        (launch.barriers, barriers, "barrier", "fewer"),
    )
    cost = sum((before - after) / before for before, after, _, _ in changes if before > after)
    parts = [f"{_count(b - a, noun)} {what}" for b, a, noun, what in changes if b > a]
    # Allocation is coarse: the step that is enough for one block more may give several.
    reached = min(_limits(sm, launch.warps, regs, shared, launch.carveout, barriers).values())
    return cost, f"{' and '.join(parts)}: {blocks} → {reached} blocks"


def _larger_carveout(launch: _Launch, limits: dict[str, int]) -> tuple[float, str] | None:
    sm, blocks = launch.sm, min(limits.values())
    others = min(n for name, n in limits.items() if name != "shared_memory")
    if launch.carveout is None or others <= blocks:
        return None
    for percent in range(launch.carveout + 1, 101):
        more = min(_by_shared_memory(sm, launch.shared, percent), others)
        if more > blocks:
            change = (percent - launch.carveout) / 100
            text = f"carve-out {launch.carveout}% → {percent}%: {blocks} → {more} blocks"
            return change, text
    return None


def _other_block(launch: _Launch) -> tuple[float, str] | None:
    """The nearest block size, in whole warps, at which the same kernel keeps more warps resident.

    Registers a thread and shared memory a block stay as they are.
    """

    def blocks_at(warps: int) -> int:
        return min(
            _limits(
                launch.sm, warps, launch.regs, launch.shared, launch.carveout, launch.barriers
            ).values()
        )

    blocks = blocks_at(launch.warps)
    resident_warps = blocks * launch.warps
    better = [
        (abs(w * WARP - launch.threads), w)
        for w in range(1, MAX_THREADS_PER_BLOCK // WARP + 1)
        if blocks_at(w) * w > resident_warps
    ]
    if not better:
        return None
    change, warps = min(better)
    more = blocks_at(warps)
    return change / launch.threads, (
        f"block of {warps * WARP} threads instead of {launch.threads}: "
        f"{blocks} → {more} blocks, {resident_warps} → {more * warps} warps"
    )


def _working(launch: _Launch, limits: dict[str, int], static: int) -> tuple[str, ...]:
    sm, warps = launch.sm, launch.warps
    blocks = min(limits.values())
    lines = [
        f"block: {launch.threads} threads / {WARP}, rounded up = {_count(warps, 'warp')}",
        f"warps: {sm.warps} ({sm.warps * WARP} threads) / {warps}"
        f" = {_count(limits['warps'], 'block')} of {_count(warps, 'warp')}",
        f"blocks: an SM of cc {sm.cc} holds {sm.blocks}",
        *_register_lines(launch, limits["registers"]),
        *_shared_lines(launch, limits["shared_memory"], static),
    ]
    if "barriers" in limits:
        lines.append(
            f"barriers: {sm.barriers} / {launch.barriers} = {_count(limits['barriers'], 'block')}"
        )
    share = blocks * warps / sm.warps
    lines.append(
        f"least: {_count(blocks, 'block')} x {_count(warps, 'warp')}"
        f" = {blocks * warps} of {sm.warps} warps = {share:.1%}"
    )
    return tuple(lines)


def _register_lines(launch: _Launch, blocks: int) -> list[str]:
    sm, warps = launch.sm, launch.warps
    per_warp = _round_up(launch.regs * WARP, REGISTER_UNIT)
    if not per_warp:
        return ["registers: none used, no limit"]
    counted = _round_up(warps, sm.check_warps)
    verdict = "fits" if blocks else "does not fit"
    lines = [
        f"registers: {launch.regs} x {WARP} = {launch.regs * WARP},"
        f" in units of {REGISTER_UNIT} = {per_warp} a warp",
        f"launch check: {per_warp} x {counted} warps (a multiple of {sm.check_warps})"
        f" = {per_warp * counted} of {sm.registers_per_block}: {verdict}",
    ]
    if blocks:
        part = sm.registers // sm.sub_partitions
        lines.append(
            f"registers: {part} / {per_warp} = {_count(part // per_warp, 'warp')} a sub-partition,"
            f" x {sm.sub_partitions} / {warps} = {_count(blocks, 'block')}"
        )
    return lines


def _shared_lines(launch: _Launch, blocks: int, static: int) -> list[str]:
    sm = launch.sm
    allocated = _round_up(launch.shared + sm.shared_reserved, sm.shared_unit)
    if not blocks:
        return [f"shared memory: {launch.shared} of {sm.shared_per_block} bytes: does not fit"]
    if not allocated:
        return ["shared memory: none used, no limit"]
    capacity = _capacity(sm, allocated, launch.carveout)
    lines = [
        f"shared memory: {static} static + {launch.shared - static} dynamic"
        f" + {sm.shared_reserved} reserved, in units of {sm.shared_unit} = {allocated} bytes;"
        f" {capacity} / {allocated} = {_count(blocks, 'block')}"
    ]
    if static > STATIC_LIMIT:
        lines.append(f"note: over {STATIC_LIMIT // KB} KB must be dynamic, static does not compile")
    elif launch.shared > STATIC_LIMIT:
        lines.append(f"note: over {STATIC_LIMIT // KB} KB needs the kernel's opt-in attribute")
    return lines
