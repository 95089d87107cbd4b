"""Numbers for people: prefixes, digits, and the limits where one form gives way to the next."""

import math

import pytest

from analysis import units


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (units.bandwidth, 4.4321e12, "4.43 TB/s"),
        (units.bandwidth, 999.9e9, "1.00 TB/s"),
        (units.bandwidth, 0.0, "0 B/s"),
        (units.seconds, 3.2e-6, "3.20 µs"),
        (units.seconds, 999.6e-6, "1.00 ms"),
        (units.seconds, 32e-9, "32 ns"),
        (units.seconds, 12.0, "12.0 s"),
        (units.percent, 0.9214, "92.1%"),
        (units.ratio, 1.0342, "1.034×"),
        (units.ratio, 25.04, "25.0×"),
        (units.hertz, 1.98e9, "1.98 GHz"),
        (units.cycles, 32.5, "32.5 cycles"),
        (units.cycles, 689.5, "690 cycles"),
        (units.count, 1 << 28, "2^28"),
        (units.count, 256, "256"),
        (units.count, 1000, "1,000"),
        (units.count, 0.25, "0.250"),
        (units.count, 1024, "1,024"),
        (units.elements, 1024, "2^10"),
        (units.raised, "2^28", "2²⁸"),
        (units.raised, "256", "256"),
        (units.size, 48 << 10, "48 KiB"),
        (units.size, 1536 << 20, "1.50 GiB"),
        (units.digits, 12345.0, "12300"),
        (units.digits, 0.00123, "0.00123"),
        (units.digits, 0.0001, "0.000100"),
        (units.digits, 0.00009, "9.0e-05"),
        (units.digits, -3.96e-10, "-4.0e-10"),
        (units.scientific, 1.19e-7, "1.2e-07"),
        (units.scientific, 0.0, "0"),
    ],
)
def test_spelling(form, value, text):
    assert form(value) == text


def test_pretty_goes_by_the_name():
    assert units.pretty("bandwidth", 1e12) == "1.00 TB/s"
    assert units.pretty("n", 1 << 20) == "2^20"
    assert units.pretty("bytes", 1 << 20) == "1 MiB"
    assert units.pretty("lost_share", 0.5) == "0.500"
    assert units.pretty("lost_share", -3.96e-10) == "-4.0e-10"
    assert units.pretty("dtype", "float32") == "float32"
    assert units.pretty("bandwidth", math.nan) == ""
    assert units.pretty("reason", None) == ""
    assert units.pretty("peer", True) == "True"
