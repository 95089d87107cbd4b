"""python -m bench identity: a line for each thread of a launch, and what the lines show."""

from __future__ import annotations

from math import prod

import numpy as np

from bench import device
from bench.machine import from_snapshot, simulated
from kernels.compat import SIMULATOR
from kernels.identity import LANE, LINEAR, SLOT, SLOTS, SM, observe, summary
from kernels.spec import Launch, Machine
from results.errors import UserError

MOST_THREADS = 1024
"""Threads a block: CUDA C++ Programming Guide, compute capabilities."""
MOST_LINES = 1 << 16
"""More lines than that nobody reads."""
HEADING = "block        thread       linear  %warpid  %laneid  %smid"


def identity(block: tuple[int, ...], grid: tuple[int, ...]) -> str:
    """What every thread of the launch says it is, as a table with its conclusions below.

    Args:
        block, grid: one to three numbers, x first.

    Raises:
        UserError: no such launch is possible, or there is no usable device.
    """
    launch = Launch(_three(grid, "grid"), _three(block, "block"))
    if prod(launch.block) > MOST_THREADS:
        raise UserError(
            f"a block has at most {MOST_THREADS} threads, this one {prod(launch.block)}: "
            "give a smaller --block"
        )
    if prod(launch.block) * prod(launch.grid) > MOST_LINES:
        raise UserError(f"that is more than {MOST_LINES} threads to list: give a smaller --grid")
    bound, logged = observe(launch, 0, _machine())
    bound.poison()
    bound.queue(0)
    bound.check()
    seen = logged()
    return "\n".join([*_where(), HEADING, *_lines(launch, seen), "", *_conclusions(launch, seen)])


def _three(numbers: tuple[int, ...], name: str) -> tuple[int, int, int]:
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        given = " ".join(map(str, numbers))
        raise UserError(f"--{name} takes one to three positive numbers (x y z), not '{given}'")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _machine() -> Machine:
    if SIMULATOR:
        return simulated()
    device.usable()
    return from_snapshot(device.snapshot())


def _where() -> list[str]:
    if not SIMULATOR:
        return []
    return ["In numba's simulator: warp slots and SMs are made up; nothing of a GPU is shown.", ""]


def _lines(launch: Launch, seen: np.ndarray) -> list[str]:
    lines = []
    for block, threads in enumerate(seen):
        where = _place(block, launch.grid)
        for thread in threads:
            who = _place(int(thread[LINEAR]), launch.block)
            lines.append(
                f"{where:<13}{who:<13}{thread[LINEAR]:>6}{thread[SLOT]:>9}{thread[LANE]:>9}"
                f"{thread[SM]:>7}"
            )
    return lines


def _place(linear: int, shape: tuple[int, int, int]) -> str:
    x, y, _ = shape
    return f"({linear % x},{linear // x % y},{linear // (x * y)})"


def _conclusions(launch: Launch, seen: np.ndarray) -> list[str]:
    found = summary(seen)
    x, y, _ = launch.block
    size = prod(launch.block)
    differs = found["slot_differs"]
    return [
        f"linear = x + {x}*y + {x * y}*z, {size} threads a block: "
        f"{-(-size // 32)} warps, {found['warps_per_block']:.0f} seen",
        f"lane = linear mod 32 for {_share(1 - found['lane_differs'])} of the threads",
        f"%warpid is a slot of the SM ({seen[0, 0, SLOTS]} of them), not the warp's number: "
        f"here it equals linear / 32 for {_share(1 - differs)} of the threads"
        + ("" if differs else ", since so small a launch cannot show the difference"),
        f"SMs of one block: {found['sms_per_block']:.0f}; one slot number was seen on "
        f"{found['sms_per_slot']:.0f} SMs",
    ]


def _share(share: float) -> str:
    return "all" if share == 1 else "none" if share == 0 else f"{100 * share:.1f}%"
