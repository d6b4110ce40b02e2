"""Holds tensors of which a round of a loop computes how many elements count along an axis.

Sizes are known before a loop runs, so the tensor has as many elements as the whole axis, and those that count are the
first ones. A slice whose bounds change from round to round is such a tensor: a bag of embeddings, a word of a text.

See also `rows.leading` (ops on them).
"""

from __future__ import annotations

from ...dsl.diagnostics.dataclass import dataclass
from ..staging.value import TensorValue


@dataclass(frozen=True)
class LeadingPart:
    """The first `count` elements of `whole` along `axis`; what the others are is open."""

    whole: TensorValue
    axis: int
    count: TensorValue
