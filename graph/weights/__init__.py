"""Loads weights from files, where they lie in the file: nothing is read before it is used.

weights = load_weights(["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])
scale = weights.layers[0].norm.weight.allocate()          # a Weight for graphs
model = session.load(graph, weights_registry=weights.allocated_weights)
"""

from .access import GGUFWeights, SafetensorWeights, WeightData, Weights
from .gguf_writer import write_gguf
from .load import WeightsFormat, load_weights, weights_format

__all__ = [
    "GGUFWeights",
    "SafetensorWeights",
    "WeightData",
    "Weights",
    "WeightsFormat",
    "load_weights",
    "weights_format",
    "write_gguf",
]
