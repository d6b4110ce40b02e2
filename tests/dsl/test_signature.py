"""The dims language, and calls checked against signatures. The error texts here are the ones that users see."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einkorn.dsl.diagnostics.errors import CompileError, CompileErrors, DTypeError, EinkornError, GraphError
from einkorn.dsl.diagnostics.places import Place
from einkorn.dsl.signature import dims as language
from einkorn.dsl.signature import parse_dims as parser
from einkorn.dsl.signature.bind import bind
from einkorn.dsl.signature.check import check_schema
from einkorn.dsl.signature.dims import (
    AnyAxis,
    Axis,
    Computed,
    DimName,
    DimNumber,
    DimOperation,
    FixedAxis,
    FunctionCall,
    Negate,
    Pack,
)
from einkorn.dsl.signature.parameters import bind_parameters
from einkorn.dsl.signature.parse_dims import parse_dims
from einkorn.dsl.signature.schema import ContextArgument, OpSchema, Parameter, Role, TensorArgument
from einkorn.dsl.types.dtype import ANY, FLOATING, DType
from einkorn.graph.types.dims import Dim

F32, F64, I32 = DType.float32, DType.float64, DType.int32


def op(*arguments: str, parameters: Sequence[Parameter] = (), name: str = "op") -> OpSchema:
    """A schema from lines such as `out out T m n`: name, role, dtype, dims."""
    roles = {"out": Role.OUTPUT, "in": Role.INPUT, "mut": Role.MUTABLE}
    tensors = []
    for line in arguments:
        own, role, dtype, *dims = line.split(" ", 3)
        tensors.append(TensorArgument(own, roles[role], DType.__members__.get(dtype, dtype), "".join(dims)))
    return OpSchema(name, (*tensors, ContextArgument("ctx")), tuple(parameters), typevars=(("T", FLOATING), ("U", ANY)))


MATMUL = op("out out T m n", "a in T m k", "b in T k n", name="matmul")
SUM = op("out out T *a{axis} 1 *b", "x in T *a{axis} n *b", parameters=[Parameter("axis", "int", True)], name="sum")
ADD = op("out out T *s", "x in T *s", "y in T *s", name="add")


# ------------------------------------------------------------------------------- the language


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", ()),
        ("m k", (Axis("m"), Axis("k"))),
        ("*s", (Pack("s"),)),
        (" h  w 3 ", (Axis("h"), Axis("w"), FixedAxis(3))),
        ("_ n", (AnyAxis(), Axis("n"))),
        ("*_ n", (Pack("_"), Axis("n"))),
        ("*a{axis} 1 *b", (Pack("a", DimName("axis")), FixedAxis(1), Pack("b"))),
        ("*a{axis + 1}", (Pack("a", DimOperation("+", DimName("axis"), DimNumber(1))),)),
        (
            "n (2*d + pad)",
            (Axis("n"), Computed(DimOperation("+", DimOperation("*", DimNumber(2), DimName("d")), DimName("pad")))),
        ),
        ("(a - b - c)", (Computed(DimOperation("-", DimOperation("-", DimName("a"), DimName("b")), DimName("c"))),)),
        (
            "(-a//2%3)",
            (Computed(DimOperation("%", DimOperation("//", Negate(DimName("a")), DimNumber(2)), DimNumber(3))),),
        ),
        (
            "(min(a, 2, b) * ceildiv(n, 4))",
            (
                Computed(
                    DimOperation(
                        "*",
                        FunctionCall("min", (DimName("a"), DimNumber(2), DimName("b"))),
                        FunctionCall("ceildiv", (DimName("n"), DimNumber(4))),
                    )
                ),
            ),
        ),
        ("(min)", (Computed(DimName("min")),)),
    ],
)
def test_parse(text: str, items: tuple[language.DimItem, ...]) -> None:
    assert parse_dims(text) == items
    assert parse_dims(language.format_dims(items)) == items


WORDS = st.one_of(
    st.sampled_from(["_", "n", "m2", "größe", "*s", "*_", "*a{axis}", "min"]), st.integers(0, 99).map(str)
)


@given(st.lists(WORDS).map(" ".join))
def test_the_short_way_reads_as_the_grammar_does(text: str) -> None:
    assert parser._parse.__wrapped__(text) == parser._parse_with_grammar(text)


def test_positions_agree_too() -> None:
    for text in ("  *a{axis}  n", "n *a{k}"):
        (short,), (full,) = (
            [i.count for i in items if isinstance(i, Pack)]
            for items in (parser._parse.__wrapped__(text), parser._parse_with_grammar(text))
        )
        assert isinstance(short, DimName) and isinstance(full, DimName) and short.at == full.at


EXPRESSIONS = st.recursive(
    st.one_of(st.integers(0, 9).map(DimNumber), st.sampled_from("abc").map(DimName)),
    lambda inner: st.one_of(
        inner.map(Negate),
        st.builds(DimOperation, st.sampled_from(["+", "-", "*", "//", "%"]), inner, inner),
        st.builds(FunctionCall, st.sampled_from(["min", "max", "ceildiv"]), st.tuples(inner, inner)),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS)
def test_expressions_print_as_they_read(expression: language.Expression) -> None:
    assert parser.parse_expression(str(expression)) == expression


@given(EXPRESSIONS, st.fixed_dictionaries({name: st.integers(0, 9) for name in "abc"}))
def test_expressions_mean_what_python_means(expression: language.Expression, values: dict[str, int]) -> None:
    functions = {"min": min, "max": max, "ceildiv": lambda a, b: -(-a // b)}
    try:
        expected = eval(str(expression), functions | values)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            language.evaluate(expression, values)
    else:
        assert language.evaluate(expression, values) == expected


@pytest.mark.parametrize(
    ("text", "message", "column", "hint"),
    [
        ("n*2", "unexpected '*'", 1, "put an expression in parentheses, as in (2*n + 1)"),
        ("n +1", "unexpected '+'", 2, "put an expression in parentheses, as in (2*n + 1)"),
        ("n{2}", "unexpected '{'", 1, "put an expression in parentheses, as in (2*n + 1)"),
        ("(2*d", "an expression does not end", 4, "close it with ) or }"),
        ("*s{", "an expression does not end", 3, "close it with ) or }"),
        ("(n / 2)", "unexpected '/'", 3, "write // for a division that rounds down"),
        ("m, k", "unexpected ','", 1, "separate dims by blanks"),
        ("-1 n", "unexpected '-'", 0, "write _ for one axis of any size"),
        ("... n", "unexpected '...'", 0, "write *name for any number of axes"),
        ("m 3n", "a blank is missing", 3, "write blanks between dims, and (2*n) for an expression"),
        ("n(2)", "a blank is missing", 1, "write blanks between dims, and (2*n) for an expression"),
        ("(foo(n, 2))", "unknown function 'foo'", 1, "there are min, max, ceildiv, sum"),
        ("(sum(n, m))", "sum takes 1 arguments", 1, None),
        ("(ceildiv(a, b, c))", "ceildiv takes 2 arguments", 1, None),
        ("(_ + 1)", "'_' has no value", 1, "give the axis a name"),
        ("*s{_}", "'_' has no value", 3, "give the axis a name"),
        ("(2 n)", "unexpected 'n'", 3, None),
        ("()", "unexpected ')'", 1, None),
        ("a ? b", "unexpected '?'", 2, None),
    ],
)
def test_syntax_errors(text: str, message: str, column: int, hint: str | None) -> None:
    with pytest.raises(CompileError) as caught:
        parse_dims(text)
    error = caught.value
    assert (error.code, error.message, error.hint) == ("EK0307", f"{message} in the dims {text!r}", hint)
    note, marks = error.notes[0].split("\n")
    assert note == f'in "{text}"'
    assert marks.index("^") - len('note: in "') == column


def test_a_syntax_error_points_into_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernel.py").write_text('def f(\n    out: OutputTensor[T, "m (2*k"],\n): ...\n')
    with pytest.raises(CompileError) as caught:
        parse_dims("m (2*k", Place(str(tmp_path / "kernel.py"), 2, 5))
    assert str(caught.value) == (
        "kernel.py:2:33: error[EK0307]: an expression does not end in the dims 'm (2*k'\n"
        '    2 |     out: OutputTensor[T, "m (2*k"],\n'
        "      |                                 ^\n"
        "hint: close it with ) or }"
    )


def test_signatures_without_mistakes_do_not_load_lark() -> None:
    program = (
        "import sys, einkorn.dsl; from einkorn.dsl.signature.parse_dims import parse_dims; "
        "parse_dims('m _ 3 *a{axis} *b'); parse_dims('(2*n - 1) *s{max(2, -n)}');"
        "assert 'lark' not in sys.modules; parse_dims('(' + '+'.join('n' * 99) + ')'); assert 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_short_reader_reads_as_the_grammar_does() -> None:
    """Random tokens: what is right it takes, and reads alike, with the places of names; the rest it leaves."""
    tokens = ["n", "m", "_", "7", "12", "+", "-", "*", "//", "%", "(", ")", "{", "}", ",", "max", " ", " "]
    frames = ["($)", "($ + 1)", "$", "*s{$}", "(min(n, $))", "n ($)(2)", "3 *s {$} ($)"]
    random, right = Random(5), 0
    for _ in range(2500):
        inner = "".join(random.choices(tokens, k=random.randrange(1, 6)))
        text = random.choice(frames).replace("$", inner)
        actual = parser._read(text)
        try:
            wanted = parser._parse_with_grammar(text)
        except parser._Mistake:
            assert actual is None, text
            continue
        right += 1
        assert repr(actual) == repr(wanted), text
    assert right > 200


# ------------------------------------------------------------------------------- bind


@pytest.mark.parametrize(
    ("schema", "shapes", "parameters", "output"),
    [
        (MATMUL, [(2, 3), (3, 4)], {}, (2, 4)),
        (ADD, [(), ()], {}, ()),
        (ADD, [(2, 0, 3), (2, 0, 3)], {}, (2, 0, 3)),
        (SUM, [(2, 3, 4)], {"axis": 0}, (1, 3, 4)),
        (SUM, [(2, 3, 4)], {"axis": 2}, (2, 3, 1)),
        (op("out out T n (2*d + 1)", "x in T n d"), [(5, 3)], {}, (5, 7)),
        (op("o out T n", "x in T n (2*n)"), [(3, 6)], {}, (3,)),
        (op("o out T n", "x in T (2*n)", "y in T n"), [(6,), (3,)], {}, (3,)),
        (op("o out T n", "x in T *_ (2*n) 3", "y in T n"), [(9, 9, 6, 3), (3,)], {}, (3,)),
        (op("o out T *a *b", "x in T *a *b", "y in T *a"), [(1, 2, 3), (1, 2)], {}, (1, 2, 3)),
        (op("o out T k", "x in T _", parameters=[Parameter("k", "int", False, 4)]), [(9,)], {}, (4,)),
        (op("o out T k", "x in T _", parameters=[Parameter("k", "int", False, 4)]), [(9,)], {"k": 7}, (7,)),
        (op("o out T (min(a, b)) (max(a, b)) (ceildiv(a, b))", "x in T a b"), [(7, 2)], {}, (2, 7, 4)),
        (op("o out T *s", "x mut T *s"), [(3, 4)], {}, (3, 4)),
    ],
)
def test_output_shapes(
    schema: OpSchema, shapes: list[tuple[int, ...]], parameters: dict[str, object], output: tuple[int, ...]
) -> None:
    check_schema(schema)
    binding = bind(schema, [(F32, shape) for shape in shapes], parameters)
    assert binding.outputs == ((F32, output),)
    assert binding.dtypes == {"T": F32}
    symbolic = [(F32, tuple(Dim(size) for size in shape)) for shape in shapes]
    assert bind(schema, symbolic, parameters).outputs == ((F32, output),)


def test_binding_names() -> None:
    assert bind(MATMUL, [(F32, (2, 3)), (F32, (3, 4))], {}).dims == {"m": 2, "k": 3, "n": 4}
    assert bind(SUM, [(F64, (2, 3, 4))], {"axis": 1}).packs == {"a": (2,), "b": (4,)}


def test_symbolic_shapes() -> None:
    b, n = Dim("b"), Dim("n")
    schema = op("o out T b (ceildiv(n, 4)) (min(n, 8))", "x in T b n", "y in T (2*n)")
    outputs = bind(schema, [(F32, (b, 2 * n)), (F32, (4 * n,))], {}).outputs
    assert outputs == ((F32, (b, (2 * n + 3) // 4, (2 * n).minimum(8))),)
    assert [str(dim) for dim in outputs[0][1]] == ["b", "(n + 1)//2", "min(8, 2*n)"]


def test_several_outputs() -> None:
    schema = op("v out T m", "i out int64 m", "x in T m _")
    assert bind(schema, [(F32, (5, 9))], {}).outputs == ((F32, (5,)), (DType.int64, (5,)))


def test_expected_outputs_settle_what_is_open() -> None:
    cast = op("out out U *s", "x in T *s", name="cast")
    binding = bind(cast, [(F32, (2, 3))], {}, expected_outputs=[(I32, (2, 3))])
    assert binding.dtypes == {"T": F32, "U": I32}
    assert binding.outputs == ((I32, (2, 3)),)
    nonzero = op("out out int64 k rank", "x in T *s", parameters=[Parameter("rank", "int", True)], name="nonzero")
    binding = bind(nonzero, [(F32, (2, 3))], {"rank": 2}, expected_outputs=[(DType.int64, (Dim("k"), 2))])
    assert binding.dims == {"k": Dim("k")}
    pairs = op("out out T k (2*k)", "x in T _")
    assert bind(pairs, [(F32, (9,))], {}, expected_outputs=[(F32, (3, 6))]).outputs == ((F32, (3, 6)),)


def test_a_dtype_parameter_binds_the_type_variable_of_its_name() -> None:
    cast = op("out out U *s", "x in T *s", parameters=[Parameter("u", "dtype", False, F64)], name="cast")
    check_schema(cast)
    assert bind(cast, [(F32, (2,))], {"u": I32}).outputs == ((I32, (2,)),)
    assert bind(cast, [(F32, (2,))], {}).outputs == ((F64, (2,)),)


HALF = op("o out T n", "x in T (2*n)", "y in T n", name="half")
CAST = op("out out U *s", "x in T *s", name="cast")
PAD_AND_WIDTH = [Parameter("p", "int", False, 0), Parameter("w", "int", True)]
WIDE = op(
    "out out T (n - 2*p)", "x in T n 3 w", parameters=[Parameter("p", "int", False, 0), Parameter("w", "int", True)]
)
BLOCKS = op("out out T (n//block)", "x in T n", parameters=[Parameter("block", "int", True)], name="blocks")


@pytest.mark.parametrize(
    ("schema", "inputs", "parameters", "expected", "text"),
    [
        (
            MATMUL,
            [(F32, (2, 4)), (F32, (5, 3))],
            {},
            None,
            "error[EK0312]: op 'matmul': dim 'k' is 4 in argument 'a' (axis 1) but 5 in argument 'b' (axis 0)",
        ),
        (
            MATMUL,
            [(F32, (2, Dim("k"))), (F32, (5, 3))],
            {},
            None,
            "error[EK0312]: op 'matmul': dim 'k' is k in argument 'a' (axis 1) but 5 in argument 'b' (axis 0)\n"
            "hint: if the two are always equal, give them the same name where the graph's inputs are declared",
        ),
        (
            MATMUL,
            [(F32, (2, 3, 4)), (F32, (4, 5))],
            {},
            None,
            "error[EK0311]: op 'matmul': argument 'a' has rank 3, its dims \"m k\" want rank 2\n"
            "note: the shape is [2, 3, 4]",
        ),
        (
            MATMUL,
            [(F32, (2, 3))],
            {},
            None,
            "error[EK0310]: op 'matmul': has 2 inputs (a, b), but got 1",
        ),
        (
            MATMUL,
            [(F32, (2, 3)), (F32, (3, 4))],
            {},
            [],
            "error[EK0310]: op 'matmul': has 1 output (out), but got 0",
        ),
        (
            MATMUL,
            [(F32, (2, 3)), (F32, (3, 4))],
            {},
            [(F32, (2, 5))],
            "error[EK0312]: op 'matmul': dim 'n' is 4 in argument 'b' (axis 1) but 5 in out_types of 'out' (axis 1)",
        ),
        (
            MATMUL,
            [(F32, (2, 3)), (F64, (3, 4))],
            {},
            None,
            "error[EK0317]: op 'matmul': dtype 'T' is float32 in argument 'a' but float64 in argument 'b'\n"
            "hint: cast one of them, for example to float32",
        ),
        (
            MATMUL,
            [(F32, (2, 3)), (I32, (3, 4))],
            {},
            None,
            "error[EK0316]: op 'matmul': argument 'b' has dtype int32, but takes float32, float64, float16 or bfloat16",
        ),
        (
            CAST,
            [(F32, (2,))],
            {},
            None,
            "error[EK0318]: op 'cast': the inputs do not determine the dtype 'U' of output 'out'\nhint: pass out_types",
        ),
        (
            op("out out T *t", "x in T *s", name="reshape"),
            [(F32, (2,))],
            {},
            None,
            "error[EK0314]: op 'reshape': the inputs do not determine the sizes '*t' of output 'out'\n"
            "hint: pass out_types, or compute it in a function under `@op.shape`",
        ),
        (
            op("out out T k", "x in T *s", name="compress"),
            [(F32, (2,))],
            {},
            None,
            "error[EK0314]: op 'compress': the inputs do not determine the size 'k' of output 'out'\n"
            "hint: pass out_types, or compute it in a function under `@op.shape`",
        ),
        (
            ADD,
            [(F32, (2, 3)), (F32, (2, 4))],
            {},
            None,
            "error[EK0312]: op 'add': dims '*s' are [2, 3] in argument 'x' but [2, 4] in argument 'y' (axis 1)",
        ),
        (
            ADD,
            [(F32, (2, 3)), (F32, (3,))],
            {},
            None,
            "error[EK0311]: op 'add': argument 'y' has rank 1, its dims \"*s\" want rank 2\n"
            "note: '*s' has 2 axes in argument 'x'\n"
            "note: the shape is [3]",
        ),
        (
            SUM,
            [(F32, (2, 3))],
            {"axis": 2},
            None,
            "error[EK0311]: op 'sum': argument 'x' has rank 2, its dims \"*a{axis} n *b\" want rank 3 or more\n"
            "note: '*a{axis}' has 2 axes\n"
            "note: the shape is [2, 3]",
        ),
        (
            SUM,
            [(F32, (2, 3))],
            {"axis": -1},
            None,
            "error[EK0315]: op 'sum': pack '*a{axis}' of 'x' would have -1 axes [axis=-1]",
        ),
        (
            HALF,
            [(F32, (7,)), (F32, (3,))],
            {},
            None,
            "error[EK0313]: op 'half': argument 'x' has size 7 on axis 0, its dims \"(2*n)\" want (2*n) = 6 [n=3]",
        ),
        (
            WIDE,
            [(F32, (8, 4, 5))],
            {"w": 5},
            None,
            "error[EK0313]: op 'op': argument 'x' has size 4 on axis 1, its dims \"n 3 w\" want 3",
        ),
        (
            WIDE,
            [(F32, (8, 3, 5))],
            {"w": 6},
            None,
            "error[EK0312]: op 'op': dim 'w' is 6 by parameter 'w' but 5 in argument 'x' (axis 2)",
        ),
        (
            WIDE,
            [(F32, (8, 3, 5))],
            {"w": 5, "p": 5},
            None,
            "error[EK0315]: op 'op': size '(n - 2*p)' of output 'out' would be -2 [n=8, p=5]",
        ),
        (
            WIDE,
            [(F32, (8, 3, 5))],
            {"w": 5, "p": 1},
            [(F32, (7,))],
            "error[EK0313]: op 'op': out_types of 'out' has size 7 on axis 0,"
            ' its dims "(n - 2*p)" want (n - 2*p) = 6 [n=8, p=1]',
        ),
        (
            BLOCKS,
            [(F32, (8,))],
            {"block": 0},
            None,
            "error[EK0315]: op 'blocks': 'n//block' of 'out' divides by zero [n=8, block=0]",
        ),
        (
            BLOCKS,
            [(F32, (Dim("n"),))],
            {"block": 0},
            None,
            "error[EK0315]: op 'blocks': 'n//block' of 'out' divides by zero [n=n, block=0]",
        ),
    ],
)
def test_bind_errors(
    schema: OpSchema,
    inputs: list[tuple[DType, tuple[Any, ...]]],
    parameters: dict[str, object],
    expected: list[tuple[DType, tuple[Any, ...]]] | None,
    text: str,
) -> None:
    check_schema(schema)
    with pytest.raises((GraphError, DTypeError)) as caught:
        bind(schema, inputs, parameters, expected_outputs=expected)
    assert str(caught.value) == text
    assert caught.value.op == schema.name


def test_bind_errors_carry_their_parts_and_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    declared = Place(str(tmp_path / "kernel.py"), 7, 5)
    schema = OpSchema("neg", (TensorArgument("x", Role.INPUT, F32, "n 3", declared),))
    with pytest.raises(GraphError) as caught:
        bind(schema, [(F32, (2, 4))], {}, place=Place(str(tmp_path / "model.py"), 12, 3))
    error = caught.value
    assert (error.op, error.argument, error.expected, error.got) == ("neg", "x", 3, 4)
    assert str(error) == (
        "model.py:12:3: error[EK0313]: op 'neg': argument 'x' has size 4 on axis 1, its dims \"n 3\" want 3\n"
        "note: 'x: InputTensor[float32, \"n 3\"]' is declared at kernel.py:7:5"
    )
    assert isinstance(error, ValueError)


# ------------------------------------------------------------------------------- parameters

TUNED = op(
    "x in T n",
    parameters=[
        Parameter("block", "int", True),
        Parameter("scale", "float", False, 1.5),
        Parameter("fast", "bool", False, False),
        Parameter("mode", "str", False, "near"),
        Parameter("to", "dtype", False, F32),
    ],
    name="tuned",
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"block": 4}, (4, 1.5, False, "near", F32)),
        ({"fast": True, "block": 4, "scale": 2, "mode": "far", "to": I32}, (4, 2.0, True, "far", I32)),
        ({"block": np.int32(4), "scale": np.float32(0.5), "fast": np.bool_(True)}, (4, 0.5, True, "near", F32)),
        ({"block": Dim(4), "scale": float("inf")}, (4, float("inf"), False, "near", F32)),
    ],
)
def test_parameters(given: dict[str, object], expected: tuple[object, ...]) -> None:
    bound = bind_parameters(TUNED, given)
    assert list(bound) == ["block", "scale", "fast", "mode", "to"]
    assert tuple(bound.values()) == expected
    assert [type(value) for value in bound.values()] == [int, float, bool, str, DType]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {},
            "error[EK0321]: op 'tuned': missing parameter block: int\n"
            'hint: in a graph for example parameters={"block": 8}, on the command line --param block=8',
        ),
        (
            {"blok": 3, "block": 3},
            "error[EK0320]: op 'tuned': there is no parameter 'blok'; its parameters are block, scale, fast, mode, to\n"
            "hint: did you mean 'block'?",
        ),
        ({"block": True}, "error[EK0322]: op 'tuned': parameter 'block' is int, but got True (bool)"),
        ({"block": 4.0}, "error[EK0322]: op 'tuned': parameter 'block' is int, but got 4.0 (float)"),
        ({"block": "4"}, "error[EK0322]: op 'tuned': parameter 'block' is int, but got '4' (str)"),
        ({"block": Dim("n")}, "error[EK0322]: op 'tuned': parameter 'block' is int, but got Dim('n') (SymbolicDim)"),
        ({"block": 4, "scale": True}, "error[EK0322]: op 'tuned': parameter 'scale' is float, but got True (bool)"),
        ({"block": 4, "fast": 1}, "error[EK0322]: op 'tuned': parameter 'fast' is bool, but got 1 (int)"),
        ({"block": 4, "mode": None}, "error[EK0322]: op 'tuned': parameter 'mode' is str, but got None (NoneType)"),
        (
            {"block": 4, "to": "int8"},
            "error[EK0322]: op 'tuned': parameter 'to' is dtype, but got 'int8' (str)\nhint: write DType.int8",
        ),
        (
            {"block": 4, "scale": 2**53 + 1},
            "error[EK0322]: op 'tuned': parameter 'scale' is float, but got 9007199254740993 (int)\n"
            "hint: no float holds this integer exactly",
        ),
    ],
)
def test_parameter_errors(given: dict[str, object], text: str) -> None:
    with pytest.raises(GraphError) as caught:
        bind_parameters(TUNED, given)
    assert str(caught.value) == text


# ------------------------------------------------------------------------------- the schema itself


@pytest.mark.parametrize(
    ("schema", "code", "text"),
    [
        (op("o out T n", "x in T (n"), "EK0307", "an expression does not end in the dims '(n'"),
        (
            op("o out T (2*k)", "x in T kk"),
            "EK0308",
            "op 'op', argument 'o': '2*k' mentions 'k', which is neither a dim of an input nor an int parameter",
        ),
        (
            op("o out T k", "x in T (2*k)"),
            "EK0308",
            "op 'op', argument 'x': '2*k' mentions 'k', a dim that is not known this early",
        ),
        (
            op("x in T n *a{n}"),
            "EK0308",
            "op 'op', argument 'x': 'n' mentions 'n', a dim that is not known this early",
        ),
        (
            op("x in T (2*p)", parameters=[Parameter("p", "float", True)]),
            "EK0308",
            "op 'op', argument 'x': '2*p' mentions 'p', a parameter of kind float;"
            " only int parameters have a place in dims",
        ),
        (
            op("o out T *a", "x in T *a *b"),
            "EK0309",
            "op 'op', argument 'x': nothing determines where *a ends and *b begins",
        ),
        (
            op("o out T *c *d", "x in T n"),
            "EK0309",
            "op 'op', argument 'o': nothing determines where *c ends and *d begins",
        ),
        (
            replace(op("o out T n", "x in T *b n"), batch="b"),
            "EK0319",
            "op 'op', argument 'o': batch=\"b\" wants dims that begin with \"*b\" and have no other pack",
        ),
        (
            replace(op("o out T *b *s", "x in T *b", "y in T *s"), batch="b"),
            "EK0319",
            "op 'op', argument 'o': batch=\"b\" wants dims that begin with \"*b\" and have no other pack",
        ),
        (
            replace(op("o out T *b", "x in T n *b"), batch="b"),
            "EK0319",
            "op 'op', argument 'x': batch=\"b\" wants dims that begin with \"*b\" and have no other pack",
        ),
        (
            replace(op("o out T *c", "x in T n", parameters=[Parameter("c", "int", True)]), batch="c"),
            "EK0319",
            "op 'op', argument 'o': batch=\"c\" names a pack that no input begins with",
        ),
        (op("o out T s", "x in T *s"), "EK0304", "op 'op', argument 'o': 's' is one axis and also a pack '*s'"),
        (
            op("x in T p", parameters=[Parameter("p", "bool", True)]),
            "EK0304",
            "op 'op', argument 'x': 'p' is a dim and also a parameter of kind bool",
        ),
        (op("x in T n", "x in T m"), "EK0304", "op 'op' has two arguments or parameters named 'x'"),
        (op("x in V n"), "EK0305", "op 'op', argument 'x': the type variable 'V' is not declared"),
        (op("x in T n (n//0)"), "EK0306", "op 'op', argument 'x': 'n//0' divides by zero"),
        (op("x in T n (2 + ceildiv(n, 0))"), "EK0306", "op 'op', argument 'x': '2 + ceildiv(n, 0)' divides by zero"),
    ],
)
def test_schema_errors(schema: OpSchema, code: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        check_schema(schema)
    assert not isinstance(caught.value, CompileErrors)
    assert (caught.value.code, caught.value.message) == (code, text)


def test_all_independent_schema_errors_at_once() -> None:
    with pytest.raises(CompileErrors) as caught:
        check_schema(op("o out V *a *b", "x in T (2*q + s) s", "y in T *t (n//0)"))
    assert [error.code for error in caught.value.errors] == ["EK0305", "EK0308", "EK0308", "EK0306", "EK0309"]


def test_a_syntax_error_has_no_cascade() -> None:
    with pytest.raises(CompileErrors) as caught:
        check_schema(op("o out V (2*n)", "x in T n (", "y in T *s,"))
    assert [error.code for error in caught.value.errors] == ["EK0305", "EK0307", "EK0307"]


def test_schema_errors_draw_a_caret() -> None:
    with pytest.raises(EinkornError) as caught:
        check_schema(op("o out T n (2*size)", "x in T n sice"))
    assert str(caught.value) == (
        "error[EK0308]: op 'op', argument 'o': '2*size' mentions 'size',"
        " which is neither a dim of an input nor an int parameter\n"
        'note: in "n (2*size)"\n'
        "               ^^^^\n"
        "hint: did you mean 'sice'?"
    )
