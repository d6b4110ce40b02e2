"""Lets ops that write into tensors take those whose memory waits for its conjugation or its negation.

`x.conj()`, and `.imag` of that, are views with a bit: readers of the memory change the signs. PyTorch resolves what an
op reads, and of what it writes only results that the op returns; ops that return nothing fail there.

See also `tensors` (tensors that are read).
"""

from __future__ import annotations

from typing import Any

import torch

from .names import untraced
from .tensors import flat, tensors_of


def write_pending(name: str, library: torch.library.Library) -> None:
    """Registers what calls an op with memory that has no bits, and writes back what the op has written."""
    namespace, _, plain = name.partition("::")
    op = getattr(getattr(torch.ops, namespace), plain).default
    written = [k for k, argument in enumerate(op._schema.arguments) if argument.is_write]

    def call(*values: object, **parameters: object) -> Any:
        resolved = [_resolved(value) for value in values]
        result = op(*resolved, **parameters)
        for k in written:
            for tensor, memory in zip(tensors_of(values[k]), flat([resolved[k]]), strict=True):
                if tensor is not memory:
                    tensor.copy_(memory)
        return result

    for key in ("Conjugate", "Negative"):
        library.impl(plain, untraced(call), key)


def _resolved(value: object) -> Any:
    if isinstance(value, list | tuple):
        return [_resolved(each) for each in value]
    if not isinstance(value, torch.Tensor) or not (value.is_conj() or value.is_neg()):
        return value
    return value.resolve_conj().resolve_neg()
