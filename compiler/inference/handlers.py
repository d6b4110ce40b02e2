"""Imports every module that registers something with the evaluator: statements, expressions, calls, names, members.

A module that registers a handler is listed here only.
"""

from . import dispatch
from .language import (
    async_copies,
    atomics,
    clusters,
    elements,
    grids,
    mbarriers,
    native,
    parallel,
    python,
    ranges,
    rare_cases,
    roles,
    sequences,
    storage,
    vectors,
    warps,
    work,
)
from .language import scalars as language_scalars
from .members import context, pointers, scalars, structs, tensor_memory, tensors
from .members import vectors as vector_members
from .syntax import branches, expressions, f_strings, loops, statements
from .tiles import elementwise as tile_functions
from .tiles import merged as merged_tensors
from .tiles import names as tile_names

__all__ = [
    "async_copies",
    "atomics",
    "branches",
    "clusters",
    "context",
    "dispatch",
    "elements",
    "expressions",
    "f_strings",
    "grids",
    "language_scalars",
    "loops",
    "mbarriers",
    "merged_tensors",
    "native",
    "parallel",
    "pointers",
    "python",
    "ranges",
    "rare_cases",
    "roles",
    "scalars",
    "sequences",
    "statements",
    "storage",
    "structs",
    "tensor_memory",
    "tensors",
    "tile_functions",
    "tile_names",
    "vector_members",
    "vectors",
    "warps",
    "work",
]
