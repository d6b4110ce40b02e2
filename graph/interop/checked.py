"""Calls an op as its callers do, for `check_op`: directly, by PyTorch, by JAX. All have to give the same bits.

See also `testing` (what is compared with what).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...dsl.package.library import LibraryKernel, LoadedKernel
from ...dsl.signature.schema import Form, OpSchema, Role
from ...dsl.types.dtype import DType
from ..driver.buffer import Buffer
from .binding import BoundCall
from .direct import LIBRARIES, called
from .specialise import prepared

Array = np.ndarray[Any, Any]
Outputs = Sequence[tuple[DType, Sequence[int]]] | None


def results_by(
    caller: str,
    kernel: LoadedKernel,
    schema: OpSchema,
    arrays: Sequence[Array],
    parameters: dict[str, object],
    outs: Outputs,
) -> list[Array] | None:
    """The outputs of a call, then what became of the inputs that are changed; None where this caller has no such call.

    Args:
        caller: one of `CALLERS`.
        schema: the signature with variadic arguments spelled out, one array for each of its inputs.
        outs: dtypes and shapes of outputs that the signature does not determine.
    """
    return CALLERS[caller](kernel, schema, arrays, parameters, outs)


def _counts(kernel: LoadedKernel, schema: OpSchema) -> dict[str, int]:
    several = {argument.name for argument in kernel.schema.inputs}
    return {name: count for name, count in schema.counts if name in several}


def _changed(schema: OpSchema, values: Sequence[object]) -> list[Any]:
    return [value for a, value in zip(schema.inputs, values, strict=True) if a.role is Role.MUTABLE]


def _flat(result: object) -> list[Any]:
    """Outputs one by one."""
    if result is None:
        return []
    if isinstance(result, tuple | list):
        return [each for part in result for each in _flat(part)]
    return [result]


def _directly(
    kernel: LoadedKernel, schema: OpSchema, arrays: Sequence[Array], parameters: dict[str, object], outs: Outputs
) -> list[Array] | None:
    out = None if outs is None else tuple(np.empty(tuple(shape), dtype.to_numpy()) for dtype, shape in outs)
    result = called(kernel, prepared(kernel), BoundCall(list(arrays), _counts(kernel, schema), parameters, out))
    return [np.array(each) for each in (*_flat(result), *_changed(schema, arrays))]


def _by_torch(
    kernel: LoadedKernel, schema: OpSchema, arrays: Sequence[Array], parameters: dict[str, object], outs: Outputs
) -> list[Array] | None:
    torch = importlib.import_module("torch")
    if outs is not None or not arrays or any(array.dtype.name not in _TORCH for array in arrays):
        return None
    values = _with_numbers(schema, arrays, lambda array: torch.from_dlpack(Buffer.from_dlpack(np.asarray(array))))
    result = LIBRARIES["torch"].get()(_one(kernel), values, parameters)
    results = [*_flat(result), *_changed(schema, values)]
    return [np.array(Buffer.from_dlpack(each.detach()).to_numpy()) for each in results]


def _by_jax(
    kernel: LoadedKernel, schema: OpSchema, arrays: Sequence[Array], parameters: dict[str, object], outs: Outputs
) -> list[Array] | None:
    jax = importlib.import_module("jax")
    if outs is not None or not arrays or any(array.dtype.name in _NOT_XLA for array in arrays):
        return None
    with jax.enable_x64(True):
        values = _with_numbers(schema, arrays, jax.numpy.asarray)
        return [np.asarray(each) for each in _flat(LIBRARIES["jax"].get()(_one(kernel), values, parameters))]


def _with_numbers(schema: OpSchema, arrays: Sequence[Array], tensor: Callable[[Array], Any]) -> list[Any]:
    """Tensors of a library, and plain numbers for scalars."""
    pairs = zip(schema.inputs, arrays, strict=True)
    return [array.item() if argument.form is Form.SCALAR else tensor(array) for argument, array in pairs]


@functools.lru_cache(maxsize=64)
def _one(kernel: LoadedKernel) -> LibraryKernel:
    """What other libraries register of a kernel: one thing, however often it is called."""
    return LibraryKernel(kernel)


_NOT_XLA = ("float6_e2m3fn", "float6_e3m2fn")  # which JAX has, and its XLA cannot hold
_TORCH = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
CALLERS: Mapping[str, Callable[..., list[Array] | None]] = {"direct": _directly, "torch": _by_torch, "jax": _by_jax}
