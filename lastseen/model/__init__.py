"""The models: tensors in, tensors out. No files, no video.

vqloc          the paper's model
similarity     ours: similarity maps in place of cross-attention
training_free  patch matching without training
"""

from lastseen.model.backbone import VIT_B, VIT_G, VIT_L, VIT_S, Backbone, BackboneConfig
from lastseen.model.encoded_query import EncodedQuery
from lastseen.model.head import Predictions
from lastseen.model.protocol import Model
from lastseen.model.similarity import SimilarityConfig, SimilarityModel
from lastseen.model.training_free import TrainingFreeConfig, TrainingFreeModel
from lastseen.model.vqloc import VQLoC, VQLoCConfig

TrainedModel = VQLoC | SimilarityModel
TrainedConfig = VQLoCConfig | SimilarityConfig

__all__ = [
    "VIT_B",
    "VIT_G",
    "VIT_L",
    "VIT_S",
    "Backbone",
    "BackboneConfig",
    "EncodedQuery",
    "Model",
    "Predictions",
    "SimilarityConfig",
    "SimilarityModel",
    "TrainedConfig",
    "TrainedModel",
    "TrainingFreeConfig",
    "TrainingFreeModel",
    "VQLoC",
    "VQLoCConfig",
]
