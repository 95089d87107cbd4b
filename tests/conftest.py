"""What holds for every tier: which objects the collector of garbage looks at."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Compilers and simulated threads make millions of short-lived objects. Each look through all
    that the imports and the collection left behind would cost them an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
