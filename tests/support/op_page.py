"""Writes docs/ops.md, the page of all ops, from their table.

    python tests/support/op_page.py

A test compares the page with the table.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from einkorn.dsl.types.dtype import DType
from einkorn.graph import TensorValue
from einkorn.graph.ops.operands import KINDS
from einkorn.graph.ops.stage import METHODS, OPS, BuiltinOp
from einkorn.graph.staging.kernels import kernel_family

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"

HEAD = """# Ops of graphs

Every function of `einkorn.graph.ops`, written from the table of ops by `python tests/support/op_page.py`.

Operands are tensors of the graph; where an op takes several, numbers and arrays may stand for all but one. Those of an
elementwise op are promoted to one dtype and broadcast to one shape. *dtypes* is empty where an op takes no tensors, or
has rules of its own, which `help(ops.name)` describes. *result* is the dtype of the result where it is not that of the
operands.

Sums and products along an axis are as wide as NumPy's, and so are scans: of integers and bools int64, of unsigned
integers uint64, which `ops.cast` narrows. Half floats are added up in float32 and rounded once. Sums between elements
(`add`, `matmul`, `einsum`, convolutions, `scatter_add`) keep the dtype of their operands, as NumPy's do, and integers
wrap.

| dtypes | are |
|---|---|
"""

TITLES = {
    "elementwise": "Elementwise",
    "reduction": "Reductions and softmax",
    "matmul": "Matrix products",
    "movement": "Shapes and axes",
    "rearranging": "Repeating, padding, rolling",
    "indexing": "Slices",
    "gathering": "Elements where indices point",
    "scattering": "Updates where indices point",
    "matrices": "Bands, triangles, outer products",
    "constant": "Literals and weights",
    "creation": "Sequences, one number over and over, sizes",
    "buffers": "Buffers",
    "custom": "Kernels of your own",
    "control_flow": "Control flow",
}
OPERATORS = {
    **{"__add__": "x + y", "__sub__": "x - y", "__mul__": "x * y", "__truediv__": "x / y", "__floordiv__": "x // y"},
    **{"__mod__": "x % y", "__pow__": "x ** y", "__matmul__": "x @ y", "__getitem__": "x[i]", "__neg__": "-x"},
    **{"__and__": "x & y", "__or__": "x | y", "__xor__": "x ^ y", "__invert__": "~x"},
    **{"__eq__": "x == y", "__ne__": "x != y", "__lt__": "x < y", "__le__": "x <= y", "__gt__": "x > y"},
    **{"__ge__": "x >= y", "__abs__": "abs(x)", "__round__": "round(x)"},
}


def page() -> str:
    """The whole page."""
    listed = {kind: ", ".join(map(str, sorted(KINDS[kind].dtypes, key=str))) for kind in KINDS}
    listed["storable"] = f"{listed['any']}, and those that are only stored"
    text = HEAD + "".join(f"| {kind} | {dtypes} |\n" for kind, dtypes in listed.items())
    files: dict[str, list[BuiltinOp]] = {}
    for op in OPS.values():
        files.setdefault(op.function.__module__.rpartition(".")[2], []).append(op)
    text += host_only()
    titles = TITLES | {file: file.capitalize() for file in files if file not in TITLES}
    return text + "".join(section(title, files[file]) for file, title in titles.items())


def section(title: str, ops: list[BuiltinOp]) -> str:
    """The ops of one file."""
    head = f"\n## {title}\n\n| op | dtypes | result | also | does | example |\n|---|---|---|---|---|---|\n"
    return head + "".join(row(op) for op in sorted(ops, key=lambda op: op.name))


def row(op: BuiltinOp) -> str:
    """One line of a table."""
    parameters = inspect.signature(op.function).parameters.values()
    shown = ", ".join(p.name if p.default is p.empty else f"{p.name}={default(p.default)}" for p in parameters)
    sentence = (op.function.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    methods = dict.fromkeys([*op.methods, *((op.name,) if (TensorValue, op.name) in METHODS else ())])
    also = ", ".join(f"`{name}`" for name in filter(None, map(reached, methods))).replace("|", "\\|")
    example = f"`{op.example or regular_example(op)}`".replace("|", "\\|")
    cells = [f"`{op.name}({shown})`", kinds(op), result(op), also, " ".join(sentence.split()), example]
    return f"| {' | '.join(cells)} |\n"


def regular_example(op: BuiltinOp) -> str:
    """A call of a row, in which nothing has its default."""
    given = [*op.operands, *(["axis=0"] if op.form != "elementwise" else [])]
    return f"ops.{op.name}({', '.join(given)})"


def host_only() -> str:
    """The ops that no GPU runs, with their reasons."""
    listed = sorted(op.name for op in OPS.values() if op.host_only)
    if not listed:
        return ""
    text = "\nNo code for GPUs is made of these:\n\n| op | why |\n|---|---|\n"
    return text + "".join(f"| `{name}` | {OPS[name].host_only} |\n" for name in listed)


def default(value: object) -> str:
    return "..." if type(value).__module__.startswith("einkorn") else repr(value).replace("'", '"')


def reached(method: str) -> str:
    """How a user writes a method; nothing for a reflected operator."""
    return OPERATORS.get(method, "") if method.startswith("__") else f"x.{method}"


def kinds(op: BuiltinOp) -> str:
    actual = dict.fromkeys(op.operands.values())
    return "; ".join(actual) if len(actual) < 2 else "; ".join(f"{n}: {kind}" for n, kind in op.operands.items())


def result(op: BuiltinOp) -> str:
    if op.kernel is None:
        return ""
    family, name = op.kernel
    dtype = kernel_family(family).kernels[name].schema.outputs[0].dtype
    given = f"{op.integers} of integers" if op.integers is not None else ""
    if op.sums:
        given = "int64 or uint64 of integers"
    return str(dtype) if isinstance(dtype, DType) and set(op.operands.values()) != {str(dtype)} else given


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
