"""Casts buffers where they lie."""

from __future__ import annotations

import weakref

from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..arguments import dtype_of, wrong
from ..driver.buffer import Buffer
from ..driver.device import Driver
from ..driver.devices import DeviceRef
from ..engine.model import Model
from ..engine.session import InferenceSession
from ..ops.elementwise import cast
from ..staging.graph import Graph
from ..types.tensor_type import TensorType

_models: weakref.WeakKeyDictionary[Driver, dict[tuple[DType, DType, int], Model]] = weakref.WeakKeyDictionary()


@placed
def cast_tensor_to(tensor: Buffer, new_dtype: DType, session: InferenceSession | None = None) -> Buffer:
    """The elements of a buffer in another dtype, on the device where they lie; a buffer of the dtype as it is.

    Args:
        tensor: a buffer, of any shape.
        new_dtype: what `ops.cast` casts to.
        session: whose settings the cast is compiled with; those of the process when left out.

    Raises:
        DTypeError: EK0803 it is not a buffer; EK0413 there is no such cast.
    """
    if not isinstance(tensor, Buffer):
        wrong("tensor", tensor, "a Buffer", code="EK0803")
    dtype = dtype_of("new_dtype", new_dtype)
    if tensor.dtype is dtype:
        return tensor
    key = tensor.dtype, dtype, tensor.rank
    known = {} if session is not None else _models.setdefault(tensor.device.driver, {})
    model = known.get(key)
    if model is None:
        shape = [f"n{axis}" for axis in range(tensor.rank)]
        taken = TensorType(tensor.dtype, shape, DeviceRef.from_device(tensor.device))
        graph = Graph("cast", forward=lambda x: cast(x, dtype), input_types=[taken])
        model = known[key] = (session or InferenceSession([tensor.device])).load(graph)
    return model.execute(tensor)[0]
