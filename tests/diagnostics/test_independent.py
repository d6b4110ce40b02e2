"""All independent mistakes of a kernel are found in one go, in the order of the text, and none that follows."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from einkorn.compiler.check import check_kernels

PRELUDE = """from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Floating)
"""

OP = '\n\n@register("op")\ndef op(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):\n'


def kernel(body: str, before: str = "") -> str:
    indented = "\n".join(f"    {line}" if line else "" for line in dedent(body).strip().split("\n"))
    return f"{PRELUDE}{dedent(before)}{OP}{indented}\n"


FILES = {
    # Unknown names and what is not in the language hide no types, and are hidden by none.
    "names_and_types": kernel(
        """
        a = sqr(x[0]) + Int32(1)
        b = x[0] + Int32(2)
        c = a + b * 2
        out[0] = helper(c) + x[0] + Int32(3) + unknown
        with x as y:
            b = y + x[0] + Int32(4)
        try:
            out[1] = x[0] + Int32(5)
        except ValueError as problem:
            out[1] = problem + foo
        for i in range(3):
            out[i] = [x[i], bar][0]
        else:
            out[2] = x[0] + Int32(6)
        foreach(tou, lambda i: x[i] + Int32(7))
        foreach(out, lambda i: x[i] + Int32(8) if x[i] > baz else x[i].foo)
        """,
        "def helper(v):\n    w = v * missing\n    return w + (Float32(1) + Int32(9))\n",
    ),
    # Every operand, argument and part is evaluated, though one of them has a mistake.
    "operands": kernel(
        """
        a = (x[0] + Int32(1)) * (x[1] + Int32(2))
        b = max(x[0].foo, x[1].bar)
        c = (x[0].foo, x[1].bar)
        d = x[0].foo and x[1].bar
        e = x[0].foo < x[1].bar < x[2].baz
        f = x[0].foo if x[1].bar else x[2].baz
        g = f"{x[0].foo} {x[1].bar}"
        out[x.foo] += x[0].bar
        out[x[0]] = x[0].foo
        assert x[0].foo, x[1].bar
        h, k = x[0].foo, x[1]
        out[0] = k + Int32(3)
        return x[0].foo
        """
    ),
    # Both arms of a branch and the body of a loop, where their conditions are wrong; the arms of one that may be known
    # at compile time are left alone.
    "conditions": kernel(
        """
        if x[0] + Int32(1) > 0:
            out[0] = x[0] + Int32(2)
        else:
            out[0] = x[0] + Int32(3)
        while x[0].foo > 0:
            out[1] = x[0] + Int32(4)
        for i in range(x.fim(0)):
            out[i] = x[i] + Int32(5)
        if x.dtype == flaot16:
            out[0] = x[0] + Int32(6)
        out[0] = early(x[0])
        out[1] = x[0] + Int32(7)
        """,
        "def early(v):\n    if modes == 3:\n        return v + Int32(8)\n    w = v + Int32(9)\n    return w\n",
    ),
    # Functions, though their arguments are wrong in number or kind; each mistake once, however often it is called.
    "calls": kernel(
        """
        out[0] = first(x[0]) + first(x[1]) + second(x[0].foo)
        out[1] = second(x[0], 1)
        out[2] = third(Int32(1), x[0] + Int32(2))
        foreach(out, lambda i: first(x[i]))
        foreach(out, lambda i, j: x[0] + Int32(3))
        for i in unroll(3):
            out[i] = x[i] + Int32(4)
        """,
        """
        def first(v):
            return v + Int32(5)


        def second(v):
            return v + Int32(6) + (Float32(1) + Int32(7))


        def third(v: Float32, w: Float32):
            return v + w + (Float32(2) + Int32(8))
        """,
    ),
    # A variable of which nobody knows the type says nothing after the loop either.
    "loops": kernel(
        """
        total, count = 0.0, 0
        for i in range(x.dim(0)):
            total = total * sqr(x[i])
            count += 1
            out[i] = x[i] + Int32(1)
        out[0] = total
        out[1] = total + x[0]
        out[2] = x[0] + count
        last = x[0]
        for i in range(3):
            last = last + Int32(2)
        out[3] = last + Int32(3)
        """
    ),
    # Methods of structs, and what is computed at compile time.
    "structs": kernel(
        """
        p = Pair(x[0], x[0].foo)
        q = Pair(x[0], x[1])
        out[0] = p.a + q.total() + q.missing
        out[1] = q.a + Int32(1)
        q.a = q.a.foo
        out[2] = q.a + Int32(2)
        out[3] = Float32(len(powers(3)))
        out[4] = Other(x[0]).a
        """,
        """
        @struct
        class Pair:
            a: Float32
            b: Float32

            def total(self):
                return self.a + self.c + (self.b + Int32(3))


        @struct
        class Other:
            a: Float32

            for k in range(3):
                pass

            def shifted(self):
                return self.a + unknown


        def powers(n):
            found = ()
            for k in range(n):
                found = (*found, k.foo)
            return found
        """,
    ),
}


def errors_of(folder: Path, text: str, name: str = "kernels.py") -> list[object]:
    (folder / name).write_text(text, encoding="utf-8")
    return list(check_kernels(name).errors)


@pytest.mark.parametrize("name", FILES)
def test_all_at_once(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    found = errors_of(workplace.folder, FILES[name])
    golden(f"independent_{name}", "\n\n".join(map(str, found)) + f"\n\n{len(found)} errors")


EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "custom_ops" / "kernels").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("mistake", ["unknown_name", "(({})).no_such"])
def test_one_mistake_has_one_message(path: Path, mistake: str, workplace) -> None:  # type: ignore[no-untyped-def]
    """Wherever an expression of a kernel that is right is made wrong, that is all that is said."""
    text = path.read_text(encoding="utf-8")
    choose = random.Random(path.stem + mistake)
    places = _expressions(text)
    for line, start, end in choose.sample(places, min(4, len(places))):
        lines = text.split("\n")
        before, part, after = lines[line - 1][:start], lines[line - 1][start:end], lines[line - 1][end:]
        lines[line - 1] = f"{before}{mistake.format(part)}{after}"
        found = errors_of(workplace.folder, "\n".join(lines))
        assert len(found) <= 1, "\n\n".join(map(str, found))
        assert all(error.place.line == line for error in found)  # type: ignore[attr-defined]


def _expressions(text: str) -> list[tuple[int, int, int]]:
    """Lines and columns of the names that the functions of a file read."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    names = [part for function in functions for stmt in function.body for part in ast.walk(stmt)]
    read = [node for node in names if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return sorted({(node.lineno, node.col_offset, node.end_col_offset or 0) for node in read})
