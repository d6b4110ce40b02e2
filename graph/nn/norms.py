"""Normalisations: by the root of the mean square, by mean and variance, by groups of channels."""

from __future__ import annotations

from typing import Any

from ...dsl.types.dtype import DType
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from ..eager.tensor import Tensor
from ..types.dims import Dim
from .linear import size_of
from .module import Module


class RMSNorm(Module[[Any], Any]):
    """Divides the last axis by the root of its mean square, and multiplies by `weight`.

    Args:
        dim: the size of the last axis.
        eps: what is added to the mean square.
        dtype, device: of the weight, which begins with ones; the defaults when left out.
    """

    def __init__(
        self,
        dim: int | Dim,
        eps: float = 1e-6,
        *,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        self.weight: Any = Tensor.ones([size_of("dim", dim)], dtype=dtype, device=device)
        self.eps = eps

    @property
    def dim(self) -> Dim:
        """The size of the last axis."""
        return Dim(self.weight.shape[0])

    def forward(self, x: object) -> Any:
        """The normalised tensor."""
        return F.rms_norm(x, self.weight, self.eps)


class LayerNorm(Module[[Any], Any]):
    """Gives the last axis mean 0 and variance 1, multiplies by `weight` and adds `bias`.

    Args:
        dim: the size of the last axis.
        eps: what is added to the variance.
        dtype, device: of weight and bias, which begin with ones and zeros; the defaults when left out.
    """

    def __init__(
        self,
        dim: int | Dim,
        eps: float = 1e-5,
        *,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        sizes = [size_of("dim", dim)]
        self.weight: Any = Tensor.ones(sizes, dtype=dtype, device=device)
        self.bias: Any = Tensor.zeros(sizes, dtype=dtype, device=device)
        self.eps = eps

    def forward(self, x: object) -> Any:
        """The normalised tensor."""
        return F.layer_norm(x, self.weight, self.bias, self.eps)


class GroupNorm(Module[[Any], Any]):
    """Gives each group of channels of a tensor (batch, channels, ...) mean 0 and variance 1; then a scale and a shift.

    Args:
        num_groups: into how many groups the channels fall.
        num_channels: the size of the second axis.
        eps: what is added to the variance.
        dtype, device: of weight and bias, which begin with ones and zeros; the defaults when left out.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int | Dim,
        eps: float = 1e-5,
        *,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        sizes = [size_of("num_channels", num_channels)]
        self.weight: Any = Tensor.ones(sizes, dtype=dtype, device=device)
        self.bias: Any = Tensor.zeros(sizes, dtype=dtype, device=device)
        self.num_groups = size_of("num_groups", num_groups)
        self.eps = eps

    def forward(self, x: object) -> Any:
        """The normalised tensor."""
        return F.group_norm(x, self.weight, self.bias, self.num_groups, self.eps)
