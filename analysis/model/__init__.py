"""Analytic models of latency hiding: naive, Little's law, queueing. docs/model.md derives them.

`for model in MODELS: model.predict(parameters, workload)` is the whole interface; nothing here
reads a record or touches a GPU.
"""

from analysis.model.advice import Advice, Change, Launch, advise
from analysis.model.axpy import Knee, axpy, knee, with_extra_fma
from analysis.model.curve import KneeFit, theta_from_curve
from analysis.model.little import LITTLE
from analysis.model.naive import NAIVE
from analysis.model.parameters import Parameters, Value, Workload
from analysis.model.prediction import Model, Prediction
from analysis.model.queueing import QUEUEING
from analysis.model.waves import grid_time, waves

MODELS: tuple[Model, ...] = (NAIVE, LITTLE, QUEUEING)

__all__ = [
    "LITTLE",
    "MODELS",
    "NAIVE",
    "QUEUEING",
    "Advice",
    "Change",
    "Knee",
    "KneeFit",
    "Launch",
    "Model",
    "Parameters",
    "Prediction",
    "Value",
    "Workload",
    "advise",
    "axpy",
    "grid_time",
    "knee",
    "theta_from_curve",
    "waves",
    "with_extra_fma",
]
