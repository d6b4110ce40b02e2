"""Stages literals, and weights by their names."""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import dtype_of, text_of, wrong
from ..driver.devices import Device, DeviceRef
from ..staging.value import TensorValue, TensorValueLike
from ..staging.weight import check_weight_type
from ..types.promotion import literal_array
from ..types.tensor_type import TensorType
from .stage import current, op


@op(dtypes={}, example="ops.constant([[1, 2], [3, 4]], DType.float32)")
def constant(
    value: TensorValueLike | list[Any], dtype: DType | None = None, device: DeviceRef | Device | None = None
) -> TensorValue:
    """A tensor that is known now; the data is copied into the graph.

    Args:
        value: a number (rank 0), nested lists of numbers, an array, or any DLPack producer.
        dtype: what to convert to; left out, arrays keep theirs, and Python's bools become bool, ints int64, floats
            float32, complex numbers complex64. Floats may be rounded; integers take only whole numbers in their range.
        device: where it lies; the host when left out.

    Raises:
        GraphError: EK0412, a value cannot be represented; lists are ragged.
        DTypeError: EK0413, not numbers, or a dtype without a counterpart.
    """
    place = user_place()
    wanted = None if dtype is None else dtype_of("dtype", dtype)
    array = literal_array(value, wanted, "constant", place)
    target = DeviceRef.CPU() if device is None else DeviceRef.from_device(device)
    return current("constant").stage_constant(array, target, place)


@op(example='ops.constant_external("layer.bias", TensorType(DType.float32, [4], DeviceRef.CPU()))')
def constant_external(name: str, type: TensorType) -> TensorValue:
    """A weight: a tensor whose elements come when the graph is loaded, as `weights_registry[name]`.

    The same name and type again are the same weight.

    Args:
        name: unique in the graph, such as "layers.0.attention.weight".
        type: its dtype, shape and device; all sizes are known.

    Raises:
        GraphError: EK0432, the graph has a weight of this name and of another type, or a size is not known.
        DTypeError: EK0403, `type` is no `TensorType`.
    """
    text = text_of("name", name)
    if not isinstance(type, TensorType):
        wrong("type", type, "a TensorType", code="EK0403", kind=DTypeError)
    check_weight_type(text, type)
    return current("constant_external").stage_weight(text, type, 1, user_place())
