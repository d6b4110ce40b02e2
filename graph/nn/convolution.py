"""Convolutions of images."""

from __future__ import annotations

from typing import Any

from ...dsl.types.dtype import DType
from ..arguments import flag_of
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from ..types.dims import Dim
from ..types.layouts import ConvInputLayout, FilterLayout
from .linear import drawn, size_of
from .module import Module
from .state import misused


class Conv2d(Module[[Any], Any]):
    """The convolution of images (batch, channels, height, width).

    Filters are (out_channels, in_channels / groups, rows, columns).

    Args:
        in_channels, out_channels: channels before and after.
        kernel_size: rows and columns of a filter, or one number for both.
        stride, dilation: of rows and of columns, or one number for both.
        padding: zeros before and behind rows, and before and behind columns; or of rows and of columns; or one number.
        groups: into how many groups the channels fall; each has filters of its own.
        bias: whether something is added; `bias` is None if not.
        dtype, device: of the weights, which begin with random numbers; the defaults when left out.
    """

    def __init__(
        self,
        in_channels: int | Dim,
        out_channels: int | Dim,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        *,
        bias: bool = True,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        channels, results = size_of("in_channels", in_channels), size_of("out_channels", out_channels)
        self.groups = size_of("groups", groups)
        if channels % self.groups or results % self.groups:
            text = f"{channels} and {results} channels do not fall into {self.groups} groups"
            raise misused(text, "groups", "a divisor of both", groups)
        rows, columns = _pair(kernel_size)
        inputs = channels // self.groups * rows * columns
        self.stride, self.dilation = _pair(stride), _pair(dilation)
        self.padding = padding if isinstance(padding, int) or len(padding) == 4 else [p for p in padding for _ in "ab"]
        self.weight: Any = drawn([results, channels // self.groups, rows, columns], inputs, dtype, device)
        self.bias: Any = drawn([results], inputs, dtype, device) if flag_of("bias", bias) else None

    def forward(self, x: object) -> Any:
        """The filtered images."""
        return F.conv2d(
            x,
            self.weight,
            self.stride,
            self.dilation,
            self.padding,
            self.groups,
            self.bias,
            ConvInputLayout.NCHW,
            FilterLayout.FCRS,
        )


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
