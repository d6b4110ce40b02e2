"""Names of the language for memory and loops: atomic operations, vectors, tiles.

Input: nothing. Output: the names. Non-goals: no meaning in code; that is the compiler's.
"""

from __future__ import annotations

from typing import Any

from .stubs import Namespace, Stub, stub

# *** atomic operations: one step that no other thread comes between ***


@stub("rule", "atomic_add")
def atomic_add(out: Any, index: Any, value: Any) -> None:
    """Adds to an element so that no addition from another thread is lost: `atomic.add` without its result."""


def _modify(kind: str, doc: str) -> Stub:
    def function(target: Any, index: Any, value: Any, ordering: Any = "relaxed") -> Any: ...

    function.__doc__ = f"{doc}; gives the value before."
    return stub("rule", f"atomic.{kind}")(function)


@stub("rule", "atomic.compare_exchange")
def _compare_exchange(target: Any, index: Any, expected: Any, desired: Any, ordering: Any = "relaxed") -> Any:
    """Stores `desired` if the element is `expected`, bit by bit; gives the value before."""


@stub("rule", "atomic.load")
def _load(target: Any, index: Any, ordering: Any = "relaxed") -> Any:
    """The element, as some thread stored it as a whole."""


@stub("rule", "atomic.store")
def _store(target: Any, index: Any, value: Any, ordering: Any = "relaxed") -> None:
    """Stores the element as a whole."""


atomic = Namespace(
    add=_modify("add", "Adds to an element"),
    sub=_modify("sub", "Subtracts from an element"),
    min=_modify("min", "Stores the smaller of an element and a value, as `min`"),
    max=_modify("max", "Stores the larger of an element and a value, as `max`"),
    and_=_modify("and", "Keeps the bits of an integer that a value has, too"),
    or_=_modify("or", "Sets the bits of an integer that a value has"),
    xor=_modify("xor", "Turns over the bits of an integer that a value has"),
    exchange=_modify("exchange", "Stores a value"),
    compare_exchange=_compare_exchange,
    load=_load,
    store=_store,
)


# *** loops that call a function ***


@stub("rule")
def parallel_chunks(n: Any, body: Any, *, grain: Any = 1) -> None:
    """Calls `body(low, high)` for ranges that cover [0, n), in any order and in parallel, of at least `grain` each."""


@stub("rule")
def vectorize(n: Any, width: Any, body: Any, *, masked: Any = False) -> None:
    """Calls `body(i, width)` for whole vectors, then `body(i, 1)` for what is left; masked: `body(i, width, mask)`."""


@stub("rule")
def tile(n: Any, sizes: Any, body: Any) -> None:
    """Calls `body(i, size)` with the largest of the sizes that still fits, until everything below n was met."""
