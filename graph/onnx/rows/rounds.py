"""Makes a `while_loop` of a body whose results are collected, one part a round.

The results lie in buffers, into which each round stores its part. A buffer needs a size before the loop begins: it is a
size of the model, or is counted by a loop before, which computes only what the condition depends on.

See also `control` (which loops are unrolled).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat

import onnx

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.stage import current
from ...staging.value import TensorValue
from ...types.dims import Dim, StaticDim
from ...types.tensor_type import BufferType, TensorType
from ..call import NodeCall
from ..known import KnownTensor, dims_from, known_dims
from ..leading_parts import LeadingPart
from ..table import Value

Round = Callable[[TensorValue, Sequence[Value]], Sequence[Value]]
_SEQUENCE = "a sequence that it appends to"


class Undo(Exception):
    """Ends a trial."""


def unchanged(
    inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto], nodes: Iterable[onnx.NodeProto]
) -> list[bool]:
    """Of each carried value whether the body gives it on as it is."""
    same = {node.output[0]: node.input[0] for node in nodes if node.op_type == "Identity"}
    kept = []
    for before, after in zip(inputs, outputs, strict=True):
        name = after.name
        while name in same:
            name = same[name]
        kept.append(name == before.name)
    return kept


def collected(
    call: NodeCall,
    rounds: Dim,
    states: Sequence[Value],
    kept: Sequence[bool],
    body: Round,
    backwards: Sequence[int] = (),
    names: Sequence[str] | None = None,
) -> tuple[list[Value], list[TensorValue]]:
    """The last states and the collected results, parts along their first axis.

    Args:
        call: the node.
        rounds: how many there are.
        states: the first values of what is carried.
        kept: of each state whether no round changes it.
        body: makes the next states and the parts of the number of a round and its states.
        backwards: of each result whether the part of the first round is its last; of further ones it is the first.
        names: what errors call the results; the node's outputs when left out.

    Raises:
        GraphError: EK0529, a state is a sequence, or a part has sizes that are computed in its round.
    """
    carried = [call.tensor(state) for state, same in zip(states, kept, strict=True) if not same]
    types = [value.type for value in carried]

    def whole(changing: Sequence[TensorValue]) -> list[Value]:
        rest = iter(changing)
        return [state if same else next(rest) for state, same in zip(states, kept, strict=True)]

    outputs = call.node.output[len(states) :] if names is None else names
    shown = [f"its result {output!r}" for output in outputs]

    def parts_of(number: TensorValue, *changing: TensorValue) -> Sequence[TensorType]:
        types = []
        values = body(number, whole(changing))[len(states) :]
        for name, value in zip(chain(shown, repeat(_SEQUENCE)), values, strict=False):
            if isinstance(value, LeadingPart):
                call.fail(f"the parts of {name} have a size that each round computes", code="EK0529")
            types.append(call.tensor(value).type)
        return types

    parts = _part_types(call, carried, parts_of)
    for name, part in zip(chain(shown, repeat(_SEQUENCE)), parts, strict=False):
        refuse_computed_sizes(call, part, f"the parts of {name} have a size that each round computes")
    buffers = [ops.buffer_create(BufferType(part.dtype, [rounds, *part.shape], call.device)) for part in parts]
    count = ops.reshape(known_dims([rounds]).tensor(call.device), [])

    def round_(number: TensorValue, *changing: TensorValue) -> list[TensorValue]:
        results = [call.tensor(value) if value is not None else value for value in body(number, whole(changing))]
        directions = [*backwards, *[0] * (len(parts) - len(backwards))]
        for buffer, part, type, back in zip(buffers, results[len(states) :], parts, directions, strict=True):
            place = count - 1 - number if back else number
            ops.buffer_store_slice(buffer, ops.rebind(call.tensor(part), type.shape), [place])
        after = [value for value, same in zip(results, kept, strict=False) if not same]
        fitted = [ops.rebind(call.tensor(x), type.shape) for x, type in zip(after, types, strict=True)]
        return [number + 1, *fitted]

    last = ops.while_loop([_first(call), *carried], lambda number, *_: ops.less(number, count), round_)[1:]
    return whole(last), [ops.buffer_load(buffer) for buffer in buffers]


def _first(call: NodeCall) -> TensorValue:
    return ops.constant(0, DType.int64, call.device)


def _part_types(
    call: NodeCall, carried: Sequence[TensorValue], parts: Callable[..., Sequence[TensorType]]
) -> list[TensorType]:
    """The types of the parts that a round makes: it is staged once, in a loop, and taken back."""
    types: list[TensorType] = []

    def round_(number: TensorValue, *changing: TensorValue) -> list[TensorValue]:
        types.extend(parts(number, *changing))
        raise Undo

    try:
        with current("loop").transaction():
            ops.while_loop([_first(call), *carried], lambda number, *_: ops.less(number, 1), round_)
    except Undo:
        pass
    return types


def has_known_sizes(type: TensorType) -> bool:
    """Whether a tensor that a graph inside of a node makes has sizes that are known before it runs."""
    return all(current("graph").has_dim(name) for dim in type.shape for name in dim.parameters)


def refuse_computed_sizes(call: NodeCall, type: TensorType, what: str) -> None:
    """Raises EK0529 where a tensor that a graph inside the node makes has a size that is not known before it runs."""
    for axis, dim in enumerate(type.shape):
        if not all(current("graph").has_dim(name) for name in dim.parameters):
            expected = "sizes that are known before the graph inside runs"
            call.fail(f"{what}, on axis {axis} of {type.shape}", code="EK0529", expected=expected, got=str(dim))


def count_rounds(
    call: NodeCall,
    body: onnx.GraphProto,
    most: TensorValue | None,
    condition: TensorValue | None,
    states: Sequence[Value],
) -> Dim:
    """How many rounds a Loop makes, counted by a loop over what its condition depends on."""
    graph, needed = _condition_alone(body)
    carried = [call.tensor(states[k]) for k in needed]
    types = [value.type for value in carried]
    flag = condition if condition is not None else ops.constant(True, DType.bool, call.device)

    def goes(number: TensorValue, flag: TensorValue, *_: TensorValue) -> TensorValue:
        return flag if most is None else ops.logical_and(flag, ops.less(number, most))

    def round_(number: TensorValue, flag: TensorValue, *values: TensorValue) -> list[TensorValue]:
        going, *results = [call.tensor(value) for value in call.run_graph(graph, [number, flag, *values])]
        fitted = [ops.rebind(x, type.shape) for x, type in zip(results, types, strict=True)]
        return [number + 1, ops.reshape(going, []), *fitted]

    number = ops.while_loop([_first(call), flag, *carried], goes, round_)[0]
    return dims_from(ops.reshape(number, [1]), "rounds")[0]


def _condition_alone(body: onnx.GraphProto) -> tuple[onnx.GraphProto, list[int]]:
    """The part of a body of a Loop that makes the condition, and which states it takes."""
    places = {value.name: k for k, value in enumerate(body.input[2:])}
    makers = {name: node for node in body.node for name in node.output if name}
    wanted, needed_names = [body.output[0].name], set[str]()
    while wanted:
        name = wanted.pop()
        if name in needed_names:
            continue
        needed_names.add(name)
        if name in makers:
            wanted += _names_used(makers[name])
        if name in places:
            wanted.append(body.output[1 + places[name]].name)
    needed = [k for name, k in places.items() if name in needed_names]
    part = onnx.GraphProto(name=body.name)
    part.initializer.extend(body.initializer)
    part.sparse_initializer.extend(body.sparse_initializer)
    part.node.extend(node for node in body.node if any(name in needed_names for name in node.output))
    part.input.extend([*body.input[:2], *(body.input[2 + k] for k in needed)])
    part.output.extend([body.output[0], *(body.output[1 + k] for k in needed)])
    return part, needed


def _names_used(node: onnx.NodeProto) -> list[str]:
    """The names of a node's inputs, and those that its graphs take from outside."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            names += [value.name for value in graph.output]
            for inner in graph.node:
                names += _names_used(inner)
    return names


def dim_of(value: Value) -> Dim | None:
    """A number of rounds that is a size of the model; None where it is another value."""
    if not isinstance(value, KnownTensor) or value.array.size != 1:
        return None
    item = value.array.reshape(-1)[0]
    return (item if isinstance(item, Dim) else Dim(min(max(int(item), 0), 1 << 62))).maximum(0)


def is_constant(dim: Dim, most: int) -> bool:
    """Whether a number of rounds is known, and small enough to be unrolled."""
    return isinstance(dim, StaticDim) and 0 < int(dim) <= most
