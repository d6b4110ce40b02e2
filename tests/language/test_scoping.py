"""Which variable a name means within nested functions: what Python does with the same text says so.

Each case is the body of a function of one number. Python runs it; compiled code and the interpreter have to give the
same numbers, and where Python raises NameError (UnboundLocalError among them) the kernel has to be refused.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import numpy as np
import pytest
from kernel_harness import KernelFile

from einkorn.compiler.check import check_kernels


def cases(text: str) -> dict[str, str]:
    """The bodies in a text, each under a line `# name`."""
    parts = [part.partition("\n") for part in text.strip().removeprefix("# ").split("\n# ")]
    return {name: body for name, _, body in parts}


GIVES = cases("""
# read around
a = v + 1
def g():
    return a * 2
return g()
# own of the same name
a = v
def g():
    a = 7
    return a
return g() * 100 + a
# own after a parameter
a = v
def g(a):
    a += 1
    return a
return g(a) * 100 + a
# own of another type
a = v
def g():
    a = (v, 2)
    return a[0] + a[1]
return g() + a
# own in a loop
a = v
def g():
    s = 0
    for a in range(3):
        s += a
    return s
return g() * 10 + a
# own in a run-time branch
a = v
def g(k):
    if k > 0:
        a = 1
    else:
        a = 2
    return a
return g(v) * 100 + a
# own in a while loop
a = v
def g(k):
    a = 0
    while a < k:
        a += 2
    return a
return g(5) + a * 100
# own by unpacking
a = v
b = 3
def g():
    a, b = 10, 20
    return a + b
return g() + a * b
# own function
def a():
    return 1
def g():
    def a():
        return 2
    return a()
return g() * 10 + a()
# parameter hides
a = v
g = lambda a: a + 1
return g(40) + a
# default of the same name
a = v
def g(a=a):
    a += 5
    return a
return g() * 100 + a
# default is older
a = v
def g(k=a):
    return k
a = a + 50
return g() * 100 + a
# two levels read
a = v
def g():
    def h():
        return a + 1
    return h()
return g()
# two levels, own in the middle
a = v
def g():
    a = 9
    def h():
        return a + 1
    return h()
return g() * 100 + a
# two levels, own inside
a = v
def g():
    def h():
        a = 3
        return a
    return h() * 10 + a
return g()
# siblings
def g():
    a = 1
    return a
def h():
    a = 2
    return a
a = v
return g() + 10 * h() + 100 * a
# lambda in a loop, called there
s = 0
for k in range(4):
    g = lambda u: u * k
    s += g(v)
return s
# generator has its own
a = v
s = sum(a * 2 for a in (1, 2, 3))
return s * 100 + a
# generator's first iterable
a = (v, 2)
return sum(a for a in a)
# own before it is read
a = v
def g():
    a = v * 2
    a += 1
    return a
return g() + a
# read in the caller after
a = v
def g():
    a = 0
    return a
g()
return a
# read in another name
a = v
def g(k):
    b = a
    return b + k
return g(1)
# global name hidden
HIDDEN = v
def g():
    return HIDDEN + 1
return g()
# global name
def g():
    return KNOWN + v
return g()
# recursion sees its own
def g(n):
    m = n
    return 0 if m == 0 else m + g(n - 1)
return g(4) + v
# a struct around
p = Point(v, 2)
def g():
    p = Point(7, 8)
    p = p.moved(1)
    return p.x
return g() * 100 + p.x
# a struct as argument
p = Point(v, 2)
def g(p):
    p = p.moved(5)
    return p.x
return g(p) * 100 + p.x
""")

RAISES = cases("""
# augmented
a = v
def g(k):
    a += k
    return a
return g(2)
# augmented, nothing returned
a = v
def g(k):
    a += k
g(2)
return a
# read, then assigned
a = v
def g():
    b = a
    a = 1
    return b + a
return g()
# maximum
a = v
def g(k):
    a = max(a, k)
    return a
return g(2)
# two levels
a = v
def g():
    def h():
        a += 1
        return a
    return h()
return g()
# in the middle
a = v
def g():
    def h():
        return a
    b = h()
    a = 2
    return b
return g()
# in a loop
a = v
def g():
    for k in range(3):
        a += k
    return a
return g()
# in a while
a = v
def g():
    while a < 3:
        a += 1
    return a
return g()
# condition
a = v
def g():
    if a > 0:
        a = 1
    return 1
return g()
# loop variable
a = 3
def g():
    s = 0
    for a in range(a):
        s += a
    return s
return g()
# unpacked
a = v
b = v
def g():
    a, b = b, a
    return a + b
return g()
# part of a tuple
a = v
t = (v, v)
def g():
    t = (t[0] + 1, t[1])
    return t[0]
return g()
# own function
def a():
    return 1
def g():
    b = a()
    def a():
        return 2
    return b
return g()
# global name
def g():
    b = KNOWN
    KNOWN = 3
    return b + KNOWN
return g()
# unknown
def g():
    return a
b = g()
a = 1
return b
# a struct around
p = Point(v, 2)
def g():
    p = p.moved(1)
    return p.x
return g()
""")

HEAD = """
from einkorn.dsl import InputTensor, Int, OutputTensor, foreach, int64, max, register, struct

KNOWN = 1000
HIDDEN = 2000


@struct
class Point:
    x: Int
    y: Int

    def moved(self, by):
        return Point(self.x + by, self.y)


"""


def text_of(number: int, body: str) -> str:
    return (
        f"def function_{number}(v):\n{indent(body, '    ')}\n\n\n"
        f'@register("case_{number}")\ndef case_{number}(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]):\n'
        f"    foreach(out, lambda i: function_{number}(x[i]))\n\n\n"
    )


def python(body: str, value: int) -> int:
    """What Python makes of the same text."""
    names: dict[str, object] = {}
    exec(HEAD.replace("max, ", "") + text_of(0, body).partition("@register")[0], names)
    return names["function_0"](value)  # type: ignore[operator, no-any-return]


@pytest.fixture(scope="module")
def scoped(tmp_path_factory: pytest.TempPathFactory) -> KernelFile:
    path = tmp_path_factory.mktemp("scoping") / "scoped.py"
    path.write_text(HEAD + "".join(text_of(k, body) for k, body in enumerate(GIVES.values())))
    return KernelFile(path)


@pytest.mark.parametrize("name", GIVES)
def test_names_mean_what_python_says(name: str, scoped: KernelFile) -> None:
    x = np.array([-3, 0, 1, 5, 8], np.int64)
    (got,) = scoped(f"case_{list(GIVES).index(name)}", x)
    assert got.tolist() == [python(GIVES[name], int(value)) for value in x]


@pytest.mark.parametrize("name", RAISES)
def test_what_python_refuses_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(NameError):
        python(RAISES[name], 5)
    path = tmp_path / "refused.py"
    path.write_text(HEAD + text_of(0, RAISES[name]))
    errors = check_kernels(str(path)).errors
    assert errors and {error.code for error in errors} <= {"EK0101", "EK0125"}, errors
    around = name not in ("global name", "unknown", "in the middle")
    assert not around or errors[0].code == "EK0125", errors[0]


LOOPS = {
    "parallel_for": ("parallel_for(x.dim(0), body)", "def body(i):\n    total += x[i]"),
    "parallel_chunks": ("parallel_chunks(x.dim(0), body)", "def body(i, j):\n    total += x[i]"),
    "foreach": ("foreach(out, body)", "def body(i):\n    total += x[i]\n    return total"),
    "vectorize": ("vectorize(x.dim(0), 4, body)", "def body(i, w):\n    total += x.load(i, width=w).reduce_add()"),
    "tile": ("tile(x.dim(0), (4, 1), body)", "def body(i, w):\n    total = total + x[i]"),
    "rowwise": ("rowwise(x, Sum, body)", "def body(row, value):\n    total = total * value"),
    "stencil": (
        "stencil(out, x, body, reach=(1,))",
        "def body(near, i):\n    total = max(total, near(0))\n    return total",
    ),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_the_hint_fits_the_loop(loop: str, tmp_path: Path) -> None:
    call, body = LOOPS[loop]
    text = indent(f"total = float32(0)\n{body}\n{call}\nforeach(out, lambda i: total)", "    ")
    path = tmp_path / "loops.py"
    path.write_text(
        "from einkorn.dsl import *\nfrom einkorn.stdlib import Sum, rowwise, stencil\n\n\n"
        '@register("op")\ndef op(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):\n' + text + "\n"
    )
    (error,) = check_kernels(str(path)).errors
    monoid = {"rowwise": "Product", "stencil": "Max"}.get(loop, "Sum")
    assert error.code == "EK0125" and error.hint is not None
    assert f"rounds of {loop} share no variable" in error.hint and f"reduce(x, {monoid})" in error.hint


def test_lanes_and_fields_of_what_is_around(tmp_path: Path) -> None:
    """Vectors and structs are values: what a nested function would change of them is lost, and so refused."""
    refused = {
        "w = SIMD[int64, 4](0)\ndef g():\n    w[0] = 1\ng()\nreturn w[0]": "EK0125",
        "w = SIMD[int64, 4](0)\ndef g():\n    w[0] += 1\ng()\nreturn w[0]": "EK0125",
        "p = Point(v, 2)\ndef g():\n    p.x = 1\ng()\nreturn p.x": "EK0102",
        "p = Point(v, 2)\ndef g():\n    p.x += 1\ng()\nreturn p.x": "EK0102",
        "p = Point(v, 2)\ndef g(p):\n    p.x += 1\ng(p)\nreturn p.x": "EK0126",
        "p = Point(v, 2)\ndef g(p):\n    p.x += 1\n    return p\ng(p)\nreturn p.x": "EK0126",
        "p = Point(v, 2)\np.moved(3)\nreturn p.x": "EK0126",
        "n = v\ndef g():\n    nonlocal n\n    n = 2\ng()\nreturn n": "EK0102",
        "def g():\n    global KNOWN\n    KNOWN = 2\ng()\nreturn KNOWN": "EK0102",
    }
    for body, code in refused.items():
        path = tmp_path / "values.py"
        path.write_text(HEAD.replace("import ", "import SIMD, ") + text_of(0, body))
        errors = check_kernels(str(path)).errors
        assert [error.code for error in errors] == [code], (body, errors)
    body = "w = SIMD[int64, 4](v)\ndef g():\n    own = w\n    own[0] += 1\n    return own[0]\nreturn g() * 100 + w[0]"
    path.write_text(HEAD.replace("import ", "import SIMD, ") + text_of(0, body))
    (got,) = KernelFile(path)("case_0", np.array([4], np.int64))
    assert got.tolist() == [504]
