"""Names the methods by which structs define operators, as Python does: `add` is `__add__`, `shl` is `__lshift__`.

Keys are names of rows (see `ir.operations`).
"""

from __future__ import annotations

from ..ir.operations import ROWS

OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "truediv",
    "floordiv": "floordiv",
    "mod": "mod",
    "and_": "and",
    "or_": "or",
    "xor": "xor",
    "shl": "lshift",
    "shr": "rshift",
    "pow": "pow",
    "neg": "neg",
    "pos": "pos",
    "invert": "invert",
}


COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}  # with the one that mirrors it


def method_of_symbol(symbol: str) -> str | None:
    """`__add__` for `+`; None for what is no operator of two operands."""
    rows = (name for name in (*OPERATORS, *COMPARISONS) if name in ROWS and ROWS[name].symbol == symbol)
    name = next(rows, None)
    return None if name is None else f"__{OPERATORS.get(name, name)}__"
