"""How the output of compute-sanitizer is read, short forms of it and what an H200 recorded."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from bench import sanitize
from bench.sanitize import Findings, function_name, parse
from tests.bench.sanitizer_output import (
    CLEAN,
    GAVE_UP,
    MEMORY,
    RACE,
    SYNC,
    WARNED,
)


def test_a_race_between_warps_is_an_error():
    found = parse(RACE)
    assert (found.errors, found.warnings, found.verdict) == (1, 1, "error")
    assert found.first.startswith("Error: Race reported between Write access at missing_syncth")


def test_a_race_within_a_warp_is_a_warning():
    assert parse(WARNED).verdict == "warning"


def test_a_bad_access_is_an_error():
    found = parse(MEMORY)
    assert (found.errors, found.verdict) == (97, "error")
    assert found.first == "Invalid __shared__ read of size 4 bytes"


def test_the_summaries_of_all_processes_count():
    found = parse("========= ERROR SUMMARY: 0 errors\n========= ERROR SUMMARY: 3 errors\n")
    assert (found.errors, found.verdict) == (3, "error")
    assert parse(RACE + WARNED).errors == 1
    assert parse(RACE + WARNED).warnings == 2
    for odd in ("99999999999999999999", "1,234"):
        assert parse(f"{CLEAN}========= ERROR SUMMARY: {odd} errors\n").verdict == "incomplete"
    assert parse("========= Internal Sanitizer Error\n" + CLEAN).verdict == "incomplete"


def test_silence_is_clean_only_with_a_summary():
    assert parse(CLEAN) == Findings(0, 0, "")
    assert parse(CLEAN).verdict == "clean"
    assert parse("========= COMPUTE-SANITIZER\nkilled").verdict == "incomplete"


def test_each_kernel_gets_the_worst_that_is_said_of_it():
    assert parse(RACE).kernels == {"missing_syncthreads": "error"}
    assert parse(WARNED).kernels == {"missing_syncwarp": "warning"}
    assert parse(MEMORY).kernels == {"reduce4_as_published": "error"}
    assert parse(SYNC).kernels == {"later": "error", "both_sides": "error"}
    assert parse(CLEAN).kernels == {}


def test_cases_that_fail_under_a_tool_are_named():
    assert parse(SYNC).failed == {"later", "both_sides"}
    assert parse(GAVE_UP).failed == {"atomic_barrier"}
    assert parse(CLEAN).failed == frozenset()


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("broken+0x150", "broken"),
        ("kernels::contention::winner[abi:v5,cw51c](long long)+0x1c0", "winner"),
        ("void cub::reduce<float, int>(T1 *)+0x20", "reduce"),
        ("a(int)+0x8 [4032 hazards]", "a"),
        ("<unknown>+0x60", "unknown"),
        ("reduce4$1[abi:v1](int)+0x60", "reduce4$1"),
    ],
)
def test_a_functions_own_name(place: str, name: str):
    assert function_name(place) == name


RECORDED = sorted((Path(__file__).parent / "sanitizer").glob("*.txt.xz"))
"""What the tools of CUDA 13.0 printed on an H200 where they had something to say, by tool and
family, and initcheck of barrier where it had not."""
EXIT_CODES = {"racecheck-barrier": 2, "synccheck-branch": 2}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_recorded_output_is_as_expected(path: Path):
    name = path.name.partition(".")[0]
    tool, _, family = name.partition("-")
    output = lzma.decompress(path.read_bytes()).decode()
    found = replace(parse(output), code=EXIT_CODES.get(name, 0))
    said = [line for line in output.splitlines() if line and not line.startswith("=====")][-1]
    assert sanitize._of_family(tool, family, ["tool"], found, said).good
    if found.kernels or found.failed:  # the same would not do elsewhere
        assert not sanitize._of_family(tool, "axpy", ["tool"], found, said).good
    half = parse(output[: len(output) // 2])
    assert not sanitize._of_family(tool, family, ["tool"], half, said).good
