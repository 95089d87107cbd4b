"""Units an SM by architecture: results a clock that the hardware can give, by kind of instruction.

Source: CUDA C++ Programming Guide 12.x, table "Throughput of Native Arithmetic Instructions", and
for shared memory its 32 banks of one word a clock. What the table does not give is absent.
"""

from __future__ import annotations

UNITS: dict[str, dict[str, int]] = {
    "FP32": {"7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.9": 128, "9.0": 128},
    "FP64": {"7.0": 32, "7.5": 2, "8.0": 32, "8.6": 2, "8.9": 2, "9.0": 64},
    "INT32": {"7.0": 64, "7.5": 64, "8.0": 64, "8.6": 64, "8.9": 64, "9.0": 64},
    "special function": {"7.0": 16, "7.5": 16, "8.0": 16, "8.6": 16, "8.9": 16, "9.0": 16},
    "population count": {"7.0": 16, "7.5": 16, "8.0": 16, "8.6": 16, "8.9": 16, "9.0": 16},
    "shuffle": {"7.0": 32, "7.5": 32, "8.0": 32, "8.6": 32, "8.9": 32, "9.0": 32},
    "shared memory": {"7.0": 32, "7.5": 32, "8.0": 32, "8.6": 32, "8.9": 32, "9.0": 32},
}
"""Kind -> compute capability -> results a clock an SM. 10.0 and later await a table to quote."""

KIND_OF = {
    "fma.f32": "FP32",
    "add.f32": "FP32",
    "mul.f32": "FP32",
    "fma.f64": "FP64",
    "add.f64": "FP64",
    "mul.f64": "FP64",
    "mad.s32": "INT32",
    "shl.b32": "INT32",
    "popc.b32": "population count",
    "rsqrt.f32": "special function",
    "sqrt.f32": "special function",
    "ex2.f32": "special function",
    "lg2.f32": "special function",
    "rcp_add.f32": "special function",
    "sin.f32": "special function",
    "cos.f32": "special function",
    "shfl.b32": "shuffle",
    "ld.shared.b32": "shared memory",
}
"""Which units bound an op: those that it needs most of. Others are bound by several kinds."""


def units(op: str, cc: str) -> int | None:
    """Results a clock an SM that the units allow, None where no source says."""
    return UNITS.get(KIND_OF.get(op, ""), {}).get(cc)
