"""What one SM of each compute capability can hold: the table behind the occupancy calculator.

Sources of the numbers, by column:

- warps, blocks, registers and shared memory an SM and a block: CUDA C++ Programming Guide,
  "Technical Specifications per Compute Capability" (edition 12.x for 5.0 to 7.2, 13.x for 7.5 to
  12.1). `cuda::arch_traits` of NVIDIA's CCCL (libcudacxx, cuda/__device/arch_traits.h) says the
  same of 6.0 to 12.1, and is the only source for 8.8, which the guide does not list.
- sub-partitions, allocation units, carve-out sizes, block barriers: cuda_occupancy.h of CUDA 13.0.
- reserved shared memory: the guide's "Shared Memory" sections of 8.x onwards (1 KB a block).
"""

from __future__ import annotations

from dataclasses import dataclass

from results.errors import UserError

WARP = 32  # threads
MAX_THREADS_PER_BLOCK = 1024  # every compute capability since 2.0 (programming guide)
MAX_REGISTERS_PER_THREAD = 255  # every compute capability since 3.5 (programming guide)
MAX_BARRIERS_PER_BLOCK = 16  # named barriers 0..15 of PTX bar.sync
REGISTER_UNIT = 256  # registers: a warp's allocation is a multiple of it
KB = 1024
STATIC_LIMIT = 48 * KB  # bytes: more must be dynamic and, from 7.0, opted in to


@dataclass(frozen=True)
class SMLimits:
    """Limits of one SM. Shared memory in bytes, registers of 32 bits.

    `check_warps` is the multiple to which a block's warps are rounded when the launch check
    counts its registers. It differs from `sub_partitions` on 6.0 only: GP100 has two, yet a block
    that a four-partition Pascal cannot run is refused there too (cuda_occupancy.h).
    `carveouts` are the sizes that shared memory can take of the array it shares with L1; empty
    where shared memory has an array of its own. `barriers` is 0 where they set no limit (before
    9.0).
    """

    cc: str
    warps: int
    blocks: int
    registers_per_block: int
    shared_per_sm: int
    shared_per_block: int  # with opt-in, without the reserved part
    shared_unit: int
    shared_reserved: int
    carveouts: tuple[int, ...]
    barriers: int
    registers: int = 64 * KB
    sub_partitions: int = 4
    check_warps: int = 4


def _kb(*sizes: int) -> tuple[int, ...]:
    return tuple(size * KB for size in sizes)


_VOLTA = _kb(0, 8, 16, 32, 64, 96)
_TURING = _kb(32, 64)
_TO_100 = _kb(0, 8, 16, 32, 64, 100)
_TO_164 = _kb(0, 8, 16, 32, 64, 100, 132, 164)
_TO_228 = _kb(0, 8, 16, 32, 64, 100, 132, 164, 196, 228)

# 5.2: old occupancy spreadsheets halve its registers a block; the guide and the devices say 64 K.
# 10.1: the name of 11.0 in CUDA 12.8 and 12.9.
_TABLE: tuple[tuple[str, int, int, int, int, int, tuple[int, ...], int], ...] = (
    # cc, warps, blocks, registers a block (K), shared KB an SM, KB a block, carve-outs, barriers
    ("5.0", 64, 32, 64, 64, 48, (), 0),
    ("5.2", 64, 32, 64, 96, 48, (), 0),
    ("5.3", 64, 32, 32, 64, 48, (), 0),
    ("6.0", 64, 32, 64, 64, 48, (), 0),
    ("6.1", 64, 32, 64, 96, 48, (), 0),
    ("6.2", 64, 32, 32, 64, 48, (), 0),
    ("7.0", 64, 32, 64, 96, 96, _VOLTA, 0),
    ("7.2", 64, 32, 64, 96, 96, _VOLTA, 0),
    ("7.5", 32, 16, 64, 64, 64, _TURING, 0),
    ("8.0", 64, 32, 64, 164, 163, _TO_164, 0),
    ("8.6", 48, 16, 64, 100, 99, _TO_100, 0),
    ("8.7", 48, 16, 64, 164, 163, _TO_164, 0),
    ("8.8", 48, 16, 64, 100, 99, _TO_100, 0),
    ("8.9", 48, 24, 64, 100, 99, _TO_100, 0),
    ("9.0", 64, 32, 64, 228, 227, _TO_228, 64),
    ("10.0", 64, 32, 64, 228, 227, _TO_228, 64),
    ("10.1", 48, 24, 64, 228, 227, _TO_228, 24),
    ("10.3", 64, 32, 64, 228, 227, _TO_228, 64),
    ("11.0", 48, 24, 64, 228, 227, _TO_228, 24),
    ("12.0", 48, 24, 64, 100, 99, _TO_100, 24),
    ("12.1", 48, 24, 64, 100, 99, _TO_100, 24),
)


def _build() -> dict[str, SMLimits]:
    table = {}
    for cc, warps, blocks, registers, per_sm, per_block, carveouts, barriers in _TABLE:
        since_ampere = int(cc.split(".")[0]) >= 8
        table[cc] = SMLimits(
            cc,
            warps,
            blocks,
            registers * KB,
            per_sm * KB,
            per_block * KB,
            shared_unit=128 if since_ampere else 256,
            shared_reserved=KB if since_ampere else 0,
            carveouts=carveouts,
            barriers=barriers,
            sub_partitions=2 if cc == "6.0" else 4,
        )
    return table


LIMITS: dict[str, SMLimits] = _build()


def limits_of(cc: str) -> SMLimits:
    """Return the limits of compute capability `cc`, written like "9.0".

    Raises UserError for one that the table does not know.
    """
    try:
        return LIMITS[cc.strip()]
    except (KeyError, AttributeError):
        raise UserError(
            f"unknown compute capability {cc!r}: give one of {', '.join(LIMITS)}"
        ) from None
