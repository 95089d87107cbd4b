"""A quantity as the models use it: with its uncertainty, unit and source."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Value:
    """A quantity with its relative standard uncertainty, unit and source."""

    value: float
    uncertainty: float = 0.0
    unit: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and math.isfinite(self.uncertainty)):
            raise ValueError(f"a parameter must be finite: {self}")
        if self.uncertainty < 0:
            raise ValueError(f"an uncertainty cannot be negative: {self}")

    def shifted(self, sigmas: float) -> "Value":
        """The same quantity, `sigmas` standard uncertainties away."""
        return replace(self, value=self.value * (1 + sigmas * self.uncertainty))
