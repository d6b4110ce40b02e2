"""Multiplies tensors as the standard's functions do: matrix products, contractions, dot products.

See also `linalg` (solving and factorising).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...dsl.environment.tracebacks import placed
from ..arguments import axis_of, int_of, wrong
from ..eager import functional as F
from ..eager.tensor import Tensor
from .manipulation import moveaxis
from .operands import tensor


@placed
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product over the last two axes; the axes before them broadcast, and vectors are rows and columns."""
    return F.matmul(tensor("x1", x1), tensor("x2", x2))


@placed
def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes swapped."""
    return tensor("x", x).mT


@placed
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over pairs of axes.

    Args:
        x1, x2: tensors.
        axes: the last so many axes of x1 with the first of x2; or the axes of x1, and those of x2.

    Raises:
        GraphError: EK0422, axes that do not exist; EK0427, sizes that differ.
    """
    if isinstance(axes, tuple | list):
        left, right = ([*each] if isinstance(each, Sequence) else [each] for each in axes)
    else:
        count = int_of("axes", axes)
        left, right = [*range(tensor("x1", x1).rank - count, x1.rank)], [*range(count)]
    left = [axis_of(each, tensor("x1", x1).rank, "axes") for each in left]
    right = [axis_of(each, tensor("x2", x2).rank, "axes") for each in right]
    if [x1.shape[k] for k in left] != [x2.shape[k] for k in right]:
        wrong("axes", axes, f"axes of equal sizes in {tuple(x1.shape)} and {tuple(x2.shape)}", code="EK0427")
    rows = [k for k in range(x1.rank) if k not in left]
    columns = [k for k in range(x2.rank) if k not in right]
    inner = math.prod(x1.shape[k] for k in left)
    outer = [x1.shape[k] for k in rows], [x2.shape[k] for k in columns]
    first = F.reshape(F.permute(x1, [*rows, *left]), [math.prod(outer[0]), inner])
    second = F.reshape(F.permute(x2, [*right, *columns]), [inner, math.prod(outer[1])])
    return F.reshape(F.matmul(first, second), [*outer[0], *outer[1]])


@placed
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The dot products of vectors along an axis, counted from the end; the first are conjugated, other axes broadcast.

    Raises:
        GraphError: EK0422, an axis that does not exist; EK0427, vectors of different sizes.
    """
    first = moveaxis(tensor("x1", x1), axis, -1)
    second = moveaxis(tensor("x2", x2), axis, -1)
    if first.shape[-1] != second.shape[-1]:
        wrong("axis", axis, f"an axis of one size in {tuple(x1.shape)} and {tuple(x2.shape)}", code="EK0427")
    product = F.matmul(F.unsqueeze(F.conj(first), -2), F.unsqueeze(second, -1))
    return F.reshape(product, product.shape[:-2])
