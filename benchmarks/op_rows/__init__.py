"""The rows of the table of speeds: each op of graphs at one typical size, or the reason why it has none."""

from __future__ import annotations

from .elements import ELEMENTS
from .images import IMAGES
from .indexing import INDEXING
from .linear_algebra import LINEAR_ALGEBRA
from .networks import NETWORKS
from .numbers import NUMBERS
from .row import Array, Row

__all__ = ["ROWS", "WITHOUT", "Array", "Row"]

ROWS = [*ELEMENTS, *INDEXING, *NUMBERS, *NETWORKS, *IMAGES, *LINEAR_ALGEBRA]

_VIEW = "gives a view: no element moves"
_AXES = "is `fftn` with another default"
_FREQUENCIES = "a few numbers"
_PART = "is timed in the row of `buffer_store`"
_RANKS = "is timed by `benchmarks/collectives.py`, between ranks"
# Ops without a row, and why.
WITHOUT = {
    "allreduce.sum": _RANKS,
    "allreduce.max": _RANKS,
    "allreduce.min": _RANKS,
    "allreduce.mean": _RANKS,
    "allgather": _RANKS,
    "alltoall": _RANKS,
    "barrier": _RANKS,
    "collective_permute": _RANKS,
    "distributed_broadcast": _RANKS,
    "recv": _RANKS,
    "send": _RANKS,
    "reducescatter.sum": _RANKS,
    "reducescatter.max": _RANKS,
    "reducescatter.min": _RANKS,
    "reducescatter.mean": _RANKS,
    "shard": "is a slice",
    "shard_and_stack": "is slices that are stacked",
    "arange": "another name of `range`",
    "as_interleaved_complex": _VIEW,
    "assert_same_device": "checks when a graph is built, and computes nothing",
    "buffer_create": _PART,
    "buffer_load": _PART,
    "call": "its subgraph becomes a part of the graph",
    "clip": "another name of `clamp`",
    "constant": "is read where it lies",
    "constant_external": "is read where it lies",
    "dequantize": "no library here has the same formats; docs/quantization.md",
    "custom": "costs what its kernel costs",
    "fft2": _AXES,
    "fence": "keeps ops apart, and computes nothing",
    "flash_attention_ragged": "no library here has pages of keys and values",
    "flatten": _VIEW,
    "fftfreq": _FREQUENCIES,
    "fftshift": "is slices that are joined",
    "grouped_matmul_ragged": "is timed with mixtures of experts; no library here has it",
    "hfft": "is `irfft` of conjugates",
    "ifft2": _AXES,
    "ifftn": "is `fftn` with exchanged parts",
    "ifftshift": "is slices that are joined",
    "ihfft": "is conjugates of `rfft`",
    "irfft2": "is `irfftn` with another default",
    "inplace_custom": "costs what its kernel costs",
    "kv_cache_store": "no library here has pages of keys and values",
    "moe_create_indices": "a few numbers",
    "penalize_tokens": "no library here has it",
    "print": "is for looking, and waits for the terminal",
    "qmatmul": "no library here has the same formats; docs/quantization.md",
    "quantize": "no library here has the same formats; docs/quantization.md",
    "random.normal": "another name of `random.gaussian`",
    "random.seed": "a single number",
    "random.set_seed": "a single number",
    "rebind": "checks sizes, and computes nothing",
    "reshape": _VIEW,
    "rfft2": "is `rfftn` with another default",
    "rfftfreq": _FREQUENCIES,
    "shape_to_tensor": "a few numbers",
    "sample_tokens": "no library here has it",
    "squeeze": _VIEW,
    "view_as_complex": _VIEW,
    "view_as_real": _VIEW,
    "transfer_to": "not measured on a machine without a GPU",
    "trilu": "`tril` or `triu`, by an argument",
    "unsqueeze": _VIEW,
}
