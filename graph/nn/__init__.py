"""Layers of networks: a module holds parameters and children, and computes at once or as one compiled graph.

    from einkorn.graph import nn

    model = nn.Sequential(nn.Linear(784, 128), nn.LayerNorm(128), nn.Linear(128, 10))
    model.load_state_dict({name: w.data() for name, w in weights.items()})
    compiled = model.compile(TensorType(DType.float32, ["batch", 784], DeviceRef.CPU()))

See docs/modules.md.
"""

from .attention import Attention
from .cache import KVCacheParams, PagedKVCacheManager, RaggedBatch
from .containers import MLP, ModuleList, Sequential
from .convolution import Conv2d
from .experts import MoE, MoEGate
from .figures import ServingFigures
from .generator import AsyncTokenStream, Generator, Request, TokenStream
from .linear import Embedding, Linear
from .module import CompiledModule, Module, module_dataclass
from .norms import GroupNorm, LayerNorm, RMSNorm
from .paged import PagedCache
from .recurrent import GRU, LSTM
from .rotary import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    RotaryEmbedding,
    YarnScaling,
    rotary_table,
)
from .sampling import SamplingParams, sample
from .state import StateError

__all__ = [
    "GRU",
    "LSTM",
    "MLP",
    "AsyncTokenStream",
    "Attention",
    "CompiledModule",
    "Conv2d",
    "DynamicScaling",
    "Embedding",
    "Generator",
    "GroupNorm",
    "KVCacheParams",
    "LayerNorm",
    "Linear",
    "LinearScaling",
    "Llama3Scaling",
    "MoE",
    "MoEGate",
    "Module",
    "ModuleList",
    "PagedCache",
    "PagedKVCacheManager",
    "RMSNorm",
    "RaggedBatch",
    "Request",
    "RotaryEmbedding",
    "SamplingParams",
    "Sequential",
    "ServingFigures",
    "StateError",
    "TokenStream",
    "YarnScaling",
    "module_dataclass",
    "rotary_table",
    "sample",
]
