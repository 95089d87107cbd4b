"""`python -m analysis`: discovery, exit codes, one line for a person's mistake, the table."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import main
from results.schema import Case
from results.shell import BROKEN_PIPE

ROOT = Path(__file__).parents[2]


def test_no_command_prints_help_and_is_a_usage_error(capsys):
    assert main([]) == 3
    assert "table" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["-h"], ["table", "-h"]])
def test_help_is_good(argv, capsys):
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("usage:")


@pytest.mark.parametrize(
    "argv", [["nothing"], ["table"], ["table", "x", "--json", "--csv"], ["table", "x", "--wrong"]]
)
def test_usage_errors_exit_with_3_and_name_the_help(argv, capsys):
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 3
    assert "-h' explains" in capsys.readouterr().err


def test_every_command_module_is_found(capsys):
    main([])
    text = capsys.readouterr().err
    for module in (ROOT / "analysis").glob("*_command.py"):
        assert any(word in text for word in module.stem.split("_")), module


def _torn(path):
    path.write_bytes(path.read_bytes() + b'{"kind": "case", "fam')


BROKEN = {
    "missing": (lambda path: path.unlink(), "no run at"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 9), "not a warpgauge record"),
    "foreign": (lambda path: path.write_text('{"kind": "x"}\n'), "not a warpgauge record"),
    "schema": (
        lambda path: path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":99')),
        "schema 99",
    ),
    "malformed": (
        lambda path: path.write_bytes(path.read_bytes().replace(b'"kind":"case"', b'"kind":"q"')),
        "malformed",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("command", [["table"], ["table", "--json"]])
def test_a_bad_file_is_one_line(broken, command, record, capsys):
    break_it, message = BROKEN[broken]
    path = record([Case("axpy", k, {"n": 1}, "ok") for k in "abc"]) / "0-axpy.jsonl"
    break_it(path)
    assert main([*command, str(path)]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("warpgauge: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_an_incomplete_run_is_printed_all_the_same(record, capsys):
    run = record([Case("axpy", "vector", {"n": 1024}, "ok")], end=False)
    assert main(["table", str(run)]) == 2
    printed = capsys.readouterr()
    assert "n=2^10" in printed.out
    assert "not whole: 0-axpy.jsonl: no end line" in printed.err


def test_a_torn_line_is_reported(record, capsys):
    run = record([Case("axpy", "vector", {"n": 1}, "ok")])
    _torn(run / "0-axpy.jsonl")
    assert main(["table", str(run)]) == 2
    assert "the last line is torn" in capsys.readouterr().err


def test_a_failed_case_makes_the_run_not_whole(record, capsys):
    run = record([Case("axpy", "vector", {"n": 1}, "failed", reason="element 3 is wrong")])
    assert main(["table", str(run)]) == 2
    printed = capsys.readouterr()
    assert "failed: element 3 is wrong" in printed.out
    assert "element 3 is wrong" in printed.err


def test_a_skipped_case_is_no_problem(record, capsys):
    run = record([Case("axpy", "vector", {"n": 1}, "skipped", reason="needs cc 9.0")])
    assert main(["table", str(run)]) == 0
    assert "skipped: needs cc 9.0" in capsys.readouterr().out


def test_text_has_pretty_units_and_aligned_columns(synthetic_run, capsys):
    assert main(["table", str(synthetic_run), "--family", "axpy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("kernel"))
    row = next(line for line in lines if line.startswith("vector") and "n=2^28" in line)
    assert "GB/s" in row
    assert "%" in row
    assert "(peer)" in "".join(lines)
    for column in ("time", "bandwidth", "of peak"):
        end = head.index(column) + len(column)
        assert row[end - 1] != " "
        assert row[end : end + 2].strip() == ""


def test_unknown_family_names_those_of_the_run(synthetic_run, capsys):
    assert main(["table", str(synthetic_run), "--family", "nothing"]) == 3
    assert "no family 'nothing': there are selfcheck, axpy, memory" in capsys.readouterr().err


def test_json_is_a_list_of_objects(synthetic_run, capsys):
    assert main(["table", str(synthetic_run), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert set(rows[0]) == {
        *("family", "kernel", "params", "status", "reason", "peer", "launch"),
        *("median_seconds", "processes", "metrics"),
    }
    vector = next(r for r in rows if r["kernel"] == "vector" and r["params"].get("n") == 1 << 28)
    assert vector["params"] == {"n": 1 << 28, "dtype": "float32", "block": 256}
    assert vector["processes"] == 5
    moved = 3 * 4 * (1 << 28)
    assert vector["metrics"]["bandwidth"] == pytest.approx(
        moved / vector["median_seconds"], rel=0.01
    )
    assert vector["launch"]["block"] == [256, 1, 1]
    peer = next(r for r in rows if r["kernel"] == "cublas")
    assert peer["launch"] == {}
    assert "ratio_to_peer" not in peer["metrics"]


def test_csv_has_the_same_rows_flattened(synthetic_run, capsys):
    main(["table", str(synthetic_run), "--json"])
    objects = json.loads(capsys.readouterr().out)
    assert main(["table", str(synthetic_run), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(objects)
    for row, item in zip(rows, objects, strict=True):
        assert row["kernel"] == item["kernel"]
        assert row["block"] == str(item["params"].get("block", ""))
        assert row["median_seconds"] == str(item["median_seconds"] or "")
    assert next(row for row in rows if row["kernel"] == "vector")["launch_block"] == "256x1x1"


def test_csv_has_no_metric_that_no_row_has(synthetic_run, capsys):
    assert main(["table", str(synthetic_run), "--family", "memory", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    columns = list(rows[0])
    assert "latency_cycles" in columns
    for column in columns[columns.index("processes") :]:
        assert any(row[column] for row in rows), column


def test_an_exception_is_an_internal_error(monkeypatch, capsys):
    monkeypatch.setattr("results.store.load", lambda run: 1 / 0)
    assert main(["table", "x"]) == 4
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error
    assert "please report" in error


def _python(*argv, **options):
    return subprocess.run(
        [sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, timeout=60, **options
    )


def test_a_reader_that_leaves_is_no_error(synthetic_run):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "table", str(synthetic_run), "--json"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(write)
    assert done.returncode == BROKEN_PIPE
    assert done.stderr == ""


def test_light_commands_start_without_pandas():
    done = _python(
        "-c",
        "import sys; from analysis.__main__ import parser; parser();"
        "print(sorted({'pandas', 'seaborn', 'matplotlib'} & set(sys.modules)))",
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_table_of_the_recorded_run_prints_no_gap_as_a_reason(capsys):
    """In one family no case has a reason: the column holds gaps alone."""
    assert main(["table", "nvidia-h200", "--family", "axpy"]) == 0
    assert "nan" not in capsys.readouterr().out
