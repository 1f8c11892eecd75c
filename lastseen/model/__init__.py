"""The model: tensors in, tensors out. No files, no video."""

from lastseen.model.backbone import VIT_B, VIT_G, VIT_L, VIT_S, Backbone, BackboneConfig
from lastseen.model.head import Predictions
from lastseen.model.vqloc import VQLoC, VQLoCConfig

__all__ = [
    "VIT_B",
    "VIT_G",
    "VIT_L",
    "VIT_S",
    "Backbone",
    "BackboneConfig",
    "Predictions",
    "VQLoC",
    "VQLoCConfig",
]
