"""Writes models as packages that hold graphs, code and weights.

A package runs without the Python sources of its kernels, and without a compiler where it has code for the machine.
Weights and code lie aligned in the file, so that they can be mapped. See also `engine.packaged_model`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from ...dsl.contract.checks import Checks
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.compiling import compiling
from ...dsl.package.container import GraphContents, PackageContents, write_package
from ...dsl.package.manifest import ValueRecord
from ...dsl.types.packing import pack
from ..driver.device import Array, Storage
from ..ir import ConstantTensor, External, GraphIR
from ..loading.cache_keys import partition_to_json
from ..loading.compile import chosen_checks
from ..loading.reproducer import graph_to_json
from ..loading.target_code import code_for_targets
from ..types.dims import StaticDim
from ..types.safetensors_header import entry_of, header_of
from ..types.tensor_type import ShapedType
from .c_names import CODE, names_of_outputs

_LINE = 64  # what the first weight is aligned to, and all whose sizes are multiples of it


@compiling
def write_graph_package(
    path: str | PathLike[str],
    ir: GraphIR,
    weights: Mapping[int, Storage],
    checks: Checks | None,
    name: str | None = None,
    output_names: Sequence[str] | None = None,
    targets: Sequence[str] = (),
    doors: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Writes a package that holds a model.

    Args:
        path: of the package; it is replaced when everything is compiled.
        ir, weights: the graph after its passes, and the storage of its weights by the numbers of their nodes.
        checks: what the code checks as it runs.
        name, output_names: of the graph and its outputs; see `Model.export`.
        targets: the processors that there is code for; this machine's level when left out.
        doors: by architecture, what C programs call: see `GraphRecord`.

    Raises:
        GraphError: EK0483, the graph runs elsewhere than on the host.
        PackageError: the file cannot be written.
        TargetError, CompileError: there is no code for a target.
    """
    if len(ir.devices) > 1 or not ir.device.to_device().is_host:
        raise GraphError(
            f"graph '{ir.name}' runs on {', '.join(map(str, ir.devices))}, and packages hold graphs of the host",
            code=CODE,
            place=user_place(),
            expected="a graph of the host",
        )
    outputs = names_of_outputs(ir, output_names)
    graph, arrays = _without_arrays(ir, weights)
    made = code_for_targets(ir, targets, checks)
    known = chosen_checks(checks) or Checks()
    order = sorted(arrays, key=lambda number: (arrays[number].nbytes % _LINE != 0, -arrays[number].itemsize, number))
    pieces = _safetensors(arrays, order)
    data = graph_to_json(graph, True, known, False) | {
        "groups": {each.name: partition_to_json(each.made.parts) for each in made},
        "weights": _places(arrays, order, len(pieces[0]) if pieces else 0),
    }
    static = not ir.steps and all(isinstance(dim, StaticDim) for type in ir.inputs for dim in type.shape)
    contents = GraphContents(
        name or ir.name,
        tuple(_value(name, type) for name, type in zip(ir.argument_names, ir.inputs, strict=True)),
        tuple(_value(name, type) for name, type in zip(outputs, ir.output_types, strict=True)),
        data,
        tuple((each.name, each.needs, each.made.pieces[0].code) for each in made),
        pieces,
        made[0].made.plan.place({})[1] if static else None,
        tuple(doors),
    )
    write_package(fspath(path), PackageContents(name or Path(path).stem, "0.1.0", (), graphs=(contents,)))


def _without_arrays(ir: GraphIR, weights: Mapping[int, Storage]) -> tuple[GraphIR, dict[int, Array]]:
    """The graph with weights in place of its larger constants, and the arrays of all by the numbers of their nodes."""
    arrays: dict[int, Array] = {}
    nodes = list(ir.nodes)
    for number, item in enumerate(ir.nodes):
        if isinstance(item, External):
            arrays[number] = np.asarray(weights[number])
            nodes[number] = External(item.name, item.type, item.result, item.align)
        elif isinstance(item, ConstantTensor) and item.array.size != 1:
            arrays[number] = pack(item.array) if item.type.dtype.is_packed() else item.array
            nodes[number] = External(f"constant {number}", item.type, item.result)
    return dataclasses.replace(ir, nodes=tuple(nodes)), arrays


def _safetensors(arrays: Mapping[int, Array], order: Sequence[int]) -> tuple[Any, ...]:
    """The pieces of a file in the safetensors format: its header, then the arrays as bytes under their numbers."""
    places = _places(arrays, order, 0)
    head = header_of({str(number): entry_of(None, (), at, size) for number, at, size in places}, _LINE)
    pieces = (np.ascontiguousarray(arrays[number]).reshape(-1).view(np.uint8) for number in order)
    return (head, *pieces) if order else ()


def _places(arrays: Mapping[int, Array], order: Sequence[int], start: int) -> list[list[int]]:
    """The number, the first byte and the size of each array, one behind the other; those of whole lines come first."""
    places = []
    for number in order:
        places.append([number, start, arrays[number].nbytes])
        start += arrays[number].nbytes
    return places


def _value(name: str, type: ShapedType) -> ValueRecord:
    return ValueRecord(name, type.dtype.name, tuple(str(dim) for dim in type.shape))
