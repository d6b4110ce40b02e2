"""A graph as JSON, and back: what a reproducer holds when something trips over a graph before it is a compile unit.

Everything is in it that fusion, the plan and the compiler look at. Of constants with several elements, which are
memory to them, only the types are.

Input: a `GraphIR`, or JSON. Output: JSON, or an equal `GraphIR`, places and messages aside. Non-goals: the file itself
(see `compiler.reproducer`), and the loading of a graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dsl.contract.checks import Checks, parse_checks
from ...dsl.diagnostics.errors import PackageError
from ...dsl.frontend.program import PortableKernel
from ...dsl.frontend.read_program import read_program
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.dims import evaluate, names_in
from ...dsl.signature.parse_dims import parse_expression
from ...dsl.types.dtype import DType
from ..driver.devices import DeviceRef
from ..ir import Constant, Constraint, GraphIR, Node, SizeStep
from ..types.dims import Dim
from ..types.tensor_type import BufferType, ShapedType, TensorType


def graph_to_json(ir: GraphIR, fuse: bool, checks: Checks, interpret: bool) -> dict[str, Any]:
    """A graph, and how it was to be loaded."""
    kernels: dict[tuple[str, bool], int] = {}
    programs: list[Any] = []
    nodes: list[Any] = []
    for node in ir.nodes:
        if isinstance(node, Constant):
            alone = node.array.size == 1
            value = _value(node.array.item()) if alone else None
            nodes.append({"constant": value, "type": _type(node.type)})
            continue
        name = (node.kernel.digest, node.kernel.shipped)
        if name not in kernels:
            kernels[name] = len(programs)
            programs.append([node.kernel.portable.to_json(), node.kernel.shipped])
        nodes.append(
            {
                "kernel": kernels[name],
                "parameters": [[name, _value(value)] for name, value in node.parameters],
                "operands": list(node.operands),
                "types": [_type(type) for type in node.out_types],
            }
        )
    return {
        "name": ir.name,
        "fuse": fuse,
        "checks": str(checks),
        "interpret": interpret,
        "kernels": programs,
        "inputs": [_type(type) for type in ir.inputs],
        "nodes": nodes,
        "outputs": list(ir.outputs),
        "constraints": [[c.kind, str(c.left), str(c.right)] for c in ir.constraints],
        "steps": [[step.value, list(step.names), step.op] for step in ir.steps],
        "patterns": [pattern and list(pattern) for pattern in ir.patterns],
    }


def graph_from_json(data: dict[str, Any]) -> tuple[GraphIR, bool, Checks, bool]:
    """What `graph_to_json` was given.

    Raises:
        PackageError: EK0907, it is no such JSON.
    """
    try:
        return _graph(data), bool(data["fuse"]), parse_checks(data["checks"]), bool(data["interpret"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise PackageError(f"a reproducer without its graph: {error}", code="EK0907") from None


def _graph(data: dict[str, Any]) -> GraphIR:
    kernels = [_kernel(program, shipped) for program, shipped in data["kernels"]]
    inputs = tuple(_read_type(type) for type in data["inputs"])
    nodes: list[Node | Constant] = []
    first = len(inputs)
    for node in data["nodes"]:
        types = [_read_type(type) for type in node.get("types", [node.get("type")])]
        results = tuple(range(first, first + len(types)))
        first += len(types)
        if "kernel" in node:
            parameters = tuple((name, _read_value(value)) for name, value in node["parameters"])
            operands = tuple(node["operands"])
            nodes.append(Node(kernels[node["kernel"]], parameters, operands, tuple(types), results))
        else:
            nodes.append(_constant(types[0], node["constant"], results[0]))
    return GraphIR(
        data["name"],
        inputs,
        tuple(nodes),
        tuple(data["outputs"]),
        tuple(Constraint(kind, _dim(left), _dim(right), "") for kind, left, right in data["constraints"]),
        tuple(SizeStep(value, tuple(names), op) for value, names, op in data["steps"]),
        tuple(pattern and tuple(pattern) for pattern in data["patterns"]),
    )


def _kernel(program: Any, shipped: bool) -> LoadedKernel:
    read: PortableKernel = read_program(program)
    return LoadedKernel(read.schema, "a reproducer", False, lambda: read, shipped=shipped)


def _constant(type: ShapedType, value: Any, result: int) -> Constant:
    shape = tuple(int(dim) for dim in type.shape)
    kind = type.dtype.to_numpy()
    array = np.zeros(shape, kind) if value is None else np.full(shape, _read_value(value), kind)
    return Constant(array, TensorType(type.dtype, type.shape, type.device), result)


def _type(type: ShapedType) -> list[Any]:
    place = [str(type.device.device_type), type.device.id]
    return [isinstance(type, BufferType), type.dtype.name, [str(dim) for dim in type.shape], place]


def _read_type(data: Any) -> ShapedType:
    is_buffer, dtype, shape, place = data
    kind = BufferType if is_buffer else TensorType
    return kind(DType[dtype], [_dim(text) for text in shape], DeviceRef(*place))


def _dim(text: str) -> Dim:
    expression = parse_expression(text)
    return Dim(evaluate(expression, {each.name: Dim(each.name) for each in names_in(expression)}))


def _value(value: Any) -> Any:
    """A parameter, or the one number of a constant."""
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, DType):
        return {"dtype": value.name}
    return {"float": float(value).hex()} if isinstance(value, float) else value


def _read_value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read_value(item) for item in value)
    if isinstance(value, dict):
        return DType[value["dtype"]] if "dtype" in value else float.fromhex(value["float"])
    return value
