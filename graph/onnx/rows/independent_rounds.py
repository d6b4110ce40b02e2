"""Runs the rounds of a Scan at once where none depends on another: its body with an axis of rounds in front.

The distances between two sets of points are exported this way: a Scan over the rows of one. A body of elementwise op
types and reductions is run once, of tensors with one axis more.

See also `control` (loops), `rounds` (loops that collect results).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.stage import current
from ...staging.value import TensorValue
from ..call import NodeCall
from ..known import KnownTensor
from ..table import Value
from .rounds import Undo

ELEMENTWISE = frozenset({"Abs", "Add", "Div", "Exp", "Log", "Max", "Min", "Mul", "Neg", "Pow", "Sqrt", "Sub", "Sum"})
REDUCTIONS = frozenset({f"Reduce{each}" for each in ("L1", "L2", "Max", "Mean", "Min", "Sum", "SumSquare")})


def at_once(
    call: NodeCall, body: onnx.GraphProto, states: Sequence[Value], scanned: Sequence[TensorValue]
) -> list[TensorValue] | None:
    """What the rounds of a body collect, along a first axis; None where it has ops of another kind.

    Args:
        call: the node.
        body: of which no round changes a state.
        states: the values that it carries.
        scanned: those whose parts along the first axis it takes.
    """
    names = [each.name for each in body.input]
    values: dict[str, Value] = dict(zip(names, [*states, *scanned], strict=True))
    batched = set(names[len(states) :])
    if not all(_known(node) for node in body.node):
        return None
    constants = [each.name for each in body.initializer]
    held = onnx.GraphProto(initializer=body.initializer, output=[onnx.ValueInfoProto(name=name) for name in constants])
    try:
        with current("scan").transaction():
            values.update(zip(constants, call.run_graph(held, []), strict=True))
            for node in body.node:
                if not all(name in values for name in node.input):
                    raise Undo  # a value from outside of the body
                inputs = [values[name] for name in node.input]
                if batched.intersection(node.input):
                    node, inputs = _with_rounds(call, node, inputs, [name in batched for name in node.input])
                    batched.update(node.output)
                one = onnx.GraphProto(node=[node])
                one.input.extend(onnx.ValueInfoProto(name=name) for name in node.input)
                one.output.extend(onnx.ValueInfoProto(name=name) for name in node.output)
                values.update(zip(node.output, call.run_graph(one, inputs), strict=True))
            results = [each.name for each in body.output[len(states) :]]
            if not batched.issuperset(results):
                raise Undo
            return [call.tensor(values[name]) for name in results]
    except Undo:
        return None


def _known(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in ELEMENTWISE | REDUCTIONS | {"Constant", "Identity"}


def _with_rounds(
    call: NodeCall, node: onnx.NodeProto, inputs: list[Value], batched: list[bool]
) -> tuple[onnx.NodeProto, list[Value]]:
    """A node and its inputs, for tensors with an axis of rounds in front."""
    if node.op_type in REDUCTIONS:
        return _reduction(call, node, inputs)
    rank = max(call.tensor(x).rank - with_rounds for x, with_rounds in zip(inputs, batched, strict=True))
    aligned: list[Value] = []
    for x, with_rounds in zip(inputs, batched, strict=True):
        value = call.tensor(x)
        if with_rounds:
            value = ops.reshape(value, [value.shape[0], *[1] * (rank + 1 - value.rank), *value.shape[1:]])
        aligned.append(value)
    return node, aligned


def _reduction(call: NodeCall, node: onnx.NodeProto, inputs: list[Value]) -> tuple[onnx.NodeProto, list[Value]]:
    """A reduction whose axes are counted from behind, so that the first one stays."""
    rank = call.tensor(inputs[0]).rank - 1
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    kept = [each for each in node.attribute if each.name != "axes"]
    axes = next((list(each.ints) for each in node.attribute if each.name == "axes"), None)
    takes_input = "axes" not in onnx.defs.get_schema(node.op_type, call.opset, "").attributes  # of newer versions
    if len(inputs) > 1 and inputs[1] is not None:
        if not isinstance(inputs[1], KnownTensor) or inputs[1].symbolic:
            raise Undo
        axes = inputs[1].array.reshape(-1).tolist()
    if not axes and any(each.name == "noop_with_empty_axes" and each.i for each in kept):
        return node, inputs
    behind = [axis if axis < 0 else axis - rank for axis in (axes or range(rank))]
    if not behind:
        raise Undo
    del changed.attribute[:]
    changed.attribute.extend(kept)
    if takes_input:
        changed.input[1:] = [f"axes of {node.output[0]}"]
        return changed, [inputs[0], KnownTensor(np.asarray(behind, np.int64), DType.int64)]
    changed.attribute.append(onnx.helper.make_attribute("axes", behind))
    return changed, inputs
