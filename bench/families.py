"""The families that have axes: every bench_<family>.py of this package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from pathlib import Path

import bench
from bench.measure import Case
from kernels.spec import Family, Machine, families
from results.shell import no_such


def names() -> list[str]:
    """Families in alphabetical order, without importing them."""
    return sorted(
        module.name.removeprefix("bench_")
        for module in pkgutil.iter_modules([str(Path(bench.__file__).parent)])
        if module.name.startswith("bench_")
    )


def select(wanted: Iterable[str] | None) -> list[str]:
    """The wanted families, or all.

    Raises:
        UserError: one that does not exist.
    """
    known = names()
    chosen = list(dict.fromkeys(wanted or known))
    for name in chosen:
        if name not in known:
            raise no_such("family", name, known)
    return chosen


def cases(name: str, profile: str, machine: Machine) -> list[Case]:
    """The family's cases in this profile on this machine, in the order of measuring."""
    return list(importlib.import_module(f"bench.bench_{name}").cases(profile, machine))


def family(name: str) -> Family:
    """Its kernels. KeyError: no such family in kernels/."""
    return families()[name]
