"""Calls the row of a node: its inputs in the forms that the row requests, its attributes with their defaults.

See also `importer` (where values come from).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import EinkornError, GraphError, each_of, plural
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.types.dtype import DType
from .. import ops
from ..driver.devices import DeviceRef
from ..ops.stage import current
from ..staging.value import TensorValue
from ..types.dims import Dim
from .agreement import broadcast_sizes
from .items import is_sequence
from .known import LIMIT, KnownTensor, UnknownAtImport, dims_from, dims_in, known
from .leading_parts import LeadingPart
from .table import Array, Dims, OpTypeRow, Value
from .tensors import DTYPES, array_of
from .texts import MOVING, Texts, texts_of

_KIND = onnx.AttributeProto
# Attributes that change no result here: "stash_type" names a dtype for intermediate values, which have 32 bits or more.
# What takes sizes as floats; arithmetic on sizes is that of integers.
_MOVES = {"Concat", "Gather", "Identity", "Range", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
_WITHOUT_EFFECT = {"axis", "broadcast", "consumed_inputs", "hidden_size", "is_test", "momentum", "stash_type"}


@dataclass(frozen=True)
class Dequantised:
    """What a tensor of floats was made of: (x - zero) * scale, each of the tensor or one for each index of an axis."""

    result: TensorValue
    x: TensorValue
    scale: TensorValue
    zero: TensorValue | None
    axis: int


@dataclass
class ArmChoices:
    """Which arms an import takes of branches whose arms give other types, in the order in which it comes to them.

    Attributes:
        second: of each choice whether it is the second arm.
        made: how many the import has made.
    """

    second: list[bool] = field(default_factory=list)
    made: int = 0

    def choose(self) -> bool:
        """Whether the second arm is taken: the first one, where nothing else has been tried."""
        if self.made == len(self.second):
            self.second.append(False)
        self.made += 1
        return self.second[self.made - 1]

    def others(self) -> ArmChoices | None:
        """The choices to try after these have failed: the last first arm is left. None where all have been tried."""
        tried = self.second[: self.made]
        while tried and tried[-1]:
            tried.pop()
        return ArmChoices([*tried[:-1], True]) if tried else None


@dataclass
class NodeCall:
    """A node that is being converted.

    Attributes:
        node: the `NodeProto`.
        inputs: the values of its inputs; None where one is left out.
        attributes: by name, defaults filled in, those without a value left out.
        version: of the op type: that of its schema.
        opset: of its domain, in the model.
        device: where the graph runs.
        run_graph: converts a graph of an attribute, given the values of its inputs.
        broadcasts: the sizes that nodes of the import have made of several, with these; see `agreement`.
        dequantised: the results of DequantizeLinear in the import, by their `id`.
        arms: of the branches in the import whose arms give other types.
        axis_sizes: the sizes of axes that nodes of the import have read.
    """

    node: Any
    inputs: list[Value]
    attributes: dict[str, Any]
    version: int
    opset: int
    device: DeviceRef
    run_graph: Callable[[Any, Sequence[Value]], list[Value]]
    broadcasts: dict[Dim, frozenset[Dim]] = field(default_factory=dict)
    dequantised: dict[int, Dequantised] = field(default_factory=dict)
    arms: ArmChoices = field(default_factory=ArmChoices)
    axis_sizes: set[Dim] = field(default_factory=set)

    @property
    def title(self) -> str:
        """What errors call the node."""
        return label_of(self.node)

    @property
    def outputs(self) -> int:
        """How many outputs the model uses."""
        used = [k for k, name in enumerate(self.node.output) if name]
        return used[-1] + 1 if used else 0

    def fail(self, message: str, *, code: str = "EK0528", **details: Any) -> NoReturn:
        """Raises an error of this node."""
        raise GraphError(f"{self.title}: {message}", code=code, place=user_place(), op=self.node.op_type, **details)

    def dtype(self, code: int) -> DType:
        """The dtype of a number of an attribute."""
        if code not in DTYPES:
            self.fail(f"requests the type {code}, which has no counterpart here", code="EK0530")
        return DTYPES[code]

    def input_name(self, position: int) -> str:
        """The model's name of an input."""
        return str(self.node.input[position]) if position < len(self.node.input) else f"number {position}"

    def tensor(self, value: Value) -> TensorValue:
        """A value as a tensor of the graph."""
        if isinstance(value, KnownTensor):
            return value.tensor(self.device)
        if isinstance(value, Texts):
            self.fail("does not take texts, which are only moved, looked up and returned here", code="EK0530")
        if isinstance(value, LeadingPart):
            text = "a slice has a length that changes from round to round of a loop, and sizes are known before it runs"
            self.fail(text, code="EK0529")
        if not isinstance(value, TensorValue):
            self.fail("an input has to be a tensor, and is a sequence or nothing")
        return value

    def numbers(self, value: Value, position: int, argument: str) -> Array:
        """A value as numbers."""
        if isinstance(value, KnownTensor) and not value.symbolic:
            return value.array
        name = self.input_name(position)
        if isinstance(value, KnownTensor):
            self.fail(
                f"input {name!r} ({argument}) depends on symbolic sizes, and has to be known at import",
                code="EK0529",
                argument=name,
                hint="make the sizes known: from_onnx(..., shapes={input: [...]})",
            )
        self.fail(
            f"input {name!r} ({argument}) has to be known at import",
            code="EK0529",
            argument=name,
            hint=f"if it is always the same: from_onnx(..., constants={{{name!r}: ...}})",
        )

    def dims(self, value: Value, position: int) -> Dims:
        """A value as sizes."""
        if isinstance(value, KnownTensor):
            return dims_in(value.array)
        tensor = self.tensor(value)
        if tensor.rank != 1 or not str(tensor.shape[0]).isdigit():
            name = self.input_name(position)
            self.fail(
                f"input {name!r} has the shape {tensor.shape}, and sizes are a tensor of one axis of known size",
                argument=name,
                code="EK0529",
            )
        return dims_from(tensor, self.input_name(position))


def label_of(node: Any) -> str:
    """What errors call a node: `node 'conv1' (Conv)`; by its first output where it has no name."""
    name = node.name or next((f"making {output!r}" for output in node.output if output), "")
    shown = f"'{node.name}'" if node.name else name
    return f"node {shown} ({node.op_type})"


def run_row(row: OpTypeRow, call: NodeCall) -> list[Value]:
    """The outputs of a node.

    Raises:
        GraphError, DTypeError: whatever is wrong with it, under the title of the node.
    """
    first = call.inputs[0] if call.inputs else None
    if isinstance(first, Texts) and row.op_type in MOVING:
        return _moved(row, call, first)
    folded = _folded(row, call)
    return _converted(row, call) if folded is None else folded


def _moved(row: OpTypeRow, call: NodeCall, texts: Texts) -> list[Value]:
    """What an op that moves elements makes of a tensor of texts."""
    if row.op_type == "Cast" and call.attributes.get("to") != onnx.TensorProto.STRING:
        call.fail("texts have no counterpart as numbers here", code="EK0530")
    if row.op_type == "Cast":
        return [texts]
    call.inputs = [texts.places, *call.inputs[1:]]
    results = run_row(row, call)
    if row.op_type in ("Shape", "Size"):
        return results
    return [Texts(each, texts.listed) if isinstance(each, TensorValue | KnownTensor) else each for each in results]


def _converted(row: OpTypeRow, call: NodeCall) -> list[Value]:
    """The outputs of a node as its row makes them."""
    try:
        _broadcast_as_before_7(call)
        with current(row.op_type).on_behalf_of(call.title):
            outputs = row.convert(*_inputs_for(row, call), **_attributes_for(row, call))
    except EinkornError as error:
        for each in each_of(error):
            if not each.message.startswith("node "):
                each.message = f"{call.title}: {each.message}"
        raise
    except UnknownAtImport:
        call.fail("a value has to be known at import, and depends on symbolic sizes", code="EK0529")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        call.fail(f"cannot be converted: {str(error)[:300] or type(error).__name__}")
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def _broadcast_as_before_7(call: NodeCall) -> None:
    """Old operators broadcast where an attribute says so, and align the second operand with an axis of the first."""
    axis = call.attributes.get("axis")
    if not call.attributes.get("broadcast") or axis is None:
        return
    left, right = (call.tensor(value) for value in call.inputs)
    behind = left.rank - axis % left.rank - right.rank
    call.inputs[1] = ops.reshape(right, [*right.shape, *[1] * max(behind, 0)])


def _folded(row: OpTypeRow, call: NodeCall) -> list[Value] | None:
    """What is known at import of a node whose inputs are known."""
    values = call.inputs
    if row.known is None or not all(value is None or isinstance(value, KnownTensor) for value in values):
        return None
    if row.op_type not in _MOVES and any(
        isinstance(value, KnownTensor) and value.symbolic and not value.dtype.is_integral() for value in values
    ):
        return None
    arrays = [value.array if isinstance(value, KnownTensor) else None for value in values]
    held = any(value.held for value in values if isinstance(value, KnownTensor))
    if (held or not row.unlimited) and sum(array.size for array in arrays if array is not None) > LIMIT:
        return None
    try:
        with np.errstate(all="ignore"):
            outputs = row.known(*arrays, **_attributes_of(row.known, call))
    except Exception as error:  # an op that is not decided by what is known; converted as any other, it says why
        raise_if_of_handler(error)
        return None
    dtypes = [value.dtype for value in values if isinstance(value, KnownTensor)]
    results: list[Value] = []
    for k, each in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
        if not isinstance(each, KnownTensor):
            array = np.asarray(each)
            each = known(array, dtypes[-1] if array.dtype == object else DType.from_numpy(array.dtype))
        if held:  # as numbers it is known, and as a tensor it is computed of the weights that a model is given
            each = KnownTensor(each.array, each.dtype, staged=partial(_staged, row, call, k))
        results.append(each)
    return results


def _staged(row: OpTypeRow, call: NodeCall, k: int) -> TensorValue:
    """Result `k` of a node as a tensor."""
    return call.tensor(_converted(row, call)[k])


def _inputs_for(row: OpTypeRow, call: NodeCall) -> list[Any]:
    arguments: list[Any] = []
    position = 0
    for parameter in row.parameters:
        if parameter.annotation == "NodeCall":
            arguments.append(call)
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            rest = range(position, len(call.inputs))
            arguments += [_as(str(parameter.annotation), call, k, parameter) for k in rest]
            position = len(call.inputs)
        elif parameter.kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
            arguments.append(_as(str(parameter.annotation), call, position, parameter))
            position += 1
    if position < len(call.inputs) and any(value is not None for value in call.inputs[position:]):
        call.fail(f"takes {plural(position, 'input')}, and has {len(call.inputs)}")
    if row.broadcasts:
        places = [k for k, argument in enumerate(arguments) if isinstance(argument, TensorValue)]
        for k, value in zip(places, broadcast_sizes(call, [arguments[k] for k in places]), strict=True):
            arguments[k] = value
    return arguments


def _as(annotation: str, call: NodeCall, position: int, parameter: inspect.Parameter) -> Any:
    """An input in the form that a parameter requests."""
    value = call.inputs[position] if position < len(call.inputs) else None
    form, _, optional = annotation.partition(" | ")
    if value is None and parameter.name in call.attributes:  # an attribute in older versions
        given = np.asarray(call.attributes[parameter.name])
        value = KnownTensor(
            given, DTYPES[onnx.TensorProto.FLOAT if given.dtype.kind == "f" else onnx.TensorProto.INT64]
        )
        value = known(given, value.dtype)
    if value is None:
        if optional or form == "Value" or parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return None
        call.fail(f"input {position} ({parameter.name}) is missing")
    if form == "TensorValue":
        return call.tensor(value)
    if form == "Ints":
        return [int(item) for item in call.numbers(value, position, parameter.name).reshape(-1)]
    if form == "Array":
        return call.numbers(value, position, parameter.name)
    if form == "Dims":
        return call.dims(value, position)
    if form == "Items" and not is_sequence(value):
        call.fail(f"input {call.input_name(position)!r} is not a sequence")
    return value


def _attributes_for(row: OpTypeRow, call: NodeCall) -> dict[str, Any]:
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in row.parameters):
        return dict(call.attributes)
    attributes = {}
    taken = {parameter.name for parameter in row.parameters}
    for attribute in call.node.attribute:
        if attribute.name not in taken and attribute.name not in _WITHOUT_EFFECT:
            call.fail(f"attribute '{attribute.name}' has no counterpart", argument=attribute.name)
    for parameter in row.parameters:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if parameter.name in call.attributes:
            attributes[parameter.name] = call.attributes[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            call.fail(f"attribute '{parameter.name}' is missing", argument=parameter.name)
    return attributes


def _attributes_of(function: Callable[..., Any], call: NodeCall) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a ufunc
        return {}
    given = {**call.attributes, "outputs": call.outputs, "axis_sizes": call.axis_sizes}
    return {name: given[name] for name in parameters if name in given}


def attributes_of(node: Any, schema: Any, outer: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """The attributes of a node as Python's values, with the defaults of its schema.

    Args:
        node: a `NodeProto`.
        schema: of its op type, or None.
        outer: the attributes of the function whose body the node is in.
        folder: where external data lies.

    Raises:
        GraphError: EK0528, one that the op type does not have, or of another type than it takes.
    """
    attributes: dict[str, Any] = {}
    if schema is not None:
        for name, attribute in schema.attributes.items():
            if attribute.default_value.type:
                attributes[name] = _plain(attribute.default_value, label_of(node), folder)
    for attribute in node.attribute:
        name = attribute.name
        if schema is not None and name not in schema.attributes:
            text = f"{label_of(node)}: there is no attribute '{name}'"
            known_names = sorted(schema.attributes)
            raise GraphError(text, code="EK0528", place=user_place(), argument=name, expected=known_names, got=name)
        if attribute.ref_attr_name:
            attributes.pop(name, None)
            if attribute.ref_attr_name in outer:
                attributes[name] = outer[attribute.ref_attr_name]
            continue
        if schema is not None and int(schema.attributes[name].type.value) != attribute.type:
            text = f"{label_of(node)}: attribute '{name}' has the wrong type"
            raise GraphError(text, code="EK0528", place=user_place(), argument=name)
        attributes[name] = _plain(attribute, f"{label_of(node)}, attribute '{name}'", folder)
    return attributes


def _plain(attribute: Any, what: str, folder: Path | None) -> Any:
    """The value of an `AttributeProto`: texts as str, tensors as `KnownTensor`, lists as lists."""
    kind = attribute.type
    if kind == _KIND.TENSOR:
        if attribute.t.data_type == onnx.TensorProto.STRING:
            return texts_of(attribute.t)
        return known(array_of(attribute.t, folder, what), DTYPES[attribute.t.data_type])
    if kind == _KIND.STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind == _KIND.STRINGS:
        return [item.decode("utf-8", "replace") for item in attribute.strings]
    field = {
        _KIND.FLOAT: "f",
        _KIND.INT: "i",
        _KIND.GRAPH: "g",
        _KIND.FLOATS: "floats",
        _KIND.INTS: "ints",
        _KIND.GRAPHS: "graphs",
        _KIND.TYPE_PROTO: "tp",
    }.get(kind)
    if field is None:
        raise GraphError(f"{what} has a type that is not supported", code="EK0528", place=user_place())
    value = getattr(attribute, field)
    return list(value) if kind in (_KIND.FLOATS, _KIND.INTS, _KIND.GRAPHS) else value
