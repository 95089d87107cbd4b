"""`python -m analysis model | predict | advise`: models scored on a run or asked of a launch."""

import argparse
import json
from dataclasses import asdict

from analysis.model import MODELS, Launch, Parameters, Prediction, advise
from analysis.model.published import ARCHITECTURE, Comparison, compare, published_parameters
from analysis.occupancy import occupancy
from results.errors import UserError
from results.shell import no_such, not_whole
from results.store import baselines


def add_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `model`, `predict` and `advise`."""
    model = subparsers.add_parser(
        "model",
        help="score the latency-hiding models on the measured cases of a run",
        description="Parameters come from the run's calibration cases alone, which are never "
        "scored. An error is predicted over measured throughput, less 1.",
    )
    model.add_argument("run_", metavar="RUN", help="a run's folder or file, or a baseline's name")
    model.add_argument("--json", action="store_true", help="every score as JSON")
    model.set_defaults(run=run_model)
    predict = subparsers.add_parser(
        "predict",
        help="predict a launch's bandwidth by each model, beside published figures",
        description="Without --gpu: each model's error on every published GPU.",
    )
    known = ", ".join((*baselines(), *ARCHITECTURE))
    predict.add_argument("--gpu", help=f"one of {known}")
    advise_ = subparsers.add_parser(
        "advise", help="what limits a launch, and the cheapest change that helps"
    )
    advise_.add_argument("--gpu", required=True, help=f"one of {known}")
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
    """The parameters of a GPU: of a committed baseline by its name, or published ones.

    UserError: a name that is not known, or a baseline without calibration.
    """
    name = gpu.lower()
    if name in ARCHITECTURE:
        return published_parameters(name)
    if name in baselines():
        # pandas takes longer to import than published parameters to read
        from analysis.model.measured import measure

        return measure(name).persistent
    raise no_such("GPU", gpu, (*baselines(), *ARCHITECTURE))


def run_model(args: argparse.Namespace) -> int:
    """Print every model's errors on a run's scored cases; 2 where the run is not whole.

    Raises:
        UserError: the run cannot be read, or has nothing to score or to take parameters from.
    """
    from analysis.frame import frame, problems
    from analysis.model.scoring import points, scores
    from results.store import load

    recording = load(args.run_)
    table = frame(recording)
    found = points(recording, table=table)
    if not found:
        raise UserError(f"{args.run_} has no case that a model is scored on: record occupancy")
    result = scores(found)
    if args.json:
        print(json.dumps([asdict(score) for score in result], indent=2))
        return not_whole(problems(recording, table))
    print("error of the predicted throughput over the launch, mean and maximum of its magnitude")
    print(f"{'cases':34} {'number':>6}  {'model':9} {'mean':>6} {'max':>6}  worst case")
    for score in result:
        if score.curve is None:
            print(
                f"{score.group:34} {score.cases:6}  {score.model:9} "
                f"{score.mean_relative_error:6.1%} {score.maximum_relative_error:6.1%}  "
                f"{score.worst}"
            )
    print()
    print("warps an SM to 90% of a curve's own plateau; -: still rising at its end")
    print(f"{'curve':46} {'model':9} {'measured':>8} {'predicted':>9}  {'mean':>6} {'max':>6}")
    for score in result:
        if score.curve is not None and score.model != "waves":
            print(
                f"{score.group + ', ' + score.curve:46} {score.model:9} "
                f"{_warps(score.warps_to_90_measured):>8} "
                f"{_warps(score.warps_to_90_predicted):>9}  "
                f"{score.mean_relative_error:6.1%} {score.maximum_relative_error:6.1%}"
            )
    return not_whole(problems(recording, table))


def _warps(warps: float | None) -> str:
    return "-" if warps is None else f"{warps:.1f}"


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
    published = args.gpu.lower() in ARCHITECTURE
    comparisons = list(compare(parameters.gpu, MODELS)) if published else []
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
    if comparisons:
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
