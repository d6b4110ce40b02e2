"""Mistakes with structs: each with its golden text, and each leaves the process usable."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent

import pytest

POINT = """
@struct
class Point:
    x: T
    y: T = 0.0

    @property
    def norm(self):
        return self.x * self.x + self.y * self.y

    def shifted(self, by: T):
        return Point(self.x + by, self.y)


@struct
class Tag:
    name: str
    value: Int
"""


def kernel(body: str, *, before: str = POINT) -> str:
    """A kernel file with one op of this body."""
    head = '@register("op")\ndef op(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):\n'
    return f"{before}\n\n{head}{indent(body, '    ')}\n"


STRUCTS = {
    "field_of_no_variable": kernel("P.x = 3", before=POINT + "P = Point(1, 2)\n"),
    "field_of_outer_variable": kernel("p = Point(1, 2)\ndef f():\n    p.x = 3\nf()"),
    "unknown_field": kernel("p = Point(1, 2)\np.z = 3"),
    "unknown_member_of_struct": kernel("p = Point(1, 2)\nout[0] = p.nrom"),
    "field_type": kernel("p = Point(1, 2)\nout[0] = p.shifted(x.dim(0)).x\nq = Tag('a', x[0])"),
    "field_of_other_type": kernel("p = Point(x[0], x[1])\np.y = Int32(3)"),
    "field_count": kernel("p = Point(1, 2, 3)\nq = Point(1, z=2)\nr = Point(y=1)"),
    "type_variable_of_struct": kernel("p = Point(x[0], x.dim(0))"),
    "no_operator": kernel(
        "p = Point(1, 2)\nq = p * 2\nr = -p\ns = p < p\nt = p == 3\nu = p(1)\nv = p[0]", before=POINT
    ),
    "no_truth": kernel("p = Point(1, 2)\nif p:\n    out[0] = 1.0"),
    "struct_in_tensor": kernel("out[0] = Point(1, 2)"),
    "struct_in_branches": kernel("p = Point(1, 2)\nif x[0] > 0:\n    p = Tag('b', 1)\nout[0] = p.x"),
    "struct_field_in_loop": kernel(
        "p = Tag('a', 1)\nfor i in range(3):\n    p = Tag('b', i)\nout[0] = 1.0", before=POINT
    ),
    "parts_of_two_forms": kernel("p = map_parts(lambda a, b: a + b, Point(1.0, 2.0), (1.0, 2.0))\nout[0] = p.x"),
    "struct_with_base": kernel("pass", before="@struct\nclass A(int):\n    x: Int\n"),
    "struct_with_init": kernel("pass", before="@struct\nclass A:\n    x: Int\n    def __init__(self):\n        pass\n"),
    "struct_defaults": kernel("pass", before="@struct\nclass A:\n    x: Int = 0\n    y: Int\n"),
    "struct_body": kernel(
        "a = A(1)\nout[0] = a.f(2)",
        before="@struct\nclass A:\n    x: Int\n    for k in ():\n        pass\n    def f(self, k):\n        return [k]",
    ),
}


@pytest.mark.parametrize("name", STRUCTS)
def test_mistake(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    golden(name, workplace.load(STRUCTS[name]))
