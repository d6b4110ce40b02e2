"""Rows of ops as cases: each row with its kernel's reference, for code that runs them: a CPU, GPU code."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from support.graphs import FLOATS, INTEGERS, Array, Case, numbers

from einkorn.graph import DType, TensorValue
from einkorn.graph.ops.operands import KINDS
from einkorn.graph.ops.stage import OPS, BuiltinOp
from einkorn.graph.staging.kernels import kernel_family

ROWS = {name: op for name, op in OPS.items() if op.kernel is not None}
DTYPES = (*FLOATS, *INTEGERS, np.bool_)
# Rows whose results are exact; all others may differ from their reference by some units in the last place.
EXACT = {
    *("add", "sub", "mul", "div", "maximum", "minimum", "negate", "abs", "relu", "where", "sqrt"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "is_nan", "is_inf"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "floor", "ceil", "round", "trunc"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift", "gcd", "lcm", "isclose"),
    *("reciprocal", "square", "sign", "is_finite", "copysign", "nextafter", "fmod", "relu6", "hard_tanh"),
}
ULPS = 6
EVERY = ("sum", "argmax")  # reductions, one of each form, that are tried along all axes
# Rows that promise less for some elements: what is done to the operands first.
Change = Callable[[list[Array]], list[Array]]
DEFINED: dict[str, Change] = {
    "floordiv": lambda arrays: [arrays[0], _far_from_zero(arrays[1])],
    "mod": lambda arrays: [arrays[0], _far_from_zero(arrays[1])],
    **dict.fromkeys(("hard_sigmoid", "hard_swish"), lambda arrays: [np.abs(arrays[0]), *arrays[1:]]),
    "lgamma": lambda arrays: [(np.abs(arrays[0]) + 9).astype(arrays[0].dtype), *arrays[1:]],  # 0 at 1 and 2
    "gelu": lambda arrays: [np.abs(arrays[0]), arrays[1]],  # below 0 a difference of numbers that are almost equal
}


def _far_from_zero(array: Array) -> Array:
    """Quotients of floats stay small: a remainder is exact, its last places in another precision are not."""
    if array.dtype.kind in "iu":
        return np.where(array == 0, array.dtype.type(1), array)
    return np.where(np.abs(array) < 1, array.dtype.type(1.5), array)


def reference_of(op: BuiltinOp) -> Callable[..., Array]:
    """The kernel's reference, for operands that are promoted; parameters that users leave out have their defaults."""
    assert op.kernel is not None
    family, name = op.kernel
    reference = kernel_family(family).kernels[name].reference
    assert reference is not None, f"kernel '{name}' has no @{name}.reference in stdlib/kernels/{family}.py"
    defaults = {
        p.name: p.default
        for p in inspect.signature(op.function).parameters.values()
        if p.default is not p.empty and p.name != "fast"  # which is another kernel
    }

    def call(*arrays: Array, **parameters: Any) -> Array:
        wide = [_computed_in(op, array) for array in arrays]
        return np.asarray(reference(*wide, **(defaults | parameters))[0])

    return call


def _computed_in(op: BuiltinOp, array: Array) -> Array:
    if op.bools is not None and array.dtype.kind == "b":
        return array.astype(op.bools.to_numpy())
    if op.integers is None or array.dtype.kind not in "iub":
        return array
    return array.astype(op.integers.to_numpy())


def takes(op: BuiltinOp, dtype: Any) -> bool:
    """Whether the last operand, which is promoted with most others, may have the dtype."""
    return DType.from_numpy(np.dtype(dtype)) in KINDS[list(op.operands.values())[-1]].dtypes


def rows_for(dtype: Any, *forms: str) -> dict[str, BuiltinOp]:
    return {name: op for name, op in ROWS.items() if op.form in forms and takes(op, dtype)}


def cases_of(rows: Mapping[str, BuiltinOp], places: int) -> dict[str, Case]:
    """One case a row. Arrays are `places` of the dtype, then the same number of bools for operands that stand apart."""

    def case(op: BuiltinOp) -> Case:
        kinds = list(op.operands.values())
        apart = [kind == "bool" and kinds[-1] != "bool" for kind in kinds]
        at = [places + k if bools else sum(not b for b in apart[:k]) for k, bools in enumerate(apart)]
        reference = reference_of(op)

        def staged(*values: TensorValue) -> TensorValue:
            result: TensorValue = op.function(*(values[k] for k in at))
            return result

        def expected(*arrays: Array) -> Array:
            return reference(*(arrays[k] for k in at))

        return staged, expected

    return {name: case(op) for name, op in rows.items()}


def operands(shape: Sequence[int], dtype: Any, seed: int = 1) -> list[Array]:
    """Three arrays of the dtype and three of bools."""
    return [
        *(numbers(shape, dtype, seed + k) for k in range(3)),
        *(numbers(shape, np.bool_, seed + 3 + k) for k in range(3)),
    ]


def special(dtype: Any) -> Array:
    """The numbers where things go wrong."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([False, True])
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return np.array([info.min, info.max, 0, 1, info.max // 2], kind)
    info = ml_dtypes.finfo(kind)
    tiny, huge = float(info.smallest_normal), float(info.max)
    return np.array([0.0, -0.0, 1, -1, 0.5, 2.5, -3.5, tiny, -tiny, huge, -huge, math.inf, -math.inf, math.nan], kind)


def axis_cases(op: BuiltinOp, rank: int, every: bool) -> dict[str, Case]:
    """The outer axes; or for a scan each axis, for a reduction inner ones and in turns the outer one, all, or several.

    How several axes become one is the same for all reductions: the turns are for what the kernels are called with. The
    first of each form has all of them. Axes are kept or dropped in turns, too.
    """
    reference = reference_of(op)
    places = "tuple" not in str(inspect.signature(op.function).parameters["axis"].annotation).replace("Axes", "tuple")

    def case(axis: Any, **keywords: Any) -> Case:
        def expected(x: Array) -> Array:
            if op.form == "along":
                return reference(x, axis=axis % rank)
            axes = sorted(k % rank for k in (range(rank) if axis is None else np.atleast_1d(axis)))
            kept = [k for k in range(rank) if k not in axes]
            outer = [x.shape[k] for k in kept]
            ordered = np.ascontiguousarray(x.transpose([*kept, *axes]))
            actual = reference(ordered.reshape(*outer, math.prod(x.shape[k] for k in axes)), axis=len(kept))
            whole = [1 if k in axes else x.shape[k] for k in range(rank)]
            return actual.reshape(whole if keywords.get("keepdims", True) else outer)

        return (lambda x: op.function(x, axis=axis, **keywords)), expected

    if op.form == "along" or not every:
        return {f"{op.name} {axis}": case(axis) for axis in (range(-1, rank - 1) if every else (-1, 0))}
    reductions = [row for row in ROWS.values() if row.form == "reduction"]
    first = reductions.index(op)  # the next row keeps the axes that this one drops
    others: list[Any] = [None, 0, *([] if places else [(0, -1), (1, 2)])]
    chosen = [-1, 1, *(others if op.name in EVERY else [others[first % len(others)]])]
    cases = [(axis, (first + k) % 2 == 0) for k, axis in enumerate(chosen)]
    return {f"{op.name} {axis} {keeps}": case(axis, keepdims=keeps) for axis, keeps in cases}
