"""Stages ops on the matrices of the last two axes: bands and triangles, outer products.

See also `matmul` (matrix products).
"""

from __future__ import annotations

from ...dsl.diagnostics.places import user_place
from ..arguments import flag_of, in_short, int_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import StaticDim
from ..types.promotion import literal_array
from ..types.tensor_type import shown
from .elementwise import mul
from .operands import as_shape, check_kind, tensor, tensors
from .stage import builtin, fail, op

__all__ = ["band_part", "outer", "tril", "trilu", "triu"]

_FAR = 1 << 62  # farther than any element lies from the diagonal


@op(dtypes={"x": "storable"}, example="ops.band_part(x, num_lower=1, num_upper=0)")
def band_part(
    x: TensorValueLike, num_lower: int | None = None, num_upper: int | None = None, exclude: bool = False
) -> TensorValue:
    """The elements in a band around the diagonal of each matrix, zeros elsewhere.

    Args:
        x: a tensor of at least two axes; the last two are the matrices.
        num_lower: how many diagonals below the main one belong to the band; all of them when left out, or -1.
        num_upper: how many above.
        exclude: the elements in the band become zeros, and the others stay.

    Raises:
        GraphError: EK0421 the rank is below 2, EK0480 a number below -1, or beyond a size that is known.
    """
    value = _matrices("band_part", x)
    bounds = []
    for argument, number, dim in (
        ("num_lower", num_lower, value.shape[-2]),
        ("num_upper", num_upper, value.shape[-1]),
    ):
        given = -1 if number is None else int_of(argument, number, "EK0480", "an int or None")
        if given < -1 or (isinstance(dim, StaticDim) and given > int(dim)):
            text = f"{argument} {in_short(given)} is out of range for matrices of {shown(value.shape[-2:])}"
            fail(
                "band_part",
                text,
                code="EK0480",
                argument=argument,
                expected=f"0 to {dim}, or -1 for all",
                got=in_short(given),
            )
        bounds.append(_FAR if given == -1 else min(given, _FAR))
    return _band(value, bounds[0], bounds[1], flag_of("exclude", exclude))


@op(dtypes={"x": "storable"}, example="ops.tril(x, -1)")
def tril(x: TensorValueLike, diagonal: int = 0) -> TensorValue:
    """The lower triangle of each matrix, up to and with a diagonal: 1 is the one above the main diagonal. Zeros above.

    Raises:
        GraphError: EK0421, the rank is below 2.
    """
    return _band(_matrices("tril", x), _FAR, _diagonal("diagonal", diagonal), False)


@op(dtypes={"x": "storable"}, example="ops.triu(x, 1)")
def triu(x: TensorValueLike, diagonal: int = 0) -> TensorValue:
    """The upper triangle of each matrix, from a diagonal on: 1 is the one above the main diagonal. Zeros below.

    Raises:
        GraphError: EK0421, the rank is below 2.
    """
    return _band(_matrices("triu", x), -_diagonal("diagonal", diagonal), _FAR, False)


@op(dtypes={"x": "storable"}, example="ops.trilu(x, 1, upper=False)")
def trilu(x: TensorValueLike, k: int = 0, upper: bool = True) -> TensorValue:
    """The upper triangle of each matrix from diagonal `k` on, or the lower one up to it: `triu` and `tril` in one.

    Raises:
        GraphError: EK0421, the rank is below 2.
    """
    value, number = _matrices("trilu", x), _diagonal("k", k)
    return _band(value, -number, _FAR, False) if flag_of("upper", upper) else _band(value, _FAR, number, False)


@op(dtypes={"lhs": "numeric", "rhs": "numeric"}, example="ops.outer(lhs, rhs)")
def outer(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The products of every element of `lhs` with every element of `rhs`, both flattened: a row for each of the first.

    Its documentation wants as many elements in both, which nothing needs; here they may differ, as in NumPy.
    """
    left, right = tensors("outer", lhs=lhs, rhs=rhs)
    check_kind("outer", "lhs", left, "numeric")
    return mul(as_shape(left, [left.shape.num_elements, 1]), as_shape(right, [1, right.shape.num_elements]))


def _matrices(name: str, x: TensorValueLike) -> TensorValue:
    value = tensor(name, "x", x)
    literal_array(0, value.dtype, name, user_place())  # float8_e8m0fnu has no zero
    if value.rank < 2:
        text = f"x has shape {shown(value.shape)}, and matrices have two axes"
        fail(name, text, code="EK0421", argument="x", expected="rank >= 2", got=value.rank)
    return value


def _diagonal(argument: str, number: int) -> int:
    return max(min(int_of(argument, number, "EK0480"), _FAR), -_FAR)


def _band(value: TensorValue, lower: int, upper: int, exclude: bool) -> TensorValue:
    return builtin("matrices", "band", [value], {"lower": lower, "upper": upper, "exclude": exclude})[0]
