"""All independent mistakes of a kernel are found in one go, in the order of the text, and none that follows."""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from einkorn.cli.application import main
from einkorn.compiler.build import build_package
from einkorn.compiler.check import check_kernels
from einkorn.dsl.diagnostics.errors import CompileErrors, DTypeError, GraphError
from einkorn.dsl.package.library import load_library

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
        out[2] = third(Int32(1), x[0] + Int32(2)) + third(*x[0].foo)
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
    # A variable of unknown type says nothing after the loop either.
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
    # Monoids and functions that the library is given; its own functions say nothing of what follows.
    "library": kernel(
        """
        rowwise(x, Mine, lambda row, v: store(out, 0, v.foo))
        rowwise(x, Mine, lambda row, v: store(out, 0, x[0] + Int32(1)), axes=0)
        rowwise(xx, Other, lambda row, v: store(out, 0, x[0] + Int32(2)))
        out[0] = reduce(x, Mine) + (x[0] + Int32(3))
        """,
        """
        from einkorn.stdlib import Monoid, reduce, rowwise


        class Mine(Monoid):
            @staticmethod
            def lift(value, place):
                return value * Int32(4) + unknown

            @staticmethod
            def combine(a, b):
                return a + b.foo


        class Other(Monoid):
            @staticmethod
            def lift(value, place):
                return value + (Float32(1) + Int32(5))

            @staticmethod
            def combine(a, b):
                return a + b
        """,
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
    actual = errors_of(workplace.folder, FILES[name])
    golden(f"independent_{name}", "\n\n".join(map(str, actual)) + f"\n\n{len(actual)} errors")


SIGNATURES = """
@register("op1", fastmath=["quick"], reads={"y": 3})
def op1(out: OutputTensor[T, "n +"], x: InputTensor[Q, "n"], y: float, w: Float32 = 1.0, *, p: list, q: int = 1.5):
    out[0] = x[0] + missing


@register("op2")
def op2(out: OutputTensor[T, "n"], x: InputTensor[T, "m"], y: InputTensor[float32, "(k + 1)"], *, m: str = "a"):
    out[0] = [x[0]][0]


@register("op-3")
def op3(out: OutputTensor[T], x: InputTensor[3, "k"], y: VariadicTensors[T], *rest):
    pass


@register("op4")
def op4(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    out[0] = x[0] + Int32(1) + Pair(x[0]).a


@op4.shape
def op4_shape(a, b):
    return 1


@op4.reference
def op4_reference(a, b):
    return a


@op1.reference
def op1_reference(a, b, c):
    return a


@struct
class Pair(Base):
    a: Flaot32


@register("op5")
def op5(out: OutputTensor[T, "k"], x: InputTensor[T, "n"]):
    out[0] = Pair(x[0]).b


@op5.shape
def op5_shape(x):
    return x.dim(0) + UInt64(2) + sqr(3)
"""

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "custom_ops" / "kernels").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("mistake", ['{}[T, "n +"]', '{}[missing, "n"]', "float", "Unknown[{}]"])
def test_one_mistake_of_a_signature_has_one_message(path: Path, mistake: str, workplace) -> None:  # type: ignore[no-untyped-def]
    """An argument of which a mistake leaves nothing known says nothing in the kernel's body."""
    text = path.read_text(encoding="utf-8")
    choose = random.Random(path.stem + mistake)
    places = list(re.finditer(r"(\w*(?:InputTensor|VariadicTensors))\[[^\]]*\]", text))
    for each in choose.sample(places, min(3, len(places))):
        wrong = text[: each.start()] + mistake.format(each[1]) + text[each.end() :]
        line = text.count("\n", 0, each.start()) + 1
        reported = errors_of(workplace.folder, without_other_ops(text, wrong, line))
        assert [error.place.line for error in reported] == [line], "\n\n".join(map(str, reported))  # type: ignore[attr-defined]


def without_other_ops(text: str, wrong: str, line: int) -> str:
    """The wrong text with the one op in which the line is; all of it where that is not an op's, but may be called by
    each.

    What is wrong in an op is nothing to the others, and to check them in all their instances takes its time.
    """
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    parts = []  # the op that each belongs to, its first line, its last
    for node in functions:
        decorator = ast.unparse(node.decorator_list[0])
        op = node.name if decorator.startswith("register(") else decorator.partition(".")[0]  # or `@op.reference`
        parts.append((op, node.decorator_list[0].lineno, node.end_lineno or 0))
    kept = [op for op, first, last in parts if first <= line <= last]
    lines = wrong.split("\n")
    for _, first, last in (part for part in parts if kept and part[0] not in kept):
        lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(lines)


WRONG_SIGNATURES = """
Q = TypeVar("Q", bound=Floatng)


@register("op1")
def op1(out: OutputTensor[T, "n +"], x: InputTensor[T, "n"], y: float, *, k: int = 1.5, m: int = 3):
    out[0] = x[0] + Bool(True)
    foreach(out, lambda i: x[i].foo + y + k + m + out[0].foo)
    if m > 2:
        out[1] = x[0, 1]


@register("op2")
def op2(out: OutputTensor[T, "*s"], x: InputTensor[Q, "*s"], y: InputTensor[T, "(q + 1)"]):
    out[0, 1] = x[0, 1] + Q(3) + SIMD[Q, 4](1)
    out[0] = y[0] + y.foo


@register("op3")
def op3(out: OutputTensor[T, "n"], x: VariadicTensors[T, "n", "j"], y: VariadicTensors[T, "n", "l"], *, j: int = 1.5,
        l: int = 2):
    out[0] = x[0].foo + y[0].foo


@register("op3")
def op3_again(out: OutputTensor[T, "n"]):
    out[0] = out.foo


@register("op3")
def op3_once_more(out: OutputTensor[T, "n"]):
    out[0] = out.bar


@register("op4")
async def op4(x: InputTensor[T, "n"], y):
    x[0] = x.foo
"""


def test_bodies_under_wrong_signatures(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    """They are looked at as far as their arguments are known; also those of ops that are registered twice."""
    actual = errors_of(workplace.folder, PRELUDE + WRONG_SIGNATURES)
    golden("independent_bodies", "\n\n".join(map(str, actual)) + f"\n\n{len(actual)} errors")
    with pytest.raises(CompileErrors) as caught:
        build_package("kernels.py", "out.pkg", ["host"])
    built = [(error.place, error.message) for error in caught.value.errors]
    assert built == [(error.place, error.message) for error in actual]  # type: ignore[attr-defined]


TWO_WAYS = """
N = TypeVar("N", bound=Numeric)


def helper(v):
    return v + ("text" if v.dtype == float32 else (1, 2) if v.dtype == float64 else None)


def too_large(v):
    return v & 1.5


@register("op")
def op(out: OutputTensor[N, "n"], x: InputTensor[N, "n"]):
    first, second = x[0], x[1]
    for i in range(3):
        first, second = Bool(True), Bool(False)
    out[0] = helper(x[0])
    out[1] = too_large(x[0]) + too_large(Bool(True)) + too_large(Float16(1))
"""


def test_different_mistakes_at_one_place(workplace) -> None:  # type: ignore[no-untyped-def]
    """Each way in which a text goes wrong is reported, with one code as with several, but not again for each dtype."""
    actual = errors_of(workplace.folder, PRELUDE + TWO_WAYS)
    reported = [(error.code, str(error.place).split(":", 1)[1], error.message) for error in actual]  # type: ignore[attr-defined]
    assert reported == [
        ("EK0202", "10:12", "cannot compute Float32 + a string"),
        ("EK0202", "10:12", "cannot compute Float64 + a tuple of 2"),
        ("EK0202", "10:12", "cannot compute Float16 + None"),
        ("EK0204", "14:12", "'&' works on Bool, integers, not on Float32"),
        ("EK0205", "14:16", "the float 1.5 does not fit bool"),
        ("EK0203", "21:9", "'first' is Float32 and cannot become Bool"),
        ("EK0203", "21:16", "'second' is Float32 and cannot become Bool"),
    ]


IMPORTED = """import numpyy as np
from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Floatng)
U = TypeVar("U", bound=Floating)
SIZES = [1, 2][7]
TWICE = SIZES * 2


def helper(v):
    return v + np.pi + TWICE


@register("a")
def a(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    out[0] = helper(x[0]) + foo


@registr("b")
def b(out: OutputTensor[U, "n"], x: InputTensor[U, "n"]):
    out[0] = helper(x[0])


@register("c")
def c(out: OutputTensor[U, "n"], x: InputTensor[U, "n"]):
    out[0] = helper(x[0]) + (x[0] + Int32(3))
    out[1] = bar + SIZES


print("this must not be printed")
raise ValueError("nor this")
"""


def test_signatures_and_auxiliary_functions(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    actual = errors_of(workplace.folder, PRELUDE + SIGNATURES)
    golden("independent_signatures", "\n\n".join(map(str, actual)) + f"\n\n{len(actual)} errors")


def test_what_fails_at_import(workplace, golden: Callable[[str, object], None], capsys) -> None:  # type: ignore[no-untyped-def]
    """After a statement that failed, definitions are still made; what needs a name that is missing says nothing."""
    actual = errors_of(workplace.folder, IMPORTED)
    golden("independent_imported", "\n\n".join(map(str, actual)) + f"\n\n{len(actual)} errors")
    assert "must not" not in capsys.readouterr().out
    with pytest.raises(CompileErrors) as caught:
        load_library("kernels.py")
    assert [error.code for error in caught.value.errors].count("EK0110") == 4


SHARED = """
def shared(v):
    return v + Int32(7)


@register("{0}")
def {0}(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + Int32(1) + shared(x[i]))


@register("{0}_too")
def {0}_too(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: shared(x[i]) + unknown)
    out[1] = x[0].foo
"""


def command(*words: str) -> None:
    """Runs a command that finds mistakes."""
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 1


def test_files_of_a_folder(workplace, golden: Callable[[str, object], None], capsys) -> None:  # type: ignore[no-untyped-def]
    """One error for a place, whatever kernels, instances and targets lead there; the count in both formats."""
    for name in ("first", "second"):
        workplace.write(f"kernels/{name}.py", PRELUDE + SHARED.format(name))
    workplace.write("kernels/third.py", "def f(:\n    pass\n\n\n@register('f')\n")
    command("check", "kernels", "--target", "host", "--target", "x86-64-v3")
    golden("independent_folder", capsys.readouterr().out)
    command("check", "kernels", "kernels/first.py", "--format", "json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 10 and lines[-1]["errors"] == 9 and lines[-1]["more"] is False
    assert [line["place"]["line"] for line in lines[:9]] == [7, 12, 17, 18] * 2 + [1]
    with pytest.raises(CompileErrors) as caught:
        build_package("kernels", "out.pkg", ["x86-64-v3"])
    assert len(caught.value.errors) == 9
    command("build", "kernels", "-o", "out.pkg", "--target", "host", "--format", "json")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(lines) == 10 and lines[-1] == {"errors": 9, "more": False}


def test_kernels_of_a_graph(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", PRELUDE + SHARED.format("op"))
    model = """
        from einkorn.graph import *
        from einkorn.graph import ops

        def forward(x):
            y = ops.custom("op", device=DeviceRef.CPU(), values=[x])[0]
            return ops.custom("op_too", device=DeviceRef.CPU(), values=[y])[0]

        types = [TensorType(DType.float32, ["n"], DeviceRef.CPU())]
        graph = Graph("model", forward=forward, input_types=types, custom_extensions=["kernels.py"])
        model = InferenceSession().load(graph)
    """
    golden("independent_graph", workplace.mistake(lambda: workplace.run(dedent(model))))
    workplace.still_works()


CALLED = """
@register("mixed")
def mixed(
    out: OutputTensor[T, "m n"], a: InputTensor[T, "m k"], b: InputTensor[T, "k n"], c: InputTensor[int32, "(2*n)"],
    *, flag: bool = False, count: int,
):
    out[0, 0] = a[0, 0]
"""

CALL = """
    import numpy as np
    from einkorn.graph import *
    from einkorn.graph import ops

    CPU = DeviceRef.CPU()
    types = [TensorType(DType.float32, ["n", 3], CPU), TensorType(DType.float64, ["n"], CPU)]
    graph = Graph("model", input_types=types, custom_extensions=["kernels.py"])
    graph.__enter__()
    x, y = graph.inputs
"""


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "tensors": "ops.custom('mixed', device=CPU, values=[x, y, y], parameters={'count': 1})",
        "parameters": "ops.custom('mixed', device=CPU, values=[x, x, y], parameters={'flag': 3, 'cuont': 1, 'k': 2})",
    }.items(),
)
def test_calls_of_ops(name: str, call: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    workplace.write("kernels.py", PRELUDE + CALLED)
    # The graph is left open: in a context of its own, so that no other test is in it.
    error = copy_context().run(workplace.mistake, lambda: workplace.run(dedent(CALL) + call))
    assert isinstance(error, GraphError) and isinstance(error, DTypeError)
    golden(f"independent_call_{name}", error)


def test_inputs_of_a_model(workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    model = """
        from einkorn.graph import *

        f32 = lambda *shape: TensorType(DType.float32, shape, DeviceRef.CPU())
        graph = Graph("model", lambda x, y, z: (x + y, z), [f32("n"), f32("n"), f32(3)])
        model = InferenceSession().load(graph)
    """
    made = workplace.run(dedent(model))["model"]
    wrong = [np.zeros(3), np.zeros((3, 1), np.float32), np.zeros(4, np.float32)]
    error = workplace.mistake(lambda: workplace.run_with(made, wrong))
    assert isinstance(error, GraphError) and isinstance(error, DTypeError)
    golden("independent_inputs", error)
    other = workplace.mistake(lambda: workplace.run_with(made, [None, *(np.zeros(n, np.float32) for n in (4, 3))]))
    assert isinstance(other, DTypeError) and not isinstance(other, GraphError)
    assert made(*(np.ones(3, np.float32) for _ in range(3)))[0].to_numpy().tolist() == [2, 2, 2]


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
        actual = errors_of(workplace.folder, without_other_ops(text, "\n".join(lines), line))
        assert len(actual) <= 1, "\n\n".join(map(str, actual))
        assert all(error.place.line == line for error in actual)  # type: ignore[attr-defined]


def _expressions(text: str) -> list[tuple[int, int, int]]:
    """Lines and columns of the names that the functions of a file read."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    names = [part for function in functions for stmt in function.body for part in ast.walk(stmt)]
    read = [node for node in names if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return sorted({(node.lineno, node.col_offset, node.end_col_offset or 0) for node in read})


ENDLESS = """
N = TypeVar("N", bound=Numeric)


def counted(n):
    while n > 0:
        n += 1
    return n


@register("op")
def op(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]):
    {}


@register("op2")
def op2(out: OutputTensor[N, "n"], x: InputTensor[N, "n"]):
    out[0] = x[0].foo
"""


def test_a_name_that_is_given_twice_hides_no_op(workplace) -> None:  # type: ignore[no-untyped-def]
    first, second = (OP.replace('"op"', f'"{name}"') + f"    out[0] = x[0].{name}\n" for name in ("one", "two"))
    workplace.write("kernels.py", PRELUDE + first + second)
    actual = check_kernels("kernels.py")
    assert actual.kernels == 2 and [error.message.split()[-1] for error in actual.errors] == ["'one'", "'two'"]


UNROLLED = "for i in unroll(4000):\n        for j in unroll(4000):\n            out[0] = x[i] + j"


@pytest.mark.parametrize(("code", "body"), [("EK0124", "counted(3)"), ("EK0216", UNROLLED)])
def test_what_takes_all_time_is_looked_for_once(code: str, body: str, workplace) -> None:  # type: ignore[no-untyped-def]
    """Not in each instance again; other kernels are looked at."""
    workplace.write("kernels.py", PRELUDE + ENDLESS.format(body))
    actual = check_kernels("kernels.py")
    assert [error.code for error in actual.errors] == [code, "EK0113"]
    assert actual.more and actual.instances == 1 + 12
