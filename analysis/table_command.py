"""`python -m analysis table RUN`: every case of a run, for people, as JSON or as CSV."""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING, Any

from analysis.units import label, pretty
from results.shell import no_such, not_whole

if TYPE_CHECKING:
    import pandas as pd

FIELDS = ("family", "kernel", "params", "status", "reason", "peer", "launch")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `table` command."""
    parser = subparsers.add_parser(
        "table",
        help="every case of a run with its metrics",
        description="One row a case: medians over the processes' medians. Exit code 2 where the "
        "run is not whole.",
    )
    parser.add_argument("RUN", help="folder or file of records, or the name of a baseline")
    parser.add_argument("--family", help="this family only")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a list of objects, SI units")
    form.add_argument("--csv", action="store_true", help="the same flattened, SI units")
    parser.set_defaults(run=table)


def table(arguments: argparse.Namespace) -> int:
    """Print the table; 2 where the run is not whole, else 0.

    Raises:
        UserError: the run cannot be read, or has no such family.
    """
    from analysis.frame import frame, problems
    from results.store import load

    recording = load(arguments.RUN)
    rows = whole = frame(recording)
    if arguments.family is not None:
        rows = whole[whole["family"] == arguments.family]
        if rows.empty:
            raise no_such("family", arguments.family, dict.fromkeys(whole["family"]))
    if arguments.json:
        print(json.dumps([_object(row) for row in rows.to_dict("records")], indent=1))
    elif arguments.csv:
        print(_flat(rows).to_csv(index=False, lineterminator="\n"), end="")
    else:
        print(f"{recording.name}: {recording.device.get('name')}, {len(rows)} cases")
        for family, part in rows.groupby("family", sort=False):
            print(f"\n{family}\n{_text(part)}")
    return not_whole(problems(recording, rows))


def _metrics() -> list[str]:
    from analysis.frame import SCALARS

    return SCALARS


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _object(row: dict[Any, Any]) -> dict[str, Any]:
    """One case as the JSON form has it; a metric that does not apply is absent."""
    return {
        **{name: None if _absent(row[name]) else row[name] for name in FIELDS},
        "median_seconds": None if _absent(row["median_seconds"]) else row["median_seconds"],
        "processes": row["processes"],
        "metrics": {name: row[name] for name in _metrics() if not _absent(row[name])},
    }


def _flat(rows: pd.DataFrame) -> pd.DataFrame:
    """The JSON form's columns with params, launch and metrics spread out, without those that are
    empty in all rows."""
    import pandas as pd

    objects = [_object(row) for row in rows.to_dict("records")]
    records = [
        {
            **{name: item[name] for name in ("family", "kernel")},
            **item["params"],
            **{name: item[name] for name in ("status", "reason", "peer")},
            **{
                f"launch_{name}": "x".join(map(str, value))
                if isinstance(value, list | tuple)
                else value
                for name, value in item["launch"].items()
            },
            **{name: item[name] for name in ("median_seconds", "processes")},
            **item["metrics"],
        }
        for item in objects
    ]
    columns = ["family", "kernel", *dict.fromkeys(name for i in objects for name in i["params"])]
    columns += ["status", "reason", "peer"]
    columns += dict.fromkeys(f"launch_{name}" for item in objects for name in item["launch"])
    columns += ["median_seconds", "processes"]
    columns += [name for name in _metrics() if any(name in item["metrics"] for item in objects)]
    # Objects, not floats: a column of whole numbers with a gap must not become 256.0.
    return pd.DataFrame(records, columns=columns, dtype=object)


def _text(rows: pd.DataFrame) -> str:
    """Aligned columns; a metric that no case of the family has is left out."""
    numbers = [
        name for name in ("median_seconds", "spread", *_metrics()) if rows[name].notna().any()
    ]
    heads = ["kernel", "case", *map(label, numbers)]
    lines = [
        [
            row["kernel"] + (" (peer)" if row["peer"] else ""),
            compact(row["params"]),
            *(pretty(name, row[name]) for name in numbers),
        ]
        for row in rows.to_dict("records")
    ]
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    notes = [
        # a column of texts and gaps may hold NaN for a gap
        "" if status == "ok" and not isinstance(reason, str) else f"{status}: {reason}"
        for status, reason in zip(rows["status"], rows["reason"], strict=True)
    ]
    return "\n".join(
        "  ".join(
            [
                text.ljust(w) if i < 2 else text.rjust(w)
                for i, (text, w) in enumerate(zip(line, widths, strict=True))
            ]
            + [note]
        ).rstrip()
        for line, note in zip([heads, *lines], ["", *notes], strict=True)
    )


def compact(params: dict[str, Any]) -> str:
    """`n=2^28 float32 block=256`: a dtype speaks for itself."""
    return " ".join(
        str(value) if name == "dtype" else f"{name}={pretty(name, value)}"
        for name, value in params.items()
    )
