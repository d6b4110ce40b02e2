"""Attention with shared heads of keys and values, rotary positions and a sliding window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl.types.dtype import DType
from ..arguments import flag_of
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from ..quantization.encodings import QuantizationEncoding
from .linear import Linear, size_of
from .module import Module
from .paged import PagedCache
from .rotary import RotaryEmbedding
from .splitting import ranks_of, share
from .state import misused

if TYPE_CHECKING:
    from ..distributed.mesh import Mesh, RankGroup


class Attention(Module[..., Any]):
    """Heads of queries attend to heads of keys and values, of which neighbours may share one.

    Args:
        dim: the size of the last axis.
        num_heads: heads of queries.
        num_kv_heads: heads of keys and values, a divisor of `num_heads`; as many when left out.
        head_dim: the size of a head; dim / num_heads when left out.
        bias: whether queries, keys and values get biases.
        out_bias: whether the result gets one.
        fused: whether one layer `qkv_proj` makes queries, keys and values; else `q_proj`, `k_proj` and `v_proj` do.
        causal: whether a row sees the rows up to its own only.
        window: a row sees rows that are less than so many places away.
        rope: turns queries and keys by their places.
        scale: what scores are multiplied by; 1 / sqrt(head_dim) when left out.
        split_heads: ranks that share the heads: each has its part of all layers, and the results are added up.
        encoding, dtype, device: of the layers; see `Linear`.

    Attributes:
        num_heads, num_kv_heads: those of this rank.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        *,
        bias: bool = False,
        out_bias: bool = False,
        fused: bool = True,
        causal: bool = True,
        window: int | None = None,
        rope: RotaryEmbedding | None = None,
        scale: float | None = None,
        split_heads: RankGroup | Mesh | None = None,
        encoding: QuantizationEncoding | str | None = None,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        self.num_heads = size_of("num_heads", num_heads)
        self.num_kv_heads = self.num_heads if num_kv_heads is None else size_of("num_kv_heads", num_kv_heads)
        if self.num_heads % self.num_kv_heads:
            text = f"{self.num_heads} heads of queries cannot share {self.num_kv_heads} evenly"
            raise misused(text, "num_kv_heads", f"a divisor of {self.num_heads}", self.num_kv_heads)
        self.head_dim = size_of("head_dim", dim // self.num_heads if head_dim is None else head_dim)
        how: dict[str, Any] = {"encoding": encoding, "dtype": dtype, "device": device}
        ranks = ranks_of("split_heads", split_heads)
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.num_heads = share("num_heads", self.num_heads, ranks)
        self.num_kv_heads = share("num_kv_heads", self.num_kv_heads, ranks)
        made: dict[str, Any] = {"bias": bias, "split_out": ranks, **how}
        self.fused = flag_of("fused", fused)
        if self.fused:
            self.qkv_proj = Linear(dim, queries + 2 * keys, sections=(queries, keys, keys), **made)
        else:
            self.q_proj = Linear(dim, queries, **made)
            self.k_proj = Linear(dim, keys, **made)
            self.v_proj = Linear(dim, keys, **made)
        self.o_proj = Linear(queries, dim, bias=out_bias, split_in=ranks, **how)
        self.causal, self.window, self.scale = flag_of("causal", causal), window, scale
        self.rope = rope

    def heads(self, x: Any, start_pos: Any = 0) -> tuple[Any, Any, Any]:
        """Queries, keys and values (batch, heads, length, head_dim), the first two turned by their places."""
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        if self.fused:
            q, k, v = F.split(self.qkv_proj(x), [queries, keys, keys], -1)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        batch, length = x.shape[0], x.shape[1]
        q = F.reshape(q, [batch, length, self.num_heads, self.head_dim])
        k, v = (F.reshape(each, [batch, length, self.num_kv_heads, self.head_dim]) for each in (k, v))
        if self.rope is not None:
            q, k = self.rope(q, start_pos), self.rope(k, start_pos)
        return F.transpose(q, 1, 2), F.transpose(k, 1, 2), F.transpose(v, 1, 2)

    def attend(self, q: object, k: object, v: object, mask: object = None, causal: bool | None = None) -> Any:
        """The result (batch, length, dim) of heads."""
        sees = self.causal if causal is None else causal
        result = F.attention(q, k, v, mask=mask, causal=sees, window=self.window, scale=self.scale)
        result = F.transpose(result, 1, 2)
        return self.o_proj(F.reshape(result, [result.shape[0], result.shape[1], self.num_heads * self.head_dim]))

    def forward(self, x: object, start_pos: object = 0, mask: object = None) -> Any:
        """The attended tensor (batch, length, dim).

        Args:
            x: (batch, length, dim).
            start_pos: the place of the first row, or the places of all; see `RotaryEmbedding.forward`.
            mask: as of `ops.attention`.
        """
        return self.attend(*self.heads(x, start_pos), mask)

    def extended(self, x: object, past: tuple[Any, Any], start_pos: object) -> tuple[Any, tuple[Any, Any]]:
        """The result for rows that come behind others, and the keys and values of all.

        Args:
            x: a single row behind the others, (batch, 1, dim), or all of the first rows.
            past: keys and values (batch, heads, length, head_dim) of the rows before.
            start_pos: the place of the first row of x.
        """
        q, k, v = self.heads(x, start_pos)
        k, v = (F.concat([before, now], 2) for before, now in zip(past, (k, v), strict=True))
        return self.attend(q, k, v, causal=False), (k, v)

    def paged(self, x: Any, cache: PagedCache, layer: int) -> Any:
        """The attended rows (rows, dim) of a batch whose keys and values are in pages; see docs/serving.md.

        Args:
            x: (rows, dim), the rows of the first sequence first.
            cache: the pages.
            layer: which layer of the pages is this one's.
        """
        if not self.causal:
            raise misused("attention to pages is causal", "causal", "True", self.causal)
        q, k, v = (F.squeeze(F.transpose(each, 1, 2), 0) for each in self.heads(F.unsqueeze(x, 0), cache.positions))
        result = cache.attend(layer, q, k, v, window=self.window, scale=self.scale)
        return self.o_proj(F.reshape(result, [x.shape[0], self.num_heads * self.head_dim]))
