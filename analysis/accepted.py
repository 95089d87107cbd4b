"""Known changes, each with its reason: `results/accepted.jsonl`, one a line, committed.

A verdict across an accepted change starts from the accepted level, and history starts anew there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Protocol

import msgspec

from results.errors import UserError
from results.schema import Moment, Scalar
from results.store import ROOT

ACCEPTED = ROOT / "accepted.jsonl"


class Dated(Protocol):
    """What has a start: one side of a comparison."""

    started: str


class Acceptance(msgspec.Struct, frozen=True, omit_defaults=True):
    """One case's change that somebody knows of."""

    gpu: str
    family: str
    kernel: str
    params: dict[str, Scalar]
    reason: str
    since: Moment
    """Start of the run NEW that showed it, UTC, ISO 8601."""
    base: str
    new: str
    """Names of the runs that showed it."""
    metric: str | None = None
    ratio: Annotated[float, msgspec.Meta(gt=1e-3, lt=1e3)] | None = None
    """NEW over BASE in that metric; absent where the case newly failed."""

    @property
    def key(self) -> tuple[str, str, tuple[tuple[str, Scalar], ...]]:
        return self.family, self.kernel, tuple(sorted(self.params.items()))

    def between(self, key: object, base: Dated, new: Dated) -> bool:
        """Whether it is this case's and lies between the two sides."""
        return self.key == key and base.started < self.since <= new.started


_decoder = msgspec.json.Decoder(Acceptance)


def load() -> list[Acceptance]:
    """Every accepted change, oldest first; none where there is no file.

    Raises:
        UserError: a line is malformed.
    """
    if not ACCEPTED.exists():
        return []
    found = []
    for number, line in enumerate(ACCEPTED.read_bytes().splitlines(), 1):
        try:
            found.append(_decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UserError(f"{ACCEPTED} line {number} is malformed ({error}); mend it") from None
    return sorted(found, key=lambda item: item.since)


def add(items: Iterable[Acceptance]) -> None:
    """Append to the file.

    Raises:
        UserError: it cannot be written.
    """
    try:
        with ACCEPTED.open("ab") as file:
            for item in items:
                file.write(msgspec.json.encode(item) + b"\n")
    except OSError as error:
        raise UserError(f"cannot write {ACCEPTED}: {error.strerror}") from None
