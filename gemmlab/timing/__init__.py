"""Predicts how long a kernel takes on a GPU, and why, without one: gemmlab docs predicting."""

from gemmlab.timing.parameters import Model, model
from gemmlab.timing.prediction import Prediction, predict

__all__ = ["Model", "Prediction", "model", "predict"]
