"""Functions over all ops, for tensors and for values of graphs: `from einkorn import functional as F`.

    @F.functional
    def layer(x, weight, bias):
        return F.relu(x @ weight + bias)

In a graph that is being built they stage what `ops` stages. With tensors they run at once; within a function under
`F.functional` all of it runs as one graph, and under `F.lazy()` nothing runs before a value is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from ...dsl.environment.tracebacks import without_internals
from ..staging.active import ACTIVE
from . import values as values  # it adds to FUNCTIONS
from .contexts import MODE, LazyRealizationContext
from .nodes import FUNCTIONS, Recorded
from .realize import realize

F = TypeVar("F", bound=Callable[..., Any])
CustomExtensionType = str | Path

_LAZY = LazyRealizationContext()
_GRAPHS = 4  # structures of one function that are compiled at first sight


def functional(op: F) -> F:
    """Makes a function one graph: what it records runs together when it ends, and what it gives has values.

    The function runs with each call, so it may branch and loop as Python does, and read what changes.
    """
    known = FUNCTIONS.get(getattr(op, "__name__", ""))
    if known is not None and getattr(known, "__wrapped__", None) is op:
        return known  # type: ignore[return-value]  # an op of `ops`
    whole = _WholeOp(op)

    @without_internals
    @functools.wraps(op)
    def call(*args: object, **kwargs: object) -> Any:
        return whole(args, kwargs)

    return call  # type: ignore[return-value]


class _WholeOp:
    """A function whose ops run together. It is an object so that cloudpickle can send the function that calls it."""

    __slots__ = ("compiled", "op")

    def __init__(self, op: Callable[..., object]) -> None:
        self.op = op
        self.compiled: dict[Any, None] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if MODE.get().lazy or ACTIVE.get():
            return self.op(*args, **kwargs)
        token = MODE.set(_LAZY)
        try:
            result = self.op(*args, **kwargs)
        finally:
            MODE.reset(token)
        wanted = list(_tensors(result))
        if wanted:
            realize(wanted, self.compiled, _GRAPHS)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return _WholeOp, (self.op,)


def _tensors(value: object) -> Iterator[Recorded]:
    if isinstance(value, Recorded):
        if type(value._pending) is tuple:
            yield value
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))


class _Lazy:
    """A `with` block in which ops are recorded."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token = MODE.set(_LAZY)

    def __exit__(self, *_: object) -> None:
        MODE.reset(self.token)


def lazy() -> AbstractContextManager[None]:
    """Within this block ops are recorded, and run when a value is needed; what is not needed never runs."""
    return _Lazy()


def in_graph_context() -> bool:
    """Whether a graph is being built, so that ops stage."""
    return bool(ACTIVE.get())


globals().update({name: function for name, function in FUNCTIONS.items() if "." not in name})
__all__ = sorted(
    [*(name for name in FUNCTIONS if "." not in name), "CustomExtensionType", "functional", "in_graph_context", "lazy"]
)
