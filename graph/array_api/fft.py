"""Fourier transforms as the standard's extension has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..driver.devices import DeviceRef
from ..eager import functional as F
from ..eager.contexts import defaults
from ..eager.tensor import Tensor
from .operands import REAL, Axes, Place, tensor

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]

Norm = Literal["backward", "ortho", "forward"]
Lengths = Sequence[int] | None
Along = Sequence[int] | None


def _one(op: Callable[..., Tensor], x: Tensor, n: int | None, axis: int, norm: Norm) -> Tensor:
    """A transform of several axes along one."""
    return op(tensor("x", x), None if n is None else [n], [axis], norm)


@placed
def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The Fourier transform along an axis.

    Args:
        x: complex numbers, or real floats.
        n: how many elements are transformed, cut off or filled with zeros; all when left out.
        axis: which.
        norm: "backward" scales the inverse by 1 / n, "forward" this one, "ortho" both by the root of it.
    """
    return _one(F.fftn, x, n, axis, norm)


@placed
def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `fft`."""
    return _one(F.ifftn, x, n, axis, norm)


@placed
def fftn(x: Tensor, /, *, s: Lengths = None, axes: Along = None, norm: Norm = "backward") -> Tensor:
    """The transform along several axes: those of `axes`, or the last ones that `s` has lengths for, or all."""
    return F.fftn(tensor("x", x), s, axes, norm)


@placed
def ifftn(x: Tensor, /, *, s: Lengths = None, axes: Along = None, norm: Norm = "backward") -> Tensor:
    """The inverse of `fftn`."""
    return F.ifftn(tensor("x", x), s, axes, norm)


@placed
def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The first n // 2 + 1 elements of the transform of real numbers."""
    return _one(F.rfftn, x, n, axis, norm)


@placed
def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The real numbers of which `rfft` gives these; n is twice the elements less 2 when left out."""
    return _one(F.irfftn, x, n, axis, norm)


@placed
def rfftn(x: Tensor, /, *, s: Lengths = None, axes: Along = None, norm: Norm = "backward") -> Tensor:
    """The transform of real numbers along several axes, of which the last keeps n // 2 + 1 elements."""
    return F.rfftn(tensor("x", x), s, axes, norm)


@placed
def irfftn(x: Tensor, /, *, s: Lengths = None, axes: Along = None, norm: Norm = "backward") -> Tensor:
    """The real numbers of which `rfftn` gives these."""
    return F.irfftn(tensor("x", x), s, axes, norm)


@placed
def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The real transform of numbers whose second half, left out here, is the conjugate of the first."""
    return F.hfft(tensor("x", x), n, axis, norm)


@placed
def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `hfft`."""
    return F.ihfft(tensor("x", x), n, axis, norm)


@placed
def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Place = None) -> Tensor:
    """The frequencies of the elements of `fft`, of samples `d` apart."""
    return F.fftfreq(n, d, dtype or REAL, _place(device))


@placed
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Place = None) -> Tensor:
    """The frequencies of the elements of `rfft`."""
    return F.rfftfreq(n, d, dtype or REAL, _place(device))


def _place(device: Place) -> DeviceRef:
    return DeviceRef.from_device(defaults(None, device)[1])


@placed
def fftshift(x: Tensor, /, *, axes: Axes = None) -> Tensor:
    """x with the frequency 0 moved to the middle of each axis."""
    return F.fftshift(tensor("x", x), axes)


@placed
def ifftshift(x: Tensor, /, *, axes: Axes = None) -> Tensor:
    """The inverse of `fftshift`."""
    return F.ifftshift(tensor("x", x), axes)
