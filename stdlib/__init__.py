"""The standard library: what is written in the kernel language itself.

Kernel files take the larger algorithms from here: `from einkorn.stdlib import rowwise, Sum`. `math` and its
neighbours say what the functions of mathematics mean; other modules hold the kernels of built-in ops.

Input: nothing. Output: the modules, and the names below. Non-goals: importing this package loads none of its modules;
a name loads the one that it is from when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ..dsl.diagnostics.shield import shielded

if TYPE_CHECKING:
    from .algorithms.monoids import All as All
    from .algorithms.monoids import Any as Any
    from .algorithms.monoids import ArgMax as ArgMax
    from .algorithms.monoids import ArgMin as ArgMin
    from .algorithms.monoids import LogSumExp as LogSumExp
    from .algorithms.monoids import Max as Max
    from .algorithms.monoids import Min as Min
    from .algorithms.monoids import Monoid as Monoid
    from .algorithms.monoids import Product as Product
    from .algorithms.monoids import Sum as Sum
    from .algorithms.monoids import Welford as Welford
    from .algorithms.random import normal as normal
    from .algorithms.random import philox as philox
    from .algorithms.random import philox_4x32 as philox_4x32
    from .algorithms.random import philox_4x64 as philox_4x64
    from .algorithms.random import uniform as uniform
    from .algorithms.rows import reduce as reduce
    from .algorithms.rows import rowwise as rowwise
    from .algorithms.scans import scan as scan
    from .algorithms.sorting import argsort as argsort
    from .algorithms.sorting import sort as sort
    from .algorithms.sorting import top_k as top_k
    from .algorithms.stencils import stencil as stencil

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

_HOMES = {
    "All": "monoids",
    "Any": "monoids",
    "ArgMax": "monoids",
    "ArgMin": "monoids",
    "LogSumExp": "monoids",
    "Max": "monoids",
    "Min": "monoids",
    "Monoid": "monoids",
    "Product": "monoids",
    "Sum": "monoids",
    "Welford": "monoids",
    "argsort": "sorting",
    "normal": "random",
    "philox": "random",
    "philox_4x32": "random",
    "philox_4x64": "random",
    "uniform": "random",
    "reduce": "rows",
    "rowwise": "rows",
    "scan": "scans",
    "sort": "sorting",
    "stencil": "stencils",
    "top_k": "sorting",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    with shielded():
        return getattr(importlib.import_module(f"{__name__}.algorithms.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
