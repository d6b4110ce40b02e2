"""Runs models over the first rows of padded batches, and takes and gives tensors as bytes.

See also `call` (how a call is made).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DTypeError, GraphError, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import dtype_of, int_of, list_of, wrong
from ..driver.arrays import rounded
from ..driver.buffer import Buffer
from ..ir import GraphIR
from ..types.dims import StaticDim, SymbolicDim
from ..types.tensor_type import ShapedType
from .call import Caller
from .inputs import sizes_of


def check_extent(ir: GraphIR, extent: Mapping[str, int]) -> dict[str, int]:
    """The active sizes of dims, by their names.

    Raises:
        GraphError: EK0454 the graph has no such dim, or the size is invalid.
    """
    names = sorted({name for type in ir.inputs for name in type.shape.parameters})
    for name, size in extent.items():
        if name not in names or isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise GraphError(
                f"graph '{ir.name}': the active extent of {name!r} cannot be {shown_value(size)}",
                code="EK0454",
                place=user_place(),
                argument=name,
                expected=f"a size for one of {', '.join(names) or 'no dims'}",
                got=shown_value(size),
            )
    return dict(extent)


def run_padded(call: Caller, inputs: Sequence[Any], extent: Mapping[str, int]) -> list[Buffer]:
    """A call over the first elements of each axis that has a dim of `extent`; the rest of the outputs is 0.

    Raises:
        GraphError: EK0454 an input has fewer elements than are active.
    """
    arrays = [check.array(value) for check, value in zip(call.checks, inputs, strict=True)]
    full, misfits = sizes_of(call.checks, [array.shape for array in arrays])
    if misfits:
        raise next(iter(misfits.values()))
    for name, size in extent.items():
        if size > full.get(name, size):
            raise GraphError(
                f"dim '{name}' has {full[name]} elements, and {size} are to be active",
                code="EK0454",
                place=user_place(),
                argument=name,
                expected=f"at most {full[name]}",
                got=size,
            )
    given, call.given = call.given, None
    results = call.run([_first(array, check.type, extent) for array, check in zip(arrays, call.checks, strict=True)])
    padded = []
    for position, (result, type) in enumerate(zip(results, call.ir.output_types, strict=True)):
        shape = tuple(dim.evaluate(full) for dim in type.shape)
        wanted = None if given is None else given[position]
        if wanted is None and shape == tuple(result.shape):
            padded.append(result)
            continue
        whole = Buffer(type.dtype, shape) if wanted is None else wanted
        array = whole.to_numpy()
        array[...] = 0
        array[tuple(slice(size) for size in result.shape)] = result.to_numpy()
        padded.append(whole)
    return padded


def _first(array: np.ndarray[Any, Any], type: ShapedType, extent: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """The active part of an input; one that is changed in place is a view all the same."""
    index = tuple(slice(extent.get(d.name) if isinstance(d, SymbolicDim) else None) for d in type.shape)
    return array[index]


def sizes_given(name: str, shape: Any) -> tuple[int, ...]:
    """A shape of plain sizes."""
    listed = list_of(name, shape, "sizes", "EK0454")
    return tuple(int_of(f"{name}[{axis}]", size, "EK0454", "an int >= 0") for axis, size in enumerate(listed))


def from_bytes(ir: GraphIR, inputs: Sequence[tuple[Any, ...]]) -> list[np.ndarray[Any, Any]]:
    """Inputs given as (bytes, dtype) or (bytes, dtype, shape), as arrays; a narrower dtype of the same kind is widened.

    Raises:
        GraphError: EK0451 a wrong number of inputs; EK0454 the bytes are not a tensor of the shape.
        DTypeError: EK0452 the dtype does not widen to that of the graph.
    """
    inputs = list_of("inputs", inputs, "(bytes, dtype) for each input", "EK0451")
    if len(inputs) != len(ir.inputs):
        raise GraphError(
            f"graph '{ir.name}' takes {len(ir.inputs)} inputs, {len(inputs)} are given",
            code="EK0451",
            place=user_place(),
            expected=len(ir.inputs),
            got=len(inputs),
        )
    arrays = []
    for position, (name, type, given) in enumerate(zip(ir.argument_names, ir.inputs, inputs, strict=True)):
        items = list_of(f"inputs[{position}]", given, "bytes, a dtype and, where it is open, a shape", "EK0452")
        if not 2 <= len(items) <= 3:
            wrong(f"inputs[{position}]", given, "(bytes, dtype) or (bytes, dtype, shape)", code="EK0452")
        arrays.append(_from_bytes(name, type, *items))
    return arrays


def _from_bytes(
    name: str, type: ShapedType, data: Any, dtype: DType, shape: Sequence[int] | None = None
) -> np.ndarray[Any, Any]:
    dtype = dtype_of("dtype", dtype)
    if not isinstance(data, bytes | bytearray | memoryview):
        wrong(name, data, "bytes", code="EK0452", kind=DTypeError)
    if dtype is not type.dtype and not _widens(dtype, type.dtype):
        raise DTypeError(
            f"'{name}' holds {dtype}, which does not widen to {type.dtype}",
            code="EK0452",
            place=user_place(),
            argument=name,
            expected=str(type.dtype),
            got=str(dtype),
        )
    view = memoryview(data).cast("B")
    count, rest = divmod(len(view), dtype.to_numpy().itemsize)
    sizes = _deduced(type, count) if shape is None else sizes_given("shape", shape)
    if rest or sizes is None or math.prod(sizes) != count:
        raise GraphError(
            f"'{name}' has {len(view)} bytes, which are no {type.shape} of {dtype}"
            if shape is None
            else f"'{name}' has {len(view)} bytes, which are no {sizes} of {dtype}",
            code="EK0454",
            place=user_place(),
            argument=name,
            expected=str(type),
            got=f"{len(view)} bytes",
            hint="give the shape as a third item" if shape is None else None,
        )
    array = np.frombuffer(view, dtype.to_numpy()).reshape(sizes)
    return array if dtype is type.dtype else rounded(array, type.dtype)


def _widens(narrow: DType, wide: DType) -> bool:
    if narrow.is_packed() or wide.is_packed():
        return False
    return narrow.bits < wide.bits and narrow.kind == wide.kind


def _deduced(type: ShapedType, count: int) -> tuple[int, ...] | None:
    """The shape of `count` elements, where at most one size is open."""
    known = [int(dim) if isinstance(dim, StaticDim) else None for dim in type.shape]
    product = math.prod(size for size in known if size is not None)
    if known.count(None) > 1 or (None in known and (product == 0 or count % product)):
        return None
    return tuple(count // product if size is None else size for size in known)
