"""Writes a graph as JSON, and reads it back: what a reproducer holds of a fault before there is a compile unit.

Everything is in it that fusion, the plan and the compiler look at. Of constants with several elements, which are
memory to them, only the types are.

See also `compiler.reproducer` (the file itself).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...dsl.contract.checks import Checks, parse_checks
from ...dsl.contract.records import Records
from ...dsl.diagnostics.errors import PackageError
from ...dsl.diagnostics.places import Place
from ...dsl.frontend.read_program import read_program
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.dims import evaluate, names_in
from ...dsl.signature.parse_dims import parse_expression
from ...dsl.types.dtype import DType
from ..driver.devices import DeviceRef
from ..ir import (
    Body,
    Branch,
    Carried,
    ConstantTensor,
    Constraint,
    External,
    GraphIR,
    Loop,
    Node,
    PreparedValue,
    SizeStep,
)
from ..types.dims import Dim
from ..types.tensor_type import BufferType, ShapedType, TensorType


def graph_to_json(ir: GraphIR, fuse: bool, checks: Checks, interpret: bool) -> dict[str, Any]:
    """A graph, and how it was to be loaded."""
    numbers: dict[tuple[str, bool], int] = {}
    programs: list[object] = []

    def number(kernel: LoadedKernel) -> int:
        name = (kernel.digest, kernel.shipped)
        if name not in numbers:
            numbers[name] = len(programs)
            programs.append([kernel.portable.to_json(), kernel.shipped])
        return numbers[name]

    nodes = tuple(External(n.name, n.type, n.result) if isinstance(n, PreparedValue) else n for n in ir.nodes)
    graph = _records(number, None).write(replace(ir, nodes=nodes))
    how = {"fuse": fuse, "checks": str(checks), "interpret": interpret}
    return {"graph": graph, "kernels": programs, **how}


def graph_from_json(data: dict[str, Any]) -> tuple[GraphIR, bool, Checks, bool]:
    """What `graph_to_json` was given.

    Raises:
        PackageError: EK0907, it is not a valid reproducer.
    """
    try:
        kernels = [_kernel(program, shipped) for program, shipped in data["kernels"]]
        graph = _records(None, kernels).read(data["graph"])
        return graph, bool(data["fuse"]), parse_checks(data["checks"]), bool(data["interpret"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise PackageError(f"a reproducer without its graph: {error}", code="EK0907") from None


def _records(number: Any, kernels: Any) -> Records:
    """Graphs as records: a kernel is its number among all, a place is nothing."""
    atoms = {
        LoadedKernel: (number, lambda at: kernels[at]),
        Place: (lambda place: None, lambda nothing: None),
        Dim: (str, _read_dim),
        ShapedType: (_write_type, _read_type),
        np.ndarray: (_write_array, _read_array),
    }
    classes = (GraphIR, Node, ConstantTensor, External, Carried, Branch, Loop, Body, Constraint, SizeStep)
    return Records(classes, atoms)


def _kernel(program: object, shipped: bool) -> LoadedKernel:
    portable = read_program(program)
    return LoadedKernel(portable.schema, "a reproducer", lambda: portable, shipped=shipped)


def _write_type(type: ShapedType) -> list[Any]:
    place = [str(type.device.device_type), type.device.id]
    return [isinstance(type, BufferType), type.dtype.name, [str(dim) for dim in type.shape], place]


def _read_type(data: Any) -> ShapedType:
    is_buffer, dtype, shape, place = data
    kind = BufferType if is_buffer else TensorType
    return kind(DType[dtype], [_read_dim(text) for text in shape], DeviceRef(*place))


def _read_dim(text: str) -> Dim:
    expression = parse_expression(text)
    return Dim(evaluate(expression, {each.name: Dim(each.name) for each in names_in(expression)}))


def _write_array(array: np.ndarray[Any, Any]) -> list[Any]:
    alone = Records(()).write(array.item()) if array.size == 1 else None
    return [DType.from_numpy(array.dtype).name, list(array.shape), alone]


def _read_array(data: Any) -> np.ndarray[Any, Any]:
    dtype, shape, alone = data
    kind = DType[dtype].to_numpy()
    return np.zeros(shape, kind) if alone is None else np.full(shape, Records(()).read(alone), kind)
