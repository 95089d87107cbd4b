"""The file of counters: written, read, and refused when it is damaged or of another schema."""

from __future__ import annotations

import msgspec
import pytest

from results import counters
from results.counters import CaseCounters, FamilyCounters
from results.errors import UserError

FOUND = FamilyCounters(
    schema=counters.SCHEMA,
    family="axpy",
    profile="quick",
    device="Made-up GPU",
    profiler="2025.3.1.0",
    cache="flushed",
    metrics={"time": "gpu__time_duration.sum"},
    sources="0" * 16,
    cases=[CaseCounters("axpy/vector[n=8]", ["vector"], {"time": 2e-6})],
)


def test_round_trip(tmp_path):
    path = counters.save(tmp_path / counters.FOLDER, FOUND)
    assert counters.load(tmp_path) == [FOUND]
    record = tmp_path / "0-axpy.jsonl"
    record.write_text("{}")
    assert counters.load(record) == [FOUND]  # a run may be named by one of its files
    counters.save(path.parent, msgspec.structs.replace(FOUND, cases=[]))
    assert counters.load(tmp_path)[0].cases == []


def test_a_run_without_counters(tmp_path):
    assert counters.load(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', "\xff"])
def test_damaged(tmp_path, text):
    folder = tmp_path / counters.FOLDER
    folder.mkdir()
    (folder / "axpy.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"axpy\.json holds no counters .* 'make profile'"):
        counters.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"family": "nope"}, {"cases": [FOUND.cases[0], FOUND.cases[0]]}],
    ids=["another family", "twice"],
)
def test_what_does_not_belong_here(tmp_path, change):
    path = counters.save(tmp_path / counters.FOLDER, msgspec.structs.replace(FOUND, **change))
    path.rename(path.with_name("axpy.json"))
    with pytest.raises(UserError, match=r"another family|twice"):
        counters.load(tmp_path)


def test_a_counter_below_zero_is_damage(tmp_path):
    path = counters.save(tmp_path / counters.FOLDER, FOUND)
    path.write_bytes(path.read_bytes().replace(b"2e-6", b"-1e308"))
    with pytest.raises(UserError, match="holds no counters"):
        counters.load(tmp_path)


def test_another_schema(tmp_path):
    counters.save(tmp_path / counters.FOLDER, msgspec.structs.replace(FOUND, schema=99))
    with pytest.raises(UserError, match="schema 99"):
        counters.load(tmp_path)


def test_every_counter_says_what_it_is():
    for name, counter in counters.COUNTERS.items():
        assert name == counter.name
        assert counter.unit in ("B", "s", "1")
        assert counter.meaning
        assert counter.metrics


def test_a_counter_that_is_not_known_is_refused(tmp_path):
    case = msgspec.structs.replace(FOUND.cases[0], counters={"case": 1.0})
    counters.save(tmp_path / counters.FOLDER, msgspec.structs.replace(FOUND, cases=[case]))
    with pytest.raises(UserError, match=r"does not know \(case\)"):
        counters.load(tmp_path)
