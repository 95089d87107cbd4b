"""The occupancy calculator against NVIDIA's answers and the course's numbers; its properties."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import occupancy_command as command
from analysis.occupancy import occupancy, resident
from analysis.occupancy_limits import LIMITS, limits_of
from results.errors import UserError

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
HEADER = "cc,threads,regs,static_smem,dynamic_smem"
SIZES = ("threads", "regs", "static_smem", "dynamic_smem")


def rows_of(name: str) -> list[dict[str, str]]:
    lines = (REFERENCE / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def run(*options: object) -> int:
    parser = argparse.ArgumentParser()
    command.add_commands(parser.add_subparsers(required=True))
    args = parser.parse_args(["occupancy", *map(str, options)])
    return int(args.run(args))


# ---- against NVIDIA's answers


@pytest.mark.parametrize(
    "row", rows_of("occupancy-cases.csv"), ids=lambda row: ",".join(row.values())
)
def test_handed_case(row: dict[str, str]) -> None:
    answer = occupancy(row["cc"], *(int(row[name]) for name in SIZES))
    assert answer.blocks == int(row["blocks"])
    assert (answer.reason is None) == (answer.blocks > 0)


def test_oracle_covers_every_compute_capability() -> None:
    rows = rows_of("occupancy-rules.csv")
    assert {row["cc"] for row in rows} == set(LIMITS)
    assert len(rows) > 2500


@pytest.mark.parametrize("cc", LIMITS)
def test_equals_nvidias_header(cc: str) -> None:
    for row in rows_of("occupancy-rules.csv"):
        if row["cc"] == cc:
            sizes = [int(row[name]) for name in (*SIZES, "carveout", "barriers")]
            answer = occupancy(cc, *sizes)
            assert answer.blocks == int(row["blocks"]), row
            assert set(answer.limiters) == set(row["limiters"].split("+")), row


# ---- the course's numbers: an SM of 48 warps and 16 blocks


@pytest.mark.parametrize(
    ("threads", "regs", "blocks", "limiters"),
    [
        (256, 32, 6, ("warps",)),
        (64, 32, 16, ("blocks",)),
        (1024, 32, 1, ("warps",)),
        (256, 40, 6, ("warps", "registers")),
        (256, 96, 2, ("registers",)),
    ],
)
def test_seed_example(threads: int, regs: int, blocks: int, limiters: tuple[str, ...]) -> None:
    sm = limits_of("8.6")
    assert (sm.warps, sm.blocks) == (48, 16)
    answer = occupancy("8.6", threads, regs)
    assert (answer.blocks, answer.limiters) == (blocks, limiters)


def test_occupancy_counts_warps_not_threads() -> None:
    assert occupancy("8.6", 256, 96).occupancy == pytest.approx(1 / 3)
    answer = occupancy("8.6", 33, 32)
    assert (answer.blocks, answer.warps, answer.resident_threads) == (16, 32, 528)
    assert answer.occupancy == pytest.approx(32 / 48)


def test_working_shows_the_arithmetic() -> None:
    working = "\n".join(occupancy("7.5", 256, 65).working)
    assert "32 (1024 threads) / 8 = 4 blocks of 8 warps" in working
    assert "65 x 32 = 2080, in units of 256 = 2304 a warp" in working
    assert "16384 / 2304 = 7 warps a sub-partition, x 4 / 8 = 3 blocks" in working
    assert command.grid_line(2**24, 2**8).endswith("= 65536 blocks (2^24 / 2^8 = 2^16)")
    assert command.grid_line(1000, 256) == "grid: 1000 elements / 256 threads = 4 blocks"


# ---- bad input and impossible launches


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (("9.9", 256, 32), "unknown compute capability '9.9': give one of 5.0"),
        (("9", 256, 32), "unknown compute capability"),
        ((9.0, 256, 32), "unknown compute capability"),
        (("9.0", 0, 32), "threads is 0: give 1 to 1024"),
        (("9.0", 1025, 32), "threads is 1025"),
        (("9.0", 256.0, 32), "threads is 256.0: give a whole number"),
        (("9.0", 256, 256), "registers is 256: give 0 to 255"),
        (("9.0", 256, -1), "registers is -1"),
        (("9.0", 256, 32, -1), "static shared memory is -1"),
        (("9.0", 256, 32, 0, -1), "dynamic shared memory is -1"),
        (("9.0", 256, 32, 0, 0, 101), "carve-out is 101"),
        (("9.0", 256, 32, 0, 0, None, 17), "barriers is 17"),
    ],
)
def test_bad_input_is_one_clear_line(launch: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        occupancy(*launch)
    assert "\n" not in str(caught.value)


def test_impossible_launches_have_a_reason() -> None:
    answer = occupancy("8.6", 1024, 255, 0, 200_000)
    assert (answer.blocks, answer.occupancy) == (0, 0)
    assert answer.limiters == ("registers", "shared_memory")
    assert answer.reason is not None
    assert "32 warps x 8192 = 262144, the limit is 65536" in answer.reason
    assert "200000 bytes, the opt-in limit is 101376" in answer.reason


def test_a_resource_that_is_not_used_sets_no_limit() -> None:
    limits = occupancy("7.5", 256, 0).limits
    assert limits["registers"] is None
    assert limits["shared_memory"] is None
    # From 8.0 the reserved kilobyte counts even for a kernel without shared memory.
    assert occupancy("8.6", 256, 0).limits["shared_memory"] == 100


def test_default_carveout_is_all_of_it() -> None:
    assert resident("9.0", 64, 32, 0, 20000, -1) == resident("9.0", 64, 32, 0, 20000, None)
    assert resident("9.0", 64, 32, 0, 20000, 0)[0] == 1


# ---- advice


def test_advice_names_the_next_step() -> None:
    assert occupancy("8.6", 256, 41).advice == ("1 register fewer: 5 → 6 blocks",)
    assert occupancy("8.6", 256, 48).advice == ("8 registers fewer: 5 → 6 blocks",)
    assert occupancy("9.0", 1024, 65).advice[0] == "1 register fewer: 0 → 1 blocks"
    assert occupancy("8.6", 128, 32, 0, 16384).advice[0] == (
        "384 bytes less shared memory: 5 → 6 blocks"
    )
    assert occupancy("8.6", 64, 32).advice == (
        "block of 96 threads instead of 64: 16 → 16 blocks, 32 → 48 warps",
    )
    assert occupancy("9.0", 256, 64, 0, 57000).advice == (
        "16 registers fewer and 11432 bytes less shared memory: 4 → 5 blocks",
    )
    # Registers come in units: the smallest step here gives three blocks more.
    assert occupancy("10.0", 32, 65).advice[0] == "1 register fewer: 28 → 32 blocks"
    assert "carve-out 30% → 44%: 2 → 3 blocks" in occupancy("9.0", 256, 80, 0, 41000, 30).advice
    assert occupancy("9.0", 64, 32, barriers=16).advice[0] == "4 barriers fewer: 4 → 5 blocks"
    assert occupancy("8.6", 256, 32).advice == ()


# ---- properties

ccs = st.sampled_from(sorted(LIMITS))
threads_ = st.integers(1, 1024)
regs_ = st.integers(0, 255)
bytes_ = st.one_of(st.integers(0, 240_000), st.integers(0, 1800).map(lambda unit: 128 * unit + 1))
carveouts = st.one_of(st.none(), st.integers(0, 100))
quick = settings(max_examples=150, deadline=None)


@quick
@given(ccs, threads_, regs_, bytes_, carveouts, st.integers(1, 200))
def test_more_of_a_resource_never_gives_more_blocks(
    cc: str, threads: int, regs: int, shared: int, carveout: int | None, more: int
) -> None:
    blocks, _ = resident(cc, threads, regs, 0, shared, carveout)
    assert resident(cc, min(1024, threads + more), regs, 0, shared, carveout)[0] <= blocks
    assert resident(cc, threads, min(255, regs + more), 0, shared, carveout)[0] <= blocks
    assert resident(cc, threads, regs, 0, shared + 37 * more, carveout)[0] <= blocks
    assert resident(cc, threads, regs, 37 * more, shared, carveout)[0] <= blocks
    if carveout is not None:
        assert resident(cc, threads, regs, 0, shared, min(100, carveout + more))[0] >= blocks


@quick
@given(ccs, threads_, regs_, bytes_, carveouts)
def test_never_over_a_limit(
    cc: str, threads: int, regs: int, shared: int, carveout: int | None
) -> None:
    sm, answer = limits_of(cc), occupancy(cc, threads, regs, 0, shared, carveout)
    assert 0 <= answer.blocks <= sm.blocks
    assert answer.warps <= sm.warps
    assert 0 <= answer.occupancy <= 1
    assert answer.blocks * threads * regs <= sm.registers
    assert answer.blocks * (shared + sm.shared_reserved) <= sm.shared_per_sm
    assert (answer.reason is None) == (answer.blocks > 0)
    assert resident(cc, threads, regs, 0, shared, carveout) == (answer.blocks, answer.limiters)
    assert all(answer.limits[name] == answer.blocks for name in answer.limiters)


@quick
@given(ccs, threads_, regs_, bytes_)
def test_a_step_of_advice_does_what_it_says_and_no_smaller_one_does(
    cc: str, threads: int, regs: int, shared: int
) -> None:
    for step in occupancy(cc, threads, regs, 0, shared).advice:
        if found := re.match(r"(\d+) registers? fewer: \d+ → (\d+)", step):
            fewer, goal = map(int, found.groups())
            assert resident(cc, threads, regs - fewer, 0, shared)[0] == goal
            assert resident(cc, threads, regs - fewer + 1, 0, shared)[0] < goal
        elif found := re.match(r"(\d+) bytes? less shared memory: \d+ → (\d+)", step):
            less, goal = map(int, found.groups())
            assert resident(cc, threads, regs, 0, shared - less)[0] == goal
            assert resident(cc, threads, regs, 0, shared - less + 1)[0] < goal
        elif found := re.match(r"block of (\d+) .* (\d+) → (\d+) warps", step):
            block, before, after = map(int, found.groups())
            assert resident(cc, block, regs, 0, shared)[0] * (block // 32) == after > before


# ---- the command


def test_text_and_json_agree(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--cc", "8.6", "--threads", 256, "--regs", 41, "--elements", 2**24)
    assert run(*options) == 0
    text = capsys.readouterr().out
    assert "5 blocks, 40 of 48 warps, occupancy 83.3%" in text
    assert "1 register fewer: 5 → 6 blocks" in text
    assert run(*options, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["blocks"], answer["limiters"]) == (5, ["registers"])
    assert answer["working"][0].startswith("grid: 16777216")


def test_batch_keeps_columns_and_adds_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--batch", REFERENCE / "occupancy-cases.csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(rows_of("occupancy-cases.csv"))
    assert all(row["blocks"] == row["blocks_given"] for row in rows)
    assert rows[4]["note"] == "naive division says 6"
    assert rows[7]["limiters"] == "warps+blocks"


def test_batch_reads_the_optional_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "launches.csv"
    path.write_text(f"{HEADER},carveout,barriers\n9.0,64,32,0,20000,0,\n9.0,64,32,0,0,,16\n")
    assert run("--batch", path) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "9.0,64,32,0,20000,0,,1,shared_memory",
        "9.0,64,32,0,0,,16,4,barriers",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("# a comment\n", "is empty"),
        (HEADER + "\n", "has no rows"),
        ("cc,threads,regs\n9.0,1,1\n", "no column static_smem, dynamic_smem"),
        ("cc,threads,regs,static_smem,dynamic_smem,cc\n9.0,1,1,0,0,8.6\n", "column cc twice"),
        (HEADER + "\n# 'a, \"b\n9.0,256,many,0,0\n", "row 1 (line 3): regs is 'many'"),
        (HEADER + "\n9.0,256,,0,0\n", "row 1 (line 2): regs is ''"),
        (HEADER + "\n9.0,256,32,0,0\n\n9.7,256,32,0,0\n", "row 2 (line 4): unknown compute"),
        (HEADER + "\n9.0,2000,32,0,0\n", "row 1 (line 2): threads is 2000"),
        (HEADER + "\n9.0,256,32,0\n", "row 1 (line 2): 4 cells under 5 columns"),
        (HEADER + '\n9.0,256,32,0,"0\n', "is not CSV"),
    ],
)
def test_a_bad_batch_names_the_row_and_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        run("--batch", path)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*absent"):
        run("--batch", tmp_path / "absent.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        run("--batch", tmp_path / "binary.csv")


def test_missing_and_clashing_options() -> None:
    with pytest.raises(UserError, match="needs --cc, --threads and --regs"):
        run("--cc", "9.0")
    with pytest.raises(UserError, match="give it no other option"):
        run("--batch", REFERENCE / "occupancy-cases.csv", "--dynamic-smem", 1)


@pytest.mark.thorough
def test_a_hundred_thousand_rows_take_under_five_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.csv"
    rows = (f"9.0,{n % 1024 + 1},{n % 256},{n % 48000},{n}" for n in range(100_000))
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    start = time.process_time()  # not wall time: other work on the machine must not fail it
    run("--batch", path)
    assert time.process_time() - start < 5
    assert capsys.readouterr().out.count("\n") == 100_001


def test_curves_pass_through_the_launch(tmp_path: Path) -> None:
    answer = occupancy("8.6", 256, 41, 0, 12800)
    for axis in ("threads", "regs", "dynamic_smem"):
        values, shares = command.curve(answer, axis)
        assert shares[values.index(getattr(answer, axis))] == answer.occupancy
    assert command.curve(answer, "dynamic_smem")[1][-1] == 0  # ends past the opt-in limit
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        assert run("--cc", "8.6", "--threads", 256, "--regs", 41, "--curves", path) == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert b"<svg" in paths[0].read_bytes()


def test_curves_that_cannot_be_written(tmp_path: Path) -> None:
    launch = ("--cc", "8.6", "--threads", 256, "--regs", 41, "--curves")
    for name in (tmp_path, "", "/dev/full"):
        with pytest.raises(UserError, match="names no image"):
            run(*launch, name)
    with pytest.raises(UserError, match="cannot write"):
        run(*launch, tmp_path / "absent" / "a.svg")
    with pytest.raises(UserError, match=r"ends in \.svg"):
        run(*launch, tmp_path / "a.unknown")
