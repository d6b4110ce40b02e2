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
from ...ops.indexing import Range, take
from ...ops.stage import builtin, current
from ...staging.value import TensorValue
from ...types.dims import Dim
from ...types.tensor_type import TensorType
from ..agreement import equal_size, with_sizes
from ..call import NodeCall
from ..items import AppendedItems, CountedItems, is_sequence, moved
from ..known import KnownTensor, dims_from, known_dims
from ..table import Value, onnx_op
from .appended import appending, arm_result, arm_tensors, sequence_after
from .independent_rounds import at_once
from .rounds import (
    Undo,
    collected,
    count_rounds,
    dim_of,
    has_known_sizes,
    is_constant,
    refuse_computed_sizes,
    unchanged,
)

MOST_ROUNDS = 256


def _values_of(call: NodeCall, condition: Value, graph: object) -> list[Value]:
    """What a graph without inputs gives: it is staged once and taken back, so that only the types are of use."""
    values: list[Value] = []
    try:
        with current("cond").transaction():
            values = call.run_graph(graph, [])
            if any(isinstance(value, list | CountedItems) or value is None for value in values):
                call.numbers(condition, 0, "the condition, because a branch has no tensors")
            values = [value if isinstance(value, AppendedItems) else call.tensor(value) for value in values]
            raise Undo
    except Undo:
        return values


@onnx_op("If")
def if_(call: NodeCall, condition: Value, *, then_branch: object, else_branch: object) -> Any:
    """One of two graphs."""
    if isinstance(condition, KnownTensor):
        chosen = then_branch if bool(condition.numbers().reshape(-1)[0]) else else_branch
        return tuple(call.run_graph(chosen, []))
    both = [_values_of(call, condition, graph) for graph in (then_branch, else_branch)]
    flag = ops.reshape(call.tensor(condition), [])
    kinds = [[(x.dtype, x.rank) if isinstance(x, TensorValue) else None for x in values] for values in both]
    if kinds[0] != kinds[1]:
        types = [[call.tensor(value).type for value in values] for values in both]
        return _one_arm(call, flag, (then_branch, else_branch), types)
    tensors = [[x for x in values if isinstance(x, TensorValue)] for values in both]
    if len(tensors[0]) == len(both[0]) and all(map(_joinable, *tensors)) and not all(map(_known_sizes, *tensors)):
        return _both_arms(call, flag, (then_branch, else_branch))
    results = [arm_result(call, *each) for each in zip(call.node.output, *both, strict=False)]
    joint: list[list[TensorType]] = []  # of each result, the types of its tensors
    for output, result in zip(call.node.output, results, strict=False):
        if result.before is not None:
            flags = TensorType(DType.bool, [], call.device)
            joint.append([each for type in result.appended for each in (type, flags)])
            continue
        ((then,), (other,)) = result.types
        for type in (then, other):
            refuse_computed_sizes(call, type, f"the result {output!r} has a size that one of its arms computes")
        joint.append([_joint_type(call, flag, then, other)])

    def arm(graph: object, second: bool) -> list[TensorValue]:
        tensors: list[TensorValue] = []
        for value, result, types in zip(call.run_graph(graph, []), results, joint, strict=True):
            given = [call.tensor(value)] if result.before is None else arm_tensors(call, result, second, value)
            tensors += [with_sizes(x, type.shape) for x, type in zip(given, types, strict=True)]
        return tensors

    flat = [type for types in joint for type in types]
    chosen_values = iter(ops.cond(flag, flat, lambda: arm(then_branch, False), lambda: arm(else_branch, True)))
    own = [[next(chosen_values) for _ in types] for types in joint]
    return tuple(
        x[0] if result.before is None else sequence_after(result, x) for result, x in zip(results, own, strict=True)
    )


def _one_arm(
    call: NodeCall, flag: TensorValue, graphs: Sequence[object], types: Sequence[Sequence[TensorType]]
) -> tuple[Value, ...]:
    """One of two graphs whose results have other types or numbers of axes than those of the other one, where sizes
    decide between them: a call has to have sizes with which it is the one that runs."""
    second = call.arms.choose()
    shown, other_shown = (", ".join(f"{type.dtype}{type.shape}" for type in each) for each in types)
    is_, imported = ("true", "false") if second else ("false", "true")
    text = f"its condition is {is_}, and the model is imported for the case that it is {imported}: its arms give"
    parameters = {"kind": "equal", "text": f"{call.title}: {text} {shown} and {other_shown}"}
    operands = [ops.cast(flag, DType.int64), ops.constant(0 if second else 1, DType.int64, call.device)]
    builtin("creation", "require_sizes", operands, parameters)
    return tuple(call.run_graph(graphs[second], []))


def _known_sizes(then: TensorValue, other: TensorValue) -> bool:
    """Whether the sizes of a result in both arms are known before an arm runs."""
    return all(has_known_sizes(x.type) for x in (then, other))


def _joinable(then: TensorValue, other: TensorValue) -> bool:
    """Whether the results of both arms differ along one axis at most."""
    return sum(a != b for a, b in zip(then.shape, other.shape, strict=True)) <= 1


def _both_arms(call: NodeCall, flag: TensorValue, graphs: Sequence[object]) -> tuple[Value, ...]:
    """Runs both graphs, where one computes the size of a result, and takes the results of one: as many elements as it
    has, and none of the other's."""
    arms = [[call.tensor(value) for value in call.run_graph(graph, [])] for graph in graphs]
    results: list[Value] = []
    for pair in zip(*arms, strict=True):
        then, other = pair
        axis = next((k for k, (a, b) in enumerate(zip(then.shape, other.shape, strict=True)) if a != b), None)
        if axis is None:
            results.append(ops.where(flag, then, other))
            continue
        lengths = [ops.reshape(known_dims([x.shape[axis]]).tensor(call.device), [1]) for x in pair]
        counts = [ops.where(flag, lengths[0], 0), ops.where(flag, 0, lengths[1])]
        sizes = [dims_from(count, call.node.name or "branch")[0] for count in counts]
        results.append(ops.concat([_first_elements(x, axis, size) for x, size in zip(pair, sizes, strict=True)], axis))
    return tuple(results)


def _first_elements(x: TensorValue, axis: int, count: Dim) -> TensorValue:
    return take(x, [Range(0, 1, count if k == axis else dim) for k, dim in enumerate(x.shape)])


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
    if any(value is None for value in initial):
        for position, value in enumerate((trips, condition)):
            if value is not None:
                call.numbers(value, position, "the number of rounds, since optional values are carried")
        call.fail("carries optional values over a number of rounds that is not known at import", code="EK0529")
    if scans or any(is_sequence(value) for value in initial):
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
    states, results = appending(call, rounds, initial, kept, round_, scans)
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
        first = [moved(x, 0, axis) for x, axis in zip(inputs, axes, strict=True)]
        joined = at_once(call, body, states, first)
        if joined is not None:
            return (*states, *(moved(x, axis) for x, axis in zip(joined, out_axes, strict=True)))
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
    return (*after, *(moved(x, axis) for x, axis in zip(results, outputs[0], strict=True)))
