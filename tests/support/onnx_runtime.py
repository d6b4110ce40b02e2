"""Nodes of ONNX Runtime's own op types, run by it and by a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, parser

from einkorn.graph import InferenceSession, from_onnx

MICROSOFT = "com.microsoft"
ML = "ai.onnx.ml"
HEADER = '<ir_version: 9, opset_import: ["": 19]>\n'  # of models in the syntax of `onnx.parser`
Arrays = Mapping[str, np.ndarray[Any, Any] | None]


def model_of(
    op_type: str,
    inputs: Arrays,
    attributes: Mapping[str, Any] | None = None,
    *,
    outputs: int | str = 1,
    weights: Any = (),
    domain: str = MICROSOFT,
    symbolic: Mapping[str, Any] | None = None,
    opset: int = 3,
) -> Any:
    """A model of one node.

    Args:
        op_type, domain: of the node.
        inputs: by name, in order; None where one is left out.
        attributes: of the node.
        outputs: how many, or one letter each, "-" where one is left out.
        weights: the names of those inputs that are initialisers.
        symbolic: shapes of inputs that have names for sizes.
        opset: the version of ai.onnx.ml.
    """
    given = {name: array for name, array in inputs.items() if array is not None}
    names = [f"y{k}" for k in range(outputs)] if isinstance(outputs, int) else outputs.replace("-", " ")
    names = [name.strip() for name in names]
    node = helper.make_node(op_type, [n if n in given else "" for n in inputs], names, domain=domain, name="node")
    node.attribute.extend(helper.make_attribute(key, value) for key, value in (attributes or {}).items())
    free = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), (symbolic or {}).get(name, array.shape)
        )
        for name, array in given.items()
        if name not in weights
    ]
    fixed = [onnx.numpy_helper.from_array(given[name], name) for name in weights]
    results = [onnx.ValueInfoProto(name=name) for name in names if name]
    graph = helper.make_graph([node], "g", free, results, initializer=fixed)
    opsets = [helper.make_opsetid(*each) for each in (("", 17), (MICROSOFT, 1), (ML, opset))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def by_runtime(model: Any, inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    """What ONNX Runtime makes of a model, on one thread and as it is."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    result: list[np.ndarray[Any, Any]] = session.run(
        None, {each.name: inputs[each.name] for each in session.get_inputs()}
    )
    return result


def by_graph(model: Any, inputs: Arrays, interpret: bool = False) -> list[np.ndarray[Any, Any]]:
    """What a graph of a model gives."""
    loaded = InferenceSession(interpret=interpret).load(from_onnx(model))
    return [each.to_numpy() for each in loaded.execute(*[inputs[each.name] for each in model.graph.input])]


def compare(
    op_type: str,
    inputs: Arrays,
    attributes: Mapping[str, Any] | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    units: int = 0,
    share: float = 1.0,
    interpret: bool = True,
    **more: Any,
) -> None:
    """Compares a node's results with ONNX Runtime's.

    Args:
        op_type, inputs, attributes, more: of `model_of`.
        rtol, atol: how far floats may be apart.
        units: how far integers may be apart.
        share: how large a part of the integers may be apart at all, or one of few.
        interpret: whether the graph is interpreted.
    """
    model = model_of(op_type, inputs, attributes, **more)
    wanted, got = by_runtime(model, inputs), by_graph(model, inputs, interpret)
    assert len(wanted) == len(got)
    for number, (right, entry) in enumerate(zip(wanted, got, strict=True)):
        assert right.dtype == entry.dtype and right.shape == entry.shape, (
            f"output {number}: {entry.dtype} {entry.shape}"
        )
        if right.dtype.kind == "f":
            wide = [each.astype(np.float64) for each in (entry, right)]
            np.testing.assert_allclose(*wide, rtol=rtol, atol=atol, err_msg=f"output {number}")
            continue
        apart = np.abs(entry.astype(np.int64) - right.astype(np.int64))
        assert apart.max(initial=0) <= units, f"output {number}: {apart.max()} apart"
        assert np.count_nonzero(apart) <= max(1, share * apart.size), (
            f"output {number}: {np.mean(apart > 0):.1%} are apart"
        )


def same(
    text: str, calls: Sequence[Sequence[np.ndarray[Any, Any]]], *, tolerance: float = 1e-5, interpret: bool = False
) -> None:
    """Each call of a model, in the syntax of `onnx.parser`, gives what ONNX Runtime gives, shapes and dtypes too."""
    model = parser.parse_model(HEADER + text)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    loaded = InferenceSession(interpret=interpret).load(from_onnx(model))
    names = [each.name for each in session.get_inputs()]
    for arrays in calls:
        wanted = session.run(None, dict(zip(names, arrays, strict=True)))
        for want, got in zip(wanted, loaded.execute(*arrays), strict=True):
            result = got.to_numpy()
            assert result.shape == np.asarray(want).shape and result.dtype == np.asarray(want).dtype
            np.testing.assert_allclose(result, want, rtol=tolerance, atol=tolerance)
