"""DeformConv gives ONNX Runtime's results, with all attributes, and refuses what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import InferenceSession, from_onnx

onnxruntime = pytest.importorskip("onnxruntime")
MAKE = np.random.default_rng(5)
NAMES = ["x", "w", "offset", "b", "mask"]
# groups, groups of offsets, filter, strides, paddings, dilations, bias, mask
CASES = {
    "plain": (1, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), True, True),
    "strides": (2, 2, (3, 2), (2, 1), (1, 0, 2, 1), (2, 1), True, False),
    "depthwise": (4, 2, (2, 3), (1, 2), (0, 1, 0, 2), (1, 2), False, True),
    "points": (2, 4, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), False, False),
}


def places(size: int, k: int, case: Any) -> int:
    """The size of the result along an axis."""
    _, _, filter, strides, pads, dilations, *_ = case
    return int((size + pads[k] + pads[2 + k] - dilations[k] * (filter[k] - 1) - 1) // strides[k] + 1)


def operands(case: Any, n: int, h: int, w: int, dtype: Any = np.float32) -> dict[str, Any]:
    group, offset_group, filter, *_, bias, mask = case
    taps, size = filter[0] * filter[1], (places(h, 0, case), places(w, 1, case))
    given = {
        "x": MAKE.standard_normal((n, 4, h, w)),
        "w": MAKE.standard_normal((4, 4 // group, *filter)),
        "offset": MAKE.standard_normal((n, offset_group * taps * 2, *size)) * 2,
        "b": MAKE.standard_normal(4),
        "mask": MAKE.random((n, offset_group * taps, *size)),
    }
    left_out = {"b": not bias, "mask": not mask}
    return {name: array.astype(dtype) for name, array in given.items() if not left_out.get(name)}


def deform_conv(case: Any, given: dict[str, Any], symbolic: bool = True, **changed: Any) -> Any:
    group, offset_group, filter, strides, pads, dilations, *_ = case
    attributes = {"group": group, "offset_group": offset_group, "kernel_shape": filter, "strides": strides}
    attributes |= {"pads": pads, "dilations": dilations, **changed}
    node = helper.make_node(
        "DeformConv", [name if name in given else "" for name in NAMES], ["y"], name="moved", **attributes
    )
    named = {"x": {0: "n", 2: "h", 3: "w"}, "offset": {0: "n", 2: "oh", 3: "ow"}, "mask": {0: "n", 2: "oh", 3: "ow"}}
    inputs = []
    for name, array in given.items():
        dims: list[Any] = list(array.shape)
        for axis, dim in named.get(name, {}).items() if symbolic else ():
            dims[axis] = dim
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims))
    output = helper.make_tensor_value_info("y", inputs[0].type.tensor_type.elem_type, None)
    graph = helper.make_graph([node], "m", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize("name", CASES)
def test_all_attributes(name: str) -> None:
    case = CASES[name]
    made = deform_conv(case, operands(case, 2, 7, 9))
    theirs = onnxruntime.InferenceSession(made.SerializeToString())
    graph = from_onnx(made)
    ours = InferenceSession().load(graph)
    for sizes in [(2, 7, 9), (1, 5, 6), (3, 4, 11)]:
        given = operands(case, *sizes)
        got = ours(*[given[each] for each in graph.ir.names])[0].to_numpy()
        np.testing.assert_allclose(got, theirs.run(None, given)[0], rtol=1e-5, atol=1e-5)


def test_other_dtypes() -> None:
    case = CASES["strides"]
    given = operands(case, 2, 5, 6, np.float64)
    results = []
    for dtype in (np.float64, np.float32, np.float16):
        cast = {name: array.astype(dtype) for name, array in given.items()}
        graph = from_onnx(deform_conv(case, cast, symbolic=False))
        results.append(InferenceSession(interpret=True).load(graph)(*cast.values())[0].to_numpy())
        assert results[-1].dtype == dtype
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-4)
    assert np.abs(results[2] - results[0]).max() < 0.1  # offsets in half precision move the taps


REFUSED: dict[str, dict[str, Any]] = {
    "group is 3, and does not divide 4 channels": {"group": 3},
    "offset_group is 3, and does not divide 4 channels": {"offset_group": 3},
    "offset has the shape [n, 18, oh, ow], and not 36 channels": {"offset_group": 2},
    "kernel_shape is [2, 2], and the filters have [3, 3]": {"kernel_shape": [2, 2]},
    "the filters have 4 channels, and a group of X has 2": {"group": 2},
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_does_not_fit_is_refused(text: str) -> None:
    case = CASES["plain"]
    with pytest.raises(EinkornError) as error:
        from_onnx(deform_conv(case, operands(case, 1, 4, 4), **REFUSED[text]))
    assert error.value.message == f"node 'moved' (DeformConv): {text}"


def test_offsets_of_another_size_are_refused_by_the_call() -> None:
    case = CASES["plain"]
    graph = from_onnx(deform_conv(case, operands(case, 1, 4, 4)))
    given = operands(case, 1, 4, 4)
    given["offset"] = given["offset"][..., :3]
    given["mask"] = given["mask"][..., :3]
    with pytest.raises(EinkornError, match="the sizes of offset and of the result on axis 3 have to be equal"):
        InferenceSession(interpret=True).load(graph)(*[given[each] for each in graph.ir.names])
