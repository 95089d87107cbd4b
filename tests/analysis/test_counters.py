"""Counters beside a run: joined by case, judged, printed, and drawn. All numbers are made up."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from analysis import counters, units
from analysis.__main__ import main
from analysis.report.question import RunData
from analysis.report.summary import summarise
from analysis.views import counters as view
from results.counters import FOLDER, CaseCounters, label
from results.schema import Launch, Work
from results.store import load

from .conftest import CLOCK, L2, SMS
from .counted import READ, SECONDS, WRITTEN, N, beside, counted, measured


@pytest.fixture
def run(record: Callable[..., Path]) -> Callable[..., Path]:
    return beside(record)


def judged(folder: Path) -> list[counters.Suspect]:
    return counters.suspects(counters.table(load(folder)), L2)


def test_joined_by_case(run):
    case, other = measured(), measured("unrolled")
    folder = run((case, counted(case)), (other, counted(measured("monolithic"))))
    rows = counters.table(load(folder))
    assert list(rows["kernel"]) == ["vector"]  # what was measured or counted alone has no row
    (row,) = rows.to_dict("records")
    assert row["seconds"] == SECONDS
    assert row["achieved"] == pytest.approx(60)
    assert (row["at_least"], row["at_most"]) == (64, 64)
    assert row["issue_used"] == pytest.approx(0.25)
    assert row["conflicts"] == pytest.approx(0.25)
    assert row["clock"] == pytest.approx(CLOCK)
    assert row["ready"] == pytest.approx(0.2)
    assert counters.top_states(row)[0] == ("long_scoreboard", pytest.approx(0.7))


def test_params_join_whatever_their_order(run):
    case = measured(block=256, n=N)
    same = measured(n=N, block=256)
    assert len(counters.table(load(run((case, counted(same)))))) == 1


def test_nothing_is_suspect_where_all_is_as_declared(run):
    case = measured()
    assert judged(run((case, counted(case)))) == []


@pytest.mark.parametrize(
    ("other", "sign", "cause"),
    [
        ({"dram_read": 1.1 * READ}, 1, "L2 fetched lines more than once"),
        ({"dram_read": 1.1 * READ, "l2_from_l1": 2.0 * READ}, 1, "accesses repeat"),
        ({"dram_read": 1.1 * READ, "local_loaded": 0.2 * READ}, 1, "registers were spilled"),
        ({"dram_read": 1.1 * READ, "l2_from_l1": math.nan}, 1, "is not known"),
        ({"dram_read": 0.5 * READ}, -1, "meets its data more than once"),
        ({"dram_read": 0.5 * READ, "l2_from_l1": 0.5 * READ}, -1, "moves less than it declares"),
        ({"dram_written": 0.5 * WRITTEN}, -1, "L2 had a part"),
        ({"dram_written": 2.0 * WRITTEN}, 1, "L2 fetched lines"),
    ],
)
def test_bytes_that_are_not_as_declared(run, other, sign, cause):
    case = measured()
    (suspect,) = judged(run((case, counted(case, **other))))
    assert suspect.kind == "bytes"
    assert suspect.deviation * sign > 0.05
    assert cause in suspect.cause


@pytest.mark.parametrize("lost", [0.0, 0.5, 1.0, 1.1])
def test_writes_may_stay_in_l2(run, lost):
    """Up to its size they may be missing at DRAM; 5% of all bytes is 38 MiB, more than 0.1 L2."""
    case = measured()
    assert judged(run((case, counted(case, dram_written=WRITTEN - lost * L2)))) == []


@pytest.mark.parametrize(
    "case",
    [
        measured(cache="warm"),
        measured(resident=True),
        measured(work=Work(1 << 20, 1 << 19)),
    ],
    ids=["warm", "cache resident", "small"],
)
def test_bytes_are_not_judged_where_dram_need_not_see_them(run, case):
    assert judged(run((case, counted(case, dram_read=0.0, dram_written=0.0)))) == []


def test_more_warps_than_fit(run):
    case = measured()
    cycles = SMS * CLOCK * SECONDS
    (suspect,) = judged(run((case, counted(case, sm_warp_cycles=66 * cycles))))
    assert suspect.kind == "residency"
    assert suspect.text.startswith("66.0 warps were resident on an SM, 64.0 were predicted")


@pytest.mark.parametrize(
    ("grid", "warps", "fine"),
    [
        (8 * SMS, 60, True),
        (8 * SMS, 40, False),
        (12 * SMS, 49, True),  # 1.5 waves: 48 warps if all blocks take equally long
        (12 * SMS, 40, False),
        (SMS // 2, 8, True),  # one block on every second SM
        (SMS // 2, 16, False),
        (2 * SMS, 16, True),
    ],
)
def test_residency_follows_from_the_launch(run, grid, warps, fine):
    case = measured(launch=Launch((grid, 1, 1), (256, 1, 1), blocks_per_sm=8))
    cycles = SMS * CLOCK * SECONDS
    found = judged(run((case, counted(case, sm_warp_cycles=warps * cycles))))
    assert [item.kind for item in found] == ([] if fine else ["residency"])


def test_residency_is_not_judged_for_several_launches_or_peers(run):
    several, peer = measured(), measured("cublas", launch=None)
    low = {"sm_warp_cycles": 1.0}
    assert judged(run((several, counted(several, 2, **low)), (peer, counted(peer, **low)))) == []


@pytest.mark.parametrize(
    ("time", "launches", "cause"),
    [
        (1.02 * SECONDS, 1, None),
        (0.98 * SECONDS, 1, None),
        (1.05 * SECONDS, 1, "the SMs ran at 952 MHz while profiled"),
        (0.90 * SECONDS, 3, "the gaps between 3 launches"),
    ],
)
def test_times(run, time, launches, cause):
    case = measured()
    found = judged(run((case, counted(case, launches, time=time))))
    if cause is None:
        assert found == []
    else:
        (suspect,) = found
        assert suspect.kind == "time"
        assert cause in suspect.cause


@pytest.mark.parametrize(
    ("share", "fine"), [(0.88, True), (0.86, False), (1.02, True), (1.04, False)]
)
def test_the_profiler_need_not_write_what_l2_keeps(run, share, fine):
    """A tenth of all bytes stays in L2: it may take 10% less time, and the usual 3%."""
    written = WRITTEN - 0.1 * (READ + WRITTEN)
    found = judged_times(run, measured(), time=share * SECONDS, dram_written=written)
    assert [item.deviation for item in found] == ([] if fine else [pytest.approx(share - 1)])


@pytest.mark.parametrize("sms", [SMS // 10, None])
def test_a_green_context_has_some_of_the_sms(run, sms):
    """A tenth of the SMs takes ten times as many waves; 1.25 of them take two rounds."""
    case = measured(launch=Launch((10 * SMS, 1, 1), (256, 1, 1), blocks_per_sm=8))
    if sms:
        case = msgspec.structs.replace(case, metrics={"sms_used": [float(sms)] * 5})
    warps = 8 * SMS * CLOCK * SECONDS
    rows = counters.table(load(run((case, counted(case, sm_warp_cycles=warps)))))
    assert rows["waves"].item() == pytest.approx(10 * SMS / 8 / (sms or SMS))
    (suspect,) = counters.suspects(rows, L2)
    assert f"has its place for {units.seconds(SECONDS / (13 if sms else 2))}" in suspect.text


def test_reads_that_are_missing_are_spared_nothing(run):
    (suspect,) = judged_times(run, measured(), time=0.88 * SECONDS, dram_read=0.8 * READ)
    assert suspect.deviation == pytest.approx(-0.12)


def test_few_warps_do_not_wait_for_writes(run):
    cycles = SMS * CLOCK * SECONDS
    other = {"dram_written": WRITTEN - 0.1 * (READ + WRITTEN), "sm_warp_cycles": 4 * cycles}
    (suspect,) = judged_times(run, measured(), time=0.88 * SECONDS, **other)
    assert suspect.deviation == pytest.approx(-0.12)


def judged_times(run, case, **other):
    found = judged(run((case, counted(case, **other))))
    return [item for item in found if item.kind == "time"]


def test_few_warps_depend_on_where_the_arrays_lie(run):
    case = measured(launch=Launch((SMS, 1, 1), (128, 1, 1), blocks_per_sm=1))
    cycles = SMS * CLOCK * SECONDS
    (suspect,) = judged_times(run, case, time=1.05 * SECONDS, sm_warp_cycles=4 * cycles)
    assert "bench.placement" in suspect.cause


@pytest.mark.parametrize(
    ("waves", "cause"),
    [
        (1, "all blocks start together"),
        (0.5, "all blocks start together"),
        (8, "blocks take unequally long"),
        (1000, "blocks are short"),
    ],
)
def test_why_fewer_warps_were_resident(run, waves, cause):
    grid = int(8 * SMS * waves)
    case = measured(launch=Launch((grid, 1, 1), (256, 1, 1), blocks_per_sm=8))
    cycles = SMS * CLOCK * SECONDS
    (suspect,) = judged(run((case, counted(case, sm_warp_cycles=10 * cycles))))
    assert suspect.cause.startswith(cause)
    assert ("has its place for" in suspect.text) == (waves > 1)


@pytest.mark.parametrize("case", [measured(seconds=20e-6), measured(cache="warm")])
def test_times_are_not_compared_where_they_are_short_or_warm(run, case):
    found = judged(run((case, counted(case, time=2 * SECONDS))))
    assert [item.kind for item in found] == []


def test_missing_counters_raise_nothing(run, capsys):
    case = measured()
    folder = run((case, CaseCounters(label(case.family, case.kernel, case.params), ["k"], {})))
    assert judged(folder) == []
    assert main(["counters", str(folder)]) == 2
    assert "no case has a counter" in capsys.readouterr().err


def test_command(run, capsys):
    case = measured()
    folder = run((case, counted(case, dram_read=1.1 * READ)))
    assert main(["counters", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "1.100 0.88" in text
    assert "60.0 of 64" in text
    assert "long_scoreboard 70%" in text
    assert "1 suspects" in text
    assert main(["counters", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["suspects"][0]["kind"] == "bytes"
    assert found["cases"][0]["dram_read"] == pytest.approx(1.1 * READ)
    assert found["problems"] == []


def test_command_on_what_is_not_whole(run, capsys):
    case = measured()
    folder = run((case, counted(case)), problems=("the table is cut off",))
    assert main(["counters", str(folder)]) == 2
    assert "not whole: axpy: the table is cut off" in capsys.readouterr().err


def test_a_counted_case_that_the_run_lacks_is_told(run, capsys):
    case = measured()
    folder = run((case, counted(case)))
    path = folder / FOLDER / "axpy.json"
    path.write_bytes(path.read_bytes().replace(b"axpy/vector", b"axpy/victor"))
    assert main(["counters", str(folder)]) == 2
    assert "1 counted cases are not in the run, axpy/victor" in capsys.readouterr().err
    assert "axpy/victor" in summarise(RunData(load(folder))).problems[-1]


def test_counters_of_another_gpu_are_refused(run, capsys):
    case = measured()
    folder = run((case, counted(case)))
    path = folder / FOLDER / "axpy.json"
    path.write_bytes(path.read_bytes().replace(b"Synthetic GPU", b"Tesla V100"))
    assert main(["counters", str(folder)]) == 3
    assert "are of a Tesla V100, the run of a Synthetic GPU" in capsys.readouterr().err
    data = RunData(load(folder))
    assert view.declared(data) is None
    assert "Tesla V100" in summarise(data).problems[-1]


def test_command_without_counters(record, capsys):
    folder = record([measured()])
    assert main(["counters", str(folder)]) == 3
    assert "has no counters: 'make profile RUN=" in capsys.readouterr().err
    run_ = ["counters", str(folder), "--family", "nothing"]
    assert main(run_) == 3


def test_states_that_do_not_add_up_are_left_out(run):
    case = measured()
    warps = 60 * SMS * CLOCK * SECONDS
    (row,) = counters.table(load(run((case, counted(case, warps_wait=0.06 * warps))))).to_dict(
        "records"
    )
    assert "share_wait" not in row
    assert row["ready"] == pytest.approx(0.2)
    assert counters.top_states(row) == []


@pytest.mark.parametrize("block", [(0, 0, 0), (-1, 1, 1)])
def test_a_launch_of_nothing_predicts_nothing(run, block):
    case = measured(launch=Launch((8, 1, 1), block, blocks_per_sm=8))
    assert math.isnan(counters.table(load(run((case, counted(case)))))["waves"].item())
