"""Counts the GPUs that are here, and says what is missing where there are none.

A machine without the library of a GPU's driver loads nothing: only its presence is checked. What drives
GPUs (`cuda`, `hip`) is imported when the first one is counted.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Final

from ...dsl.diagnostics.errors import DeviceError
from ...dsl.diagnostics.shield import shielded
from .device import Backend, Driver
from .gpu_names import CUDA_LIBRARY, HIP_LIBRARY, library_to_load

# What the kernel's part of a driver leaves when it is loaded.
_NVIDIA_TRACE: Final = "/proc/driver/nvidia/version"
_AMD_TRACE: Final = "/sys/module/amdgpu/version"


@functools.cache
def has_library(name: str) -> bool:
    """Whether a shared library can be opened."""
    try:
        ctypes.CDLL(library_to_load(name))
    except OSError:
        return False
    return True


def _count_cuda() -> int:
    if not has_library(CUDA_LIBRARY):
        return 0
    with shielded():
        from .cuda import count

    return _counted(count)


def _count_hip() -> int:
    if not has_library(HIP_LIBRARY):
        return 0
    with shielded():
        from .hip import count

    return _counted(count)


def _counted(count: Callable[[], int]) -> int:
    try:
        return count()
    except DeviceError:  # `missing` reports it when a device is requested
        return 0


def _open_cuda(number: int) -> Driver:
    with shielded():
        from .cuda import CudaDriver

    return CudaDriver(number)


def _open_hip(number: int) -> Driver:
    with shielded():
        from .hip import HipDriver

    return HipDriver(number)


def _missing_cuda() -> DeviceError | None:
    if has_library(CUDA_LIBRARY):
        with shielded():
            from .cuda import count

        return _raised(count)
    if not os.path.exists(_NVIDIA_TRACE):
        return None
    return _no_library("an NVIDIA driver is loaded", CUDA_LIBRARY, "install the part of NVIDIA's driver for programs")


def _missing_hip() -> DeviceError | None:
    if has_library(HIP_LIBRARY):
        with shielded():
            from .hip import count

        return _raised(count)
    if not os.path.exists(_AMD_TRACE):
        return None
    return _no_library("an AMD driver is loaded", HIP_LIBRARY, "install ROCm, or let LD_LIBRARY_PATH name its folder")


def _raised(count: Callable[[], int]) -> DeviceError | None:
    try:
        count()
    except DeviceError as error:
        return error
    return None


def _no_library(problem: str, library: str, hint: str) -> DeviceError:
    return DeviceError(
        f"{problem}, and the library {library} that programs reach it by cannot be opened",
        code="EK0831",
        expected=library,
        hint=hint,
    )


CUDA: Final = Backend("gpu", _count_cuda, _open_cuda, _missing_cuda)
HIP: Final = Backend("gpu", _count_hip, _open_hip, _missing_hip)
