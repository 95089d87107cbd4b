"""Published GPUs, advice, and the predict and advise commands."""

import argparse
import json
import math

import pytest

from analysis.__main__ import main
from analysis.model import MODELS, Launch, advise
from analysis.model.published import ARCHITECTURE, compare, figures, published_parameters
from analysis.model_command import add_commands, parameters_for
from results.errors import UserError
from results.store import BASELINES

H100 = published_parameters("h100-pcie")


# published GPUs


@pytest.mark.parametrize("gpu", ARCHITECTURE)
def test_published_parameters_come_from_the_reference(gpu):
    parameters = published_parameters(gpu)
    figure = figures()[ARCHITECTURE[gpu].key, "dram_latency"]
    assert parameters.dram_latency.value == figure.value
    assert parameters.dram_latency.source == figure.source
    assert parameters.cc == figure.cc


@pytest.mark.parametrize("gpu", ARCHITECTURE)
def test_error_on_published_gpus_is_reported_and_queueing_is_the_nearest(gpu):
    rows = {(row.quantity, row.model): row for row in compare(gpu, MODELS)}
    assert len(rows) == 6
    assert abs(rows["read_bandwidth", "queueing"].relative_error) < 0.05
    assert abs(rows["read_warps_to_90pct", "queueing"].relative_error) < 0.30
    little = rows["read_warps_to_90pct", "little"]
    assert little.relative_error < rows["read_warps_to_90pct", "queueing"].relative_error


# advice


def by_registers(threads, registers):
    """65,536 registers and 64 warps an SM, nothing else."""
    warps = math.ceil(threads / 32)
    return min(65536 // (32 * math.ceil(registers / 8) * 8 * warps), 64 // warps) * warps


def test_advice_for_the_notes_launch():
    advice = advise(H100, Launch(threads=256, registers=40, loads=1, width=4), by_registers)
    assert advice.warps == 48
    assert advice.prediction.limiter == "latency"
    assert 0 < advice.share < 1
    gains = [change.gain for change in advice.changes]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] >= 0.01
    assert {"loads", "width", "registers"} <= {change.kind for change in advice.changes}
    assert advice.cheapest.kind == "loads"
    for change in advice.changes:
        again = advise(H100, change.launch, by_registers)
        assert again.prediction.bandwidth / advice.prediction.bandwidth - 1 == pytest.approx(
            change.gain
        )


def test_advice_counts_the_registers_that_more_loads_need():
    advice = advise(H100, Launch(threads=256, registers=32), by_registers)
    wide = next(c for c in advice.changes if c.launch.width == 16)
    assert wide.launch.registers == 35
    assert wide.warps < advice.warps


def test_saturated_launch_needs_no_advice():
    advice = advise(H100, Launch(256, 32, loads=16, width=16), by_registers)
    assert advice.changes == ()
    assert advice.cheapest is None


def test_a_block_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="fits an SM"):
        advise(H100, Launch(1024, 255), by_registers)


@pytest.mark.parametrize(
    "values",
    [
        *({"width": 3}, {"threads": 0}, {"registers": 256}, {"loads": 0}),
        *({"alpha": value} for value in (-1, math.nan, math.inf, 1e308)),
    ],
)
def test_a_launch_that_cannot_be_is_refused(values):
    with pytest.raises(ValueError, match=r"loads 1, 2|has 1 to|at least one|a word takes"):
        Launch(**{"threads": 256, "registers": 32, **values})


# commands


def command(*arguments):
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(required=True))
    args = parser.parse_args(arguments)
    return args.run(args)


def test_predict_prints_models_and_published_errors(capsys):
    assert command("predict", "--gpu", "a100-80gb", "--threads", "256") == 0
    text = capsys.readouterr().out
    assert "64 resident warps" in text
    assert all(model.name in text for model in MODELS)
    assert "Ampere" in text


def test_predict_without_gpu_lists_every_generation(capsys):
    assert command("predict", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["gpu"] for row in rows} == set(ARCHITECTURE)
    assert all("relative_error" in row for row in rows)


def test_predict_json_holds_launch_predictions_and_comparison(capsys):
    assert command("predict", "--gpu", "A40", "--loads", "4", "--width", "16", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["warps"] == 48
    assert [p["model"] for p in answer["predictions"]] == ["naive", "little", "queueing"]
    assert len(answer["published"]) == 6


def test_advise_prints_the_cheapest_change(capsys):
    options = ("advise", "--gpu", "h100-pcie", "--threads", "256", "--regs", "40")
    assert command(*options) == 0
    assert "cheapest: " in capsys.readouterr().out
    assert command(*options, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["warps"] == 48
    assert answer["cheapest"]["gain"] > 0.1


@pytest.mark.parametrize(
    "options",
    [
        ("advise", "--gpu", "a40", "--width", "5"),
        ("advise", "--gpu", "a40", "--threads", "1024", "--regs", "255"),
        ("predict", "--gpu", "a40", "--loads", "0"),
        ("predict", "--gpu", "a40", "--threads", "1024", "--regs", "255"),
        ("predict", "--gpu", "geforce-256"),
    ],
)
def test_a_persons_mistake_is_one_line(options):
    with pytest.raises(UserError) as caught:
        command(*options)
    assert "\n" not in str(caught.value)


def test_unknown_gpu_names_the_known():
    with pytest.raises(UserError, match="a100-80gb"):
        parameters_for("a100-81gb")


@pytest.mark.thorough
def test_a_run_that_is_not_whole_says_so(tmp_path, capsys):
    for path in (BASELINES / "nvidia-h200").glob("0-*.jsonl"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    lines = (tmp_path / "0-occupancy.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "0-occupancy.jsonl").write_bytes(b"".join(lines[:-1]))
    assert main(["model", str(tmp_path)]) == 2
    assert "not whole: 0-occupancy.jsonl" in capsys.readouterr().err
