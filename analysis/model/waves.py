"""Grids of more blocks than fit at once: whole waves, and the launch itself.

    t = ceil(B / (SMs*R)) * t_block + t_launch        equal blocks, R resident blocks an SM

It holds for blocks of equal duration and a block time taken at that residency. Slots are
refilled one at a time, so blocks of unequal duration smooth the staircase away; a last wave that
leaves SMs underfilled may also run its blocks faster, and then the step is lower than predicted.
"""

import math


def waves(blocks: int, sms: int, resident: int = 1) -> int:
    """ceil(B / (SMs*R)). ValueError: blocks < 0, sms or resident < 1."""
    if blocks < 0 or sms < 1 or resident < 1:
        raise ValueError(f"no grid: {blocks} blocks on {sms} SMs, {resident} blocks each")
    return math.ceil(blocks / (sms * resident))


def blocks_of_waves(blocks: int, sms: int, resident: int = 1) -> list[int]:
    """Blocks in each wave: 100 on 80 SMs are [80, 20]."""
    slots = sms * resident
    return [min(slots, blocks - wave * slots) for wave in range(waves(blocks, sms, resident))]


def grid_time(
    blocks: int, sms: int, resident: int, block_time: float, launch: float = 0.0
) -> float:
    """Predicted seconds of a grid that is not persistent: waves * block_time + launch."""
    return waves(blocks, sms, resident) * block_time + launch
