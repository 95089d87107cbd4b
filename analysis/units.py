"""Numbers for people: SI units with a prefix and three significant digits.

Storage keeps plain SI; only what a person reads passes through here. Nothing heavy is imported,
so that commands and figures share one spelling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from results.metrics import METRICS

PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
SMALLEST = 1e-4
"""Below it a number without an exponent is more zeros than digits."""
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def si(value: float, unit: str) -> str:
    """`4.43 TB/s`: three significant digits, a prefix in steps of a thousand."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}".strip()
    exponent = math.floor(math.log10(abs(float(f"{value:.2e}"))) / 3) * 3
    exponent = min(max(exponent, min(PREFIXES)), max(PREFIXES))
    return f"{digits(value / 10.0**exponent)} {PREFIXES[exponent]}{unit}".strip()


def digits(value: float) -> str:
    """Three significant digits: 0.0123, 1.23, 12.3, 1230; with an exponent below 0.0001."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.2e}")
    if abs(rounded) < SMALLEST:
        return scientific(value)
    return f"{rounded:.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def seconds(value: float) -> str:
    """`3.33 µs`; whole nanoseconds below a microsecond, since records hold no finer ones."""
    return f"{value * 1e9:.0f} ns" if 0 <= value < 1e-6 else si(value, "s")


def bandwidth(value: float) -> str:
    """`4.43 TB/s`."""
    return si(value, "B/s")


def percent(value: float) -> str:
    """`92.1%`, from a share of 1."""
    return f"{100 * value:.1f}%"


def ratio(value: float) -> str:
    """`1.034×`: three decimals near one, where they tell, else three digits."""
    return f"{value:.3f}×" if 0.9 <= value < 1.1 else f"{digits(value)}×"


def hertz(value: float) -> str:
    return si(value, "Hz")


def cycles(value: float) -> str:
    """`32.5 cycles`; the median over samples may be half a cycle."""
    if value == 1:
        return "1 cycle"
    return f"{value:,.0f} cycles" if value >= 100 else f"{digits(value)} cycles"


def count(value: float, shortest: int = 1 << 12) -> str:
    """`2^28` for powers of two from `shortest` on, else `1,000`."""
    if value != int(value):
        return digits(value)
    whole = int(value)
    if whole >= shortest and whole & (whole - 1) == 0:
        return f"2^{whole.bit_length() - 1}"
    return f"{whole:,}"


def elements(value: float) -> str:
    """`2^10`: count for array lengths, which run over powers of two."""
    return count(value, shortest=1 << 10)


def raised(text: str) -> str:
    """`2²⁸` for `2^28`, in figures and pages."""
    base, _, exponent = text.partition("^")
    return base + exponent.translate(SUPERSCRIPT)


def size(value: float) -> str:
    """`48 KiB`: footprints, caches and shared memory come in powers of two."""
    for prefix in ("", "Ki", "Mi", "Gi"):
        if abs(value) < 1024 or prefix == "Gi":
            return f"{value:.0f} {prefix}B" if value == int(value) else f"{digits(value)} {prefix}B"
        value /= 1024
    raise AssertionError("unreachable: the last prefix returns")


def scientific(value: float) -> str:
    """`1.2e-07`: an error, of which the magnitude counts; `0` where there is none."""
    return f"{value:.1e}" if value else "0"


BY_UNIT: dict[str, Callable[[float], str]] = {
    "B/s": bandwidth,
    "1/s": lambda value: si(value, "/s"),
    "Hz": hertz,
    "s": seconds,
    "cycle": cycles,
    "B": size,
    "1": digits,
}
BY_NAME: dict[str, Callable[[float], str]] = {
    **{name: BY_UNIT.get(metric.unit, digits) for name, metric in METRICS.items()},
    "median_seconds": seconds,
    "spread": percent,
    "bandwidth_of_peak": percent,
    "occupancy": percent,
    "relative_error": scientific,
    "ratio_to_peer": ratio,
    "bytes": size,
    "n": elements,
}
LABELS = {
    "median_seconds": "time",
    "bandwidth_of_peak": "of peak",
    "operations_per_second": "operations",
    "operations_per_clock_per_sm": "op/clock/SM",
    "ratio_to_peer": "vs best peer",
    "relative_error": "error",
}
"""Headings of columns where the name itself is too long or too plain."""


def pretty(name: str, value: Any) -> str:
    """A metric, parameter or column as text, by its name; empty for what is absent."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return BY_NAME.get(name, count)(value)


def label(name: str) -> str:
    """Heading of a column."""
    return LABELS.get(name, name.replace("_", " "))
