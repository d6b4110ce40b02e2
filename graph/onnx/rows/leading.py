"""Converts ops on slices whose lengths a round of a loop computes: the tensors are as long as the whole axis.

Elementwise ops and gathers compute all elements. Reductions over the axis put the identity in the place of those that
do not count. A sequence may get such parts, which are joined after the loop.

See also `leading_parts` (what such a tensor is), `movement` (slices).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.stage import builtin
from ...staging.value import TensorValue
from ..call import NodeCall, run_row
from ..items import AppendedItem, AppendedItems
from ..leading_parts import LeadingPart
from ..table import OpTypeRow, Value
from .indexing import along, steps

# The identity of each reduction, None for the ends of the dtype.
_REDUCTIONS: dict[str, float | None] = {
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceLogSumExp": -math.inf,
    "ReduceMax": None,
    "ReduceMean": 0,
    "ReduceMin": None,
    "ReduceProd": 1,
    "ReduceSum": 0,
    "ReduceSumSquare": 0,
}
_ELEMENTWISE = frozenset({"Abs", "Cast", "Ceil", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "Identity"})
_ELEMENTWISE |= {"LeakyRelu", "Log", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus"}
_ELEMENTWISE |= {"Sqrt", "Tanh"}


def with_leading_parts(row: OpTypeRow, call: NodeCall) -> list[Value]:
    """The outputs of a node some of whose inputs are leading parts."""
    parts = {k: value for k, value in enumerate(call.inputs) if isinstance(value, LeadingPart)}
    whole: list[Value] = [value.whole if isinstance(value, LeadingPart) else value for value in call.inputs]
    first = next(iter(parts.values()))
    if row.domain == "" and row.op_type in _REDUCTIONS and list(parts) == [0]:
        return [_reduced(row, call, first)]
    if row.op_type == "Gather" and list(parts) == [1]:
        rank = call.tensor(call.inputs[0]).rank
        axis = call.attributes["axis"] % rank + first.axis
    elif row.op_type == "SequenceInsert" and list(parts) == [1] and isinstance(call.inputs[0], AppendedItems):
        items = call.inputs[0]
        if len(call.inputs) > 2 and call.inputs[2] is not None:
            call.fail("inserts into a sequence that a loop carries, where items are appended only", code="EK0529")
        item = AppendedItem(first.whole, None, first.count, first.axis)
        return [AppendedItems(items.loop, items.place, (*items.items, item))]
    elif row.domain == "" and (row.broadcasts or row.op_type in _ELEMENTWISE):
        axis = _common_axis(call, whole, list(parts.values()))
    else:
        text = "takes no slice whose length changes from round to round of a loop"
        call.fail(
            text, code="EK0529", expected=f"one of {', '.join(sorted(_REDUCTIONS))}, Gather, elementwise op types"
        )
    call.inputs = whole
    results = [call.tensor(each) for each in run_row(row, call)]
    return [LeadingPart(each, axis, first.count) for each in results]


def _common_axis(call: NodeCall, operands: Sequence[Value], parts: Sequence[LeadingPart]) -> int:
    """The axis of a broadcast result along which its parts count; their counts have to be equal."""
    tensors = [call.tensor(each) for each in operands if each is not None]
    behind = parts[0].axis - parts[0].whole.rank
    for part in parts[1:]:
        if part.axis - part.whole.rank != behind or part.whole.shape[behind] != parts[0].whole.shape[behind]:
            call.fail("takes slices along different axes, whose lengths change from round to round", code="EK0529")
        if part.count is not parts[0].count:
            text = f"{call.title}: slices of its inputs have to have equal lengths"
            builtin("creation", "require_sizes", [parts[0].count, part.count], {"kind": "equal", "text": text})
    whole = {id(part.whole) for part in parts}
    for tensor in tensors:
        if id(tensor) not in whole and tensor.rank >= -behind and tensor.shape[behind] != 1:
            call.fail(
                "takes a slice whose length changes from round to round, and a tensor of other sizes", code="EK0529"
            )
    return max(tensor.rank for tensor in tensors) + behind


def _reduced(row: OpTypeRow, call: NodeCall, part: LeadingPart) -> Value:
    """A reduction of a leading part."""
    x = part.whole
    given = call.inputs[1] if len(call.inputs) > 1 else None
    axes: list[int] = call.attributes.get("axes") or []
    if given is not None:
        axes = [int(axis) for axis in call.numbers(given, 1, "axes").reshape(-1)]
    over = sorted(
        {axis % x.rank for axis in axes or ([] if call.attributes.get("noop_with_empty_axes") else range(x.rank))}
    )
    if part.axis not in over:
        call.inputs = [x, *call.inputs[1:]]
        (result,) = run_row(row, call)
        before = 0 if call.attributes["keepdims"] else sum(axis < part.axis for axis in over)
        return LeadingPart(call.tensor(result), part.axis - before, part.count)
    counts = ops.less(along(steps(x.shape[part.axis], x.device), part.axis, x.rank), part.count)
    identity = _REDUCTIONS[row.op_type]
    if identity is None:
        least, most = (-math.inf, math.inf) if x.dtype.is_float() else x.dtype.range
        identity = least if row.op_type == "ReduceMax" else most
    masked = ops.where(counts, x, ops.constant(identity, x.dtype, x.device))
    if row.op_type == "ReduceMean":
        return _mean(masked, part, over, bool(call.attributes["keepdims"]))
    call.inputs = [masked, *call.inputs[1:]]
    return run_row(row, call)[0]


def _mean(masked: TensorValue, part: LeadingPart, over: Sequence[int], keepdims: bool) -> TensorValue:
    """The mean of the elements that count, 0 of none, as ONNX Runtime has it."""
    others = tuple(axis for axis in over if axis != part.axis)
    x = ops.cast(masked, DType.float64 if masked.dtype.is_integral() else masked.dtype)
    x = ops.sum(ops.mean(x, others, True) if others else x, part.axis, True)
    mean = ops.cast(x / ops.cast(ops.maximum(part.count, 1), x.dtype), masked.dtype)
    kept = [dim for axis, dim in enumerate(mean.shape) if keepdims or axis not in over]
    return ops.reshape(mean, kept)
