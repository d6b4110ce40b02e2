"""Reads the arguments of the standard's functions: tensors, Python numbers, shapes, devices."""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.types.dtype import DType
from ..arguments import int_of, list_of, wrong
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from ..eager.tensor import Tensor
from ..types.promotion import promote

Operand = Tensor | bool | int | float | complex
Place = Device | DeviceRef | None
Shape = int | tuple[int, ...]
Axes = int | tuple[int, ...] | None
REAL = DType.float32  # of floats that come without a dtype
COMPLEX = DType.complex64  # of complex numbers
_TO_TENSOR = "xp.asarray(value) makes a tensor of a number, a list or an array"


def tensor(argument: str, value: Any) -> Tensor:
    """A tensor.

    Raises:
        DTypeError: EK0818, something else.
    """
    if not isinstance(value, Tensor):
        wrong(argument, value, "a Tensor", code="EK0818", kind=DTypeError, hint=_TO_TENSOR)
    return value


def operands(values: dict[str, Any]) -> list[Any]:
    """Converts Python numbers to the dtype of the tensors: an int with floats is rounded.

    Raises:
        DTypeError: EK0818, no tensor, or something that is neither tensor nor number.
    """
    known = [value for value in values.values() if isinstance(value, Tensor)]
    if not known:
        argument, value = next(iter(values.items()))
        tensor(argument, value)
    floats = any(value.dtype.is_float() or value.dtype.is_complex() for value in known)
    if any(isinstance(value, complex) for value in values.values()):  # takes floats with it
        values = {name: _as_complex(value) for name, value in values.items()}
    return [_operand(argument, value, floats) for argument, value in values.items()]


def _operand(argument: str, value: object, floats: bool) -> Any:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, complex):
        return value
    if not isinstance(value, bool | int | float):
        wrong(argument, value, "a Tensor or a number", code="EK0818", kind=DTypeError, hint=_TO_TENSOR)
    return float(value) if floats else value


def _as_complex(value: Any) -> Any:
    floats = isinstance(value, Tensor) and value.dtype.is_float()
    return cast(value, promote([value.dtype, COMPLEX], "operands")) if floats else value


def dtype_of_number(value: object) -> DType:
    """The dtype that the standard gives a Python number."""
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, complex):
        return COMPLEX
    return DType.bool if isinstance(value, bool) else DType.int64 if isinstance(value, int) else REAL


def together(name: str, tensors: list[Tensor]) -> list[Tensor]:
    """Tensors in the one dtype that they promote to."""
    common = promote([each.dtype for each in tensors], name) if tensors else REAL
    return [cast(each, common) for each in tensors]


def cast(x: Tensor, dtype: DType | None) -> Tensor:
    """A tensor in a dtype; itself where it has that, or where there is none."""
    return x if dtype is None or x.dtype is dtype else F.cast(x, dtype)


def sizes_of(shape: object) -> tuple[int, ...]:
    """A shape, of which one size may come alone."""
    if isinstance(shape, int):
        return (shape,)
    return tuple(int_of("shape", each) for each in list_of("shape", shape, "sizes"))


def shape_of(argument: str, x: Tensor) -> tuple[int, ...]:
    """The sizes of a tensor."""
    return tuple(tensor(argument, x).shape.static_dims)


def flat(x: Tensor) -> Tensor:
    """The elements in one axis."""
    return x if x.rank == 1 else F.reshape(x, [x.size])


def column(numbers: range | list[int], x: Tensor) -> Tensor:
    """Ints as a tensor of one axis on the device of another."""
    return Tensor.constant(list(numbers), dtype=DType.int64, device=x.device)
