"""Levels of memory in a curve of latency against footprint: found as plateaus, not by sizes.

How large a cache is differs from chip to chip, and L2 is two partitions: a fixed size that is
"L2" on one chip is DRAM on another. So the curve is cut where its level changes, and what stays
level over at least two footprints is a plateau.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STEP = 0.1
"""A change by this share, seen at two neighbouring footprints, is worth a cut. Page-table misses
let DRAM's latency creep up with the footprint by less than that from one octave to the next."""
LEVEL = 0.15
"""What spans more than this share from lowest to highest is a slope, no plateau."""
SEPARATE = 0.2
"""L1 must be faster than L2 by this share: otherwise loads through L1 did not hit there."""


@dataclass(frozen=True)
class Plateau:
    """Footprints in a row with one latency."""

    first: int
    """Smallest footprint, bytes."""
    last: int
    """Largest footprint, bytes."""
    points: int
    latency: float
    """Median, cycles."""


def find(footprints: Sequence[float], latencies: Sequence[float]) -> list[Plateau]:
    """The plateaus of a curve, from small footprints to large.

    Segments minimise the squared deviation of log latency from its mean, each segment costing
    `STEP` squared (Killick et al., 2012, PELT).

    Args:
        footprints: bytes, in any order, each once.
        latencies: cycles, positive.

    Raises:
        ValueError: lists of different length, or latencies that are not positive.
    """
    from ruptures import Pelt

    if len(footprints) != len(latencies):
        raise ValueError(f"{len(footprints)} footprints and {len(latencies)} latencies")
    if len(footprints) < 2:
        return []
    order = np.argsort(np.asarray(footprints))
    size = np.asarray(footprints)[order]
    seen = np.asarray(latencies, dtype=float)[order]
    if not (seen > 0).all():
        raise ValueError("latencies must be positive")
    cuts = Pelt(model="l2", min_size=1, jump=1).fit(np.log(seen)[:, None]).predict(pen=STEP**2)
    found = []
    for start, stop in zip([0, *cuts[:-1]], cuts, strict=True):
        part = seen[start:stop]
        if len(part) >= 2 and part.max() <= (1 + LEVEL) * part.min():
            found.append(
                Plateau(int(size[start]), int(size[stop - 1]), len(part), float(np.median(part)))
            )
    return found


def levels(
    through_l1: tuple[Sequence[float], Sequence[float]],
    past_l1: tuple[Sequence[float], Sequence[float]],
) -> dict[str, Plateau]:
    """The levels that the two curves show, by name: l1, l2_near, l2_far, dram.

    Past L1 (``ld.global.cg``) the first plateau is the near partition of L2. Of what follows the
    widest plateau is DRAM, for footprints are taken far beyond L2; what lies level just before it
    is the far partition, which ends at the size of L2 and so is short. Through L1 (``.ca``) the
    first plateau is L1, if it is lower than L2. A level that was not seen is absent.

    Args:
        through_l1, past_l1: (footprints, latencies) of each curve, as for `find`.
    """
    named: dict[str, Plateau] = {}
    below = find(*past_l1)
    above = find(*through_l1)
    if below:
        named["l2_near"] = below[0]
    if above and (not below or above[0].latency < (1 - SEPARATE) * below[0].latency):
        named["l1"] = above[0]
    if len(below) > 1:
        dram = max(range(1, len(below)), key=lambda place: below[place].points)
        named["dram"] = below[dram]
        if dram > 1:
            named["l2_far"] = below[dram - 1]
    return {name: named[name] for name in ("l1", "l2_near", "l2_far", "dram") if name in named}
