"""Stages literals.

Input: numbers, nested lists, arrays, DLPack producers. Output: a `Constant` node's value. Non-goals: weights, which
come when a model is loaded.
"""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import dtype_of
from ..driver.devices import Device, DeviceRef
from ..staging.value import TensorValue, TensorValueLike
from ..types.promotion import literal_array
from .stage import current, op


@op(dtypes={}, example="ops.constant([[1, 2], [3, 4]], DType.float32)")
def constant(
    value: TensorValueLike | list[Any], dtype: DType | None = None, device: DeviceRef | Device | None = None
) -> TensorValue:
    """A tensor that is known now; the data is copied into the graph.

    Args:
        value: a number (rank 0), nested lists of numbers, an array, or any DLPack producer.
        dtype: what to convert to; left out, arrays keep theirs, and Python's bools become bool, ints int64, floats
            float32. Floats may be rounded; integers take only whole numbers in their range.
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
