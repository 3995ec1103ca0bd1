"""The trained labeller and its file."""

from crftool.model.model import Model
from crftool.model.weights import TrainedWeights

__all__ = ["Model", "TrainedWeights"]
