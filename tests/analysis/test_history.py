"""History on made-up runs: one a day, a level that changes on a known day."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import accepted
from analysis import history as module
from analysis.__main__ import main
from analysis.change_points import candidates, change_points, comparison, noise
from analysis.history import history, read_run
from analysis.history_command import slug
from analysis.readings import sides
from results.errors import UserError
from results.schema import SCHEMA, Case, End, Run, Samples, key
from results.store import Writer, file_name, load

RIPPLE = (0.0, 0.002, -0.001, 0.001, -0.002, 0.0005, -0.0005)
Write = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("own_accepted")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """write(day, {kernel: seconds}, driver=…, gpu=…) -> folder of the run of that day."""

    def day(
        number: int,
        times: dict[str, float],
        driver: str = "1.0",
        gpu: str = "Imaginary GPU",
        schema: int = SCHEMA,
        profile: str = "quick",
    ) -> Path:
        folder = tmp_path / "runs" / gpu / f"run-{number:02}"
        for process in range(2):
            with Writer(folder / file_name(process, "f")) as writer:
                device = {"name": gpu, "driver_version": driver, "attributes": {"a": 1}}
                start = f"2000-01-{number + 1:02}T00:0{process}:00Z"
                header = Run(schema, "f", process, start, profile, [], device, {}, "0" * 16)
                writer.write(header)
                for kernel, seconds in times.items():
                    time = seconds * (1 + RIPPLE[(number + process) % len(RIPPLE)])
                    samples = Samples([time] * 3, "precision", "cold", sm_clock_hz=[1e9] * 3)
                    writer.write(Case("f", kernel, {"n": 8}, "ok", samples=samples))
                writer.write(End("ok", start, 1.0))
        return folder

    return day


@pytest.fixture
def month(write: Write, tmp_path: Path) -> Path:
    """Twenty days; on the tenth a driver comes that makes `slow` 2% slower and `fast` 5% faster."""
    for number in range(20):
        late = number >= 10
        times = {"slow": 1.02e-3 if late else 1e-3, "fast": 0.95e-3 if late else 1e-3, "flat": 1e-3}
        write(number, times, driver="2.0" if late else "1.0")
    return tmp_path / "runs"


def test_a_change_is_placed_and_explained(month: Path) -> None:
    found = {series.key[1]: series for series in history(month).series}
    assert [step.index for step in found["slow"].steps] == [10]
    step = found["slow"].steps[0]
    assert step.effect == pytest.approx(0.02, abs=0.003)
    assert step.slower
    assert [str(change) for change in step.around] == ["driver_version 1.0 → 2.0"]
    assert not found["fast"].steps[0].slower
    assert found["flat"].steps == []
    assert [name for name, series in found.items() if series.regressed] == ["slow"]


def test_the_command_tells_and_draws(
    month: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "figures"
    assert main(["history", str(month), "--output", str(output)]) == 1
    text = capsys.readouterr().out
    first = text.splitlines()[0]
    assert first.startswith("20 runs, 3 series (a case on a GPU model in one profile), 2 with a ch")
    assert "too few" not in text
    assert "run-10 (2000-01-11T00:00:00Z) on Imaginary GPU, quick profile: 2 cases" in text
    assert "changed: driver_version 1.0 → 2.0" in text
    assert sorted(path.name for path in output.glob("*.svg")) == [
        f"imaginary-gpu-quick-f-{name}-n-8.svg" for name in ("fast", "flat", "slow")
    ]
    assert "driver_version" in (output / "imaginary-gpu-quick-f-slow-n-8.svg").read_text()


def test_json(month: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(month), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 20
    slow = next(series for series in found["series"] if series["kernel"] == "slow")
    assert slow["steps"][0]["run"] == "run-10"
    assert len(slow["values"]) == 20


def test_an_accepted_change_starts_anew(month: Path) -> None:
    gpu = "Imaginary GPU"
    item = accepted.Acceptance(
        gpu,
        "f",
        "slow",
        {"n": 8},
        "known",
        since="2000-01-11T00:00:00Z",
        base="run-09",
        new="run-10",
        metric="time",
        ratio=1.02,
    )
    accepted.add([item])
    slow = next(s for s in history(month, accepted.load()).series if s.key[1] == "slow")
    assert slow.steps == []
    assert slow.anew == [(10, "known")]
    assert not slow.regressed
    assert main(["history", str(month)]) == 0


def test_gpu_models_have_series_of_their_own(write: Write, tmp_path: Path) -> None:
    for number in range(8):
        write(number, {"k": 1e-3})
        write(number, {"k": 2e-3}, gpu="Other GPU")
    found = history(tmp_path / "runs")
    assert [series.gpu for series in found.series] == ["Imaginary GPU", "Other GPU"]
    assert not found.changed
    assert slug(found.series[1]) == "other-gpu-quick-f-k-n-8"


def test_profiles_have_series_of_their_own(write: Write, tmp_path: Path) -> None:
    """Other cases run before it in another profile, and can move its level."""
    for number in range(16):
        quick = number >= 8
        write(number, {"k": 1.02e-3 if quick else 1e-3}, profile="quick" if quick else "standard")
    found = history(tmp_path / "runs")
    assert [series.profile for series in found.series] == ["standard", "quick"]
    assert not found.changed


def test_an_accepted_change_leaves_too_few_runs(month: Path, capsys: pytest.CaptureFixture[str]):
    item = accepted.Acceptance(
        *("Imaginary GPU", "f", "slow", {"n": 8}, "known"),
        since="2000-01-18T00:00:00Z",
        base="run-16",
        new="run-17",
        metric="time",
        ratio=1.02,
    )
    assert not history(month).short
    assert [series.key[1] for series in history(month, [item]).short] == ["slow"]


def test_each_family_has_its_own_profile(write: Write, tmp_path: Path) -> None:
    """Of two families in one folder the first is always quick, the second changes over."""
    for number in range(16):
        folder = write(number, {"k": 1e-3})
        for process in range(2):
            path = folder / file_name(process, "f")
            profile, factor = ("standard", "1.02") if number >= 8 else ("quick", "1.00")
            text = path.read_text().replace('"family":"f"', '"family":"g"')
            text = text.replace('"profile":"quick"', f'"profile":"{profile}"')
            text = text.replace('"started":"2000-01', '"started":"2000-02')
            times = re.findall(r'"time_s":\[([0-9.e-]+)', text)
            text = text.replace(times[0], f"{float(times[0]) * float(factor):.9f}")
            (folder / file_name(process, "g")).write_text(text)
    found = history(tmp_path / "runs")
    assert sorted((series.key[0], series.profile) for series in found.series) == [
        ("f", "quick"),
        ("g", "quick"),
        ("g", "standard"),
    ]
    assert not found.changed


@pytest.mark.parametrize(("runs", "code"), [(1, 2), (5, 2), (6, 0)])
def test_too_few_runs_show_nothing(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: int, code: int
) -> None:
    for number in range(runs):
        write(number, {"x": 1e-3, "y": 1e-3})
    assert main(["history", str(tmp_path / "runs")]) == code
    told = "2 series have fewer than 6 runs: too few to show a change" in capsys.readouterr().out
    assert told == (code == 2)


def test_one_odd_run_is_no_change() -> None:
    values = [1.0 + 0.001 * RIPPLE[i % 7] for i in range(30)]
    assert change_points([*values[:15], 1.2, *values[16:]]) == []
    assert change_points([*values[:15], 1.2, 1.3, *values[17:]]) == []


@pytest.mark.parametrize("step", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("place", [3, 15, 27])
def test_a_step_is_found_at_its_place(step: float, place: int) -> None:
    values = [(1 + RIPPLE[i % 7] / 2) * (1 + step * (i >= place)) for i in range(30)]
    assert change_points(values) == [place]


def test_short_and_constant_series_have_no_change() -> None:
    assert change_points([1.0, 2.0, 3.0, 4.0, 5.0]) == []
    assert change_points([1.0] * 50) == []
    assert change_points([1.0] * 25 + [1.02] * 25) == [25], "noise 0 divides nothing"
    assert noise([]) == noise([0.0, 0.0])


def test_the_comparison_names_every_candidate() -> None:
    rows = comparison(series=1, runs=60).splitlines()[1:]
    assert len(rows) == len(candidates())
    assert all("%" in row for row in rows)


def test_the_quick_reader_agrees_with_the_store(write: Write) -> None:
    folder = write(0, {"a": 1e-3, "b": 3e-3})
    quick = read_run(folder)
    for case_key, side in sides(load(folder)).items():
        values = [reading.value for reading in side.readings]
        assert quick.values[case_key] == ("time", pytest.approx((values[0] * values[1]) ** 0.5))
    assert set(quick.values) == {key(case) for file in load(folder).files for case in file.cases}


def test_a_torn_run_is_read_and_a_broken_one_left_out(
    month: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = month / "Imaginary GPU" / "run-19" / "0-f.jsonl"
    torn.write_bytes(torn.read_bytes()[:-20])
    write(25, {"slow": 1.02e-3}, schema=SCHEMA + 1)
    (month / "empty").mkdir()
    found = history(month)
    assert found.runs == 20
    assert len(found.left_out) == 1
    assert f"schema {SCHEMA + 1}" in found.left_out[0]
    assert main(["history", str(month)]) == 1
    assert "left out" in capsys.readouterr().err


def test_worker_processes_give_the_same(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(number, {"a": 1e-3, "b": 2e-3})
    alone = [(series.key, series.values) for series in history(tmp_path / "runs").series]
    monkeypatch.setattr(module, "POOL_FROM", 2)
    monkeypatch.setattr(module, "_cores", lambda: 2)
    assert [(s.key, s.values) for s in history(tmp_path / "runs").series] == alone


def test_nothing_to_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="holds no run"):
        history(tmp_path)
    assert main(["history", str(tmp_path / "missing")]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def _lines(folder: Path) -> tuple[Path, list[bytes]]:
    path = folder / file_name(0, "f")
    return path, path.read_bytes().splitlines(keepends=True)


def no_end(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


def family_failed(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], lines[-1].replace(b'"status":"ok"', b'"status":"failed","reason":"dead"')]


def two_headers(lines: list[bytes]) -> list[bytes]:
    return lines + lines


def twice(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], *lines[1:]]


def params_of_a_wrong_type(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'{"n":8}', b'"x"') for line in lines]


def a_list_in_params(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'{"n":8}', b'{"n":[8]}') for line in lines]


def a_time_below_zero(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"time_s":[', b'"time_s":[-1.0,') for line in lines]


@pytest.mark.parametrize("damage", [no_end, family_failed])
def test_a_run_that_is_not_whole_is_read_and_told(write: Write, damage, capsys) -> None:
    path, lines = _lines(write(0, {"x": 1e-3}))
    path.write_bytes(b"".join(damage(lines)))
    write(1, {"x": 1e-3})
    assert main(["history", str(path.parents[2])]) == 2
    told = capsys.readouterr()
    assert told.out.startswith("2 runs, 1 series")
    assert "warpgauge: not whole" in told.err


@pytest.mark.parametrize(
    "damage", [two_headers, twice, params_of_a_wrong_type, a_list_in_params, a_time_below_zero]
)
def test_what_the_store_refuses_is_left_out(write: Write, damage, capsys) -> None:
    path, lines = _lines(write(0, {"x": 1e-3}))
    path.write_bytes(b"".join(damage(lines)))
    with pytest.raises(UserError):
        load(path.parent)
    write(1, {"x": 1e-3})
    assert main(["history", str(path.parents[2])]) == 2
    told = capsys.readouterr()
    assert told.out.startswith("1 runs, 1 series")
    assert told.err.count("\n") == 1


def test_copies_directories_and_broken_links_cost_their_run_only(write: Write, capsys) -> None:
    path, lines = _lines(write(0, {"x": 1e-3}))
    path.with_name(file_name(7, "f")).write_bytes(b"".join(lines))
    (write(1, {"x": 1e-3}) / "5-f.jsonl").mkdir()
    (write(2, {"x": 1e-3}) / "5-f.jsonl").symlink_to("nowhere")
    write(3, {"x": 1e-3})
    assert main(["history", str(path.parents[2])]) == 2
    told = capsys.readouterr()
    assert told.out.startswith("1 runs, 1 series")
    assert told.err.count("left out") == 3


def test_a_case_that_fails_in_the_newest_run_is_a_regression(write: Write, capsys) -> None:
    for number in range(6):
        folder = write(number, {"x": 1e-3, "y": 1e-3})
    path, lines = _lines(folder)
    failed = b'{"kind":"case","family":"f","kernel":"x","params":{"n":8},"status":"failed"}\n'
    path.write_bytes(b"".join([lines[0], failed, *lines[2:]]))
    assert main(["history", str(folder.parents[1])]) == 1
    assert (
        "FAILING in the newest run on Imaginary GPU, quick profile: f/x[n=8]"
        in capsys.readouterr().out
    )
    write(6, {"x": 1e-3, "y": 1e-3})
    assert main(["history", str(folder.parents[1])]) == 0
