"""Declares what is next to the machine: tables of constants, blocks of memory, instructions and functions by name."""

from __future__ import annotations

from typing import Any

from .stubs import stub

__all__ = ["constant_table", "external_call", "inline_assembly", "llvm_intrinsic", "memcpy", "memset"]


@stub("rule")
def constant_table(values: Any, dtype: Any) -> Any:
    """A tensor of constants that lies in the code: `table[i]` for a run-time `i`. `values` is a tuple of compile-time
    numbers, or a tuple of equally long tuples for each further axis. It is read-only.
    """


@stub("rule")
def inline_assembly(text: str, result: Any, *args: Any, constraints: str = "", has_side_effects: bool = True) -> Any:
    """Instructions of the target, as LLVM writes them: `inline_assembly("bswap $0", uint32, x, constraints="=r,0")`.

    `result` is a dtype, a vector type, or None. Without side effects the instructions may be moved, and dropped.
    """


@stub("rule")
def llvm_intrinsic(name: str, result: Any, *args: Any, has_side_effects: bool = True) -> Any:
    """An intrinsic of LLVM by its name, with its types: `llvm_intrinsic("llvm.fshl.i32", uint32, x, y, n)`."""


@stub("rule")
def external_call(name: str, result: Any, *args: Any) -> Any:
    """A C function of a library that this process has loaded: `external_call("hypot", float64, x, y)`. On CPUs."""


@stub("rule", "ranks.exchange")
def exchange(kind: str, what: str, to: Any, source: Any, piece: Any, count: Any, node: Any) -> None:
    """Moves elements between ranks, in one of the ways of `contract.exchange.Exchange`, such as "allgather". It is for
    the kernels of collectives.

    `what` says which collective and group it is for, `piece` how many elements a piece has; `count` and `node` are for
    messages.
    """


def memcpy(to: Any, source: Any, count: Any) -> None:
    """Copies `count` elements from one pointer to another; the two blocks do not overlap."""
    for k in range(count):
        to[k] = source[k]


def memset(to: Any, value: Any, count: Any) -> None:
    """Stores a value in `count` elements from a pointer on."""
    for k in range(count):
        to[k] = value
