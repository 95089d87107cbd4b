"""Inline assembly and compilation, checked in the code that comes out. Needs no GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernels import compat

if compat.SIMULATOR:
    pytest.skip("nothing is compiled in the simulator", allow_module_level=True)
if find_spec("nvidia") is None or find_spec("cuda") is None or find_spec("cuda.core") is None:
    pytest.skip("no CUDA toolkit packages: run `make setup`", allow_module_level=True)

from numba import cuda

from kernels import compile, probes, ptx
from kernels.compile import CAPABILITIES, compile_kernel
from kernels.cubin import text_hash
from kernels.instructions import OPS, chain, fma_chain

from .tiers import every_capability

pytestmark = pytest.mark.ptx

HOPPER = (9, 0)
TYPES = {"f32": "float32", "f64": "float64", "s32": "int32"}


def assembled(ptx_text: str) -> list[str]:
    """The instructions of all inline blocks, in order."""
    blocks = re.findall(r"// begin inline asm(.*?)// end inline asm", ptx_text, re.S)
    lines = (line.strip() for block in blocks for line in re.split(r"[;\n]", block))
    noise = (".reg", "{", "}", "//")
    return [line for line in lines if line and not line.startswith(noise) and line[-1] != ":"]


def timed(function):
    """A kernel that reads the clock before and after `function`, and its value last."""

    @compat.jit
    def kernel(x, a, b, out, cycles):
        lane = cuda.threadIdx.x
        value = x[lane]
        start = ptx.clock64()
        value = function(value, a, b)
        stop = ptx.clock64()
        out[lane] = value
        cycles[lane] = stop - start

    return kernel


def timed_signature(op: str) -> str:
    kind = TYPES[OPS[op].kind.name]
    return f"void({kind}[::1], {kind}, {kind}, {kind}[::1], int64[::1])"


def all_ops(kind: str):
    """A kernel with a chain of every op of one kind."""
    names = [op.name for op in OPS.values() if op.kind.name == kind]

    def compose(function, rest):
        @compat.device
        def both(x, a, b):
            return rest(function(x, a, b), a, b)

        return both

    function = chain(names[0], 2)
    for name in names:
        function = compose(chain(name, 2), function)
    return timed(function), names


@compat.jit
def registers(out, wide):
    i = cuda.grid(1)
    out[i] = ptx.smid() + ptx.warpid() + ptx.nwarpid() + ptx.laneid() + ptx.lanemask_lt()
    wide[i] = ptx.clock64() + ptx.globaltimer()


@compat.jit
def memory(x, y, next_, zero, out):
    i = cuda.grid(1)
    shared = cuda.shared.array(128, "uint32")
    base = probes.shared_address(shared)
    shared[cuda.threadIdx.x] = base
    cuda.syncthreads()
    a, b, c, d = CACHED_LOAD(x, 4 * i)
    e, f = ptx.load_v2_f64(y, 2 * i)
    ptx.store_v4_f32(x, 4 * i, (d, c, b, a))
    ptx.store_v2_f64(y, 2 * i, (f, e))
    address = CHASE(ptx.address_of(next_))
    out[i] = EIGHT_LOADS(address, 512, 0.0, zero) + CHASE_SHARED(base)


CACHED_LOAD = ptx.load("f32", 4, "cs")
CHASE = probes.chase(5, "cg")
CHASE_SHARED = probes.chase_shared(6)
EIGHT_LOADS = probes.loads(8, 4, "cg")
MEMORY = "void(float32[::1], float64[::1], uint64[::1], uint32, float32[::1])"


@every_capability
@pytest.mark.parametrize("kind", TYPES)
def test_every_op_assembles(kind, cc):
    kernel, names = all_ops(kind)
    compiled = compile_kernel(kernel, timed_signature(names[0]), cc)
    assert compiled.spill_bytes == compiled.local_bytes == 0
    assert f".target sm_{cc[0]}{cc[1]}" in compiled.ptx


@every_capability
def test_every_register_and_access_assembles(cc):
    compile_kernel(registers, "void(int64[::1], int64[::1])", cc)
    compiled = compile_kernel(memory, MEMORY, cc)
    assert compiled.registers > 0
    assert compiled.spill_bytes == 0
    assert compiled.static_smem >= 512


@pytest.mark.thorough
def test_code_does_not_know_for_which_capability_the_kernel_was_lowered(monkeypatch):
    def code() -> list[str]:
        compile._lowered.cache_clear()
        compiled = [compile_kernel(memory, MEMORY, HOPPER)]
        for kind in TYPES:
            kernel, names = all_ops(kind)
            compiled.append(compile_kernel(kernel, timed_signature(names[0]), HOPPER))
        return [one.text_hash for one in compiled]

    oldest = code()
    monkeypatch.setattr(compile, "CAPABILITIES", CAPABILITIES[::-1])
    assert code() == oldest


def test_changing_registers_are_read_each_time():
    @compat.jit
    def twice(out):
        out[0] = ptx.clock64() - ptx.clock64()
        out[1] = ptx.globaltimer() - ptx.globaltimer()
        for place in range(2, 100):
            out[place] = ptx.smid()

    text = compile_kernel(twice, "void(int64[::1])", HOPPER).ptx
    assert text.count("%clock64") == text.count("%globaltimer") == 2
    label = text.index("\n$L")  # the loop: its read must not have been hoisted out
    assert "%smid" in text[label:]


@pytest.mark.parametrize("op", ["fma.f32", "mad.s32", "shfl.b32"])
def test_clock_reads_enclose_the_chain(op):
    compiled = compile_kernel(timed(chain(op, 16)), timed_signature(op), HOPPER)
    lines = assembled(compiled.ptx)
    clocks = [place for place, line in enumerate(lines) if "%clock64" in line]
    mnemonic = OPS[op].template.split()[0]
    steps = [place for place, line in enumerate(lines) if line.startswith(mnemonic)]
    assert len(clocks) == 2
    assert len(steps) == 16
    assert clocks[0] < steps[0]
    assert steps[-1] < clocks[1]


def test_chain_depends():
    compiled = compile_kernel(timed(chain("fma.f32", 8)), timed_signature("fma.f32"), HOPPER)
    steps = [line for line in assembled(compiled.ptx) if line.startswith("fma")]
    for line in steps:
        target, source = re.match(r"fma.rn.f32 (\S+), (\S+),", line).groups()
        assert target == source


@pytest.mark.parametrize(("count", "accumulators"), [(0, 1), (1, 4), (13, 1), (13, 4), (32, 8)])
def test_fma_chain_has_its_count(count, accumulators):
    kernel = timed(fma_chain(count, accumulators))
    lines = assembled(compile_kernel(kernel, timed_signature("fma.f32"), HOPPER).ptx)
    assert sum(line.startswith("fma.rn.f32") for line in lines) == count
    used = {line.split()[1] for line in lines if line.startswith("fma.rn.f32")}
    assert len(used) == min(count, accumulators)


def test_accesses_have_their_width_and_cache_operator():
    lines = assembled(compile_kernel(memory, MEMORY, HOPPER).ptx)
    mnemonics = Counter(line.split()[0] for line in lines)
    assert mnemonics["ld.global.cs.v4.f32"] == 1
    assert mnemonics["ld.global.v2.f64"] == 1
    assert mnemonics["st.global.v4.f32"] == 1
    assert mnemonics["st.global.v2.f64"] == 1
    assert mnemonics["ld.global.cg.u64"] == 5
    assert mnemonics["ld.shared.u32"] == 6
    text = " ".join(line.split()[0] for line in lines)
    assert " ".join(["ld.global.cg.v4.f32"] * 8) in text, "the loads are not back to back"


def test_no_access_wider_than_the_hardware_has():
    with pytest.raises(ValueError, match="at most 16 bytes"):
        ptx.load("f64", 4)
    with pytest.raises(ValueError, match="cache operator 'L7'"):
        ptx.load("f32", 4, "L7")
    with pytest.raises(ValueError, match="is none of"):
        chain("fma.f16", 4)
    with pytest.raises(ValueError, match="on 17 accumulators"):
        fma_chain(4, 17)


def test_array_of_another_type_is_refused():
    load = ptx.load_v4_f32

    def kernel(x, out):
        a, b, c, d = load(x, 0)
        out[0] = a + b + c + d

    with pytest.raises(Exception, match="contiguous 1-D array of float32 is needed"):
        compile_kernel(kernel, "void(float64[::1], float32[::1])", HOPPER)


@compat.jit
def thirty_two_at_once(x):
    """Stores in another order than it loaded: all values are alive between."""
    a = ptx.load_v4_f32(x, 0)
    b = ptx.load_v4_f32(x, 4)
    c = ptx.load_v4_f32(x, 8)
    d = ptx.load_v4_f32(x, 12)
    e = ptx.load_v4_f32(x, 16)
    f = ptx.load_v4_f32(x, 20)
    g = ptx.load_v4_f32(x, 24)
    h = ptx.load_v4_f32(x, 28)
    for place, values in enumerate((b, c, d, e, f, g, h, a)):
        ptx.store_v4_f32(x, 4 * place, values)


def test_register_limit_spills_without_local_in_the_ptx():
    free = compile_kernel(thirty_two_at_once, "void(float32[::1])", HOPPER)
    tight = compile_kernel(thirty_two_at_once, "void(float32[::1])", HOPPER, max_registers=24)
    assert free.registers > 32
    assert free.spill_bytes == 0
    assert tight.registers <= 24
    assert tight.spill_bytes > 0
    assert ".local" not in tight.ptx
    assert tight.text_hash != free.text_hash


def test_options_of_the_kernel_are_used():
    def bounded(out):
        out[0] = 1.0

    kernel = compat.jit(bounded, launch_bounds=(128, 2), max_registers=32)
    text = compile_kernel(kernel, "void(float32[::1])", HOPPER).ptx
    assert re.search(r"\.maxntid\s+128", text)
    assert re.search(r"\.minnctapersm\s+2", text)


def test_grid_synchronisation_links():
    @compat.jit
    def kernel(out):
        cuda.cg.this_grid().sync()
        out[cuda.grid(1)] = 1.0

    assert compile_kernel(kernel, "void(float32[::1])", HOPPER).registers > 0


COMPILE_IN_ORDER = """
import sys
from kernels.compile import compile_kernel
import ordered_kernels
for name in sys.argv[1:]:
    kernel = getattr(ordered_kernels, name)
    found = compile_kernel(kernel, "void(float32[::1], int64[::1])", (9, 0))
    print(name, found.text_hash, found.ptx.count("B2v1"))
"""
ORDERED_KERNELS = """
from numba import cuda
from kernels import compat, ptx

@compat.device
def one_more(value):
    return value + 1

@compat.jit
def first(x, out):
    out[cuda.grid(1)] = one_more(ptx.clock64())

@compat.jit
def second(x, out):
    x[cuda.grid(1)] = one_more(ptx.load_v4_f32(x, 0)[0])
"""


@pytest.mark.thorough
def test_text_hash_does_not_know_the_order_of_compilation(tmp_path, monkeypatch):
    (tmp_path / "ordered_kernels.py").write_text(ORDERED_KERNELS)
    monkeypatch.syspath_prepend(tmp_path)
    import ordered_kernels

    here = {
        name: compile_kernel(
            getattr(ordered_kernels, name), "void(float32[::1], int64[::1])", HOPPER
        )
        for name in ("first", "second")
    }
    child = subprocess.run(
        [sys.executable, "-c", COMPILE_IN_ORDER, "second", "first"],
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    there = {name: (text, count) for name, text, count in map(str.split, child.stdout.splitlines())}
    assert here["first"].text_hash != here["second"].text_hash
    for name, compiled in here.items():
        assert compiled.text_hash == there[name][0]
    # The order shows in the names: there the second kernel was the first to be compiled.
    assert there["second"][1] != "0"
    assert "B2v1" not in here["second"].ptx


def test_text_hash_refuses_what_is_no_cubin():
    with pytest.raises(ValueError, match="ELF"):
        text_hash(b"not a cubin")


# --- The machine code, where NVIDIA's disassembler is installed. ---


@pytest.fixture(scope="module")
def chains(machine_codes) -> dict[str, list[str]]:
    """The code of a timed chain of 16 steps of each op."""
    kernels = [compile_kernel(timed(chain(op, 16)), timed_signature(op), HOPPER) for op in OPS]
    return dict(zip(OPS, machine_codes(kernels), strict=True))


@pytest.mark.parametrize("op", OPS)
def test_assembler_keeps_every_step_between_the_clocks(op, chains):
    code = chains[op]
    clocks = [place for place, line in enumerate(code) if "CLOCK" in line]
    assert len(clocks) == 2
    loads_of_constants = ("LDC", "ULDC", "MOV", "LDCU")
    inside = [
        line
        for line in code[clocks[0] + 1 : clocks[1]]
        if not line.split(".")[0].split()[0].startswith(loads_of_constants)
    ]
    assert len(inside) == 16 * OPS[op].instructions, inside


def loads_in_flight(count: int):
    """A kernel that loads `count` vectors and adds them up, again and again."""
    batch = probes.loads(count, 4, "cg")

    @compat.jit
    def kernel(x, turns, stride, zero, out):
        address = ptx.address_of(x)
        carry = 0.0
        for _ in range(turns):
            carry = batch(address, stride, carry, zero)
            address += stride * count
        out[cuda.grid(1)] = carry

    return compile_kernel(kernel, "void(float32[::1], int64, int64, uint32, float32[::1])", HOPPER)


def test_assembler_keeps_exactly_so_many_loads_in_flight(machine_codes):
    counts = (1, 2, 4, 8)
    for count, code in zip(counts, machine_codes(list(map(loads_in_flight, counts))), strict=True):
        merged = "".join("L" if "LDG" in line else "A" if "FADD" in line else "" for line in code)
        assert merged.count("L") > 0
        assert merged.count("L") % count == 0
        # Before the next batch may start, every addition of the one before must have been issued.
        in_flight = added = 0
        for letter in merged:
            if letter == "L":
                in_flight += 1
                assert in_flight <= count
            else:
                added += 1
                if added == 4 * count:
                    in_flight = added = 0
