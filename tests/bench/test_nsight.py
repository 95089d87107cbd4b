"""Nsight Compute's output, read: what three versions recorded, and whatever is torn, empty, n/a."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bench import nsight
from bench.nsight import Launch, add_up, choose, parse
from results import counters
from results.counters import COUNTERS, STATES, label
from results.errors import UserError
from results.store import BASELINES

CASE = "axpy/vector[block=256 dtype=float32 n=1024]"
OTHER = "reduction/two_pass[block=256 n=1024]"
RANGE = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"


def within(*names: str) -> str:
    """The cell that lists the ranges around a launch, outermost first, as the tool quotes it."""
    return "7  " + "  ".join(
        f'""<default domain>:{n}:none:none:none:none:none:none""' for n in names
    )


# Raw page as 2023 and later print it: a column a metric, units in a row without an ID.
RAW = f"""\
==PROF== Connected to process 4242 (/usr/bin/python3.12)
==PROF== Profiling "vector" - 0: 0%....50%....100% - 6 passes
  axpy vector[n=1024 dtype=float32 block=256]: right
==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","{RANGE}","Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum","lts__t_sectors.sum","smsp__inst_issued.sum"
"","","","","","","","","","","","","","byte","byte","ns","sector","inst"
"0","4242","python3.12","127.0.0.1","{within(CASE)}","","vector","1","13","(256, 1, 1)","(4, 1, 1)","0","9.0","8,192","1,024.50","3,296","384","640"
"1","4242","python3.12","127.0.0.1","{within("outer", OTHER)}","","partials","1","13","(256, 1, 1)","(4, 1, 1)","0","9.0","4096","0","2048","128","n/a"
"2","4242","python3.12","127.0.0.1","{within("outer", OTHER)}","","finish","1","13","(256, 1, 1)","(1, 1, 1)","0","9.0","32","0","1024","1","40"
"3","4242","python3.12","127.0.0.1","","","cupy_random","1","7","(256, 1, 1)","(1, 1, 1)","0","9.0","32","0","1024","1","40"
"""  # noqa: E501 - as the tool prints it


def test_raw_page():
    found = parse(RAW)
    assert found.problems == []
    assert [launch.kernel for launch in found.launches] == [
        "vector",
        "partials",
        "finish",
        "cupy_random",
    ]
    assert found.launches[0] == Launch(
        "vector",
        CASE,
        {
            "dram__bytes_read.sum": 8192.0,
            "dram__bytes_write.sum": 1024.5,
            "gpu__time_duration.sum": pytest.approx(3.296e-6),
            "lts__t_sectors.sum": 384.0,
            "smsp__inst_issued.sum": 640.0,
        },
    )
    # n/a is absent, the launch's other metrics are not; a launch outside a range has no case.
    assert "smsp__inst_issued.sum" not in found.launches[1].metrics
    assert found.launches[1].metrics["dram__bytes_read.sum"] == 4096.0
    assert [launch.case for launch in found.launches] == [CASE, OTHER, OTHER, None]


def test_launches_of_a_case_add_up():
    metrics = {
        "time": "gpu__time_duration.sum",
        "dram_read": "dram__bytes_read.sum",
        "l2_bytes": "lts__t_sectors.sum",
        "issued": "smsp__inst_issued.sum",
    }
    vector, two_pass = add_up(parse(RAW).launches, metrics)
    assert vector.counters["l2_bytes"] == 384 * 32
    assert (two_pass.case, two_pass.kernels) == (OTHER, ["partials", "finish"])
    assert two_pass.counters["dram_read"] == 4096 + 32
    assert two_pass.counters["time"] == pytest.approx(3.072e-6)
    assert "issued" not in two_pass.counters  # one of its launches has none


@pytest.mark.parametrize("text", ["", "\n", "==PROF== Connected to process 1 (/usr/bin/python3)\n"])
def test_empty(text):
    assert parse(text).launches == []
    assert parse(text).problems == ["the profiler wrote no table"]


def test_header_alone():
    header = next(line for line in RAW.splitlines() if line.startswith('"ID"'))
    assert parse(header + "\n").problems == ["no launch was profiled"]


def test_errors_are_told():
    text = "==ERROR== The application returned an error code (2).\n" + RAW
    found = parse(text)
    assert found.problems == ["The application returned an error code (2)."]
    assert len(found.launches) == 4


def page_of(version: str, units: str) -> str:
    """What ncu itself printed of a launch that NVIDIA recorded with the same version: the sample
    uncoalescedGlobalAccesses/addConstDouble, 3 Mi float64 read and written, on an RTX A2000. By
    `ncu --import addConstDouble.ncu-rep --csv --page raw --print-units UNITS --metrics` + ours."""
    return (Path(__file__).parent / "nsight" / f"{version}-{units}.csv").read_text()


@pytest.mark.parametrize(("version", "seconds"), [("2022.3", 239.008e-6), ("2024.1", 89.728e-6)])
@pytest.mark.parametrize("units", ["base", "auto"])
def test_recorded_by_older_versions(version: str, seconds: float, units: str):
    """Their columns around the metrics differ (a kernel's time, its block and grid)."""
    (launch,) = parse(page_of(version, units)).launches
    assert launch.kernel == "addConstDouble(int, double *, double, double *)"
    assert launch.metrics["gpu__time_duration.sum"] == pytest.approx(seconds)
    assert launch.metrics["dram__bytes_read.sum"] == pytest.approx(8 * 3 * 2**20, rel=1e-3)
    assert launch.metrics["lts__t_sectors_srcunit_tex.sum"] * 32 == 2 * 8 * 3 * 2**20
    assert launch.metrics == pytest.approx(parse(page_of(version, "base")).launches[0].metrics)


@pytest.mark.parametrize("version", ["2022.3", "2024.1"])
def test_recorded_by_older_versions_and_torn(version: str):
    page = page_of(version, "base").rstrip("\n")
    for end in range(len(page)):
        found = parse(page[:end])
        assert (found.launches, len(found.problems) >= 1) == ([], True), page[:end]


def test_torn_anywhere():
    """Wherever it ends, what is read is the whole's: no number cut short, no launch left out."""
    metrics = choose(set())
    whole = {case.case: case for case in add_up(parse(RAW).launches, metrics)}
    start = RAW.index('"ID"')
    read = set()
    for end in range(start, len(RAW)):
        found = parse(RAW[:end])
        if RAW[end - 1] != "\n":
            assert found.problems
        for case in add_up(found.launches, metrics):
            read.add(case.case)
            if RAW[end - 1] != "\n":
                assert case == whole[case.case], RAW[end - 40 : end]
    assert read == whole.keys()


def test_a_table_cut_off_is_told():
    found = parse(RAW[: RAW.index('"finish"')])
    assert [launch.kernel for launch in found.launches] == ["vector"]
    assert found.problems == ["its table is cut off; the last case is left out"]


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1,234.5", "Kbyte", 1_234_500.0),
        ("1,234,567", "byte", 1_234_567.0),
        ("1234567", "byte", 1_234_567.0),
        ("4.0e-05", "second", 4e-5),
        ("0", "", 0.0),
        ("3", "ns", 3e-9),
        ("3", "register/thread", 3.0),
        ("n/a", "byte", None),
        ("", "byte", None),
        ("nan", "", None),
        ("9,00", "byte", None),  # a decimal comma: not a number in C's way of writing
        ("1", "Xbyte", None),
    ],
)
def test_numbers(text, unit, value):
    assert nsight._number(text, unit) == (None if value is None else pytest.approx(value))


def test_unknown_metrics_are_not_asked_for():
    assert choose({"gpu__time_duration", "dram__bytes_op_read"}) == {
        "time": "gpu__time_duration.sum",
        "dram_read": "dram__bytes_op_read.sum",
    }
    everything = choose(set())
    assert everything.keys() == COUNTERS.keys()
    assert everything["dram_read"] == "dram__bytes_read.sum"


def test_counters_are_sums():
    """Launches are added up, which is right for sums only."""
    metrics = [metric for counter in COUNTERS.values() for metric in counter.metrics]
    assert len(metrics) == len(set(metrics))
    assert all(metric.endswith(".sum") for metric in metrics)
    assert {state.counter for state in STATES.values()} <= COUNTERS.keys()


def test_query(monkeypatch):
    listing = """\
Device NVIDIA H200 (GH100)
-------------------------- ----------- ----------- -----------------------------
Metric Name                Metric Type Metric Unit Metric Description
-------------------------- ----------- ----------- -----------------------------
dram__bytes_read           Counter     byte        # of bytes read from DRAM
smsp__inst_issued          Counter     inst        # of instructions issued
"""
    monkeypatch.setattr(nsight, "_ask", lambda *_: listing)
    assert nsight.known("ncu", 0) == {"dram__bytes_read", "smsp__inst_issued"}
    monkeypatch.setattr(nsight, "_ask", lambda *_: "==ERROR== ERR_NVGPUCTRPERM - The user does not")
    with pytest.raises(UserError, match="NVreg_RestrictProfilingToAdminUsers=0"):
        nsight.known("ncu", 0)


def test_not_installed(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(nsight, "PLACES", ("/nowhere",))
    with pytest.raises(UserError, match="not installed"):
        nsight.find()


def test_label():
    assert label("axpy", "vector", {"n": 1024, "block": 256, "dtype": "float32"}) == CASE
    assert nsight.LABEL.fullmatch(label("barrier", "syncthreads", {}))


RECORDED = counters.load(BASELINES / "nvidia-h200")


@pytest.mark.parametrize("found", RECORDED, ids=lambda found: found.family)
def test_recorded_output_gives_the_counters_that_were_stored(found: counters.FamilyCounters):
    """Real output of Nsight Compute 2025.3.1 on an H200, kept beside what was read off it."""
    path = BASELINES / "nvidia-h200" / counters.FOLDER / f"{found.family}.csv.gz"
    output = parse(gzip.decompress(path.read_bytes()).decode())
    assert output.problems == []
    assert add_up(output.launches, found.metrics) == found.cases
    assert found.cases


def test_recorded_output_cut_off_anywhere_loses_its_last_case_only():
    found = RECORDED[0]
    path = BASELINES / "nvidia-h200" / counters.FOLDER / f"{found.family}.csv.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    for share in (0.3, 0.5, 0.9, 0.999):
        output = parse(text[: int(share * len(text))])
        cases = add_up(output.launches, found.metrics)
        assert any("cut off" in problem or "no " in problem for problem in output.problems)
        assert cases == found.cases[: len(cases)]


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ('"Kernel Name"', '"Kernel Names"', "has no column 'Kernel Name'"),
        ('"","vector"', '"","' + "v" * 200_000 + '"', "is no CSV"),
    ],
)
def test_a_table_of_another_kind_is_a_problem(good: str, bad: str, problem: str):
    text = RAW.replace(good, bad)
    assert text != RAW
    (found,) = parse(text).problems
    assert problem in found


def test_of_a_table_that_is_torn_in_the_middle_what_comes_before_is_read():
    lines = RAW.splitlines(keepends=True)
    torn = next(i for i, line in enumerate(lines) if line.startswith('"2",'))
    lines[torn] = lines[torn][:60] + "\n"
    found = parse("".join(lines))
    assert [launch.case for launch in found.launches] == [CASE]  # OTHER lost a launch
    assert "cut off" in found.problems[0]


@pytest.mark.parametrize("number", ["1e999", "-5", "nan"])
def test_what_counts_nothing_is_left_out(number: str):
    assert nsight._number(number, "") is None
