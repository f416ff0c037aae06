"""Predicts how long a kernel takes on a GPU, and why, without one: gemmlab docs predicting."""

from gemmlab.timing.parameters import WHAT_IFS, Model, model
from gemmlab.timing.prediction import Prediction, in_a_row, predict

__all__ = ["WHAT_IFS", "Model", "Prediction", "in_a_row", "model", "predict"]
