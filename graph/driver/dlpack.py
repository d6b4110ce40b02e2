"""Exchanges arrays by DLPack, bfloat16 and floats of 8 bits among them.

NumPy speaks DLPack, but not for the types of ml_dtypes, which it does not know. A DLPack capsule describes its elements
by a kind and a width in bits, and unsigned integers have the same widths. So going out, a view as uint16 or uint8 is
exported and the capsule's kind set to that of the type; coming in, it is set back to unsigned, imported, and viewed.
The capsule is fresh and ours alone until it is handed on, its owner looks only at its own context when it frees the
memory, so this is sound.

Layouts: https://dmlc.github.io/dlpack/latest/c_api.html (`DLManagedTensor`, `DLManagedTensorVersioned`).
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol, runtime_checkable

import ml_dtypes
import numpy as np

from ...dsl.diagnostics.errors import DeviceError, DTypeError, brief
from ...dsl.diagnostics.shield import raise_if_of_handler
from .python_api import is_capsule, pointer_of_capsule


@runtime_checkable
class DLPackArray(Protocol):
    """Anything that offers its memory by DLPack."""

    def __dlpack__(self, *, stream: Any | None = None) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


KIND_UINT = 1
# The codes of DLPack 1.1 for types that NumPy does not know; the elements of all of them are whole bytes.
KINDS = {
    "bfloat16": 4,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_NAMES = {code: name for name, code in KINDS.items()}
# What a tensor of PyTorch may leave to code that reads its elements; DLPack has no word for it.
_PENDING = {"neg": "negative", "conj": "conjugate"}
HOST_DEVICES = (1, 3, 11)  # kDLCPU, and host memory pinned by CUDA or ROCm

# Where a DLTensor lies: in the versioned form behind version, context, deleter and flags. In it lies
# `DLDevice {int32 kind; int32 number}` behind data, `DLDataType {uint8 kind; uint8 bits; uint16 lanes}` behind ndim.
_TENSOR_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}
_PLACE_OFFSET = 8
_DTYPE_OFFSET = 20


def export(array: np.ndarray[Any, Any], keywords: dict[str, Any]) -> Any:
    """A DLPack capsule over the array's memory; `keywords` go to NumPy's `__dlpack__`."""
    kind = KINDS.get(array.dtype.name)
    if kind is None:
        return array.__dlpack__(**keywords)
    capsule = array.view(f"u{array.dtype.itemsize}").__dlpack__(**keywords)
    _dtype_of(capsule)[0] = kind
    return capsule


def import_host(producer: object) -> np.ndarray[Any, Any]:
    """A NumPy array over the memory of a producer on the host; never a copy.

    Raises:
        DTypeError: no producer, or of elements that NumPy cannot take, or that are not what lies in memory.
        DeviceError: the memory is not the host's.
    """
    if not (hasattr(producer, "__dlpack__") and hasattr(producer, "__dlpack_device__")):
        raise DTypeError(
            f"from_dlpack takes an array with __dlpack__, not {type(producer).__name__}",
            code="EK0803",
            argument="array",
            expected="a DLPack producer",
            got=type(producer).__name__,
        )
    try:
        kind, number = map(int, producer.__dlpack_device__())
    except Exception as error:  # what the producer's own code raises
        raise_if_of_handler(error)
        text = f"the array cannot be imported by DLPack: it does not report its device ({brief(error)})"
        raise DTypeError(text, code="EK0803", argument="array") from error
    if kind not in HOST_DEVICES:
        raise DeviceError(
            f"the array lies on DLPack device ({kind}, {number}), not in the host's memory",
            code="EK0804",
            expected="host memory",
            got=(kind, number),
            hint="copy it to the host first",
        )
    questions = {bit: getattr(producer, f"is_{bit}", None) for bit in _PENDING}
    pending = next((bit for bit, is_set in questions.items() if callable(is_set) and is_set() is True), None)
    if pending is not None:
        raise DTypeError(
            f"the tensor's memory is not its values: its {_PENDING[pending]} bit is set",
            code="EK0803",
            argument="array",
            expected=f"a tensor without the {_PENDING[pending]} bit",
            got=type(producer).__name__,
            hint=f"write tensor.resolve_{pending}()",
        )
    return imported(producer)


def imported(producer: object) -> np.ndarray[Any, Any]:
    """A NumPy array over the memory of a producer that says it is the host's.

    Raises:
        DTypeError: of elements that NumPy cannot take.
    """
    source = _Once(producer)
    try:
        array = np.from_dlpack(source)
    except (BufferError, RuntimeError, TypeError) as error:
        raise_if_of_handler(error)
        raise DTypeError(f"the array cannot be taken by DLPack: {error}", code="EK0803") from error
    if source.error is not None:  # NumPy has called the producer once more
        raise_if_of_handler(source.error)
    return array if source.name is None else array.view(getattr(ml_dtypes, source.name))


class _Once:
    """Stands before a producer and shows NumPy elements that it does not know as unsigned integers."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.name: str | None = None
        self.error: BaseException | None = None

    def __dlpack__(self, **keywords: Any) -> Any:
        try:
            return self._capsule(keywords)
        except BaseException as error:
            self.error = error
            raise

    def _capsule(self, keywords: dict[str, Any]) -> Any:
        try:
            capsule = self._producer.__dlpack__(**keywords)
        except TypeError as error:  # a producer from before DLPack 1.0 has none of the newer keywords
            raise_if_of_handler(error)
            capsule = self._producer.__dlpack__()
        dtype = _dtype_of(capsule)
        name = _NAMES.get(dtype[0])
        if name is not None and dtype[1] == np.dtype(getattr(ml_dtypes, name)).itemsize * 8:
            dtype[0] = KIND_UINT
            self.name = name
        return capsule

    def __dlpack_device__(self) -> Any:
        return self._producer.__dlpack_device__()


def _dtype_of(capsule: object) -> Any:
    """The capsule's dtype, as writable bytes: kind, bits."""
    return (ctypes.c_uint8 * 2).from_address(_tensor_of(capsule) + _DTYPE_OFFSET)


def place_of(capsule: object) -> Any:
    """The capsule's device, as writable numbers: kind, number."""
    return (ctypes.c_int32 * 2).from_address(_tensor_of(capsule) + _PLACE_OFFSET)


def _tensor_of(capsule: object) -> int:
    """Where the capsule's DLTensor lies."""
    for name, offset in _TENSOR_OFFSETS.items():
        if is_capsule(capsule, name):
            at: int = pointer_of_capsule(capsule, name)
            return at + offset
    raise BufferError("the producer's __dlpack__ gave no fresh DLPack capsule")
