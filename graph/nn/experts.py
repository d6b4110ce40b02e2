"""Mixtures of experts: a gate chooses a few of them for each token, and one kernel multiplies by all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...dsl.types.dtype import DType
from ..arguments import flag_of
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from .linear import Linear, drawn, size_of
from .module import Module
from .splitting import ParameterSplit, ranks_of, share, summed
from .state import misused

if TYPE_CHECKING:
    from ..distributed.mesh import Mesh, RankGroup


class MoEGate(Module[[Any], tuple[Any, Any]]):
    """Chooses experts for tokens by a linear layer and a softmax.

    Args:
        dim: the size of the last axis.
        num_experts: experts to choose from.
        num_experts_per_token: how many are chosen for a token.
        normalized: whether the shares of the chosen ones are divided by their sum.
        dtype, device: of the layer; the defaults when left out.
    """

    def __init__(
        self,
        dim: int,
        num_experts: int,
        num_experts_per_token: int,
        *,
        normalized: bool = True,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        self.num_experts = size_of("num_experts", num_experts)
        self.num_experts_per_token = size_of("num_experts_per_token", num_experts_per_token)
        if self.num_experts_per_token > self.num_experts:
            text = f"{num_experts_per_token} of {num_experts} experts cannot be chosen"
            raise misused(text, "num_experts_per_token", f"at most {num_experts}", num_experts_per_token)
        self.gate_score = Linear(dim, num_experts, bias=False, dtype=dtype, device=device)
        self.normalized = flag_of("normalized", normalized)

    def forward(self, x: object) -> tuple[Any, Any]:
        """The numbers of the chosen experts, the best first, and their shares; (..., num_experts_per_token) each."""
        shares, indices = F.top_k(F.softmax(self.gate_score(x), -1), self.num_experts_per_token, -1)
        if self.normalized:
            shares = shares / F.sum(shares, -1)
        return indices, shares


class MoE(Module[[Any], Any]):
    """A mixture of experts, each of which is a gated block of three linear layers.

    Args:
        dim: the size of the last axis.
        hidden_dim: the size between the layers of an expert.
        num_experts, num_experts_per_token: see `MoEGate`.
        gate: chooses experts; a `MoEGate` when left out.
        activation: silu when left out.
        split_experts: ranks that share the experts: each has its part of them, and the results are added up. All have
            the gate and the tokens.
        dtype, device: of the weights; the defaults when left out.
    """

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        num_experts: int,
        num_experts_per_token: int,
        *,
        gate: Module[[Any], tuple[Any, Any]] | None = None,
        activation: Callable[[Any], Any] | None = None,
        split_experts: RankGroup | Mesh | None = None,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        sizes = size_of("dim", dim), size_of("hidden_dim", hidden_dim)
        self.gate = gate or MoEGate(dim, num_experts, num_experts_per_token, dtype=dtype, device=device)
        self.num_experts, self.num_experts_per_token = num_experts, num_experts_per_token
        self._ranks = ranks_of("split_experts", split_experts)
        count = share("num_experts", num_experts, self._ranks)
        if self._ranks is not None:
            self.splits = {f"{name}_proj": ParameterSplit(self._ranks) for name in ("gate", "up", "down")}
        self.gate_proj: Any = drawn([count, sizes[1], sizes[0]], sizes[0], dtype, device)
        self.up_proj: Any = drawn([count, sizes[1], sizes[0]], sizes[0], dtype, device)
        self.down_proj: Any = drawn([count, sizes[0], sizes[1]], sizes[1], dtype, device)
        self.activation = F.silu if activation is None else activation

    def forward(self, x: Any) -> Any:
        """The tensor (..., dim), each token the sum of what its experts make of it, by their shares."""
        each, dim = self.num_experts_per_token, x.shape[-1]
        indices, shares = self.gate(x)
        flat = F.reshape(x, [-1, dim])
        order, starts, restore = F.moe_create_indices(indices, self.num_experts)
        if self._ranks is not None:  # rows of the experts of other ranks become zeros
            count = self.num_experts // self._ranks.size
            starts = starts[self._ranks.rank * count : (self._ranks.rank + 1) * count + 1]
        rows = F.gather(flat, F.floordiv(order, each), 0)
        hidden = self.activation(F.grouped_matmul_ragged(rows, self.gate_proj, starts))
        hidden = hidden * F.grouped_matmul_ragged(rows, self.up_proj, starts)
        result = F.grouped_matmul_ragged(hidden, self.down_proj, starts)
        result = F.reshape(F.gather(result, restore, 0), [*x.shape[:-1], each, dim])
        weighted = result * F.cast(F.unsqueeze(shares, -1), result.dtype)
        return summed(F.squeeze(F.sum(weighted, -2), -2), self._ranks)
