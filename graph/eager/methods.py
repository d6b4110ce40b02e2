"""Holds the methods and operators of `Tensor` that ops give it. `operators` sets them; `methods.pyi` declares them.

Input: nothing. Output: `Methods`. Non-goals: what they do.
"""

from __future__ import annotations

from typing import Any

from .nodes import FUNCTIONS

# What arrays of other libraries have as attributes, and how tensors say it.
ELSEWHERE = {
    "ndim": "x.rank",
    "size": "x.num_elements()",
    "numel": "x.num_elements()",
    "astype": "x.cast(dtype)",
    "view": "x.reshape(shape)",
    "dot": "x @ y",
    "copy": "copy.deepcopy(x)",
    "clone": "copy.deepcopy(x)",
    "cpu": "x.to(CPU())",
    "cuda": "x.to(Accelerator())",
    "dim": "x.rank",
}


class Methods:
    """The methods and operators that rows of ops name."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        text = f"{type(self).__name__!r} object has no attribute {name!r}"
        known = ELSEWHERE.get(name) or (f"F.{name}(x)" if name in FUNCTIONS else None)
        raise AttributeError(f"{text}; write {known}" if known else text, name=name, obj=self)
