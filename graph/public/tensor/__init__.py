"""`einkorn.tensor`: `Tensor`, and when and where tensors get their values. See docs/eager.md."""

from einkorn.graph.eager.contexts import (
    EagerRealizationContext,
    GraphRealizationContext,
    LazyRealizationContext,
    RealizationContext,
    RealizationState,
    current_realization_context,
    default_device,
    default_dtype,
    defaults,
    defaults_like,
    realization_context,
)
from einkorn.graph.eager.functional import functional as functional  # with it ops are methods of Tensor
from einkorn.graph.eager.tensor import Tensor

__all__ = [
    "EagerRealizationContext",
    "GraphRealizationContext",
    "LazyRealizationContext",
    "RealizationContext",
    "RealizationState",
    "Tensor",
    "current_realization_context",
    "default_device",
    "default_dtype",
    "defaults",
    "defaults_like",
    "realization_context",
]
