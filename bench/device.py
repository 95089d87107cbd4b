"""Everything that the CUDA driver and NVML tell of a GPU, and whether it can be measured on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from bench import driver, peaks
from bench.driver import Gpu, Unanswered
from bench.fields import FIELDS, Reader, known
from bench.obstacles import usable, why_not

__all__ = ["FIELDS", "model_slug", "show", "snapshot", "usable", "why_not"]

DERIVED: dict[str, tuple[str, Callable[..., float], tuple[str, ...]]] = {
    "memory_bandwidth_peak": (
        "B/s",
        peaks.memory_bandwidth,
        ("memory_bus_width_bits", "memory_clock_max_hz"),
    ),
    "fp32_peak": ("FLOP/s", peaks.fp32, ("cc", "sms", "sm_clock_max_hz")),
}
"""Field -> unit, formula, and the fields that it takes. In a MIG instance the clocks and the
bus are the whole GPU's, so that the bandwidth's peak is a bound and not a target."""


def snapshot(index: int = 0) -> dict[str, Any]:
    """CUDA device `index` as it is now, in SI units.

    Each of FIELDS and DERIVED is a value or `{"error": name}` with NVML's or CUDA's name;
    `attributes` holds every attribute of the driver by its lower-case name, in its own unit.
    Initialises CUDA in this process.

    Raises:
        results.errors.UserError: as `usable`, where there is no such device.
    """
    try:
        with driver.opened(index) as gpu:
            found = {name: _answer(field.readers, gpu) for name, field in FIELDS.items()}
            attributes = _attributes(gpu)
    except (ImportError, RuntimeError, Unanswered):
        usable(index)  # says what is missing; where it finds nothing, the error stands
        raise
    for name, (_, formula, inputs) in DERIVED.items():
        found[name] = _derive(formula, [found[item] for item in inputs])
    return {**found, "attributes": attributes}


def _answer(readers: tuple[Reader, ...], gpu: Gpu) -> Any:
    """The first answer; where nobody answers, the name of the first error."""
    errors = []
    for read in readers:
        try:
            return known(read(gpu))
        except Unanswered as error:
            errors.append(str(error))
        except KeyError as error:  # a value that its table of names does not have
            errors.append(f"Unknown({error})")
    return {"error": errors[0]}


def _attributes(gpu: Gpu) -> dict[str, Any]:
    """Every attribute that the bindings know, by its first name in lower case."""
    found = {}
    for member in gpu.driver.CUdevice_attribute:
        name = member.name.removeprefix("CU_DEVICE_ATTRIBUTE_")
        if name != "MAX":  # the end of the enumeration
            found[name.lower()] = _attribute(gpu, name)
    return found


def _attribute(gpu: Gpu, name: str) -> int | dict[str, str]:
    try:
        return gpu.attribute(name)
    except Unanswered as error:
        return {"error": str(error)}


def _derive(formula: Callable[..., float], inputs: list[Any]) -> float | dict[str, str]:
    for value in inputs:
        if isinstance(value, dict):
            return value
    try:
        return formula(*inputs)
    except LookupError:
        return {"error": "UnknownArchitecture"}


def model_slug(name: str) -> str:
    """`NVIDIA H200` -> `nvidia-h200`: the GPU's model as the name of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def show(found: Mapping[str, Any]) -> str:
    """A snapshot as a table of name and value in units for people, a field a line."""
    units = {name: field.unit for name, field in FIELDS.items()}
    units |= {name: unit for name, (unit, _, _) in DERIVED.items()}
    width = max(map(len, units))
    lines = [
        f"{name:<{width}}  {_human(value, units.get(name, ''))}"
        for name, value in found.items()
        if name != "attributes"
    ]
    count = len(found.get("attributes", ()))
    lines.append(f"{'attributes':<{width}}  {count} more of the driver: --json shows them")
    return "\n".join(lines)


def _human(value: Any, unit: str) -> str:
    match value:
        case {"error": name}:
            return f"- ({name})"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(value) or "none"
        case int() | float() if unit == "B":
            return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))
        case int() | float() if unit in ("Hz", "B/s", "FLOP/s"):
            return _scaled(value, 1000, tuple(prefix + unit for prefix in ("", "k", "M", "G", "T")))
        case int() | float() if unit:
            return f"{value:.6g} {unit}"
    return str(value)


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    power = 0
    while abs(value) >= step and power < len(units) - 1:
        value, power = value / step, power + 1
    return f"{value:.4g} {units[power]}"
