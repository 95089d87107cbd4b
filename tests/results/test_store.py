"""The store: whatever happened to a file, its finished cases load or one clear line says why."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest

from results.errors import UserError
from results.schema import Case, End, Run, Samples, encode
from results.store import Writer, append_end, baselines, load, resolve

ROOT = Path(__file__).parents[2]


def header(process: int = 0, family: str = "axpy", gpu: str = "NVIDIA H200") -> Run:
    return Run(1, family, process, "2026-01-01", "quick", [], {"name": gpu}, {}, "0" * 16)


def case(n: int, family: str = "axpy") -> Case:
    return Case(family, "vector", {"n": n}, "ok")


END = End("ok", "2026-01-01", 1.0)


def write(path: Path, *lines: object) -> Path:
    with Writer(path) as writer:
        for line in lines:
            writer.write(line)
    return path


def test_a_folder_is_the_union_of_its_files(tmp_path: Path):
    for process in (0, 1, 10, 2):
        write(tmp_path / f"{process}-axpy.jsonl", header(process), case(1), END)
    write(tmp_path / "0-mask.jsonl", header(0, "mask"), case(1, "mask"), END)
    run = load(tmp_path)
    assert run.families == ["axpy", "mask"]
    assert run.processes == [0, 1, 2, 10]
    assert run.problems == []
    assert [file.run.process for file in run.files if file.run.family == "axpy"] == [0, 1, 2, 10]


def test_a_file_without_end_is_loadable_and_said_to_be_incomplete(tmp_path: Path):
    run = load(write(tmp_path / "0-axpy.jsonl", header(), case(1), case(2)))
    assert [item.params["n"] for item in run.files[0].cases] == [1, 2]
    assert "no end line" in run.problems[0]


@pytest.mark.parametrize("cut", range(2, 60, 7))
def test_a_torn_last_line_loses_nothing_before_it(tmp_path: Path, cut: int):
    path = write(tmp_path / "0-axpy.jsonl", header(), case(1), case(2))
    path.write_bytes(path.read_bytes()[:-cut])
    run = load(path)
    assert [item.params["n"] for item in run.files[0].cases] == [1]
    assert "torn" in run.problems[0]


def test_the_parents_end_line_closes_a_torn_file(tmp_path: Path):
    path = write(tmp_path / "0-axpy.jsonl", header(), case(1), case(2))
    path.write_bytes(path.read_bytes()[:-9])
    append_end(path, End("failed", "2026", 2.0, "its process was ended by signal 9"))
    run = load(path)
    assert len(run.files[0].cases) == 1
    assert run.files[0].end.reason.endswith("signal 9")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x80\x81\x00binary\n\xff", "not a warpgauge record"),
        (b"hello\n", "not a warpgauge record"),
        (encode(case(1)), "not a warpgauge record"),
        (b'{"kind":"run","schema":1}\n', "malformed"),
        (encode(header()).replace(b'"schema":1', b'"schema":7'), "schema 7"),
        (encode(header()) + b"{}\n" + encode(case(1)), "line 2 is malformed"),
        (encode(header()) + encode(header()), "two headers"),
        (encode(header()) + encode(case(1)) * 2, "twice"),
    ],
)
def test_malformed_files_are_one_clear_line(tmp_path: Path, content: bytes, words: str):
    path = tmp_path / "0-axpy.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert "0-axpy.jsonl" in str(caught.value)


def test_missing_empty_and_mixed_folders(tmp_path: Path):
    with pytest.raises(UserError, match="no run at"):
        load(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no \.jsonl record"):
        load(tmp_path)
    write(tmp_path / "0-axpy.jsonl", header())
    write(tmp_path / "1-axpy.jsonl", header(1, gpu="NVIDIA A100"))
    with pytest.raises(UserError, match="one GPU model a folder"):
        load(tmp_path)


def test_nothing_is_overwritten(tmp_path: Path):
    path = write(tmp_path / "0-axpy.jsonl", header(), case(1), END)
    before = path.read_bytes()
    with pytest.raises(UserError, match="exists already"):
        Writer(path)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--output"):
        Writer(tmp_path / "file" / "0-axpy.jsonl")


def test_killing_the_writer_at_any_moment_keeps_every_finished_case(tmp_path: Path):
    script = textwrap.dedent("""
        import itertools, sys
        from pathlib import Path
        from results.schema import Case, Run
        from results.store import Writer
        with Writer(Path(sys.argv[1])) as writer:
            writer.write(Run(1, "axpy", 0, "2026-01-01", "quick", [], {"name": "x"}, {}, "0"))
            for n in itertools.count():
                writer.write(Case("axpy", "vector", {"n": n}, "ok", reason="x" * 5000))
                print(n, flush=True)
        """)
    for turn in range(3):
        path = tmp_path / f"{turn}-axpy.jsonl"
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        first = child.stdout.readline()  # it runs, however long a busy machine took to start it
        time.sleep(0.1 + 0.05 * turn)
        child.kill()
        reported = (first + child.stdout.read()).split()
        child.wait()
        cases = load(path).files[0].cases
        assert len(cases) >= len(reported) > 0
        assert [item.params["n"] for item in cases] == list(range(len(cases)))


def test_a_file_that_was_ended_before_its_header_costs_itself_only(tmp_path: Path):
    whole = encode(header())
    write(tmp_path / "0-axpy.jsonl", header(), case(1), END)
    for process, left in enumerate(
        (b"", whole[:5], whole[:-2], whole[:40] + b"\n" + encode(END)), 1
    ):
        (tmp_path / f"{process}-axpy.jsonl").write_bytes(left)
    append_end(tmp_path / "1-axpy.jsonl", END)
    (tmp_path / "9-axpy.jsonl").touch()
    run = load(tmp_path)
    assert [file.run.process for file in run.files] == [0]
    assert len(run.problems) == len(run.lost) == 5
    (tmp_path / "0-axpy.jsonl").unlink()
    with pytest.raises(UserError, match="record again"):
        load(tmp_path)


def test_a_copy_of_a_process_is_no_further_process(tmp_path: Path):
    for process in (0, 1):
        write(tmp_path / f"{process}-axpy.jsonl", header(0), case(1), END)
    with pytest.raises(UserError, match="are both process 0 of axpy"):
        load(tmp_path)


def test_the_latest_run_is_the_one_that_started_last(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("results.store.LOCAL", tmp_path)
    for name, started in (("zebra", "2026"), ("20270101T000000Z", "2027"), ("a", "2025")):
        run = msgspec.structs.replace(header(), started=f"{started}-01-01T00:00:00Z")
        write(tmp_path / "gpu" / name / "0-axpy.jsonl", run, case(1), END)
    assert resolve("latest").name == "20270101T000000Z"


@pytest.mark.parametrize("seconds", ["0", "-1.0", "1e308"])
def test_a_time_that_no_clock_gives_is_refused(tmp_path: Path, seconds: str):
    good = Case("axpy", "vector", {}, "ok", samples=Samples([5e-6], "samples", "cold"))
    path = write(tmp_path / "0-axpy.jsonl", header(), good, good, END)
    path.write_bytes(path.read_bytes().replace(b"5e-6", seconds.encode(), 1))
    with pytest.raises(UserError, match="line 2 is malformed"):
        load(path)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"sm_clock_hz":[1e9]', b'"sm_clock_hz":[0.0]'),
        (b'"sm_clock_hz":[1e9]', b'"sm_clock_hz":[-1e9]'),
        (b'"latency_cycles":[4.0]', b'"latency_cycles":[]'),
        (b'"started":"2026-01-01"', b'"started":"yesterday"'),
        (b'"started":"2026-01-01"', b'"started":"2026-13-45T00:00:00"'),
        (b'"started":"2026-01-01"', b'"started":"2026-01-01Tfoo"'),
        (b'"started":"2026-01-01"', b'"started":"2025-02-30T10:00:00+00:00"'),
        (b'"started":"2026-01-01"', b'"started":"0000-01-01"'),
        (b'"started":"2026-01-01"', b'"started":"2026-01-01\\n"'),
        (b'"started":"2026-01-01"', '"started":"٢٠٢٥-11-01"'.encode()),
        (b'"started":"2026-01-01"', b'"started":"2026-01-01T10:00:00+05:00"'),
    ],
)
def test_what_no_run_writes_is_refused(tmp_path: Path, good: bytes, bad: bytes):
    samples = Samples([5e-6], "samples", "cold", sm_clock_hz=[1e9])
    made = Case("axpy", "vector", {}, "ok", samples=samples, metrics={"latency_cycles": [4.0]})
    path = write(tmp_path / "0-axpy.jsonl", header(), made, END)
    text = path.read_bytes().replace(b"1000000000.0", b"1e9")
    assert text.count(good) == 1
    path.write_bytes(text.replace(good, bad))
    with pytest.raises(UserError, match=r"line \d is malformed"):
        load(path)


def test_a_record_of_no_gpu_is_refused(tmp_path: Path):
    path = write(
        tmp_path / "0-axpy.jsonl", Run(1, "axpy", 0, "2026-01-01", "quick", [], {}, {}, "0"), END
    )
    with pytest.raises(UserError, match="names no GPU"):
        load(path)


def test_what_is_no_file_is_not_read(tmp_path: Path):
    with pytest.raises(UserError, match="is no file"):
        load("/dev/zero")
    with pytest.raises(UserError, match="File name too long"):
        load("x" * 300)
    (tmp_path / "0-axpy.jsonl").symlink_to("nowhere")
    with pytest.raises(UserError, match="cannot read"):
        load(tmp_path)


def test_a_disk_that_fills_is_told_and_costs_the_last_case_only(tmp_path: Path):
    """A disk that fills takes a part of the bytes without an error, and then no more."""

    class Full:
        room = 1000

        def write(self, data: memoryview) -> int:
            if not self.room:
                raise OSError(28, "No space left on device")
            taken = data[: self.room]
            self.room -= len(taken)
            return inner.write(taken)

        def close(self) -> None:
            inner.close()

    path = tmp_path / "0-axpy.jsonl"
    writer = Writer(path)
    inner, writer._file = writer._file, Full()
    writer.write(header())
    told = ""
    for n in range(100):
        try:
            writer.write(case(n))
        except UserError as error:
            told = str(error)
            break
    assert "No space left on device; the cases before this one are kept" in told
    writer.close()
    kept = load(path)
    assert 3 < len(kept.files[0].cases) < 20
    assert "torn" in kept.problems[0]


def test_without_a_local_run_latest_names_what_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("results.store.LOCAL", tmp_path)
    with pytest.raises(UserError, match="no local run yet") as error:
        resolve("latest")
    assert all(name in str(error.value) for name in baselines())
    assert f"'make report RUN={baselines()[0]}'" in str(error.value)


def test_names_of_baselines_resolve():
    for name in baselines():
        assert resolve(name).is_dir()
