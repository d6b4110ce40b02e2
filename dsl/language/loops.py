"""Declares the loops, and what a kernel says of them: in order, in parallel, by vectors, written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..diagnostics.errors import EinkornError
from ..diagnostics.places import user_place
from .annotations import Target
from .stubs import stub

__all__ = [
    "compiled_for",
    "foreach",
    "parallel_chunks",
    "parallel_for",
    "rare",
    "static_assert",
    "store",
    "tile",
    "unroll",
    "vectorize",
    "within_parallel",
]


@stub("rule")
def foreach(out: Any, body: Callable[..., Any], *, simd_width: int | None = None) -> None:
    """Stores `body(index)` into every element of `out`; a tuple of outputs takes a tuple of values.

    On a CPU the loop takes `simd_width` elements as one vector, or as many as suit the machine when it is left out.
    """


@stub("rule")
def rare(condition: Any) -> Any:
    """The condition, of which you know that it holds for nearly no element.

    A `foreach` on a CPU then looks at a block of elements first, and computes the blocks where it never holds by a loop
    without that case.
    """


@stub("rule")
def parallel_for(n: Any, body: Callable[..., Any], *, grain: Any = 1) -> None:
    """Calls `body(i)` for every i in [0, n), in any order and in parallel; a task takes at least `grain` calls."""


@stub("rule")
def parallel_chunks(n: Any, body: Callable[..., Any], *, grain: Any = 1) -> None:
    """Calls `body(low, high)` for ranges that cover [0, n), in any order and in parallel, of at least `grain` each."""


@stub("rule")
def vectorize(n: Any, width: int, body: Callable[..., Any], *, masked: bool = False) -> None:
    """Calls `body(i, width)` for whole vectors, then `body(i, 1)` for what is left; masked: `body(i, width, mask)`."""


@stub("rule")
def tile(n: Any, sizes: Any, body: Callable[..., Any]) -> None:
    """Calls `body(i, size)` with the largest of the sizes that still fits, until everything below n is covered."""


@stub("rule")
def unroll(*bounds: Any) -> Any:
    """`for i in unroll(...)`: like range, or over a range or tuple, but the body is written out once for each value."""


@stub("rule")
def store(out: Any, index: Any, value: Any) -> None:
    """`out[index] = value`, as an expression for lambdas."""


@stub("rule", in_python=True)
def static_assert(condition: Any, message: str = "") -> None:
    """Fails the compilation with `message`, at the place of the call, unless the compile-time condition holds.

    In Python, where a helper of kernels is called by itself, it raises the same error.
    """
    if not condition:
        raise EinkornError(message or "static_assert failed", code="EK0215", place=user_place())


@stub("rule")
def compiled_for() -> Target:
    """What the code is being compiled for, as `ctx.target` says it, where no `ctx` is at hand."""
    raise NotImplementedError


@stub("rule")
def within_parallel() -> bool:
    """Whether the code is part of parallel work already, so that loops in it run in order; known at compile time."""
    raise NotImplementedError
