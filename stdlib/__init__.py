"""The standard library: what is written in the kernel language itself.

    algorithms   what kernel files take from here: `from einkorn.stdlib import rowwise, Sum`
    math         what the functions of mathematics mean
    kernels      the kernels of the ops of graphs, a file a family, each with its reference

Input: nothing. Output: the names below. Non-goals: importing this package loads none of its modules; a name loads the
one that it is from when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ..dsl.diagnostics.shield import shielded

if TYPE_CHECKING:
    from .algorithms.monoids import All, Any, ArgMax, ArgMin, LogSumExp, Max, Min, Monoid, Product, Sum, Welford
    from .algorithms.random import normal, philox, philox_4x32, philox_4x64, uniform
    from .algorithms.rows import reduce, rowwise
    from .algorithms.scans import scan
    from .algorithms.sorting import argsort, sort, top_k
    from .algorithms.stencils import stencil

__all__ = [
    "All",
    "Any",
    "ArgMax",
    "ArgMin",
    "LogSumExp",
    "Max",
    "Min",
    "Monoid",
    "Product",
    "Sum",
    "Welford",
    "argsort",
    "normal",
    "philox",
    "philox_4x32",
    "philox_4x64",
    "reduce",
    "rowwise",
    "scan",
    "sort",
    "stencil",
    "top_k",
    "uniform",
]

# File of `algorithms` -> the names that come from it, when they are first asked for.
_FILES = {
    "monoids": "All Any ArgMax ArgMin LogSumExp Max Min Monoid Product Sum Welford",
    "random": "normal philox philox_4x32 philox_4x64 uniform",
    "rows": "reduce rowwise",
    "scans": "scan",
    "sorting": "argsort sort top_k",
    "stencils": "stencil",
}
_HOMES = {name: file for file, names in _FILES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    with shielded():
        return getattr(importlib.import_module(f"{__name__}.algorithms.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
