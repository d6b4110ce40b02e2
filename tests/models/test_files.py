"""ONNX files that others have trained run as they are shipped, and agree with ONNX Runtime.

`make models` installs the files. What is missing is skipped.
"""

from __future__ import annotations

import gc

import model_files
import pytest

from einkorn.graph import InferenceSession, from_onnx

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.as_shipped


@pytest.mark.parametrize("each", model_files.FILES, ids=lambda each: each.name)
def test_a_file_agrees_with_onnx_runtime(each: model_files.ModelFile) -> None:
    if not each.file.exists():
        pytest.skip(f"{each.path} is not installed: make models")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(str(each.file), options)
    graph = from_onnx(each.file)
    model = InferenceSession().load(graph)
    try:
        for size in each.sizes:
            inputs = each.inputs(size)
            got = [buffer.to_numpy() for buffer in model.execute(*(inputs[name] for name in graph.ir.names))]
            assert model_files.difference(got, theirs.run(None, inputs)) <= each.tolerance, size
    finally:
        del model, graph, theirs
        gc.collect()


def test_named_multiples_are_proven() -> None:
    """What `shapes=` says of sizes leaves nothing of a detector's sizes to be compared by a call."""
    (each,) = (each for each in model_files.FILES if each.name == "PP-OCRv4 det")
    if not each.file.exists():
        pytest.skip(f"{each.path} is not installed: make models")
    graph = from_onnx(each.file, shapes={"x": ["b", 3, "32*h", "32*w"]})
    equal = [str(condition) for condition in graph.ir.constraints if condition.kind == "equal"]
    assert equal == [f"require x_axis_{k} == 32*(x_axis_{k}//32)" for k in (2, 3)]
