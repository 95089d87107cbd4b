"""The tidy frame: one row a case, statistics over processes, statuses merged."""

import json
import math

import pandas as pd
import pytest

import analysis
from analysis.frame import RESERVED, frame, only, processes, vectors
from results.errors import UserError
from results.metrics import METRICS
from results.schema import Case, Samples
from results.store import load


def case(status="ok", seconds=None, reason=None, **changes):
    samples = Samples(seconds, "counted", "cold") if seconds else None
    fields = {"family": "axpy", "kernel": "vector", "params": {"n": 1}} | changes
    return Case(**fields, status=status, reason=reason, samples=samples)


def test_one_row_a_case_and_one_a_process(synthetic_run):
    merged, single = frame(synthetic_run), processes(synthetic_run)
    files = 2  # each has the self-check's two cases
    assert len(single) == 5 * (len(merged) + (files - 1) * 2)
    assert merged["processes"].eq(5).all()
    assert set(METRICS) - set(merged) == {n for n, m in METRICS.items() if m.vector}


def test_names_paths_and_recordings_are_the_same(synthetic_run):
    by_path = frame(synthetic_run)
    pd.testing.assert_frame_equal(by_path, frame(load(synthetic_run)))
    pd.testing.assert_frame_equal(by_path, analysis.frame(synthetic_run))
    pd.testing.assert_frame_equal(by_path, analysis.frame.frame(str(synthetic_run)))


def test_median_of_process_medians_and_spread(record):
    run = record([case(seconds=[1.0, 2.0, 9.0])], [case(seconds=[3.0])], [case(seconds=[4.0, 4.0])])
    row = frame(run).iloc[0]
    assert row["median_seconds"] == 3.0
    assert row["spread"] == pytest.approx((4.0 - 2.0) / 3.0)
    assert row["processes"] == 3


def test_metrics_are_medians_over_processes(record):
    run = record(*[[case(metrics={"latency_cycles": c})] for c in ([1.0, 5.0, 9.0], 7.0, 30.0)])
    assert frame(run).iloc[0]["latency_cycles"] == 7.0
    assert list(processes(run)["latency_cycles"]) == [5.0, 7.0, 30.0]


def test_failed_anywhere_has_no_number_and_says_where(record):
    run = record([case(seconds=[1.0])], [case("failed", reason="element 3 is wrong")])
    row = frame(run).iloc[0]
    assert row["status"] == "failed"
    assert row["reason"] == "element 3 is wrong (in process 1 of 2)"
    assert math.isnan(row["median_seconds"])
    assert math.isnan(row["spread"])
    assert row["processes"] == 1


def test_throttled_in_one_process_leaves_the_others(record):
    run = record([case("throttled", reason="clock dropped", seconds=[9.0])], [case(seconds=[1.0])])
    row = frame(run).iloc[0]
    assert (row["status"], row["median_seconds"], row["processes"]) == ("ok", 1.0, 1)
    assert row["reason"] == "clock dropped (in process 0 of 2)"
    assert processes(run)["median_seconds"].isna().tolist() == [True, False]


def test_skipped_everywhere_gives_its_reason_once(record):
    run = record(*[[case("skipped", reason="needs cc 9.0")]] * 3)
    row = frame(run).iloc[0]
    assert (row["status"], row["reason"], row["processes"]) == ("skipped", "needs cc 9.0", 0)


def test_throttled_wins_over_skipped(record):
    run = record([case("skipped", reason="a")], [case("throttled", reason="b")])
    assert frame(run).iloc[0]["status"] == "throttled"


@pytest.mark.parametrize("name", ["bandwidth", "kernel", "process", "spread"])
def test_a_parameter_may_not_bear_the_name_of_a_column(record, name):
    run = record([case(params={name: 1})])
    with pytest.raises(UserError, match=f"0-axpy.jsonl: axpy/vector .* named {name}"):
        frame(run)


def test_parameters_are_columns(synthetic_run):
    table = frame(synthetic_run)
    assert {"n", "dtype", "block", "extra_fma", "warps"} <= set(table)
    assert not {"n", "dtype", "block", "extra_fma", "warps"} & RESERVED
    assert table[table["kernel"] == "cublas"]["block"].isna().all()


def test_only_drops_empty_columns_and_keeps_whole_numbers(synthetic_run):
    rows = only(frame(synthetic_run), "axpy", "vector")
    assert "extra_fma" not in rows
    assert rows["block"].dtype == "int64"
    assert rows["n"].max() == 1 << 28
    assert set(rows["kernel"]) == {"vector"}
    assert only(frame(synthetic_run), "nothing").empty


def test_ratio_to_peer_is_taken_in_the_same_process(synthetic_run):
    rows = only(frame(synthetic_run), "axpy", "vector")
    centre = rows[(rows["n"] == 1 << 28) & (rows["block"] == 256) & (rows["dtype"] == "float32")]
    assert centre["ratio_to_peer"].item() == pytest.approx(1.0, abs=1e-6)


def test_vectors_give_the_cases_themselves(record):
    readings = case(metrics={"resident_blocks": [1.0, 2.0]})
    other = case(kernel="scalar")
    run = record([readings, other], [readings, case("failed", kernel="scalar")])
    assert [(p, c.metrics) for p, c in vectors(run, "axpy", "vector")] == [
        (0, readings.metrics),
        (1, readings.metrics),
    ]
    assert len(vectors(run, "axpy")) == 3
    assert vectors(run, "mask") == []


def test_a_run_without_cases_is_an_empty_frame(record):
    run = record([])
    assert frame(run).empty
    assert processes(run).empty
    assert only(frame(run), "axpy").empty


def test_params_survive_as_they_were(synthetic_run):
    params = only(frame(synthetic_run), "axpy").iloc[0]["params"]
    assert json.loads(json.dumps(params)) == {"n": 1024, "dtype": "float32", "block": 256}
