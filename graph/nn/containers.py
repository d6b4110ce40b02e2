"""Modules that hold other modules in order, and blocks of two or three linear layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...dsl.types.dtype import DType
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from ..quantization.encodings import QuantizationEncoding
from ..types.dims import Dim
from .linear import Linear
from .module import Module
from .state import misused

if TYPE_CHECKING:
    from ..distributed.mesh import Mesh, RankGroup

M = TypeVar("M", bound=Module[..., Any])


class ModuleList(Module[..., Any], Generic[M]):
    """Modules by number: children of the names "0", "1" and so on."""

    def __init__(self, modules: Iterable[M] = ()) -> None:
        self._count = 0
        for module in modules:
            self.append(module)

    def append(self, module: M) -> None:
        """Adds a module at the end."""
        if not isinstance(module, Module):
            raise misused(f"a {type(module).__name__} is not a module", "module", "a Module", type(module).__name__)
        setattr(self, str(self._count), module)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[M]:
        return (self[number] for number in range(self._count))

    def __getitem__(self, number: int) -> M:
        return getattr(self, str(range(self._count)[number]))  # type: ignore[no-any-return]


class Sequential(ModuleList[Any]):
    """Modules one after the other: each gets what the one before returns.

    Args:
        modules: the modules.
    """

    def __init__(self, *modules: Module[..., Any]) -> None:
        super().__init__(modules)

    def forward(self, x: object) -> Any:
        """What the last module returns; x where there is none."""
        for module in self:
            x = module(x)
        return x


class MLP(Module[[Any], Any]):
    """`down(activation(gate(x)) * up(x))`, or `down(activation(up(x)))` without a gate.

    Args:
        dim: the size of the last axis.
        hidden_dim: the size between the layers.
        activation: silu when left out.
        gated: whether there is a gate.
        bias: whether the layers add something.
        split_hidden: ranks that share the hidden axis: each has its part of all layers, and the results are added up.
        encoding, dtype, device: of the layers; see `Linear`.
    """

    def __init__(
        self,
        dim: int | Dim,
        hidden_dim: int | Dim,
        *,
        activation: Callable[[Any], Any] | None = None,
        gated: bool = True,
        bias: bool = False,
        split_hidden: RankGroup | Mesh | None = None,
        encoding: QuantizationEncoding | str | None = None,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        how: dict[str, Any] = {"bias": bias, "encoding": encoding, "dtype": dtype, "device": device}
        self.gate_proj = Linear(dim, hidden_dim, split_out=split_hidden, **how) if gated else None
        self.up_proj = Linear(dim, hidden_dim, split_out=split_hidden, **how)
        self.down_proj = Linear(hidden_dim, dim, split_in=split_hidden, **how)
        self.activation = F.silu if activation is None else activation

    def forward(self, x: object) -> Any:
        """The transformed tensor."""
        if self.gate_proj is None:
            return self.down_proj(self.activation(self.up_proj(x)))
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
