"""Classifies the arguments of a call: an array of NumPy, a `Buffer`, a number, or a tensor of another library, by
DLPack.

Results are of the kind of the arguments: of another library's where one of its tensors is among the
arguments, else `Buffer`s where there is one, else arrays.

See also `direct.LIBRARIES` (libraries that register ops of their own).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DeviceError, DTypeError, EinkornError, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..driver.arrays import check_unmasked
from ..driver.buffer import Buffer
from ..driver.devices import CPU, Device

LIBRARIES = ("torch", "jax", "cupy", "tensorflow")  # whose name says more than that of their class
NUMPY, BUFFER, NUMBER = "numpy", "Buffer", "number"


@dataclass(frozen=True)
class Operand:
    """One argument of a call.

    Attributes:
        given: what the caller passed.
        value: what a model takes: an array, a `Buffer`, or a Python number.
        kind: `NUMPY`, `BUFFER`, `NUMBER`, or the name of the library whose tensor it is.
        dtype: of its elements; None for a Python number.
        shape: its sizes.
        device: where it lies: a device, or the name of one that this process cannot use; None for numbers.
    """

    given: Any
    value: Any
    kind: str
    dtype: DType | None
    shape: tuple[int, ...]
    device: Device | str | None


DLPACK_PLACES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda-managed", 14: "oneapi"}


def operand_of(value: object, op: str, argument: str) -> Operand:
    """What an argument is.

    Raises:
        DTypeError: EK0850 it is neither a tensor nor a number; EK0477 it is masked.
    """
    if isinstance(value, Buffer):
        return Operand(value, value, BUFFER, value.dtype, value.shape, value.device)
    if isinstance(value, np.ndarray):
        check_unmasked(value, argument, f"op '{op}'")
        array = value if type(value) is np.ndarray else value.view(np.ndarray)
        return Operand(value, array, NUMPY, _dtype_of(value, op, argument), value.shape, CPU())
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return Operand(value, value, NUMBER, None, (), None)
    if isinstance(value, np.generic):
        return Operand(value, np.asarray(value), NUMBER, _dtype_of(value, op, argument), (), None)
    if hasattr(value, "__dlpack__") and not isinstance(value, type):
        return _by_dlpack(value, op, argument)
    raise DTypeError(
        f"op '{op}': argument '{argument}' is not a tensor but {shown_value(value)}",
        code="EK0850",
        place=user_place(),
        op=op,
        argument=argument,
        expected="an array, a Buffer, a tensor with DLPack, or a number",
        got=type(value).__name__,
        hint=_hint(value),
    )


def _dtype_of(value: Any, op: str, argument: str) -> DType:
    try:
        return DType.from_numpy(value.dtype)
    except DTypeError as error:
        raise DTypeError(
            f"op '{op}': argument '{argument}' holds {value.dtype}, which kernels do not take",
            code="EK0850",
            place=user_place(),
            op=op,
            argument=argument,
            expected=error.expected,
            got=str(value.dtype),
            hint=_of_parts(value.dtype, argument) or error.hint,
        ) from None


def _of_parts(dtype: object, argument: str) -> str | None:
    """How complex numbers are passed: their parts on an axis of their own."""
    part = {"complex64": "float32", "complex128": "float64"}.get(str(dtype))
    if part is None:
        return None
    return f"pass its parts on an axis of 2: {argument}.view(np.{part}).reshape(*{argument}.shape, 2)"


def _by_dlpack(value: Any, op: str, argument: str) -> Operand:
    try:
        buffer = Buffer.from_dlpack(value)
    except EinkornError as error:
        if error.code == "EK0804":
            place = tuple(map(int, value.__dlpack_device__()))
            where = f"{DLPACK_PLACES.get(place[0], f'DLPack device {place[0]}')}:{place[1]}"
            return Operand(value, None, library_of(value), None, tuple(getattr(value, "shape", ())), where)
        error.message = f"op '{op}': argument '{argument}': {error.message}"
        error.op, error.argument = op, argument
        raise
    return Operand(value, buffer, library_of(value), buffer.dtype, buffer.shape, buffer.device)


def library_of(value: object) -> str:
    """The name of the library that a tensor is of; for objects of a user's class, of the one that it derives from."""
    names = [base.__module__.partition(".")[0] for base in type(value).__mro__]
    first = next((name for name in names if name in LIBRARIES or name == "jaxlib"), names[0])
    return "jax" if first == "jaxlib" else first


def _hint(value: object) -> str | None:
    if isinstance(value, list | tuple):
        return "make an array of it: np.array(x)"
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return "make an array of it: np.asarray(x)"
    return None


# *** kinds of a whole call ***


def device_of_call(op: str, names: Sequence[str], operands: Sequence[Operand]) -> Device:
    """Where a call runs: where all its tensors lie.

    Raises:
        DeviceError: EK0852 they lie on several devices, are of two libraries, or lie on a device that is not here.
    """
    lying = [(name, operand) for name, operand in zip(names, operands, strict=False) if operand.device is not None]
    if not lying:
        return CPU()
    first, one = lying[0]
    for name, operand in lying[1:]:
        if operand.device != one.device:
            text = f"lies on {one.device}, and '{name}' ({shown_kind(operand)}) on {operand.device}"
            hint = "move one of them: nothing is copied between devices by itself"
            raise _apart(op, first, one, name, operand, text, hint)
        strangers = {one.kind, operand.kind} - {NUMPY, BUFFER}
        if len(strangers) == 2:
            text = f"and '{name}' ({shown_kind(operand)}) are tensors of two libraries"
            raise _apart(
                op, first, one, name, operand, text, "convert one of them: the type of the result is ambiguous"
            )
        one = operand if one.kind in (NUMPY, BUFFER) else one
    where = lying[0][1].device
    if not isinstance(where, Device):
        hint = "move it to the host first"
        text = f"lies on {where}, which this process cannot use"
        raise _apart(op, first, lying[0][1], first, lying[0][1], text, hint)
    return where


def _apart(op: str, first: str, one: Operand, name: str, other: Operand, text: str, hint: str) -> DeviceError:
    return DeviceError(
        f"op '{op}': '{first}' ({shown_kind(one)}) {text}",
        code="EK0852",
        place=user_place(),
        op=op,
        argument=name,
        expected=str(one.device),
        got=str(other.device),
        hint=hint,
    )


def shown_kind(operand: Operand) -> str:
    """What an operand is, for messages: "a NumPy array", "a torch tensor"."""
    kinds = {NUMPY: "a NumPy array", BUFFER: "a Buffer", NUMBER: "a number"}
    name = type(operand.given).__name__
    return kinds.get(operand.kind) or (f"a {operand.kind} {name}" if operand.kind in LIBRARIES else f"a {name}")


def kind_of_results(operands: Sequence[Operand]) -> str:
    """Of which kind a call's results are."""
    kinds = {operand.kind for operand in operands} - {NUMBER}
    others = sorted(kinds - {NUMPY, BUFFER})
    return others[0] if others else BUFFER if BUFFER in kinds else NUMPY


def as_kind(buffer: Buffer, kind: str) -> Any:
    """A result as the caller's kind; it shares the buffer's memory."""
    if kind == NUMPY:
        return buffer.to_numpy()
    if kind == BUFFER:
        return buffer
    library = sys.modules.get(kind)
    take = getattr(library, "from_dlpack", None) or getattr(getattr(library, "dlpack", None), "from_dlpack", None)
    return buffer if take is None else take(buffer)
