"""Imports ONNX models: `from_onnx` makes a `Graph` of one.

    model = InferenceSession().load(from_onnx("classifier.onnx"))

A model is read (`model_file`, `tensors`, `declarations`), then its nodes are converted one by one (`importer`), each by
a row of the table of op types (`table`, `call`); the rows lie in `rows/`, a file a family. What is known at import, the
arithmetic on shapes above all, is computed then, with symbolic dims as values (`known`).

Needs the package `onnx` (`pip install onnx`), which is loaded with the first import of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.tracebacks import without_internals
from ..driver.devices import Device, DeviceRef
from ..types.dims import Dim

if TYPE_CHECKING:
    from ..staging.graph import Graph


@without_internals
def from_onnx(
    model: str | PathLike[str] | bytes | object,
    *,
    name: str | None = None,
    shapes: Mapping[str, Sequence[int | str | Dim]] | None = None,
    constants: Mapping[str, object] | None = None,
    device: DeviceRef | Device | None = None,
) -> Graph:
    """An ONNX model as a graph. Its inputs and outputs are the model's, in the model's order.

    Args:
        model: the path of a `.onnx` file, its bytes, or an `onnx.ModelProto`. Its initialisers become weights, which
            stay where they are in a mapped file. Weights in files of their own are read from the folder of the model,
            and from no other place.
        name: of the graph; the model's own when left out.
        shapes: sizes for inputs by name: a number makes a size known, a name makes it symbolic. An expression such as
            "32*h" says what a size is a multiple of; a call with another one is refused.
        constants: inputs that always have the same value, by name. They are not inputs of the graph; some op types
            need it, where the rank of a result depends on an input.
        device: where the graph runs; the host when left out.

    Raises:
        GraphError: EK0525 `onnx` is not installed, EK0526 the file is not a model or is damaged, EK0527 op types
            without a counterpart (all of them in one error), EK0528 an attribute or an input that an op type does not
            take, EK0529 a value that has to be known at import, EK0530 an input or a tensor of a type without a
            counterpart, EK0531 external data; or whatever a converted op finds wrong. The message names the node.
    """
    if not (find_spec("onnx") and find_spec("google.protobuf")):
        raise GraphError(
            "the package 'onnx', which reads models, is not installed",
            code="EK0525",
            place=user_place(),
            hint="pip install onnx",
        )
    with shielded():
        from .importer import import_model  # most programs import no model

    return import_model(model, name, shapes or {}, constants or {}, device)
