"""Gives buffers operators that raise: a buffer is memory and has no arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.environment.tracebacks import placed

BINARY = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}
BINARY |= {"matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
UNARY = {"neg": "-", "pos": "+", "abs": "abs", "invert": "~"}
ORDER = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def refuse_arithmetic(owner: type) -> None:
    """Sets all operators but `==` and `!=`."""
    for name, symbol in BINARY.items():
        for form in (f"__{name}__", f"__r{name}__", f"__i{name}__"):
            setattr(owner, form, _refusal(owner, f"{symbol}=" if form.startswith("__i") else symbol, form))
    for name, symbol in (UNARY | ORDER).items():
        setattr(owner, f"__{name}__", _refusal(owner, symbol, f"__{name}__"))


def _refusal(owner: type, symbol: str, name: str) -> Callable[[Any, Any], Any]:
    """What an operator does: for arrays and tensors it is theirs, else it is an error that says what to write."""

    def operator(self: object, other: object = None) -> Any:
        if other is not None and not isinstance(other, owner | bool | int | float | complex):
            return NotImplemented
        raise DTypeError(
            f"a Buffer is memory and has no arithmetic: `{symbol}`",
            code="EK0814",
            got="Buffer" if other is None else f"Buffer and {type(other).__name__}",
            hint="compute with buffer.to_numpy(), which copies nothing on the host, or with einkorn.tensor.Tensor",
        )

    operator.__name__ = operator.__qualname__ = name
    return placed(operator)
