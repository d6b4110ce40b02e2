"""Dims are exact integer algebra: what the canonical form says is what the integers say."""

from __future__ import annotations

import copy
import functools
import math
import operator
import pickle
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.dsl.signature import dims as language
from einkorn.dsl.signature import parse_dims as parser
from einkorn.graph.types.dims import AlgebraicDim, Dim, Shape, StaticDim, SymbolicDim, ceildiv, dim_max, dim_min

d, m, n, x = Dim("d"), Dim("m"), Dim("n"), Dim("x")
NAMES = ("a", "b", "c")


def test_constructor_dispatches() -> None:
    assert type(Dim(3)) is StaticDim
    assert Dim(3).dim == 3  # type: ignore[attr-defined]
    assert type(Dim("n")) is SymbolicDim
    assert Dim("n").name == "n"  # type: ignore[attr-defined]
    assert type(n + 1) is AlgebraicDim
    assert Dim(n) is n
    assert type(Dim(np.int64(4))) is StaticDim
    assert type(n - n) is StaticDim
    assert type(2 * n - n) is SymbolicDim


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (d + d, 2 * d),
        ((n * 2) // 2, n),
        (-(x + 4), -x - 4),
        ((4 * n + 8) // 4, n + 2),
        ((8 * n) % 4, 0),
        (n % 4 + 4 * (n // 4), n),
        (n // 2 // 3, n // 6),
        ((n // 2 + m) // 3, (n + 2 * m) // 6),
        ((2 * n + 1) // 4, n // 2),
        (ceildiv(n, 4), (n + 3) // 4),
        (ceildiv(n, 2), (n + 1) // 2),
        ((n % 4) % 4, n % 4),
        ((n % 4) // 4, 0),
        ((n * (m + 1)) // (m + 1), n),
        ((n * m) // (2 * n), m // 2),
        ((n * m + 3) % n, 3 % n),
        (-n // -3, n // 3),
        (dim_min(n, n + 3), n),
        (dim_max(n, 0), n),
        (dim_max(n, dim_max(m, 3), 2), dim_max(3, m, n)),
        (dim_min(3, 5), 3),
        (7 - n + n, 7),
        (10 // Dim(3), 3),
        (-10 % Dim(3), 2),
    ],
)
def test_identities(left: Dim, right: Dim | int) -> None:
    assert left == right
    assert hash(left) == hash(right)


@pytest.mark.parametrize(("left", "right"), [(n, m), (n, n + 1), (n % 8, 0), (n // 2, (n + 1) // 2), (n, 3)])
def test_what_is_not_known_to_be_equal_is_not(left: Dim, right: Dim | int) -> None:
    assert (left == right) is False
    assert (left != right) is True


def test_equality_with_other_kinds() -> None:
    assert Dim(3) == 3 and Dim(3) == 3 and Dim(3) == np.int64(3)
    assert n == "n" and n == "n" and n != "m"
    assert n != None  # noqa: E711
    assert {Dim(3): "three", n: "n"}[3] == "three"
    assert {Dim(3): "three", n: "n"}["n"] == "n"
    assert (16 * n) % 8 == 0


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (n % 4, "n%4"),
        (3 * n // 4, "(3*n)//4"),
        (5 * n // 2, "2*n + n//2"),
        (2 * ((n + 3) % 4) + m + 7, "2*((n + 3)%4) + m + 7"),
        (ceildiv(n, 4) * 4, "4*((n + 3)//4)"),
        (ceildiv(n, m), "-((-n)//m)"),
        (-(n // 2), "-(n//2)"),
        ((n // 2) * (m // 3), "(m//3)*(n//2)"),
        (dim_min(n, 2 * m, 5), "min(5, 2*m, n)"),
        (n * n * m - 3 * m + 1, "m*n*n - 3*m + 1"),
        (n - n, "0"),
    ],
)
def test_print(dim: Dim, text: str) -> None:
    assert str(dim) == text


def test_repr() -> None:
    assert (repr(Dim(3)), repr(n), repr(n + 1)) == ("Dim(3)", "Dim('n')", "Dim(n + 1)")


# ------------------------------------------------------------------------------- against the integers

Case = tuple[Callable[[dict[str, int]], int], Dim]
ENVIRONMENTS = st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES})


def _binary(operator: str, left: Case, right: Case) -> Case:
    (f, a), (g, b) = left, right
    return lambda env: language._apply(operator, f(env), g(env)), language._apply(operator, a, b)


def _leaf(value: int | str) -> Case:
    if isinstance(value, str):
        return lambda env: env[value], Dim(value)
    return lambda env: value, Dim(value)


@st.composite
def cases(draw: st.DrawFn, depth: int = 4) -> Case:
    """A random expression twice: as a function on ints, and as a dim. Divisors are never zero by construction."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return _leaf(draw(st.one_of(st.integers(-9, 9), st.sampled_from(NAMES))))
    operator = draw(st.sampled_from(("+", "-", "*", "min", "max", "//", "%", "ceildiv")))
    left = draw(cases(depth=depth - 1))
    if operator in ("//", "%", "ceildiv"):
        positive = _binary("+", _leaf(draw(st.sampled_from(NAMES))), _leaf(draw(st.integers(1, 3))))
        number = _leaf(draw(st.integers(-12, 12).filter(bool)))
        return _binary(operator, left, draw(st.sampled_from((number, number, positive))))
    return _binary(operator, left, draw(cases(depth=depth - 1)))


@settings(max_examples=400)
@given(cases(), ENVIRONMENTS)
def test_algebra_equals_integer_evaluation(case: Case, env: dict[str, int]) -> None:
    function, dim = case
    assert dim.evaluate(env) == function(env)
    assert dim.substitute(env) == function(env)


@settings(max_examples=150)
@given(cases())
def test_print_reads_back_as_the_same_dim(case: Case) -> None:
    _, dim = case
    symbols = {name: Dim(name) for name in NAMES}
    again = language.evaluate(parser.parse_expression(str(dim)), symbols)
    assert again == dim
    assert str(Dim(again)) == str(dim)


@settings(max_examples=150)
@given(cases(depth=3), cases(depth=3), cases(depth=2))
def test_ring_laws_hold_by_form(first: Case, second: Case, third: Case) -> None:
    a, b, c = first[1], second[1], third[1]
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a - a == 0
    assert (7 * a + 5) // 7 == a
    assert (7 * a + 5) % 7 == 5
    assert a.minimum(b) == b.minimum(a)
    assert pickle.loads(pickle.dumps(a)) == a
    assert copy.deepcopy(a) == a


@settings(max_examples=150)
@given(cases(depth=2), cases(depth=2), ENVIRONMENTS)
def test_order_when_it_answers_is_right(first: Case, second: Case, env: dict[str, int]) -> None:
    for sign in ("__lt__", "__le__", "__gt__", "__ge__"):
        try:
            answer = getattr(first[1], sign)(second[1])
        except GraphError as error:
            assert error.code == "EK0333"
        else:
            assert answer is getattr(first[0](env), sign)(second[0](env))


def test_print_is_the_same_in_every_process() -> None:
    program = (
        "from einkorn.graph.types.dims import *; a,b,c=map(Dim,'abc'); print((a*b+c)//3 + dim_min(a, b*c, c//2) % 5)"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1


# ------------------------------------------------------------------------------- order, numbers, errors


def test_order() -> None:
    assert n < n + 1
    assert n >= 0 and n >= 0
    assert not n > n
    assert m + n >= n
    assert Dim(3) < 4 and Dim(3) > 2 and Dim(3) <= 3


def test_parameters_and_substitution() -> None:
    assert ((n + m) // 2 * d).parameters == ("d", "m", "n")
    assert Dim(3).parameters == ()
    assert (n // 2 + m).substitute({"n": 2 * d}) == d + m


def test_numbers() -> None:
    assert int(Dim(3)) == 3 and list(range(Dim(2))) == [0, 1] and [5, 6, 7][Dim(1)] == 6
    with pytest.raises(TypeError, match="dim n has no number until the graph runs"):
        operator.index(n)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (
            lambda: int(n + 1),
            "error[EK0331]: dim n + 1 has no number until the graph runs\n"
            "hint: compute with the dim itself; + - * // % work on it",
        ),
        (
            lambda: bool(n),
            "error[EK0331]: dim n has no number until the graph runs\nhint: compute with the dim itself;",
        ),
        (lambda: n // 0, "error[EK0332]: the dim n//0 divides by zero"),
        (lambda: (n + 1) % (m - m), "error[EK0332]: the dim (n + 1)%0 divides by zero"),
        (lambda: (n // m).evaluate({"n": 3, "m": 0}), "error[EK0332]: the dim n//m divides by zero"),
        (lambda: 3 % Dim(0), "error[EK0332]: the dim 3%0 divides by zero"),
        (lambda: Dim(5) // 0, "error[EK0332]: the dim 5//0 divides by zero"),
        (lambda: n < m, "error[EK0333]: whether n < m depends on the sizes that come when the graph runs"),
        (
            lambda: (n + 1).evaluate({"nn": 3}),
            "error[EK0334]: dim 'n' of n + 1 has no value\nhint: did you mean 'nn'?",
        ),
        (lambda: Dim("two words"), "error[EK0330]: 'two words' is not a name for a dim"),
        (lambda: Dim("_"), "error[EK0330]: '_' is not a name for a dim"),
        (lambda: Dim("2*n"), "error[EK0330]: '2*n' is not a name for a dim"),
        (lambda: Dim(True), "error[EK0330]: True (bool) is not a size"),
        (lambda: Dim(2.0), "error[EK0330]: 2.0 (float) is not a size"),  # type: ignore[arg-type]
        (lambda: StaticDim("n"), "error[EK0330]: 'n' is not a StaticDim"),
        (lambda: Shape([1, None]), "error[EK0330]: None (NoneType) is not a size"),  # type: ignore[list-item]
    ],
)
def test_errors(action: Callable[[], object], text: str) -> None:
    with pytest.raises(GraphError) as caught:
        action()
    error = caught.value
    assert error.place is not None and error.place.file == __file__
    assert isinstance(error, ZeroDivisionError) == (error.code == "EK0332")
    hint = f"\nhint: {error.hint}" if error.hint else ""
    assert f"error[{error.code}]: {error.message}{hint}".startswith(text)


@pytest.mark.parametrize(
    "step",
    [
        lambda d: d * d,
        lambda d: (d + 1) * (d + m),
        lambda d: d // 3 + d // 5,
        lambda d: (d * d) // 3 + 1,
        lambda d: d.minimum(m + 3) + d.maximum(7),
        lambda d: d // m + m // (d + 1),
        lambda d: -(-d // 2) * d,
    ],
)
def test_dims_have_a_budget(step: Callable[[Dim], Dim]) -> None:
    """What doubles in each of 60 steps is refused while it is small."""
    dim, parts = n, 0
    with pytest.raises(GraphError) as caught:
        for _ in range(60):
            dim, parts = step(dim), len(str(dim))
    assert caught.value.code == "EK0335" and "too complex" in caught.value.message
    assert parts < 1_000_000


def test_what_is_no_size_does_not_mix() -> None:
    for value in (2.5, True, None, object(), [1], np.bool_(True), np.float32(1)):
        for operate in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod):
            with pytest.raises(TypeError):
                operate(n, value)
            with pytest.raises(TypeError):
                operate(value, n)
    with pytest.raises(TypeError):
        n / 2  # type: ignore[operator]


def test_names_and_the_ints_of_numpy_are_operands_on_both_sides() -> None:
    two = Dim(2)
    assert two * "n" == "n" * two == 2 * n and isinstance(two * "n", Dim)
    assert two + "n" == "n" + two == n + 2
    assert two - "n" == 2 - n and "n" - two == n - 2
    assert n // "m" == n // m and "n" // m == n // m and n % "m" == n % m
    assert Dim("n") <= "n" + two and n.minimum("m") == m.minimum(n)
    for number in (np.int64(3), np.uint8(3), np.array(3)):
        for made, wanted in ((number * n, 3 * n), (n * number, 3 * n), (number - n, 3 - n), (number // n, 3 // n)):
            assert isinstance(made, Dim) and made == wanted
    with pytest.raises(GraphError, match="'2 x' is not a name"):
        two * "2 x"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dim(2**63),
        lambda: Dim(-(2**70)),
        lambda: Dim(10**5000),
        lambda: n * 2**63,
        lambda: Dim(2**40) * 2**40,
        lambda: n * 2**62 * 2,
        lambda: n + 2**70,
        lambda: 2**70 - n,
        lambda: ceildiv(n, 2**70),
        lambda: Shape([2**40, 2**40]).num_elements,
        lambda: dim_max(n, 2**64),
        lambda: n.substitute({"n": 2**64}),
        lambda: math.prod(n + k for k in range(2000)),
        lambda: math.prod(Dim(f"a{k}") + Dim(f"b{k}") for k in range(64)),
        lambda: functools.reduce(lambda dim, k: (dim + k) // (m + k), range(3000), n),
        lambda: functools.reduce(lambda dim, k: dim_max(dim + k, m) // m, range(3000), n),
    ],
)
def test_numbers_stay_within_64_bits_and_expressions_small(make: Callable[[], object]) -> None:
    with pytest.raises(GraphError) as caught:
        make()
    assert caught.value.code == "EK0335" and len(str(caught.value)) < 1000


def test_the_largest_sizes() -> None:
    largest = Dim(2**63 - 1)
    assert int(largest) == 2**63 - 1 and int(-largest) == 1 - 2**63 and largest // largest == 1
    assert largest < 2**63 and Dim(3) != 2**70 and n > -(2**70), "any int may be compared with"
    assert (n * 2**62 + n * 2**61).evaluate({"n": 2**40}) == 3 * 2**101, "values are exact, whatever they are"


# ------------------------------------------------------------------------------- shapes


def test_shape() -> None:
    shape = Shape([2, "n", m + 1])
    assert shape == (2, "n", m + 1) and shape == [2, n, m + 1] and shape != [2, 3, 4]
    assert hash(Shape([2, 3])) == hash((2, 3))
    assert shape.rank == 3
    assert shape.static_dims == [2]
    assert not shape.is_static and Shape([2, 3]).is_static and Shape().is_static
    assert shape.num_elements == 2 * n * m + 2 * n
    assert Shape().num_elements == 1
    assert shape.parameters == ("m", "n")
    assert str(shape) == "[2, n, m + 1]"


def test_shape_stays_a_shape() -> None:
    shape = Shape([2, "n"])
    assert type(shape[1:]) is Shape and shape[1:] == ("n",)
    assert type(shape + (3,)) is Shape and shape + [3] == (2, "n", 3)  # noqa: RUF005
    assert type((1,) + shape) is Shape and [1] + shape == (1, 2, "n")  # noqa: RUF005
    assert isinstance(shape[0], StaticDim)


def test_orders_of_minima_and_maxima_are_proven_by_their_operands() -> None:
    n, m = Dim("n"), Dim("m")
    assert dim_min(1, n) <= 1 and n - dim_max(n - 1, 0) <= 1
    assert dim_min(n, 5) <= n and dim_max(n, m) >= m and n + 3 - dim_min(n, dim_max(m, 2)) >= 3
    for is_unknown in (lambda: dim_min(n, 2) <= 1, lambda: dim_max(n, 2) >= 3, lambda: dim_max(n, m) <= n):
        with pytest.raises(GraphError, match="depends on the sizes"):
            is_unknown()
