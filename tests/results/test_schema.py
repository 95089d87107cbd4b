"""The record: what is refused on writing, what comes back on reading."""

from __future__ import annotations

import math

import msgspec
import pytest

from results import schema
from results.schema import Case, End, Launch, Run, Samples, Work, decode, encode, key, schema_of

HEADER = Run(
    schema=1,
    family="axpy",
    process=0,
    started="2026-01-01T00:00:00+00:00",
    profile="quick",
    argv=["python", "-m", "bench", "run"],
    device={"name": "made up"},
    environment={"python": "3.12"},
    sources="0123456789abcdef",
)
CASE = Case(
    family="axpy",
    kernel="vector",
    params={"n": 1024, "dtype": "float32"},
    status="ok",
    work=Work(8192, 4096, 2048),
    launch=Launch((4, 1, 1), (256, 1, 1), registers=16, code="ab"),
    samples=Samples([1e-6, 2e-6], "time", "cold", sm_clock_hz=[1.7e9]),
    metrics={"latency_cycles": [4.0, 4.1], "relative_error": 1e-8},
)


@pytest.mark.parametrize("line", [HEADER, CASE, End("ok", "2026", 1.5)])
def test_what_is_written_comes_back(line: schema.Line):
    assert decode(encode(line)) == line


def test_what_does_not_apply_is_absent():
    text = encode(CASE)
    assert b"null" not in text
    assert b"reason" not in text
    assert b"peer" not in text


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float):
    for case in (
        msgspec.structs.replace(CASE, metrics={"latency_cycles": [1.0, bad]}),
        msgspec.structs.replace(CASE, samples=Samples([bad], "time", "cold")),
        msgspec.structs.replace(CASE, params={"n": bad}),
    ):
        with pytest.raises(ValueError, match="finite"):
            encode(case)


def test_more_than_a_hundred_samples_are_refused():
    many = msgspec.structs.replace(CASE, samples=Samples([1e-6] * 101, "time", "cold"))
    with pytest.raises(ValueError, match="at most 100"):
        encode(many)


def test_key_ignores_the_order_of_params_and_everything_measured():
    other = msgspec.structs.replace(
        CASE, params={"dtype": "float32", "n": 1024}, samples=None, metrics={}
    )
    assert key(other) == key(CASE)


def test_an_older_schema_is_migrated_line_by_line(monkeypatch: pytest.MonkeyPatch):
    def rename(raw: dict) -> dict:
        if raw["kind"] == "case":
            raw["kernel"] = raw.pop("name")
        return raw

    monkeypatch.setitem(schema.MIGRATIONS, 0, rename)
    old = encode(CASE).replace(b'"kernel"', b'"name"')
    assert decode(old, 0) == CASE
    assert schema_of(encode(HEADER)) == 1
    with pytest.raises(LookupError, match="schema -1"):
        decode(old, -1)
    with pytest.raises(LookupError, match="schema 99"):
        decode(encode(CASE), 99)


def test_every_field_is_documented_in_the_module():
    import inspect

    for struct in (Work, Launch, Samples):
        text = inspect.getsource(struct)
        for name in struct.__struct_fields__:
            after = text.split(f"    {name}: ", 1)[1].split("\n", 2)[1]
            assert after.strip().startswith('"""'), f"{struct.__name__}.{name} lacks its unit"
