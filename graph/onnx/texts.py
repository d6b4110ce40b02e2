"""Represents tensors of texts: a graph computes with numbers, each the place of a text in a list.

Texts that a model holds (initialisers, labels of classes, values of a table) are listed at import. Ops that move
elements move the numbers. An output of texts is the int64 tensor of the numbers; `Graph.output_texts` has the texts.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from ..staging.value import TensorValue
from .known import KnownTensor

# Op types that move elements, or choose some of them, by their first input.
MOVING = frozenset(
    {"ArrayFeatureExtractor", "Cast", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"}
    | {"Reshape", "Shape", "Size", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)


@dataclass(eq=False)
class Texts:
    """A tensor of texts.

    Attributes:
        places: for each element the place of its text in `listed`, int64.
        listed: the texts.
    """

    places: TensorValue | KnownTensor
    listed: tuple[str, ...]


def texts_of(tensor: onnx.TensorProto) -> Texts:
    """The elements of a tensor of texts; ValueError where they are not as many as its sizes say."""
    listed = tuple(each.decode("utf-8", "replace") for each in tensor.string_data)
    if math.prod(tensor.dims) != len(listed) or min(tensor.dims, default=0) < 0:
        raise ValueError(f"the tensor {tensor.name!r} has the sizes {list(tensor.dims)} and {len(listed)} texts")
    places = np.arange(len(listed), dtype=np.int64).reshape(tuple(tensor.dims))
    return Texts(KnownTensor(places, DType.int64), listed)
