"""Describes the namespace: devices, dtypes, defaults.

See also `driver.devices` (devices themselves).
"""

from __future__ import annotations

from ...dsl.types.dtype import DType
from ..driver.devices import Device, scan_available_devices
from ..eager.contexts import defaults
from .dtypes import isdtype
from .operands import COMPLEX, REAL, Place

NAMES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


class Info:
    """The inspection functions of the standard."""

    def capabilities(self) -> dict[str, bool | int | None]:
        """Masks may be indices, shapes may depend on elements, and nothing bounds the number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """The device of tensors that are made without one."""
        return defaults()[1]

    def default_dtypes(self, *, device: Place = None) -> dict[str, DType]:
        """The dtypes of tensors that are made without one, on every device."""
        return {"real floating": REAL, "complex floating": COMPLEX, "integral": DType.int64, "indexing": DType.int64}

    def dtypes(self, *, device: Place = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The dtypes of the standard, all or those of a kind, by name."""
        return {name: DType[name] for name in NAMES if kind is None or isdtype(DType[name], kind)}

    def devices(self) -> tuple[Device, ...]:
        """All devices."""
        return tuple(scan_available_devices())


def __array_namespace_info__() -> Info:
    """The inspection functions: devices, dtypes, defaults."""
    return Info()
