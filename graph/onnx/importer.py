"""Converts a model, node by node, into a graph.

A node is converted by its row. Op types without a row that ONNX defines by a function of others are replaced by that
function's body, and so are the functions that a model brings along. Op types with neither are found before anything
is built, all of them at once.

See also `rows` (how one op type is converted), `model_file`, `tensors` (reading bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from typing import Any, NoReturn

import numpy as np
import onnx

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import EinkornError, GraphError, did_you_mean
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import passes_signals
from ...dsl.environment.process_settings import rare_collections
from ..driver.devices import Device, DeviceRef
from ..staging.graph import Graph
from ..staging.value import TensorValue
from ..types.dims import Dim
from .agreement import required_sizes
from .call import ArmChoices, Dequantised, NodeCall, attributes_of, label_of, run_row
from .declarations import input_types, type_of
from .items import CountedItems
from .known import KnownTensor, initialiser, known, read_by_products, without_subnormals
from .leading_parts import LeadingPart
from .model_file import ReadModel, check_opset, plain_domain, read_model
from .rows import find_row, with_leading_parts
from .table import Value
from .tensors import CODES, DTYPES, array_of
from .texts import Texts, texts_of

MAX_NESTING = 64  # functions that call functions, and graphs in graphs
MAPS = frozenset({"ai.onnx.ml.CastMap", "ai.onnx.ml.DictVectorizer"})
MAPS_HINT = (
    "inputs are tensors: convert what follows the vectorizer, to_onnx(pipeline[1:], rows[:1]) with "
    'rows = pipeline[:1].transform(maps).astype("float32"), and call the model with rows'
)
Result = tuple[onnx.ValueInfoProto, Value]
MAX_VAIN_CHOICES = 8  # imports with other arms of branches that come no further than one before


@passes_signals
def import_model(
    model: object,
    name: str | None,
    shapes: Mapping[str, Sequence[int | str | Dim]],
    constants: Mapping[str, object],
    device: DeviceRef | Device | None,
) -> Graph:
    """See `from_onnx`."""
    read = read_model(model)
    try:
        with rare_collections.changed():
            return _import_with_arms(read, name, shapes, constants, device)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, EinkornError):
            raise
        # for example texts that are not UTF-8, which protobuf gives as bytes
        text = f"{read.shown} is damaged: {str(error)[:200] or type(error).__name__}"
        raise GraphError(text, code="EK0526", place=user_place()) from error


def _import_with_arms(
    read: ReadModel,
    name: str | None,
    shapes: Mapping[str, Sequence[int | str | Dim]],
    constants: Mapping[str, object],
    device: DeviceRef | Device | None,
) -> Graph:
    """An import that takes the other arm of a branch where nothing can be made of the one that was taken."""
    arms, first, most, vain = ArmChoices(), None, 0, 0
    while True:
        try:
            return _import(read, name, shapes, constants, device, arms)
        except EinkornError as error:
            vain = vain + 1 if arms.made <= most else 0
            most = max(most, arms.made)
            others = arms.others()
            if others is None or vain == MAX_VAIN_CHOICES:
                raise (first or error) from None
            arms, first = others, first or error


def _import(
    read: ReadModel,
    name: str | None,
    shapes: Mapping[str, Sequence[int | str | Dim]],
    constants: Mapping[str, object],
    device: DeviceRef | Device | None,
    arms: ArmChoices,
) -> Graph:
    target = DeviceRef.CPU() if device is None else DeviceRef.from_device(device)
    importer = Importer(read, target, arms)
    importer.check_supported()
    declared = importer.declared_inputs()
    for argument, given in (("shapes", shapes), ("constants", constants)):
        for each in given:
            if each not in declared:
                _refuse(f"argument '{argument}' names {each!r}, which is not an input of {read.shown}", each, declared)
    fixed = {each: importer.constant(declared[each], value) for each, value in constants.items()}
    free = [each for each in declared.values() if each.name not in fixed]
    types, required = input_types(free, shapes, target)

    graph = Graph(name or read.proto.graph.name or "onnx", input_types=types)
    graph.name_inputs([each.name for each in free])
    with graph:
        values: dict[str, Value] = {**fixed}
        for each, x, sizes in zip(free, graph.inputs, required, strict=True):
            values[each.name] = required_sizes(each.name, x, sizes)
        results = _flat(importer.run(read.proto.graph, values))
        graph.output(*[importer.output(number, *pair) for number, pair in enumerate(results)])
    graph.output_texts = importer.output_texts
    return graph


@dataclass
class NameScope:
    """Names and their values, and what holds for the nodes that use them.

    Attributes:
        values: by name.
        opsets: the version of each domain.
        attributes: those of the function whose body this is.
        depth: how many functions and graphs are around.
    """

    values: dict[str, Value]
    opsets: dict[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    depth: int = 0


class Importer:
    """One import of a model."""

    def __init__(self, read: ReadModel, device: DeviceRef, arms: ArmChoices) -> None:
        self.read = read
        self.arms = arms
        self.device = device
        self.broadcasts: dict[Dim, frozenset[Dim]] = {}
        self.dequantised: dict[int, Dequantised] = {}
        self.axis_sizes: set[Dim] = set()
        self.output_texts: dict[int, tuple[str, ...]] = {}
        self.functions = {(plain_domain(f.domain), f.name): f for f in read.proto.functions}

    # --- before anything is built ---

    def check_supported(self) -> None:
        """Raises GraphError EK0527 with all op types that have no counterpart."""
        missing: dict[str, list[str]] = {}
        functions = [(f.node, self._opsets_of(f)) for f in self.read.proto.functions]
        for nodes, opsets in [(self.read.proto.graph.node, self.read.opsets), *functions]:
            for node in _all_nodes(nodes, 0):
                domain = plain_domain(node.domain)
                if not self._is_known(node, domain, opsets):
                    shown = f"{domain}.{node.op_type}" if domain else node.op_type
                    missing.setdefault(shown, []).append(node.name or next(iter(node.output), ""))
        if missing:
            text = f"{self.read.shown} has {len(missing)} op types without a counterpart: {', '.join(sorted(missing))}"
            notes = [f"{each}: {_few(nodes)}" for each, nodes in sorted(missing.items())]
            hint = MAPS_HINT if MAPS.intersection(missing) else None
            raise GraphError(text, code="EK0527", place=user_place(), notes=notes, got=sorted(missing), hint=hint)

    def _is_known(self, node: Any, domain: str, opsets: Mapping[str, int]) -> bool:
        if (domain, node.op_type) in self.functions or domain not in opsets:
            return (domain, node.op_type) in self.functions
        version = opsets[domain]
        schema = _schema(node.op_type, domain, version)
        if find_row(domain, node.op_type, schema.since_version if schema else version) is not None:
            return True
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)

    def _opsets_of(self, function: Any) -> dict[str, int]:
        opsets = {plain_domain(entry.domain): entry.version for entry in function.opset_import}
        check_opset(opsets, f"function {function.name!r}")
        return opsets or self.read.opsets

    def declared_inputs(self) -> dict[str, Any]:
        """The inputs of the model by name, those with a value of their own left out."""
        graph = self.read.proto.graph
        given = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        declared: dict[str, Any] = {}
        for each in graph.input:
            if each.name in declared:
                _damaged(f"{self.read.shown} has two inputs of the name {each.name!r}")
            if each.name not in given:
                declared[each.name] = each
        return declared

    def constant(self, declared: Any, value: Any) -> KnownTensor:
        """What the caller says an input always is."""
        dtype, _ = type_of(declared)
        array = np.asarray(value)
        return known(array.astype(dtype.to_numpy()), dtype)

    # --- nodes ---

    def run(self, graph: Any, values: dict[str, Value], outer: NameScope | None = None) -> list[Result]:
        """The outputs of a graph, each with its declaration. `values` are those of its inputs."""
        depth = outer.depth + 1 if outer else 0
        if depth > MAX_NESTING:
            _damaged(f"{self.read.shown} has graphs in graphs, more than {MAX_NESTING} deep")
        scope = NameScope(
            {**(outer.values if outer else {}), **values},
            outer.opsets if outer else self.read.opsets,
            outer.attributes if outer else {},
            depth,
        )
        factors = read_by_products(graph)
        for number, tensor in enumerate(graph.initializer):
            if tensor.name not in values and tensor.data_type == onnx.TensorProto.STRING:
                scope.values[tensor.name] = texts_of(tensor)
            elif tensor.name not in values:
                elements = None if outer else self.read.elements.get(number)
                as_stored = array_of(tensor, self.read.folder, f"the initialiser {tensor.name!r}", elements)
                array = without_subnormals(as_stored) if tensor.name in factors else as_stored
                dtype = DTYPES[tensor.data_type]
                whole = tensor.name and not outer
                scope.values[tensor.name] = initialiser(array, dtype, tensor.name) if whole else known(array, dtype)
        if graph.sparse_initializer:
            _damaged(f"{self.read.shown} has sparse initialisers, which are not supported", code="EK0530")
        self._run_nodes(graph.node, scope, factors)
        outputs: list[Result] = []
        for output in graph.output:
            if output.name not in scope.values:
                _damaged(f"{self.read.shown}: nothing makes the output {output.name!r}")
            outputs.append((output, scope.values[output.name]))
        return outputs

    def _run_nodes(self, nodes: Iterable[Any], scope: NameScope, factors: Set[str] = frozenset()) -> None:
        made: set[str] = set()
        for node in nodes:
            for name in node.input:
                if name and name not in scope.values:
                    text = f"{label_of(node)}: nothing before it makes its input {name!r}"
                    _damaged(text, hint=did_you_mean(name, scope.values))
            inputs: list[Value] = [scope.values[name] if name else None for name in node.input]
            results = self.convert(node, inputs, scope)
            for k, name in enumerate(node.output):
                if not name:
                    continue
                if name in made:
                    _damaged(f"{label_of(node)}: another node makes {name!r}, too")
                if k >= len(results):
                    text = f"{label_of(node)}: its output {k}, {name!r}, has no counterpart"
                    raise GraphError(text, code="EK0528", place=user_place(), op=node.op_type)
                made.add(name)
                result = results[k]
                if name in factors and node.op_type == "Constant" and isinstance(result, KnownTensor):
                    result = known(without_subnormals(result.array), result.dtype)
                scope.values[name] = result

    def convert(self, node: Any, inputs: list[Value], scope: NameScope) -> list[Value]:
        """The outputs of a node."""
        domain = plain_domain(node.domain)
        function = self.functions.get((domain, node.op_type))
        if function is not None:
            return self._call_function(node, function, self._opsets_of(function), inputs, scope)
        version = scope.opsets.get(domain)
        if version is None:
            _damaged(f"{label_of(node)}: the model imports no operators of {domain or 'ai.onnx'!r}")
        schema = _schema(node.op_type, domain, version)
        since = schema.since_version if schema else version
        row = find_row(domain, node.op_type, since)
        if row is None:
            assert schema is not None  # `check_supported` has seen it
            given = attributes_of(node, schema, scope.attributes, self.read.folder)
            return self._call_function(node, self._body(node, schema, inputs, version, given), None, inputs, scope)
        if schema is not None and not schema.min_input <= len(inputs) <= schema.max_input:
            span = f"{schema.min_input} to {schema.max_input}" if schema.max_input < 1 << 30 else schema.min_input
            text = f"{label_of(node)}: takes {span} inputs, and has {len(inputs)}"
            raise GraphError(text, code="EK0528", place=user_place(), op=node.op_type)
        attributes = attributes_of(node, schema, scope.attributes, self.read.folder)

        def run_graph(graph: Any, values: Sequence[Value]) -> list[Value]:
            if len(values) != len(graph.input):
                _damaged(f"{label_of(node)}: its graph takes {len(graph.input)} inputs, and gets {len(values)}")
            named = {each.name: value for each, value in zip(graph.input, values, strict=True)}
            return [value for _, value in self.run(graph, named, scope)]

        shared = (self.device, run_graph, self.broadcasts, self.dequantised, self.arms, self.axis_sizes)
        call = NodeCall(node, inputs, attributes, since, version, *shared)
        return with_leading_parts(row, call) if any(isinstance(x, LeadingPart) for x in inputs) else run_row(row, call)

    # --- functions ---

    def _call_function(
        self, node: Any, function: Any, opsets: dict[str, int] | None, inputs: list[Value], scope: NameScope
    ) -> list[Value]:
        """The body of a function in the place of a node."""
        if scope.depth >= MAX_NESTING:
            _damaged(f"{label_of(node)}: functions call functions, more than {MAX_NESTING} deep")
        if len(inputs) > len(function.input):
            text = f"{label_of(node)}: takes {len(function.input)} inputs, and has {len(inputs)}"
            raise GraphError(text, code="EK0528", place=user_place(), op=node.op_type)
        if opsets is None:
            imported = {plain_domain(entry.domain): entry.version for entry in function.opset_import}
            opsets = {"": onnx.defs.onnx_opset_version(), **scope.opsets, **imported}
        schema = _schema(node.op_type, plain_domain(node.domain), scope.opsets.get(plain_domain(node.domain), 1))
        attributes = attributes_of(node, schema, scope.attributes, self.read.folder)
        for default in function.attribute_proto:
            if default.name not in attributes:
                attributes |= attributes_of(onnx.NodeProto(attribute=[default]), None, {}, self.read.folder)
        padded = [*inputs, *[None] * (len(function.input) - len(inputs))]
        # a graph of an attribute (of SequenceMap) runs inside of the body, and reads names around the node
        values = {**scope.values} if any(each.HasField("g") for each in node.attribute) else {}
        values |= zip(function.input, padded, strict=True)
        inner = NameScope(values, opsets, attributes, scope.depth + 1)
        self._run_nodes(function.node, inner)
        for name in function.output:
            if name not in inner.values and name in node.output:
                _damaged(f"function {function.name!r}: nothing makes its output {name!r}")
        return [inner.values.get(name) for name in function.output]

    def _body(
        self, node: Any, schema: Any, inputs: Sequence[Value], version: int, attributes: Mapping[str, Any]
    ) -> Any:
        """The function that defines an op type, as ONNX has it."""
        function = onnx.FunctionProto()
        if schema.has_function:
            versions = [each for each in schema.function_opset_versions if each <= version]
            body = schema.get_function_with_opset_version(max(versions)) if versions else None
        else:
            versions = [each for each in schema.context_dependent_function_opset_versions if each <= version]
            types = [_type_proto(value).SerializeToString() for value in inputs]
            data = _with_values(node, attributes).SerializeToString()
            body = None
            if versions:
                body = schema.get_context_dependent_function_with_opset_version(max(versions), data, types)
        if not body:
            text = f"{label_of(node)}: has no counterpart for these inputs and attributes"
            raise GraphError(text, code="EK0527", place=user_place(), op=node.op_type)
        if isinstance(body, bytes):
            function.ParseFromString(body)
            return function
        return body

    # --- outputs ---

    def output(self, number: int, declared: Any, value: Value) -> TensorValue:
        """A value as an output of the graph."""
        if isinstance(value, KnownTensor):
            return value.tensor(self.device)
        if isinstance(value, TensorValue):
            return value
        if isinstance(value, Texts):
            self.output_texts[number] = value.listed
            return value.places if isinstance(value.places, TensorValue) else value.places.tensor(self.device)
        if isinstance(value, CountedItems) and value.counts is None:
            return value.parts
        kind = "optional" if value is None else "a sequence of tensors of different sizes"
        text = f"{self.read.shown}: output {declared.name!r} is {kind}, and a graph returns tensors"
        raise GraphError(text, code="EK0530", place=user_place())


def _flat(results: Sequence[Result]) -> list[Result]:
    """Outputs with those that are lists replaced by their items."""
    flat: list[Result] = []
    for declared, value in results:
        flat += _flat([(declared, item) for item in value]) if isinstance(value, list) else [(declared, value)]
    return flat


def _with_values(node: Any, attributes: Mapping[str, Any]) -> Any:
    """A node whose attributes name none of the function around it."""
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
        elif attribute.name in attributes and not isinstance(attributes[attribute.name], KnownTensor):
            copy.attribute.append(onnx.helper.make_attribute(attribute.name, attributes[attribute.name]))
    return copy


def _all_nodes(nodes: Iterable[Any], depth: int) -> Iterator[Any]:
    """All nodes, those of the graphs in attributes included."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if depth < MAX_NESTING:
                for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    yield from _all_nodes(graph.node, depth + 1)


def _schema(op_type: str, domain: str, version: int) -> Any:
    """ONNX's own description of an op type; None where it has none."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def _type_proto(value: Value) -> Any:
    """The type of a value as ONNX writes it."""
    proto = onnx.TypeProto()
    if isinstance(value, TensorValue):
        proto.tensor_type.elem_type = CODES[value.dtype]
        for dim in value.shape:
            entry = proto.tensor_type.shape.dim.add()
            if str(dim).isdigit():
                entry.dim_value = int(dim)
    elif isinstance(value, KnownTensor):
        proto.tensor_type.elem_type = CODES[value.dtype]
        for size in value.array.shape:
            proto.tensor_type.shape.dim.add().dim_value = size
    elif isinstance(value, list):
        proto.sequence_type.elem_type.CopyFrom(_type_proto(value[0] if value else None))
    return proto


def _few(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:8])
    return f"{listed}, and {len(names) - 8} more" if len(names) > 8 else listed


def _refuse(message: str, got: str, known_names: Iterable[str]) -> NoReturn:
    listed = list(known_names)
    hint = did_you_mean(got, listed) or (f"its inputs: {', '.join(listed)}" if listed else None)
    raise GraphError(message, code="EK0528", place=user_place(), expected=listed, got=got, hint=hint)


def _damaged(message: str, code: str = "EK0526", hint: str | None = None) -> NoReturn:
    raise GraphError(message, code=code, place=user_place(), hint=hint)
