"""Unifies the shapes of a call with the dims of its signature, and computes the shapes of its outputs.

Sizes may be ints or the graph's symbolic dims: only their arithmetic and `==` are used.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn, SupportsIndex, cast

from ..diagnostics.errors import of_call
from .call_state import CallState, CallTensor, SizeOrigin
from .dims import Axis, Computed, DimItem, DimLike, Expression, FixedAxis, Pack, names_in
from .parse_dims import parse_dims
from .schema import TensorArgument


def match(call: CallState, tensors: Sequence[CallTensor]) -> None:
    """Unifies dtypes and shapes with what the signature says.

    Raises:
        GraphError, DTypeError: what does not fit; several at once as `CallErrors`.
    """
    for tensor in tensors:
        call.tried(call.match_dtype, tensor)
    match_shapes(call, tensors)
    if not call.errors:  # else names may be missing
        check_computed(call, tensors)
    if call.errors:
        raise of_call(call.errors)


def match_shapes(call: CallState, tensors: Sequence[CallTensor]) -> None:
    """Binds names to sizes; a tensor with several unknown packs waits until others have determined their lengths."""
    pending = list(tensors)
    while pending:
        ready = next((tensor for tensor in pending if _unknown_packs(call, tensor) <= 1), None)
        if ready is None and call.errors:  # the tensor that would determine it may be among those that do not fit
            return
        if ready is None:
            tensor = pending[0]
            call.fail(
                f'nothing determines where one pack ends in {tensor.label}, its dims are "{tensor.argument.dims}"',
                tensor.argument,
                code="EK0311",
            )
        pending.remove(ready)
        call.tried(_match_shape, call, ready)


def _unknown_packs(call: CallState, tensor: CallTensor) -> int:
    return sum(isinstance(i, Pack) and i.count is None and i.name not in call.packs for i in tensor.items)


def _match_shape(call: CallState, tensor: CallTensor) -> None:
    lengths = [_length(call, item, tensor) for item in tensor.items]
    free = len(tensor.shape) - sum(length or 0 for length in lengths)
    if free < 0 or (free > 0 and None not in lengths):
        _wrong_rank(call, tensor, lengths)
    axis = 0
    for item, length in zip(tensor.items, lengths, strict=True):
        taken = free if length is None else length
        if isinstance(item, Pack):
            _match_pack(call, item, tensor, axis, tensor.shape[axis : axis + taken])
        elif isinstance(item, Axis):
            _match_axis(call, item, tensor, axis)
        elif isinstance(item, FixedAxis) and tensor.shape[axis] != item.size:
            _wrong_size(call, tensor, axis, str(item.size), item.size)
        axis += taken


def _length(call: CallState, item: DimItem, tensor: CallTensor) -> int | None:
    """How many axes an item takes; None when the rank of the tensor determines it."""
    if not isinstance(item, Pack):
        return 1
    if item.count is not None:
        return _count(call, item.count, item, tensor.argument)
    return len(call.packs[item.name].value) if item.name in call.packs else None


def _count(call: CallState, count: Expression, item: Pack, argument: TensorArgument) -> int:
    value = operator.index(call.value_of(count, argument, call.integers))
    if value < 0:
        call.fail(
            f"pack '{item}' of {argument.name!r} would have {value} axes{call.where(count)}",
            argument,
            code="EK0315",
            got=value,
        )
    return value


def _wrong_rank(call: CallState, tensor: CallTensor, lengths: list[int | None]) -> NoReturn:
    least = sum(length or 0 for length in lengths)
    notes = [
        f"'*{item.name}' has {_axes(length)} {call.packs[item.name].origin}"
        if item.name in call.packs
        else f"'{item}' has {_axes(length)}"
        for item, length in zip(tensor.items, lengths, strict=True)
        if isinstance(item, Pack) and length is not None
    ]
    more = " or more" if None in lengths else ""
    call.fail(
        f'{tensor.label} has rank {len(tensor.shape)}, its dims "{tensor.argument.dims}" want rank {least}{more}',
        tensor.argument,
        code="EK0311",
        expected=least,
        got=len(tensor.shape),
        notes=[*notes, f"the shape is {_shown(tensor.shape)}"],
    )


def _match_axis(call: CallState, item: Axis, tensor: CallTensor, axis: int) -> None:
    size = tensor.shape[axis]
    origin = f"in {tensor.label} (axis {axis})"
    known = call.dims.get(item.name)
    if known is None and item.name in call.integers:
        known = SizeOrigin(call.integers[item.name], f"by parameter {item.name!r}")
    if known is None:
        known = call.dims[item.name] = SizeOrigin(size, origin)
    if known.value != size:
        call.fail(
            f"dim {item.name!r} is {known.value} {known.origin} but {size} {origin}",
            tensor.argument,
            code="EK0312",
            expected=known.value,
            got=size,
            hint=_hint_for_symbols(known.value, size),
        )


def _match_pack(call: CallState, item: Pack, tensor: CallTensor, axis: int, sizes: tuple[DimLike, ...]) -> None:
    if item.name == "_":
        return
    known = call.packs.setdefault(item.name, SizeOrigin(sizes, f"in {tensor.label}"))
    if known.value != sizes:
        pairs = enumerate(zip(known.value, sizes, strict=False), axis)
        first = next(((k, a, b) for k, (a, b) in pairs if a != b), None)
        call.fail(
            f"dims '*{item.name}' are {_shown(known.value)} {known.origin}"
            f" but {_shown(sizes)} in {tensor.label}{f' (axis {first[0]})' if first else ''}",
            tensor.argument,
            code="EK0312",
            expected=known.value,
            got=sizes,
            hint=_hint_for_symbols(*first[1:]) if first else None,
        )


def check_computed(call: CallState, tensors: Sequence[CallTensor]) -> None:
    """Compares computed sizes with the actual ones, once every name that can be known is known."""
    for tensor in tensors:
        call.tried(_check_computed, call, tensor)


def _check_computed(call: CallState, tensor: CallTensor) -> None:
    axis = 0
    for item in tensor.items:
        if isinstance(item, Computed):
            wanted = call.value_of(item.expression, tensor.argument)
            if wanted != tensor.shape[axis]:
                where = call.where(item.expression)
                shown = str(item) if _is_constant(item) else f"{item} = {wanted}{where}"
                _wrong_size(call, tensor, axis, shown, wanted)
        length = _length(call, item, tensor)
        if length is None:  # only an unnamed pack stays unknown; it takes the axes that the others leave
            others = (_length(call, other, tensor) for other in tensor.items)
            length = len(tensor.shape) - sum(other or 0 for other in others)
        axis += length


def _wrong_size(call: CallState, tensor: CallTensor, axis: int, expected: str, wanted: Any) -> NoReturn:
    size = tensor.shape[axis]
    call.fail(
        f'{tensor.label} has size {size} on axis {axis}, its dims "{tensor.argument.dims}" want {expected}',
        tensor.argument,
        code="EK0313",
        expected=wanted,
        got=size,
        hint=_hint_for_symbols(wanted, size),
    )


def output_shape(call: CallState, argument: TensorArgument) -> tuple[DimLike, ...]:
    """The shape of an output, from the names that the inputs bound."""
    shape: list[DimLike] = []
    for item in parse_dims(argument.dims, argument.place):
        if isinstance(item, Pack) and item.name in call.packs:
            shape += call.packs[item.name].value
        elif isinstance(item, FixedAxis):
            shape.append(item.size)
        elif isinstance(item, Axis) and item.name in call.dims:
            shape.append(call.dims[item.name].value)
        elif isinstance(item, Axis) and item.name in call.integers:
            shape.append(_not_negative(call, call.integers[item.name], item, argument, ""))
        elif isinstance(item, Computed):
            value = call.value_of(item.expression, argument)
            shape.append(_not_negative(call, value, item, argument, call.where(item.expression)))
        else:
            noun = "the sizes" if isinstance(item, Pack) else "the size"
            call.fail(
                f"the inputs do not determine {noun} '{item}' of output {argument.name!r}",
                argument,
                code="EK0314",
                hint="pass out_types, or compute it in a function under `@op.shape`",
            )
    return tuple(shape)


def _number(size: object) -> int | None:
    """The number of a size; None for a size that has none yet (a graph's dim, or a size that PyTorch or JAX traces)."""
    try:
        return operator.index(cast(SupportsIndex, size))
    except TypeError:
        return None


def _not_negative(call: CallState, value: Any, item: DimItem, argument: TensorArgument, where: str) -> Any:
    number = _number(value)
    if number is not None and number < 0:
        call.fail(
            f"size '{item}' of output {argument.name!r} would be {value}{where}", argument, code="EK0315", got=value
        )
    return value


def _is_constant(item: Computed) -> bool:
    return not any(names_in(item.expression))


def _hint_for_symbols(first: DimLike, second: DimLike) -> str | None:
    if isinstance(first, tuple) or (_number(first) is not None and _number(second) is not None):
        return None
    return "if the two are always equal, give them the same name where the graph's inputs are declared"


def _axes(count: int | None) -> str:
    return "1 axis" if count == 1 else f"{count} axes"


def _shown(shape: Sequence[DimLike]) -> str:
    return f"[{', '.join(map(str, shape))}]"
