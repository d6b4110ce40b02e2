"""The standard library: what is written in the kernel language itself.

algorithms   what kernel files take from here: `from einkorn.stdlib import rowwise, Sum`
layout       functions from coordinates to offsets, and their algebra
math         what the functions of mathematics mean
kernels      the kernels of the ops of graphs, a file a family, each with its reference
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ..dsl.diagnostics.shield import shielded

if TYPE_CHECKING:
    from .algorithms.monoid import Monoid
    from .algorithms.monoids import All, Any, ArgMax, ArgMin, LogSumExp, Max, Min, Product, Sum, Welford
    from .algorithms.random import normal, philox, philox_4x32, philox_4x64, uniform
    from .algorithms.rows import reduce, rowwise
    from .algorithms.scans import scan
    from .algorithms.sorting import argsort, sort, top_k
    from .algorithms.stencils import stencil
    from .layout import (
        ComposedLayout,
        Layout,
        Swizzle,
        blocked_product,
        coalesce,
        complement,
        composition,
        left_inverse,
        logical_divide,
        logical_product,
        raked_product,
        right_inverse,
        tiled_divide,
        zipped_divide,
    )
    from .layout_tensor import (
        LayoutTensor,
        LayoutTensorIter,
        copy_dram_to_local,
        copy_dram_to_sram,
        copy_dram_to_sram_async,
        copy_local_to_dram,
        copy_local_to_shared,
        copy_sram_to_dram,
        copy_sram_to_local,
        outer_product_acc,
    )
    from .tensor_core import TensorCore

__all__ = [
    "All",
    "Any",
    "ArgMax",
    "ArgMin",
    "ComposedLayout",
    "Layout",
    "LayoutTensor",
    "LayoutTensorIter",
    "LogSumExp",
    "Max",
    "Min",
    "Monoid",
    "Product",
    "Sum",
    "Swizzle",
    "TensorCore",
    "Welford",
    "argsort",
    "blocked_product",
    "coalesce",
    "complement",
    "composition",
    "copy_dram_to_local",
    "copy_dram_to_sram",
    "copy_dram_to_sram_async",
    "copy_local_to_dram",
    "copy_local_to_shared",
    "copy_sram_to_dram",
    "copy_sram_to_local",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "normal",
    "outer_product_acc",
    "philox",
    "philox_4x32",
    "philox_4x64",
    "raked_product",
    "reduce",
    "right_inverse",
    "rowwise",
    "scan",
    "sort",
    "stencil",
    "tiled_divide",
    "top_k",
    "uniform",
    "zipped_divide",
]

# Module -> the names that come from it, on first use.
_FILES = {
    "algorithms.monoid": "Monoid",
    "algorithms.monoids": "All Any ArgMax ArgMin LogSumExp Max Min Product Sum Welford",
    "algorithms.random": "normal philox philox_4x32 philox_4x64 uniform",
    "algorithms.rows": "reduce rowwise",
    "algorithms.scans": "scan",
    "algorithms.sorting": "argsort sort top_k",
    "algorithms.stencils": "stencil",
    "layout": "ComposedLayout Layout Swizzle blocked_product coalesce complement composition left_inverse"
    " logical_divide logical_product raked_product right_inverse tiled_divide zipped_divide",
    "layout_tensor": "LayoutTensor LayoutTensorIter copy_dram_to_local copy_dram_to_sram copy_dram_to_sram_async"
    " copy_local_to_dram copy_local_to_shared copy_sram_to_dram copy_sram_to_local outer_product_acc",
    "tensor_core": "TensorCore",
}
_HOMES = {name: file for file, names in _FILES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    with shielded():
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
