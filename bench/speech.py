"""Lines for a person. That nobody listens any more must not cost a measurement."""

from __future__ import annotations

import sys

from results.shell import hush


def say(text: str) -> None:
    """Print a line at once; where the output takes no more, be silent from here on.

    The output may be a pipe whose reader has left (`| head`, a terminal that was closed) or a
    file on a full disk; the record is what counts.
    """
    try:
        print(text, flush=True)
    except OSError:
        hush(sys.stdout)
