"""`python -m analysis predict | advise`: the models asked about a launch that need not have run."""

import argparse
import json
from dataclasses import asdict

from analysis.model import MODELS, Launch, Parameters, Prediction, advise
from analysis.model.published import ARCHITECTURE, Comparison, compare, published_parameters
from analysis.occupancy import occupancy
from results.errors import UserError


def add_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `predict` and `advise`."""
    predict = subparsers.add_parser(
        "predict",
        help="predict a launch's bandwidth by each model, beside published figures",
        description="Without --gpu: each model's error on every published GPU.",
    )
    predict.add_argument("--gpu", help=f"one of {', '.join(ARCHITECTURE)}")
    advise_ = subparsers.add_parser(
        "advise", help="what limits a launch, and the cheapest change that helps"
    )
    advise_.add_argument("--gpu", required=True, help=f"one of {', '.join(ARCHITECTURE)}")
    for parser, run in ((predict, run_predict), (advise_, run_advise)):
        parser.add_argument("--threads", type=int, default=256, help="a block (default 256)")
        parser.add_argument("--regs", type=int, default=32, help="a thread (default 32)")
        parser.add_argument("--static-smem", type=int, default=0, help="bytes a block")
        parser.add_argument("--dynamic-smem", type=int, default=0, help="bytes a block")
        parser.add_argument("--loads", type=int, default=1, help="independent, in flight a warp")
        parser.add_argument("--width", type=int, default=4, help="bytes a lane and load")
        parser.add_argument(
            "--alpha", type=float, default=0, help="dependent arithmetic instructions a word"
        )
        parser.add_argument("--json", action="store_true")
        parser.set_defaults(run=run)


def parameters_for(gpu: str) -> Parameters:
    """The parameters of a GPU by name. UserError: a name that is not known."""
    try:
        return published_parameters(gpu.lower())
    except KeyError:
        raise UserError(f"no parameters for GPU {gpu!r}: use {', '.join(ARCHITECTURE)}") from None


def run_predict(args: argparse.Namespace) -> int:
    """Print every model's prediction and its error on published figures. Always 0."""
    if args.gpu is None:
        comparisons = [row for gpu in ARCHITECTURE for row in compare(gpu, MODELS)]
        if args.json:
            print(json.dumps([_comparison(row) for row in comparisons], indent=2))
        else:
            _print_comparisons(comparisons)
        return 0

    parameters = parameters_for(args.gpu)
    launch = _launch(args)
    warps = _resident(parameters, args, launch.threads, launch.registers)
    if warps < 1:
        raise UserError("no such block fits an SM: use fewer threads, registers or shared memory")
    workload = launch.workload(warps)
    predictions = [model.predict(parameters, workload) for model in MODELS]
    comparisons = list(compare(parameters.gpu, MODELS))
    if args.json:
        answer = {
            "gpu": parameters.gpu,
            "launch": asdict(launch),
            "warps": warps,
            "predictions": [asdict(prediction) for prediction in predictions],
            "published": [_comparison(row) for row in comparisons],
        }
        print(json.dumps(answer, indent=2))
        return 0
    print(f"{parameters.gpu}, {_describe(launch, warps)}")
    for prediction in predictions:
        print(f"  {prediction.model:9} {_bandwidth(prediction)}")
    print()
    _print_comparisons(comparisons)
    return 0


def run_advise(args: argparse.Namespace) -> int:
    """Print resident warps, the share of peak, its limiter and the changes that help. Always 0."""
    parameters = parameters_for(args.gpu)
    launch = _launch(args)
    try:
        advice = advise(
            parameters,
            launch,
            lambda threads, registers: _resident(parameters, args, threads, registers),
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    cheapest = advice.cheapest
    if args.json:
        answer = {
            "gpu": parameters.gpu,
            **asdict(advice),
            "cheapest": asdict(cheapest) if cheapest else None,
        }
        print(json.dumps(answer, indent=2))
        return 0
    print(f"{parameters.gpu}, {_describe(launch, advice.warps)}")
    print(f"  {_bandwidth(advice.prediction)}, {advice.share:.0%} of memory's peak")
    for change in advice.changes:
        mark = "->" if change is cheapest else "  "
        print(
            f"  {mark} {change.gain:+7.0%}  {change.description}: "
            f"{change.warps} warps, {change.share:.0%} of peak"
        )
    if cheapest is None:
        print("  no single change gains 1% or more")
    else:
        print(f"  cheapest: {cheapest.description}")
    return 0


def _launch(args: argparse.Namespace) -> Launch:
    try:
        return Launch(args.threads, args.regs, args.loads, args.width, args.alpha)
    except ValueError as error:
        raise UserError(str(error)) from error


def _resident(
    parameters: Parameters, args: argparse.Namespace, threads: int, registers: int
) -> int:
    return occupancy(parameters.cc, threads, registers, args.static_smem, args.dynamic_smem).warps


def _describe(launch: Launch, warps: int) -> str:
    return (
        f"blocks of {launch.threads} threads, {launch.registers} registers, "
        f"{launch.loads} x {launch.width}-byte loads, {launch.alpha:g} arithmetic a word: "
        f"{warps} resident warps an SM"
    )


def _bandwidth(prediction: Prediction) -> str:
    low, high = (edge / 1e9 for edge in prediction.band)
    limit = prediction.limiter
    if prediction.resource not in (limit, "latency"):
        limit = f"{prediction.resource} {limit}"
    return f"{prediction.bandwidth / 1e9:6.0f} GB/s ({low:.0f} to {high:.0f}), limited by {limit}"


def _comparison(row: Comparison) -> dict[str, object]:
    return {**asdict(row), "relative_error": row.relative_error}


def _print_comparisons(rows: list[Comparison]) -> None:
    print("published figures: gpu-stream's read kernel, one 8-byte load a thread")
    print(
        f"{'gpu':10} {'generation':10} {'quantity':14} {'published':>9}  "
        f"{'model':9} {'predicted':>11}  error"
    )
    for row in rows:
        bandwidth = row.unit == "B/s"
        scale, quantity = (1e-9, "read, GB/s") if bandwidth else (1, "warps to 90%")
        if row.predicted is None:
            predicted, error = "not reached", ""
        else:
            predicted, error = f"{row.predicted * scale:.0f}", f"{row.relative_error:+.0%}"
        print(
            f"{row.gpu:10} {row.architecture:10} {quantity:14} {row.published * scale:9.0f}  "
            f"{row.model:9} {predicted:>11}  {error:>5}"
        )
