"""Lists what the language leaves out of Python, in the author's words, and what to write instead.

See also `frontend.python.statements` (finding it in the text).
"""

from __future__ import annotations

_SHARED = "pass the value as an argument and return the new one; rounds of a loop in parallel share none: use `reduce`"

UNSUPPORTED: dict[str, tuple[str, str]] = {
    "Try": ("try/except", "check the condition with `if`, or stop with `assert` or `raise`"),
    "TryStar": ("try/except*", "check the condition with `if`, or stop with `assert` or `raise`"),
    "With": ("`with`", "call the function directly; kernels manage no resources"),
    "AsyncFor": ("`async for`", "use a plain `for` over `range(...)`"),
    "AsyncWith": ("`async with`", "kernels manage no resources"),
    "AsyncFunctionDef": ("`async def`", "use a plain `def`; parallel work is written with `parallel_for` or `foreach`"),
    "Await": ("`await`", "call the function directly"),
    "Yield": ("`yield`", "return a tuple, or store into a tensor"),
    "YieldFrom": ("`yield from`", "return a tuple, or store into a tensor"),
    "ListComp": ("a list comprehension", "write `tuple(... for ...)` over compile-time values, or a loop"),
    "SetComp": ("a set comprehension", "write a loop"),
    "DictComp": ("a dict comprehension", "write a loop"),
    "GeneratorExp": (
        "a generator expression outside of calls such as `tuple(...)` and `sum(...)`",
        "write `tuple(... for ...)`",
    ),
    "Global": ("`global`", _SHARED),
    "Nonlocal": ("`nonlocal`", _SHARED),
    "ClassDef": ("a class inside a function", "define it at module level, under `@struct`"),
    "Dict": ("a dict", "use a tuple, or an `if` chain on compile-time values"),
    "Set": ("a set", "use a tuple"),
    "List": ("a list", "use a tuple `(a, b)`, or `stack[T](n)` for run-time storage"),
    "Delete": ("`del`", "drop the line; variables end with their function"),
    "Import": ("`import` in a function", "import at the top of the file"),
    "ImportFrom": ("`import` in a function", "import at the top of the file"),
    "Match": ("`match`", "write an `if` chain"),
    "NamedExpr": ("the walrus operator `:=`", "assign on a line of its own"),
    "Is": ("the operator `is`", "compare with `==`"),
    "IsNot": ("the operator `is not`", "compare with `!=`"),
    "In": ("the operator `in`", "write the comparisons out"),
    "NotIn": ("the operator `not in`", "write the comparisons out"),
    "Pow": ("`**=`", "write `x = x ** n`"),
    "MatMult": ("the operator `@`", "write the loops of the product, or use ops.matmul in the graph"),
    "Attribute": ("an assignment to an attribute", "assign to a variable or to an element `x[i]`"),
}
