"""Declares Python's own functions, with the meaning that they have in kernels; they are never imported (see
`stubs`)."""

from __future__ import annotations

from typing import Any

from .stubs import stub

__all__: list[str] = []  # every module has these names


@stub("rule", "range")
def range_(*bounds: Any) -> Any:
    """A run-time loop over whole numbers: `range(stop)`, `range(start, stop)`, `range(start, stop, step)`."""


@stub("rule", "len")
def len_(x: Any) -> Any:
    """The length of a tuple, or the size of a tensor's first axis."""


@stub("rule", "print")
def print_(*values: Any, sep: Any = " ", end: Any = "\n") -> None:
    """Prints from a running kernel."""


@stub("rule", "breakpoint")
def breakpoint_() -> None:
    """Opens the Python debugger when the kernel is interpreted; compiled code passes it."""


@stub("rule", "int")
def int_(x: Any) -> Any:
    """A compile-time number as an int; a run-time value as `Int`."""


@stub("rule", "float")
def float_(x: Any) -> Any:
    """A compile-time number as a float; a run-time value as `Float64`."""


@stub("rule", "complex")
def complex_(real: Any = 0, imag: Any = 0) -> Any:
    """The complex number of two parts: complex128 of parts of 64 bits, complex64 of shorter floats."""


@stub("rule", "bool")
def bool_(x: Any) -> Any:
    """Whether a number is not zero."""


@stub("rule", "isinstance")
def isinstance_(x: Any, kind: Any) -> Any:
    """Whether x is a tuple, a struct, a run-time value of a type, or a compile-time int, float, bool or str."""


@stub("rule", "tuple")
def tuple_(x: Any) -> Any:
    """A tuple of the items of a tuple, of a compile-time range, or of a generator expression."""


@stub("rule", "str")
def str_(x: Any) -> Any:
    """The text of a compile-time value."""


# *** sequences that are known at compile time ***


@stub("rule", "enumerate")
def enumerate_(x: Any, start: Any = 0) -> Any:
    """Pairs of a number and an item, for the items of a tuple."""


@stub("rule", "zip")
def zip_(*sequences: Any, strict: Any = False) -> Any:
    """Tuples of the first items, of the second ones, and so on, as many as the shortest has."""


@stub("rule", "reversed")
def reversed_(x: Any) -> Any:
    """The items of a tuple, or the numbers of a range, from the last to the first."""


@stub("rule", "sum")
def sum_(x: Any, start: Any = 0) -> Any:
    """`start` plus the items, from the first to the last."""


@stub("rule", "any")
def any_(x: Any) -> Any:
    """Whether one of the items holds; those after it are not computed."""


@stub("rule", "all")
def all_(x: Any) -> Any:
    """Whether all items hold; those after one that does not are not computed."""


@stub("rule", "sorted")
def sorted_(x: Any, *, reverse: Any = False) -> Any:
    """The items of a tuple in ascending order: compile-time numbers or strings, or up to 256 run-time numbers of one
    dtype (vectors lane by lane), NaN last; with `reverse=True` that order backwards, NaN first.
    """
