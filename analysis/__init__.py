"""What it means: occupancy, models, comparison, report and verdict, from recorded runs alone.

Nothing here imports CUDA, numba or NVML, so all of it works on a laptop. In a notebook,
`analysis.frame("nvidia-h200")` is a tidy DataFrame of a run.
"""

from importlib import import_module
from typing import Any

__all__ = ["frame"]


def __getattr__(name: str) -> Any:
    """`analysis.frame` on demand, so that commands without a table start without pandas."""
    if name == "frame":
        return import_module("analysis.frame")
    raise AttributeError(f"module 'analysis' has no attribute {name!r}")
