"""What holds for every family, found by itself: references, compilation, docstrings."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import kernels
from kernels.compat import SIMULATOR
from kernels.spec import Family, Kernel, families

EVERY = [(family, kernel) for family in families().values() for kernel in family.kernels]


def name(item: tuple[Family, Kernel]) -> str:
    return f"{item[0].name}-{item[1].name}"


@pytest.mark.parametrize("item", EVERY, ids=name)
def test_declares_what_a_reader_needs(item: tuple[Family, Kernel]):
    _, kernel = item
    assert kernel.summary
    assert "\n" not in kernel.summary
    assert kernel.examples
    if kernel.source is not None:
        assert kernel.location.startswith("kernels/")
        assert getattr(kernel.source, "py_func", kernel.source).__doc__
    if kernel.peer:
        assert kernel.simulator, "a peer is another library's kernel: say so for the simulator"


def test_family_names_are_their_modules():
    for module in pkgutil.iter_modules(kernels.__path__):
        family = getattr(importlib.import_module(f"kernels.{module.name}"), "FAMILY", None)
        if family is not None:
            assert family.name == module.name
            names = [kernel.name for kernel in family.kernels]
            assert len(names) == len(set(names))


def examples() -> list[Any]:
    return [
        pytest.param(family, kernel, example, id=f"{family.name}-{kernel.name}-{index}")
        for family, kernel in EVERY
        if not kernel.simulator
        for index, example in enumerate(kernel.examples)
    ]


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
@pytest.mark.parametrize(("family", "kernel", "example"), examples())
def test_reference_in_the_simulator(family: Family, kernel: Kernel, example: Any):
    from bench.machine import simulated

    bound = kernel.bind(example, simulated())
    bound.poison()
    bound.queue(0)
    bound.check()


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
@pytest.mark.parametrize("item", [item for item in EVERY if item[1].compiled], ids=name)
@pytest.mark.parametrize("where", ["first", pytest.param("others", marks=pytest.mark.thorough)])
def test_compiles_for_every_architecture(item: tuple[Family, Kernel], where: str):
    from kernels.compile import compile_kernel

    from .tiers import FIRST, OTHERS

    for function, signature in item[1].compiled:
        for cc in FIRST if where == "first" else OTHERS:
            compiled = compile_kernel(function, signature, cc)
            assert compiled.cc == cc
            assert f".target sm_{cc[0]}{cc[1]}\n" in compiled.ptx
            assert compiled.text_hash
            assert compiled.registers > 0, cc
