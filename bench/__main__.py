"""python -m bench: run, check, profile, list, device, identity. Exit codes: 0, 2 not whole, 3 bad
input, 4 internal error."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from results.shell import INTERRUPTED, NOT_WHOLE, Parser, guarded


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not value > 0:  # nan is not, either
        raise argparse.ArgumentTypeError(f"{text} is no time to measure in: give seconds over 0")
    return value


def _parser() -> argparse.ArgumentParser:
    from bench.stopping import PROFILES

    parser = Parser(prog="python -m bench", description="Measure on a physical GPU.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="measure families and store the run")
    run.add_argument("--profile", choices=PROFILES, default="standard")
    run.add_argument("--family", nargs="+", action="extend", metavar="F")
    run.add_argument("--device", type=int, default=0, metavar="N")
    run.add_argument("--processes", type=_positive, default=1, metavar="K")
    run.add_argument("--output", type=Path, metavar="DIR")
    run.set_defaults(command=_run)

    check = commands.add_parser("check", help="every case once against its reference, untimed")
    check.add_argument("--family", nargs="+", action="extend", metavar="F")
    check.add_argument("--device", type=int, default=0, metavar="N")
    check.add_argument(
        "--profile",
        choices=PROFILES,
        help="the cases that a run of this profile measures; small examples without it",
    )
    check.add_argument(
        "--seconds",
        type=_seconds,
        default=math.inf,
        metavar="S",
        help="begin no case after S seconds",
    )
    check.add_argument("--brief", action="store_true", help="a line a family, and what is wrong")
    check.set_defaults(command=_check)

    profile = commands.add_parser(
        "profile", help="hardware counters of each case, by Nsight Compute"
    )
    profile.add_argument("--profile", choices=PROFILES, default="standard")
    profile.add_argument("--family", nargs="+", action="extend", metavar="F")
    profile.add_argument("--device", type=int, default=0, metavar="N")
    profile.add_argument("--run", default="latest", help="the run beside which they are stored")
    profile.add_argument("--output", type=Path, metavar="DIR", help="another folder than the run's")
    profile.set_defaults(command=_profile)

    listing = commands.add_parser("list", help="families, kernels and what they show")
    listing.set_defaults(command=_list)

    show = commands.add_parser("device", help="everything that NVML and CUDA tell of the GPU")
    show.add_argument("--device", type=int, default=0, metavar="N")
    show.add_argument("--json", action="store_true")
    show.set_defaults(command=_device)

    identity = commands.add_parser("identity", help="warp, lane and SM of each thread of a launch")
    identity.add_argument("--block", type=int, nargs="+", default=[16, 16], metavar="N")
    identity.add_argument("--grid", type=int, nargs="+", default=[2, 2], metavar="N")
    identity.set_defaults(command=_identity)
    return parser


def _run(options: argparse.Namespace) -> int:
    from bench import families
    from bench.run import run

    return run(
        families.select(options.family),
        options.profile,
        options.device,
        options.processes,
        options.output,
        ["python", "-m", "bench", *map(_relative, sys.argv[1:])],
    )


def _relative(word: str) -> str:
    """A path as seen from the checkout; of one outside, the last part: a record names no home."""
    path = Path(word)
    if not path.is_absolute():
        return word
    inside = path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if inside else f".../{path.name}"


def _check(options: argparse.Namespace) -> int:
    from bench.check import check

    return check(
        options.family, options.device, options.profile, options.seconds, brief=options.brief
    )


def _profile(options: argparse.Namespace) -> int:
    from bench.profile import profile

    return profile(options.family, options.device, options.profile, options.run, options.output)


def _list(options: argparse.Namespace) -> int:
    from bench import families

    for name in families.names():
        family = families.family(name)
        print(f"{name}: {family.summary}")
        width = max(len(kernel.name) for kernel in family.kernels)
        for kernel in family.kernels:
            mark = " (peer)" if kernel.peer else ""
            print(f"  {kernel.name:<{width}}  {kernel.summary}{mark}")
    return 0


def _device(options: argparse.Namespace) -> int:
    from bench import device

    device.usable(options.device)
    snapshot = device.snapshot(options.device)
    print(json.dumps(snapshot, indent=2) if options.json else device.show(snapshot))
    return 0


def _identity(options: argparse.Namespace) -> int:
    from bench.identity import identity

    print(identity(tuple(options.block), tuple(options.grid)))
    return 0


def main(argv: list[str] | None = None) -> int:
    return guarded(lambda: _command(argv), _interrupted)


def _command(argv: list[str] | None) -> int:
    options = _parser().parse_args(argv)
    return int(options.command(options))


def _interrupted() -> int:
    if "run" not in sys.argv[1:2]:
        return INTERRUPTED
    print("warpgauge: interrupted; every finished case is stored", file=sys.stderr)
    return NOT_WHOLE


if __name__ == "__main__":
    sys.exit(main())
