"""The loaded-latency curve: what a probe under background load measured, and the knee in it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.model.parameters import Value


@dataclass(frozen=True)
class KneeFit:
    """theta and the unloaded latency L0 (in the unit of the data), with relative uncertainties."""

    theta: Value
    latency: Value


def theta_from_curve(rho: Sequence[float], latency: Sequence[float], source: str = "") -> KneeFit:
    """Fit L(rho) = L0*(1 - theta*rho)/(1 - rho) to a measured curve.

    rho: utilisation of the peak bandwidth at the moment of the probe; points at or above 1 (noise
    at saturation) have no latency in this law and are left out. Residuals are relative and
    their loss is soft-L1, so that a few outliers carry little weight; the uncertainty is the
    standard error from the Jacobian and the residual variance.
    ValueError: fewer than three usable points, or all at one utilisation.
    """
    # SciPy takes longer to import than a prediction to make
    from scipy.optimize import least_squares

    load = np.asarray(rho, dtype=float)
    seen = np.asarray(latency, dtype=float)
    if load.shape != seen.shape or load.ndim != 1:
        raise ValueError("rho and latency must be two lists of the same length")
    usable = np.isfinite(load) & np.isfinite(seen) & (load >= 0) & (load < 1) & (seen > 0)
    load, seen = load[usable], seen[usable]
    if len(load) < 3 or np.ptp(load) == 0:
        raise ValueError("a knee needs at least three points at different utilisations below 1")

    def residuals(guess: np.ndarray) -> np.ndarray:
        theta, unloaded = guess
        law = unloaded * (1 - theta * load) / (1 - load)
        return np.asarray(np.log(law / seen))

    start = np.array([0.9, seen[np.argmin(load)]])
    bounds = ([1e-6, 1e-12], [1.0, np.inf])
    fit = least_squares(
        residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.02, x_scale=start
    )
    variance = float(np.sum(residuals(fit.x) ** 2)) / max(len(load) - 2, 1)
    errors = np.sqrt(np.diag(np.linalg.pinv(fit.jac.T @ fit.jac)) * variance)
    theta, unloaded = (float(value) for value in fit.x)
    return KneeFit(
        Value(theta, float(errors[0]) / theta, "", source),
        Value(unloaded, float(errors[1]) / unloaded, "cycle", source),
    )
