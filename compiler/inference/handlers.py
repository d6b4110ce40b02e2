"""Imports every module that registers something with the evaluator: statements, expressions, names, members.

A module that registers a handler is listed here, and nowhere else.
"""

from .language import atomics, elements, grids, parallel, python, sequences, vectors
from .members import pointers, scalars, structs, tensor_memory, tensors
from .members import vectors as vector_members
from .syntax import branches, expressions, f_strings, loops, statements

__all__ = [
    "atomics",
    "branches",
    "elements",
    "expressions",
    "f_strings",
    "grids",
    "loops",
    "parallel",
    "pointers",
    "python",
    "scalars",
    "sequences",
    "statements",
    "structs",
    "tensor_memory",
    "tensors",
    "vector_members",
    "vectors",
]
