"""Keeps the memory layout of tensors in ops of elementwise kernels: channels-last in, channels-last out.

The order of the axes in memory is that of PyTorch's own elementwise ops: of two axes, the first tensor whose strides of
them differ decides. A call whose tensors have another order than row-major is made with their axes in that order;
outputs, of fake tensors too, have that layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols as is_unknown

from ....dsl.diagnostics.errors import EinkornError
from ..arranged import Order, order_of
from ..elementwise import trouble_of
from ..specialise import Specialisation
from ..spread import joint_inputs


def order_of_call(special: Specialisation, values: Sequence[Any]) -> Order:
    """The order in which the tensors of a call lie in memory; () for row-major ones, and for other kernels.

    `values` are tensors and numbers for the inputs, fake ones too.
    """
    joint = joint_inputs(special.schema)
    tensors = [values[k] for k in joint if isinstance(values[k], torch.Tensor)]
    if len(tensors) < len(joint) or not tensors or tensors[0].dim() < 2:
        return ()
    if all(tensor.is_contiguous() for tensor in tensors):
        return ()
    layouts = [(tuple(map(_size, tensor.shape)), tuple(map(_stride, tensor.stride()))) for tensor in tensors]
    order = order_of(layouts, tensors[0].dim(), first=True)
    return order if order and _is_elementwise(special) else ()


def in_order(values: Sequence[Any], special: Specialisation, order: Order) -> list[Any]:
    """The values of a call, with the axes of its tensors in an order."""
    joint = joint_inputs(special.schema)
    return [value.permute(order) if k in joint else value for k, value in enumerate(values)]


def back(order: Order) -> list[int]:
    """The order that takes an order back."""
    return [order.index(axis) for axis in range(len(order))]


def _is_elementwise(special: Specialisation) -> bool:
    try:
        return not trouble_of(special)
    except EinkornError:  # of a device that is not here
        return False


def _size(size: object) -> int:
    """A size as far as layouts go: 1, or more than that."""
    if isinstance(size, torch.SymInt) and is_unknown(size):
        return 2
    return 1 if size == 1 else 2


def _stride(stride: object) -> Any:
    """A stride; 0, which says nothing, for one that is not known."""
    return 0 if isinstance(stride, torch.SymInt) and is_unknown(stride) else stride
