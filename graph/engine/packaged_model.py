"""Loads models out of packages that hold graphs.

See also `engine.graph_package` (which writes them), `loading.packaged_graph` (their code).
"""

from __future__ import annotations

import math
import os
from os import PathLike, fspath
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import PackageError
from ...dsl.diagnostics.json_reading import Misread
from ...dsl.environment.compiling import compiling
from ...dsl.package.container import read_package
from ..calling.outputs import Filling
from ..driver.device import Array
from ..driver.devices import placed_on
from ..ir import GraphIR
from ..loading.compile import chosen_checks, interpret_graph
from ..loading.packaged_graph import packaged_loader
from ..loading.reproducer import graph_from_json
from ..types.tensor_type import ShapedType
from .compiled import LoadOptions
from .model import Model


def load_graph_package(
    path: str | PathLike[str],
    options: LoadOptions,
    *,
    name: str | None = None,
) -> Model:
    """A model out of a package.

    Raises:
        PackageError: EK0551 to EK0568, the file is no package, was changed, is not trusted, or has no such graph.
    """
    package = read_package(fspath(path))
    record = package.graph(name)
    data = package.graph_json(record)
    try:
        ir = _graph(data)
        places = [(ir.nodes[number], number, start, size) for number, start, size in data["weights"]]
        groups = dict(data["groups"])
        memory = b"" if record.weights is None else package.mapped(record.weights)
        weights = {number: _array(memory[start:][:size], item.type) for item, number, start, size in places}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, Misread) as wrong:
        raise PackageError(
            f"{package.archive.shown!r} cannot be used: {record.graph.member!r} is not a graph as Einkorn writes it",
            code="EK0556",
            hint="export the model again",
            notes=[str(wrong)],
        ) from None
    load = packaged_loader(package, record, groups, options.checks)
    if options.interpret:
        model = Model(ir, lambda graph: interpret_graph(graph, checks=options.checks), None, weights)
    else:
        level = chosen_checks(options.checks)
        filled = level is not None and level.level == "all"
        model = Model(ir, load, Filling() if filled else None, weights, threads=options.num_threads)
    read_again = _read_again, (os.path.abspath(fspath(path)), options, name)
    model.reduced = lambda weights: read_again
    return model


@compiling
def _read_again(path: str, options: LoadOptions, name: str | None) -> Model:
    """A model that was pickled or copied: from the same file, which has to be there in this process, too."""
    with placed_on(options.devices):
        return load_graph_package(path, options, name=name)


def _graph(data: Any) -> GraphIR:
    try:
        ir, *_ = graph_from_json(data)
    except PackageError as error:
        raise ValueError(error.message) from None
    return ir


def _array(data: memoryview | bytes, type: ShapedType) -> Array:
    """An array over the mapped file.

    Raises:
        ValueError: it has another size than its type says.
    """
    memory = np.frombuffer(data, np.uint8)
    shape = tuple(int(dim) for dim in type.shape)
    if memory.size != type.dtype.bytes_for(math.prod(shape)):
        raise ValueError(f"{memory.size} bytes for {type}")
    return memory if type.dtype.is_packed() else memory.view(type.dtype.to_numpy()).reshape(shape)
