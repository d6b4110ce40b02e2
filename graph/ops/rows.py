"""Makes ops of rows: one decorated signature an op, without a body.

    @elementwise("float")
    def exp(x: TensorValueLike) -> TensorValue:
        "e to the power x."

A row says the op's name and arguments, as editors and type checkers see them, which dtypes it takes, in what integers
are computed, its method and its operator, and what it means. Its kernel has the op's name and lies in the file of the
standard library that has the name of the row's file, unless the row says otherwise. The dtype and shape of the result
follow from the kernel's signature.

| form | the op |
|---|---|
| `elementwise` | promotes its operands to one dtype and broadcasts them to one shape |
| `along` | goes along one axis, and keeps the shape or gives what the kernel says |
| `reduction` | makes one element of all along one axis, several, or all of them |

Parameters annotated with `TensorValueLike` are operands; all others are attributes, which the kernel takes as
parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import APPROXIMATED, DType
from ..arguments import axis_of, flag_of
from ..staging.value import Axes, TensorValue
from ..types.dims import Dim, Shape, StaticDim, is_below_zero
from ..types.promotion import promote
from ..types.tensor_type import TensorType, shown
from .operands import (
    are_set,
    as_real,
    as_shape,
    broadcast,
    cast_to,
    check_kind,
    joined_parts,
    permuted,
    tensor,
    tensors,
)
from .stage import BuiltinOp, F, builtin, declared, fail, require

Reader = Callable[[str, Any], Any]  # makes the value of a parameter from an attribute's name and what a user passes
Staging = Callable[[str, tuple[str, str], Mapping[str, Any]], TensorValue]


def elementwise(
    kinds: str,
    *,
    apart: Mapping[str, str] | None = None,
    integers: DType | None = None,
    attributes: Mapping[str, Reader] | None = None,
    fast: bool = False,
    family: str | None = None,
    kernel: str | None = None,
    method: str | None = None,
    operator: str | None = None,
) -> Callable[[F], F]:
    """Makes a signature an elementwise op.

    Args:
        kinds: the dtypes that its operands take, a key of `operands.KINDS`.
        apart: operands that are not promoted with the others, and the kinds of each.
        integers: the dtype in which integers and bools are computed; their own when left out.
        attributes: how each attribute is read.
        fast: it has the attribute `fast`, which requests the approximations of GPUs for floats of 32 bits or fewer.
        family, kernel: the kernel, where its name or its file is another than the op's.
        method, operator: see `stage.op`.
    """
    alone = apart or {}
    readers = dict(attributes or {}) | ({"fast": flag_of} if fast else {})

    def stage(name: str, kernel: tuple[str, str], given: Mapping[str, Any]) -> TensorValue:
        if not apart and not readers:
            return builtin(*kernel, broadcast(name, _promoted(name, given, kinds, integers)))[0]
        operands = {}
        for operand, kind in alone.items():
            operands[operand] = tensor(name, operand, given[operand])
            check_kind(name, operand, operands[operand], kind)
        others = {operand: given[operand] for operand in given if operand not in alone and operand not in readers}
        operands |= _promoted(name, others, kinds, integers)
        parameters = {attribute: read(attribute, given[attribute]) for attribute, read in readers.items()}
        if parameters.pop("fast", False):
            _check_fast(name, operands)
            kernel = ("fast", f"{kernel[1]}_fast")
        values = broadcast(name, {operand: operands[operand] for operand in given if operand in operands})
        return builtin(*kernel, values, parameters)[0]

    reached = (family, kernel, method, operator)
    return _row("elementwise", stage, kinds, alone, tuple(readers), integers, reached)


def along(
    kinds: str,
    *,
    sums: bool = False,
    pairs: bool = False,
    attributes: Mapping[str, Reader] | None = None,
    family: str | None = None,
    kernel: str | None = None,
    method: str | None = None,
) -> Callable[[F], F]:
    """Makes a signature `(x, axis)` an op along one axis.

    Args:
        kinds: the dtypes that it takes, a key of `operands.KINDS`.
        sums: integers and bools give int64 or uint64 (see `DType.sum_dtype`), in the shape of the operand.
        pairs: complex numbers go through it as pairs of floats.
        attributes, family, kernel, method: as of `elementwise`.
    """
    readers = attributes or {}

    def stage(name: str, kernel: tuple[str, str], given: Mapping[str, Any]) -> TensorValue:
        operand, x = next(iter(given.items()))
        value = tensor(name, operand, x)
        check_kind(name, operand, value, kinds)
        read = {attribute: reader(attribute, given[attribute]) for attribute, reader in readers.items()}
        read["axis"] = axis_of(given["axis"], value.rank)
        apart = pairs and value.dtype.is_complex()
        value = as_real(value) if apart else value
        expected = [value.type.with_dtype(value.dtype.sum_dtype())] if sums else None
        result = builtin(*kernel, [value], read, expected)[0]
        return joined_parts(result) if apart else result

    return _row("along", stage, kinds, {}, ("axis", *readers), None, (family, kernel, method, None), sums)


def reduction(
    kinds: str,
    *,
    integers: DType | None = None,
    sums: bool = False,
    places: bool = False,
    bools: DType | None = None,
    changes: bool = False,
    of_complex: str = "",
    family: str | None = None,
    kernel: str | None = None,
    method: str | None = None,
) -> Callable[[F], F]:
    """Makes a signature `(x, axis, keepdims)` a reduction.

    Args:
        kinds: the dtypes that it takes, a key of `operands.KINDS`.
        integers: as of `elementwise`.
        sums: integers and bools give int64 or uint64: see `DType.sum_dtype`.
        places: the result is the place of an element: of one axis or of all of them, which must not be empty.
        bools: the dtype in which bools are computed; their own when left out.
        changes: one element alone becomes another value, too: without axes there is something to compute.
        of_complex: how complex numbers are reduced: as "pairs" of floats, as "bools" of what is not zero, or by another
            kernel of this name.
        family, kernel, method: as of `elementwise`.
    """

    def stage(name: str, kernel: tuple[str, str], given: Mapping[str, Any]) -> TensorValue:
        operand, x = next(iter(given.items()))
        value = tensor(name, operand, x)
        check_kind(name, operand, value, kinds)
        if of_complex == "bools" and value.dtype.is_complex():
            value = are_set(value)
        elif of_complex and value.dtype.is_complex():
            axes = axes_of(name, given["axis"], value.rank)
            if of_complex == "pairs":
                part = value.dtype.part if sums else None
                return joined_parts(reduce_axes(name, kernel, as_real(value), axes, given["keepdims"], part))
            return reduce_axes(name, ("complex", of_complex), value, axes, given["keepdims"])
        if integers is not None and not (value.dtype.is_float() or value.dtype.is_complex()):
            value = cast_to(value, integers)
        if bools is not None and value.dtype is DType.bool:
            value = cast_to(value, bools)
        axis, keepdims = given["axis"], given["keepdims"]
        if not places:
            axes = axes_of(name, axis, value.rank)
            out = value.dtype.sum_dtype() if sums else None
            if changes and not axes:
                alone = as_shape(value, [*value.shape, 1])
                return reduce_axes(name, kernel, alone, (value.rank,), False, out)
            return reduce_axes(name, kernel, value, axes, keepdims, out)
        axes = axes_of(name, None, value.rank) if axis is None else (axis_of(axis, value.rank),)
        check_not_empty(name, value, axes)
        if value.rank == 0:
            return as_shape(reduce_axes(name, kernel, as_shape(value, [1]), (0,), keepdims), [])
        return reduce_axes(name, kernel, value, axes, keepdims)

    reached = (family, kernel, method, None)
    return _row("reduction", stage, kinds, {}, ("axis", "keepdims"), integers, reached, sums, bools)


def _row(
    form: str,
    stage: Staging,
    kinds: str,
    apart: Mapping[str, str],
    attributes: tuple[str, ...],
    integers: DType | None,
    reached: tuple[str | None, str | None, str | None, str | None],
    sums: bool = False,
    bools: DType | None = None,
) -> Callable[[F], F]:
    """What the forms have in common: makes a signature an op. `reached` is family, kernel, method and operator."""
    family, kernel, method, operator = reached

    def declare(function: F) -> F:
        name, code = function.__name__, function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        positional = reversed(names[: code.co_argcount])
        defaults = dict(zip(positional, reversed(function.__defaults__ or ()), strict=False))
        defaults |= function.__kwdefaults__ or {}
        operands = {n: apart.get(n, kinds) for n in names if function.__annotations__[n] == "TensorValueLike"}
        assert set(names) == {*operands, *attributes}, f"row {name}: nothing says how to read its attributes"
        called = (family or function.__module__.rpartition(".")[2], kernel or name)

        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> TensorValue:
            function(*args, **kwargs)  # refuses what the signature does not take, in Python's own words
            given = dict(zip(names, args, strict=False))
            if len(args) < len(names):
                given = {n: given[n] if n in given else kwargs.get(n, defaults.get(n)) for n in names}
            return stage(name, called, given)

        op = BuiltinOp(name, call, form, called, operands, integers, sums, bools)
        return declared(op, method, operator)  # type: ignore[return-value]

    return declare


def _check_fast(name: str, operands: Mapping[str, TensorValue]) -> None:
    """Refuses `fast` for dtypes of which GPUs have no approximations."""
    for operand, value in operands.items():
        if value.dtype not in APPROXIMATED:
            details = {"argument": operand, "expected": " or ".join(map(str, APPROXIMATED)), "got": str(value.dtype)}
            hint = "cast the operand to float32 first, or leave fast=True out"
            text = f"fast=True has no meaning for {value.dtype}"
            fail(name, text, code="EK0413", kind=DTypeError, hint=hint, **details)


def _promoted(name: str, values: Mapping[str, Any], kinds: str, integers: DType | None) -> Mapping[str, TensorValue]:
    """Operands in one dtype."""
    if len(values) == 1:
        ((first, value),) = values.items()
        operands = {first: tensor(name, first, value)}
    else:
        strong = [(operand, value) for operand, value in values.items() if isinstance(value, TensorValue)]
        if kinds == "bool":  # before any promotion: bool and int8 would otherwise become int8
            for operand, value in strong:
                check_kind(name, operand, value, kinds)
        wanted = None
        if integers is not None and strong:
            common = promote([value.dtype for _, value in strong], name, user_place())
            wanted = None if common.is_float() or common.is_complex() else integers
        operands = dict(zip(values, tensors(name, wanted, **values), strict=True))
        first = next(iter(operands))
    check_kind(name, first, operands[first], kinds)
    return operands


# *** reductions ***


def reduce_axes(
    name: str,
    kernel: tuple[str, str],
    value: TensorValue,
    axes: tuple[int, ...],
    keepdims: object,
    dtype: DType | None = None,
) -> TensorValue:
    """What a kernel with one axis makes of several: they are merged first, so that it accumulates in one go.

    `dtype` is that of the result, where the kernel leaves it open.
    """
    if not axes:
        return value if dtype is None else cast_to(value, dtype)
    kept = [k for k in range(value.rank) if k not in axes]
    merged, at = value, axes[0]
    if len(axes) > 1:
        outer = [value.shape[k] for k in kept]
        merged = as_shape(permuted(value, [*kept, *axes]), [*outer, Shape(value.shape[k] for k in axes).num_elements])
        at = len(kept)
    sizes = [StaticDim(1) if k == at else dim for k, dim in enumerate(merged.shape)]
    expected = None if dtype is None else [TensorType(dtype, sizes, merged.device)]
    result = builtin(*kernel, [merged], {"axis": at}, expected)[0]
    one, keeps = StaticDim(1), flag_of("keepdims", keepdims)
    return as_shape(result, [one if k in axes else dim for k, dim in enumerate(value.shape) if keeps or k not in axes])


def axes_of(name: str, axis: Axes, rank: int) -> tuple[int, ...]:
    """The axes named, counted from 0 and sorted.

    Raises:
        GraphError: EK0422, one is out of range or named twice.
    """
    if axis is None:
        return tuple(range(rank))
    given = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(sorted(axis_of(one, rank) for one in given))
    if len(set(axes)) != len(axes):
        fail(name, f"axis {axes} names an axis twice", code="EK0422", argument="axis", got=axes)
    return axes


def check_not_empty(name: str, value: TensorValue, axes: tuple[int, ...]) -> None:
    """Of no elements none is the largest; where the size is known at the call only, it is checked then."""
    for axis in axes:
        dim, text = value.shape[axis], f"axis {axis} of {shown(value.shape)} has no elements to choose from"
        if dim == 0:
            fail(name, text, code="EK0424", argument="x", expected="at least one element", got=str(value.type))
        if not is_below_zero(-dim):  # else it is surely 1 or more
            require(name, "at_least", dim, Dim(1), f"{name}: {text}", "EK0424")
