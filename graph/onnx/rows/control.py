"""Converts control flow: branches and loops.

A branch whose condition is known at import is the chosen graph. A loop whose number of rounds is known, and Scan, are
unrolled up to a limit; other loops become `ops.while_loop`, which carries tensors of fixed types.

See also `independent_rounds` (a Scan whose rounds run at once), `rounds` (loops that collect results), `recurrent`
(recurrent layers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.stage import builtin, current
from ...staging.value import TensorValue
from ...types.dims import Dim
from ...types.tensor_type import TensorType
from ..agreement import equal_size, with_sizes
from ..call import NodeCall
from ..known import KnownTensor, dims_from, known_dims
from ..table import Value, onnx_op
from .independent_rounds import at_once
from .rounds import Undo, collected, count_rounds, dim_of, is_constant, refuse_computed_sizes, unchanged

MOST_ROUNDS = 256


def _types_of(call: NodeCall, condition: Value, graph: object) -> list[TensorType]:
    """The types of what a graph without inputs gives: it is staged once and taken back."""
    types: list[TensorType] = []
    try:
        with current("cond").transaction():
            values = call.run_graph(graph, [])
            if any(isinstance(value, list) or value is None for value in values):
                call.numbers(condition, 0, "the condition, because a branch has no tensors")
            types = [call.tensor(value).type for value in values]
            raise Undo
    except Undo:
        return types


@onnx_op("If")
def if_(call: NodeCall, condition: Value, *, then_branch: object, else_branch: object) -> Any:
    """One of two graphs."""
    if isinstance(condition, KnownTensor):
        chosen = then_branch if bool(condition.numbers().reshape(-1)[0]) else else_branch
        return tuple(call.run_graph(chosen, []))
    types, others = (_types_of(call, condition, graph) for graph in (then_branch, else_branch))
    flag = ops.reshape(call.tensor(condition), [])
    if [(type.dtype, type.rank) for type in types] != [(type.dtype, type.rank) for type in others]:
        return _first_arm(call, flag, then_branch, types, others)
    for output, *pair in zip(call.node.output, types, others, strict=False):
        for type in pair:
            refuse_computed_sizes(call, type, f"the result {output!r} has a size that one of its arms computes")
    joint = [_joint_type(call, flag, *pair) for pair in zip(types, others, strict=True)]

    def arm(graph: object) -> list[TensorValue]:
        values = [call.tensor(value) for value in call.run_graph(graph, [])]
        return [with_sizes(value, type.shape) for value, type in zip(values, joint, strict=True)]

    return tuple(ops.cond(flag, joint, lambda: arm(then_branch), lambda: arm(else_branch)))


def _first_arm(
    call: NodeCall, flag: TensorValue, graph: object, types: list[TensorType], others: list[TensorType]
) -> tuple[Value, ...]:
    """The first of two graphs whose results have other types or numbers of axes than those of the second, where sizes
    decide between them: a call has to have sizes with which it is the one that runs."""
    shown, other_shown = (", ".join(f"{type.dtype}{type.shape}" for type in each) for each in (types, others))
    text = f"its condition is false, and the model is imported for the case that it is true: its arms give {shown} and"
    parameters = {"kind": "equal", "text": f"{call.title}: {text} {other_shown}"}
    operands = [ops.cast(flag, DType.int64), ops.constant(1, DType.int64, call.device)]
    builtin("creation", "require_sizes", operands, parameters)
    return tuple(call.run_graph(graph, []))


def _joint_type(call: NodeCall, flag: TensorValue, then: TensorType, other: TensorType) -> TensorType:
    """The type of a result of both graphs; a size in which they differ is that of the graph that runs."""
    sizes: list[Dim] = []
    for left, right in zip(then.shape, other.shape, strict=True):
        if left == right:
            sizes.append(left)
            continue
        both = [ops.reshape(known_dims([dim]).tensor(call.device), [1]) for dim in (left, right)]
        sizes += dims_from(ops.where(flag, *both), call.node.name or "branch")
    return TensorType(then.dtype, sizes, then.device)


# *** loops ***


@onnx_op("Loop")
def loop(call: NodeCall, trips: Value, condition: Value, *initial: Value, body: Any) -> Any:
    """A graph that is run again and again, with the values that it carries; some results are collected."""
    carried = len(initial)
    scans = len(body.output) - 1 - carried
    if scans < 0:
        call.fail("its body returns fewer values than it carries")
    known_trips = trips is None or (isinstance(trips, KnownTensor) and not trips.symbolic)
    known_condition = condition is None or isinstance(condition, KnownTensor)
    if known_trips and known_condition:
        most = int(trips.numbers().reshape(-1)[0]) if isinstance(trips, KnownTensor) else None
        goes = bool(condition.numbers().reshape(-1)[0]) if isinstance(condition, KnownTensor) else True
        unrolled = _unrolled(call, body, list(initial), most, goes, scans)
        if unrolled is not None:
            return tuple(unrolled)
    if any(isinstance(value, list) or value is None for value in initial):
        for position, value in enumerate((trips, condition)):
            if value is not None:
                call.numbers(value, position, "the number of rounds, since sequences are carried")
        call.fail("carries sequences over a number of rounds that is not known at import", code="EK0529")
    if scans:
        return _collecting(call, body, trips, condition, initial)
    return tuple(_while(call, body, trips, condition, [call.tensor(value) for value in initial]))


def _collecting(
    call: NodeCall, body: onnx.GraphProto, trips: Value, condition: Value, initial: Sequence[Value]
) -> tuple[Value, ...]:
    """The rounds as a loop into whose buffers the results are stored."""
    carried = len(initial)
    kept = unchanged(body.input[2:], body.output[1 : 1 + carried], body.node)
    always = unchanged(body.input[1:2], body.output[:1], body.node)[0] or _is_true(body)
    rounds = dim_of(trips)
    if isinstance(condition, KnownTensor) and not condition.numbers().reshape(-1)[0]:
        rounds = Dim(0)
    elif rounds is None or not always or isinstance(condition, TensorValue):
        most, first = (None if value is None else ops.reshape(call.tensor(value), []) for value in (trips, condition))
        rounds = count_rounds(call, body, most, first, initial)

    def round_(number: TensorValue, states: Sequence[Value]) -> Sequence[Value]:
        return call.run_graph(body, [number, KnownTensor(np.array(True), DType.bool), *states])[1:]

    scans = len(body.output) - 1 - carried
    states, results = collected(call, rounds, initial, kept, round_, [0] * scans)
    return (*states, *results)


def _is_true(body: onnx.GraphProto) -> bool:
    """Whether the condition that a body returns is the constant true."""
    name = body.output[0].name
    constants = [each for each in body.initializer if each.name == name]
    constants += [
        attribute.t
        for node in body.node
        if node.op_type == "Constant" and node.output[0] == name
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    return any(bool(onnx.numpy_helper.to_array(each).reshape(-1)[0]) for each in constants)


def _unrolled(
    call: NodeCall, body: object, values: list[Value], most: int | None, goes: bool, scans: int
) -> list[Value] | None:
    """The rounds one after the other; None where their number shows only when the graph runs, or is large."""
    collected: list[list[Value]] = [[] for _ in range(scans)]
    start, number = list(values), 0
    try:
        with current("loop").transaction():
            if scans and (not goes or most == 0):
                raise Undo
            while goes and (most is None or number < most):
                if number >= MOST_ROUNDS:
                    raise Undo
                flags: list[Value] = [_number(number), KnownTensor(np.array(True), DType.bool)]
                going, *results = call.run_graph(body, [*flags, *values])
                if not isinstance(going, KnownTensor):
                    raise Undo
                values, goes = list(results[: len(start)]), bool(going.numbers().reshape(-1)[0])
                for place, value in zip(collected, results[len(start) :], strict=True):
                    place.append(value)
                number += 1
            stacked = [_stacked(call, place) for place in collected]
    except Undo:
        return None
    return [*values, *stacked]


def _number(number: int) -> KnownTensor:
    return KnownTensor(np.array(number, np.int64), DType.int64)


def _stacked(call: NodeCall, values: list[Value], axis: int = 0) -> Value:
    return ops.stack([call.tensor(value) for value in values], axis)


def _while(
    call: NodeCall, body: object, trips: Value, condition: Value, values: list[TensorValue]
) -> list[TensorValue]:
    most = ops.reshape(call.tensor(trips), []) if trips is not None else None
    first = ops.reshape(call.tensor(condition), []) if condition is not None else ops.constant(True, DType.bool)
    types = [value.type for value in values]

    def goes(number: TensorValue, flag: TensorValue, *_: TensorValue) -> TensorValue:
        return flag if most is None else ops.logical_and(flag, ops.less(number, most))

    def round_(number: TensorValue, flag: TensorValue, *carried: TensorValue) -> list[TensorValue]:
        going, *results = call.run_graph(body, [number, flag, *carried])
        tensors = [call.tensor(value) for value in results]
        fitted = [ops.rebind(x, type.shape) for x, type in zip(tensors, types, strict=True)]
        return [number + 1, ops.reshape(call.tensor(going), []), *fitted]

    zero = ops.constant(0, DType.int64, call.device)
    return ops.while_loop([zero, first, *values], goes, round_)[2:]


@onnx_op("Scan", since=9)
def scan(
    call: NodeCall,
    *given: Value,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> Any:
    """A graph that is run for each element of an axis, with the values that it carries."""
    states, scanned = list(given[: len(given) - num_scan_inputs]), given[len(given) - num_scan_inputs :]
    inputs = [call.tensor(value) for value in scanned]
    axes = [axis % x.rank for axis, x in zip(scan_input_axes or [0] * len(inputs), inputs, strict=True)]
    backwards = scan_input_directions or [0] * len(inputs)
    size = inputs[0].shape[axes[0]]
    out_axes = scan_output_axes or [0] * (len(body.output) - len(states))
    out_back = scan_output_directions or [0] * len(out_axes)
    for k, (x, axis) in enumerate(zip(inputs, axes, strict=True)):
        text = f"the sizes of the axes along which it goes, of inputs {len(states)} and {len(states) + k}"
        equal_size(call, size, x.shape[axis], text)
    kept = unchanged(body.input[: len(states)], body.output[: len(states)], body.node)
    if all(kept) and not any([*backwards, *out_back]):
        first = [_moved(x, 0, axis) for x, axis in zip(inputs, axes, strict=True)]
        joined = at_once(call, body, states, first)
        if joined is not None:
            return (*states, *(_moved(x, axis) for x, axis in zip(joined, out_axes, strict=True)))
    if not is_constant(size, MOST_ROUNDS):
        return _long_scan(
            call, body, states, size, list(zip(inputs, axes, backwards, strict=True)), (out_axes, out_back)
        )
    parts_of: list[list[Value]] = [[] for _ in out_axes]
    for number in range(int(size)):
        parts = []
        for x, axis, back in zip(inputs, axes, backwards, strict=True):
            at = int(size) - 1 - number if back else number
            parts.append(x[tuple(at if k == axis else slice(None) for k in range(x.rank))])
        results = call.run_graph(body, [*states, *parts])
        states = list(results[: len(states)])
        for place, value in zip(parts_of, results[len(states) :], strict=True):
            place.append(value)
    stacked = [
        _stacked(call, place[::-1] if back else place, axis)
        for place, axis, back in zip(parts_of, out_axes, out_back, strict=True)
    ]
    return (*states, *stacked)


def _long_scan(
    call: NodeCall,
    body: onnx.GraphProto,
    states: Sequence[Value],
    size: Dim,
    inputs: Sequence[tuple[TensorValue, int, int]],
    outputs: tuple[Sequence[int], Sequence[int]],
) -> tuple[Value, ...]:
    """A Scan as a loop, where its rounds are many or depend on sizes."""
    kept = unchanged(body.input[: len(states)], body.output[: len(states)], body.node)
    last = ops.reshape(known_dims([size]).tensor(call.device), []) - 1

    def round_(number: TensorValue, values: Sequence[Value]) -> Sequence[Value]:
        parts = [ops.gather(x, last - number if back else number, axis) for x, axis, back in inputs]
        return call.run_graph(body, [*values, *parts])

    after, results = collected(call, size, states, kept, round_, outputs[1])
    return (*after, *(_moved(x, axis) for x, axis in zip(results, outputs[0], strict=True)))


def _moved(x: TensorValue, axis: int, source: int = 0) -> TensorValue:
    """`x` with an axis at another place."""
    order = [k for k in range(x.rank) if k != source]
    order.insert(axis % x.rank, source)
    return ops.permute(x, order)
