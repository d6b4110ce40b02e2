"""Holds the methods and operators of `Tensor` that ops give it. `operators` sets them; `methods.pyi` declares them."""

from __future__ import annotations


class Methods:
    """The methods and operators that rows of ops name."""

    __slots__ = ()
