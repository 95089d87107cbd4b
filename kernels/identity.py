"""Who am I: linear index, warp slot, lane and SM of every thread, as the hardware tells them."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from numba import cuda

from kernels import ptx
from kernels.compat import argument, jit, on_host
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Work, WrongAnswer

LINEAR, SLOT, LANE, SM, LATER_SM, SLOTS = range(6)
FIELDS = 6
"""What each thread logs: its linear index in the block, %warpid, %laneid, %smid, %smid again at
its end, %nwarpid."""
MOST_LISTED = 2048
"""Threads up to which a record holds every one."""
HOLD = 200_000
"""SM cycles (0.1 ms) that each block of a full chip stays, so that all are there at once."""


@jit
def threads(hold, log):
    """Each thread logs who it is, stays `hold` cycles, and logs its SM once more."""
    begin = ptx.clock64()
    x, y, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.threadIdx.z
    linear = x + cuda.blockDim.x * (y + cuda.blockDim.y * z)
    block = cuda.blockIdx.x + cuda.gridDim.x * (cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z)
    size = cuda.blockDim.x * cuda.blockDim.y * cuda.blockDim.z
    at = FIELDS * (block * size + linear)
    log[at + LINEAR] = linear
    log[at + SLOT] = ptx.warpid()
    log[at + LANE] = ptx.laneid()
    log[at + SM] = ptx.smid()
    log[at + SLOTS] = ptx.nwarpid()
    while ptx.clock64() - begin < hold:
        pass
    log[at + LATER_SM] = ptx.smid()


def shape(text: str) -> tuple[int, int, int]:
    """`16x16` -> (16, 16, 1): x, y, z; what is left out is 1.

    Raises:
        ValueError: not one to three positive numbers with x between them.
    """
    numbers = [int(number) for number in text.split("x")]
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise ValueError(f"'{text}' is no shape: one to three positive numbers, as in 16x16")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def observe(launch: Launch, hold: int, machine: Machine) -> tuple[Bound, Any]:
    """The launch, and a function that gives what it logged: int32 of shape (blocks, threads,
    FIELDS)."""
    blocks, size = prod(launch.grid), prod(launch.block)
    log = machine.xp.empty(blocks * size * FIELDS, machine.xp.int32)

    def logged() -> np.ndarray:
        return on_host(log).reshape(blocks, size, FIELDS)

    def check() -> float:
        seen = logged()
        if not (seen[:, :, LINEAR] == np.arange(size)).all():
            raise WrongAnswer("threads do not cover their block's linear indices once each")
        if (seen < 0).any():
            raise WrongAnswer(f"{int((seen < 0).sum())} entries of the log were not written")
        return 0.0

    bound = Bound(
        launch=launch,
        work=Work(),
        check=check,
        poison=lambda: log.fill(-1),
        function=threads,
        arguments=(hold, argument(log)),
    )
    return bound, logged


def summary(seen: np.ndarray) -> dict[str, float]:
    """The claims about warps, lanes and SMs, counted over a log of shape (blocks, threads, FIELDS).

    A warp slot counts with its SM: slot 3 of SM 0 is not slot 3 of SM 1.
    """
    linear = seen[:, :, LINEAR]
    slots, sms = seen[:, :, SLOT].astype(np.int64), seen[:, :, [SM, LATER_SM]]
    held = sms[:, :, 0] * (1 << 16) + slots
    seats = np.unique(np.stack([slots.ravel(), sms[:, :, 0].ravel()]), axis=1)
    return {
        "lane_differs": float((seen[:, :, LANE] != linear % 32).mean()),
        "slot_differs": float((slots != linear // 32).mean()),
        "warps_per_block": float(max(len(np.unique(block)) for block in held)),
        "sms_per_block": float(max(len(np.unique(block)) for block in sms)),
        "sms_per_slot": float(np.unique(seats[0], return_counts=True)[1].max()),
        "warp_slots": float(seen[0, 0, SLOTS]),
    }


def holders(seen: np.ndarray) -> dict[str, list[float]]:
    """Who sits in each warp slot of the SM with the lowest number: block, and warp in the block.

    -1 where the slot was empty. A slot that was used twice shows its last holder by block number.
    """
    sm = seen[:, :, SM].min()
    blocks, warps = [-1] * int(seen[0, 0, SLOTS]), [-1] * int(seen[0, 0, SLOTS])
    for block in np.flatnonzero(seen[:, 0, SM] == sm):
        for thread in range(0, seen.shape[1], 32):
            slot = seen[block, thread, SLOT]
            blocks[slot], warps[slot] = int(block), thread // 32
    return {"slot_block": blocks, "slot_warp": warps}


def _bind_small(params: Params, machine: Machine) -> Bound:
    launch = Launch(shape(params["grid_shape"]), shape(params["block_shape"]))
    bound, logged = observe(launch, 0, machine)

    def reading() -> dict[str, Any]:
        seen = logged()
        found: dict[str, Any] = summary(seen)
        if seen.shape[0] * seen.shape[1] <= MOST_LISTED:
            for name, field in (("slot", SLOT), ("lane", LANE), ("sm", SM)):
                found[f"thread_{name}"] = seen[:, :, field].ravel().tolist()
        return found

    bound.reading = reading
    return bound


def _bind_full(params: Params, machine: Machine) -> Bound:
    block = params["block"]
    blocks = machine.sms * (machine.max_threads_per_sm // block)
    if machine.simulator:
        blocks = 2
    bound, logged = observe(Launch.linear(blocks, block), HOLD, machine)

    def reading() -> dict[str, Any]:
        seen = logged()
        return {**summary(seen), **holders(seen)}

    bound.reading = reading
    return bound


_kernel = partial(Kernel, source=threads, compiled=((threads, "void(int64, int32[::1])"),))

FAMILY = Family(
    "identity",
    "linear index, warp slot, lane and SM of each thread",
    (
        _kernel(
            "small",
            "A launch of a few blocks: what %warpid, %laneid and %smid say to each thread",
            _bind_small,
            examples=(
                {"block_shape": "16x16", "grid_shape": "2x1"},
                {"block_shape": "4x5x2", "grid_shape": "1x2"},
                {"block_shape": "33", "grid_shape": "1"},
            ),
        ),
        _kernel(
            "full_chip",
            "Long blocks on every SM at once: a warp's slot is not its number in the block",
            _bind_full,
            examples=({"block": 64},),
        ),
    ),
)
