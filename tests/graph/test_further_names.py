"""Names and forms of arguments that code for MAX uses: ops, models, sessions, buffers and streams have them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import einkorn.functional as F
import numpy as np
import pytest
from einkorn.tensor import Tensor

from einkorn.dsl.diagnostics.errors import DeviceError, DTypeError, GraphError, KernelError
from einkorn.graph import (
    CPU,
    Accelerator,
    Buffer,
    BufferType,
    DeviceRef,
    DeviceStream,
    DType,
    Graph,
    InferenceSession,
    PrintStyle,
    TensorType,
    Weight,
    cast_tensor_to,
    ops,
)

HOST, GPU = DeviceRef.CPU(), DeviceRef.GPU()
F32 = DType.float32
DEBUG = InferenceSession.debug


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    DEBUG.reset()


def run(forward: Any, *arrays: Any) -> list[Any]:
    types = [TensorType(DType.from_numpy(each.dtype), each.shape, HOST) for each in map(np.asarray, arrays)]
    results = InferenceSession().load(Graph("g", forward, types))(*arrays)
    return [each.to_numpy() for each in results]


# *** ops ***

BOOLS = np.array([[True, False, True], [False, False, False], [True, True, True]])


def test_bools_have_an_order_and_a_mean() -> None:
    def forward(x: Any) -> Any:
        along = [op(x, axis=axis) for op in (ops.max, ops.min, ops.argmax, ops.argmin, ops.mean) for axis in (0, 1)]
        return [*along, ops.max(x, x.permute(1, 0)), ops.min(x, True), ops.cumsum(x, 1), x.max(None, keepdims=False)]

    actual = run(forward, BOOLS)
    wanted: list[Any] = []
    for name in ("max", "min", "argmax", "argmin", "mean"):
        wanted += [getattr(np, name)(BOOLS, axis, keepdims=True) for axis in (0, 1)]
    wanted += [BOOLS | BOOLS.T, BOOLS, np.cumsum(BOOLS, 1), BOOLS.max()]
    for got, expected in zip(actual, wanted, strict=True):
        assert got.dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(got, expected)


def test_bools_of_no_elements_have_no_maximum() -> None:
    with pytest.raises(GraphError) as caught:
        Graph("g", ops.max, [TensorType(DType.bool, [0], HOST)])
    assert caught.value.code == "EK0424"


def test_axes_stand_side_by_side_or_in_a_list() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for entry in run(lambda x: (x.permute(0, 2, 1), x.permute([0, 2, 1]), x.transpose(axis_1=1, axis_2=2)), x):
        np.testing.assert_array_equal(entry, x.transpose(0, 2, 1))
    t = Tensor.from_dlpack(x)
    for each in (
        t.permute(0, 2, 1),
        t.permute((0, 2, 1)),
        F.transpose(t, axis_1=1, axis_2=2),
        t.transpose(dim1=1, dim2=2),
    ):
        np.testing.assert_array_equal(each.numpy(), x.transpose(0, 2, 1))
    assert (
        t.transpose(axis_1=0, axis_2=-1).shape == t.transpose(dim_1=0, dim_2=-1).shape == F.permute(t, [2, 1, 0]).shape
    )


def test_transfer_to_is_a_method() -> None:
    x = np.ones(3, np.float32)
    (actual,) = run(lambda x: x.transfer_to(HOST) + 1, x)
    np.testing.assert_array_equal(actual, x + 1)
    assert Tensor.from_dlpack(x).transfer_to(CPU()).device == CPU()
    moved = Graph("g", lambda x: x.transfer_to(GPU), [TensorType(F32, [3], HOST)])
    assert moved.output_types[0].device == GPU


def test_a_fence_keeps_several_tensors_apart() -> None:
    x, y = np.float32([1, 2]), np.int8([3])
    actual = run(lambda x, y: [*ops.fence(x, y), ops.fence(x) * 2], x, y)
    for got, expected in zip(actual, (x, y, x * 2), strict=True):
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(DTypeError, match=r"fence: argument 'others\[0\]'"):
        run(lambda x: ops.fence(x, 1), x)


def test_rms_norm_takes_epsilon_by_either_name() -> None:
    x = np.float32([[1, 2, 3]])
    one, other, third = run(
        lambda x: (ops.rms_norm(x, 1.0, epsilon=0.5), ops.rms_norm(x, 1.0, eps=0.5), ops.rms_norm(x, 1.0, 0.5)), x
    )
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one, third)
    for wrong in ({}, {"epsilon": 1.0, "eps": 1.0}, {"epsilon": 0.0}):
        with pytest.raises(GraphError) as caught:
            run(lambda x, given=wrong: ops.rms_norm(x, 1.0, **given), x)
        assert caught.value.code == "EK0478"


@pytest.mark.parametrize("op", [ops.resize_linear, ops.resize_nearest, ops.resize_bicubic])
def test_modes_of_resizing_have_numbers(op: Any) -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    names = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    actual = run(lambda x: [op(x, (1, 1, 5, 7), mode) for pair in enumerate(names) for mode in pair], x)
    for by_number, by_name in zip(actual[::2], actual[1::2], strict=True):
        np.testing.assert_array_equal(by_number, by_name)
    for wrong in (4, -1, True):
        with pytest.raises(GraphError) as caught:
            run(lambda x, wrong=wrong: op(x, (1, 1, 5, 7), wrong), x)
        assert caught.value.code == "EK0414"


def test_modes_of_rounding_have_numbers() -> None:
    x = np.arange(7, dtype=np.float32)
    names = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    actual = run(lambda x: [ops.resize_nearest(x, (12,), 2, m) for pair in enumerate(names) for m in pair], x)
    for by_number, by_name in zip(actual[::2], actual[1::2], strict=True):
        np.testing.assert_array_equal(by_number, by_name)


def test_limits_of_boxes_come_with_the_call() -> None:
    rng = np.random.default_rng(0)
    boxes, scores = rng.random((2, 30, 4), np.float32), rng.random((2, 3, 30), np.float32)
    types = [TensorType(F32, ["b", "s", 4], HOST), TensorType(F32, ["b", "k", "s"], HOST)]
    limits = [TensorType(DType.int64, [], HOST), TensorType(F32, [], HOST), TensorType(DType.float64, [1], HOST)]
    session = InferenceSession()
    model = session.load(Graph("limits", ops.non_maximum_suppression, [*types, *limits]))
    for most, overlap, least in ((3, 0.3, 0.25), (0, 0.5, 0.5), (30, 0.0, 0.75), (-1, 0.0, 0.0)):
        (actual,) = model(boxes, scores, np.int64(most), np.float32(overlap), np.array([least]))
        said = (max(most, 0), overlap, least)
        graph = Graph("said", lambda b, s, said=said: ops.non_maximum_suppression(b, s, *said), types)
        np.testing.assert_array_equal(actual.to_numpy(), session.load(graph)(boxes, scores)[0].to_numpy())
    with pytest.raises(GraphError) as caught:
        Graph("two", lambda b, s, n: ops.non_maximum_suppression(b, s, n), [*types, TensorType(DType.int64, [2], HOST)])
    assert caught.value.code == "EK0492"


def test_the_seed_is_a_tensor_of_any_device() -> None:
    assert ops.random.SeedType(GPU) == TensorType(DType.int64, [], GPU)
    assert ops.random.SeedType == TensorType(DType.int64, [], HOST) == ops.random.SeedType(HOST)
    assert len({ops.random.SeedType, ops.random.SeedType(HOST)}) == 1

    def drawn(seed: Any) -> Any:
        ops.random.set_seed(seed)
        return ops.random.uniform([4], dtype=F32)

    results = []
    for device in (HOST, GPU):
        session = InferenceSession([CPU(), Accelerator("sim")])
        model = session.load(Graph("g", drawn, [ops.random.SeedType(device)]))
        seed = Buffer.from_numpy(np.array(7)).to(model.input_devices[0])
        results.append(model(seed)[0].to_numpy())
    np.testing.assert_array_equal(*results)


# *** weights ***


def test_equal_weights_of_a_name_are_one() -> None:
    def forward(x: Any) -> Any:
        return x * Weight("w", F32, [2], HOST) + Weight("w", F32, [2], HOST)

    graph = Graph("g", forward, [TensorType(F32, [2], HOST)])
    (actual,) = InferenceSession().load(graph, weights_registry={"w": np.float32([2, 3])})(np.float32([1, 1]))
    np.testing.assert_array_equal(actual.to_numpy(), [4, 6])
    for other in (
        Weight("w", F32, [3], HOST),
        Weight("w", F32, [2], HOST, align=64),
        Weight("w", DType.int8, [2], HOST),
    ):
        with pytest.raises(GraphError) as caught:
            Graph("g", lambda x, other=other: (forward(x), other + 1), [TensorType(F32, [2], HOST)])
        assert caught.value.code == "EK0432"


# *** models and sessions ***


def test_a_model_says_where_its_inputs_lie() -> None:
    sim = Accelerator("sim")
    types = [TensorType(F32, [2], HOST), TensorType(F32, [2], GPU), BufferType(F32, [2], HOST)]
    model = InferenceSession([CPU(), sim]).load(Graph("g", lambda x, y, z: (y + 1, x), types))
    assert model.input_devices == [CPU(), sim, CPU()]
    assert model.output_devices == [sim, CPU()]
    assert set(model.devices) == {CPU(), sim}


def scaled() -> Graph:
    return Graph("scaled", lambda x: x * Weight("w", F32, [2], HOST), [TensorType(F32, ["n", 2], HOST)])


def test_code_is_compiled_before_its_weights_are_there() -> None:
    session = InferenceSession()
    compiled = session.compile(scaled())
    assert repr(compiled) == "CompiledModel('scaled')"
    x = np.ones((3, 2), np.float32)
    models = [session.init(compiled, weights_registry={"w": np.full(2, k, np.float32)}) for k in (2, 3)]
    for k, model in enumerate(models):
        np.testing.assert_array_equal(model(x)[0].to_numpy(), x * (k + 2))
        np.testing.assert_array_equal(model(x[::-1])[0].to_numpy(), x * (k + 2))
    (again,) = session.init_all([compiled], weights_registry={"w": x[0]})
    np.testing.assert_array_equal(again(x)[0].to_numpy(), x)
    with pytest.raises(GraphError) as caught:
        session.init(compiled)
    assert caught.value.code == "EK0433"
    for wrong in (lambda: session.init(3), lambda: session.compile(3), lambda: session.init_all([1])):  # type: ignore[arg-type, list-item]
        with pytest.raises(GraphError) as caught:
            wrong()
        assert caught.value.code == "EK0409"


def test_code_for_several_devices_is_compiled_alone() -> None:
    session = InferenceSession([CPU(), Accelerator("sim")])
    graph = Graph("g", lambda x: (x.to(GPU) + Weight("w", F32, [], GPU)).to(HOST), [TensorType(F32, [2], HOST)])
    weight = Buffer.from_numpy(np.array(3, np.float32)).to(session.devices[1])
    model = session.init(session.compile(graph), weights_registry={"w": weight})
    np.testing.assert_array_equal(model(np.float32([1, 2]))[0].to_numpy(), [4, 5])


def test_a_buffer_is_cast_where_it_lies() -> None:
    x = np.float32([[1.5, -2.5]])
    for device in (CPU(), Accelerator("sim")):
        buffer = Buffer.from_numpy(x).to(device)
        actual = cast_tensor_to(buffer, DType.int32)
        assert actual.device == device and cast_tensor_to(buffer, F32) is buffer
        np.testing.assert_array_equal(actual.to_numpy(), [[1, -2]])
    actual = cast_tensor_to(Buffer.from_numpy(x), DType.float64, InferenceSession())
    np.testing.assert_array_equal(actual.to_numpy(), x)


# *** buffers and streams ***


def test_a_stream_has_its_device_and_a_buffer_its_stream() -> None:
    for device in (CPU(), Accelerator("sim")):
        stream = DeviceStream(device)
        assert stream.device == device == device.default_stream.device
        buffer = Buffer(F32, [2], stream=stream)
        assert buffer.device == device == buffer.stream.device
        near = Buffer.from_numpy(np.float32([1, 2]))
        for copy in (near.copy(stream), near.copy(stream=stream), near.copy(device, stream=stream), near.to(stream)):
            assert copy.device == device
            np.testing.assert_array_equal(copy.to_numpy(), [1, 2])
        assert [each.device for each in near.to([stream, CPU()])] == [device, CPU()]


def test_a_stream_of_another_device_is_refused() -> None:
    stream = DeviceStream(Accelerator("sim"))
    for wrong in (lambda: Buffer(F32, [2], CPU(), stream=stream), lambda: Buffer(F32, [2]).copy(CPU(), stream=stream)):
        with pytest.raises(DeviceError) as caught:
            wrong()
        assert caught.value.code == "EK0816"
    with pytest.raises(DeviceError, match="'stream' has to be a DeviceStream"):
        Buffer(F32, [2], stream=3)  # type: ignore[arg-type]


def test_marks_are_for_buffers_that_are_synchronized_by_hand() -> None:
    buffer = Buffer.from_numpy(np.float32([1, 2])).to(Accelerator("sim"))
    with pytest.raises(DeviceError) as caught:
        buffer.mark_as_ready()
    assert caught.value.code == "EK0845"
    buffer.disable_auto_sync()
    buffer.mark_as_ready()
    np.testing.assert_array_equal(buffer.to_numpy(), [1, 2])


# *** settings for debugging ***


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(GraphError, match="has no setting 'nan_chek'") as caught:
        DEBUG.nan_chek = True  # type: ignore[attr-defined]
    assert caught.value.code == "EK0478" and caught.value.hint == "did you mean 'nan_check'?"


X = np.float32([1, -1])


def logarithm() -> Graph:
    return Graph("logarithm", lambda x: ops.exp(ops.log(x)), [TensorType(F32, [2], HOST)])


def test_a_nan_is_found_where_it_is_made() -> None:
    InferenceSession().load(logarithm())(X)
    DEBUG.nan_check = True
    with pytest.raises(KernelError, match=r"nan is stored .* in op 'log'"):
        InferenceSession().load(logarithm())(X)
    with pytest.raises(KernelError, match="nan is stored"):
        InferenceSession(checks="safe").load(logarithm())(X)
    DEBUG.nan_check = False
    InferenceSession().load(logarithm())(X)


def test_checks_are_those_of_the_settings_where_a_session_says_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(**said: str) -> str:
        compiled = InferenceSession(**said).compile(logarithm())
        return str(compiled.options.checks)

    assert found() == "None"
    DEBUG.assert_level = "none"
    assert found() == "off" and found(checks="all") == "all"
    DEBUG.uninitialized_read_check = True
    assert found() == "all"
    DEBUG.assert_level = ""
    monkeypatch.setenv("EINKORN_CHECKS", "off+inf")
    assert found() == "all+inf"
    DEBUG.nan_check = True
    assert found(checks="safe") == "all+nan"


def test_settings_are_read_back_and_reset(tmp_path: Path) -> None:
    flags = (
        "nan_check",
        "uninitialized_read_check",
        "device_sync_mode",
        "stack_trace_on_error",
        "stack_trace_on_crash",
    )
    for name in flags:
        assert getattr(DEBUG, name) is False
        setattr(DEBUG, name, True)
        assert getattr(InferenceSession().debug, name) is True
    DEBUG.op_log_level = "ERROR"
    DEBUG.print_style = "full"  # type: ignore[assignment]
    DEBUG.ir_output_dir = tmp_path  # type: ignore[assignment]
    assert (DEBUG.op_log_level, DEBUG.print_style, DEBUG.ir_output_dir) == ("ERROR", PrintStyle.FULL, str(tmp_path))
    DEBUG.reset()
    assert not any(getattr(DEBUG, name) for name in flags)
    assert (DEBUG.op_log_level, DEBUG.print_style, DEBUG.ir_output_dir) == ("", PrintStyle.COMPACT, "")


@pytest.mark.parametrize(
    ("name", "value"), [("nan_check", "yes"), ("assert_level", "some"), ("op_log_level", 3), ("print_style", "wide")]
)
def test_a_wrong_value_names_the_setting(name: str, value: Any) -> None:
    with pytest.raises(GraphError, match=f"argument '{name}'") as caught:
        setattr(DEBUG, name, value)
    assert caught.value.code == "EK0478"


def test_the_sensible_mode_sets_several_and_single_settings_win() -> None:
    DEBUG.sensible_mode = True
    assert DEBUG.sensible_mode and DEBUG.nan_check and DEBUG.device_sync_mode and DEBUG.assert_level == "all"
    assert DEBUG.stack_trace_on_error and DEBUG.stack_trace_on_crash and Graph.debug.source_tracebacks
    assert not DEBUG.uninitialized_read_check
    DEBUG.nan_check = Graph.debug.source_tracebacks = False
    assert not DEBUG.nan_check and not Graph.debug.source_tracebacks and DEBUG.assert_level == "all"
    DEBUG.reset()
    assert not DEBUG.sensible_mode and DEBUG.assert_level == ""


def staged(x: Any) -> Any:
    return ops.log(x)


def test_ops_keep_the_lines_of_all_calls() -> None:
    def forward(x: Any) -> Any:
        return staged(x)

    def message() -> str:
        graph = Graph("g", forward, [TensorType(F32, [2], HOST)])
        with pytest.raises(KernelError) as caught:
            InferenceSession(checks="safe+nan").load(graph)(X)
        return str(caught.value)

    line = forward.__code__.co_firstlineno + 1
    assert f"test_further_names.py:{line}" not in message()
    Graph.debug.source_tracebacks = True
    assert f"test_further_names.py:{line}" in message()


def test_texts_of_loaded_graphs_go_to_a_folder(tmp_path: Path) -> None:
    DEBUG.ir_output_dir = tmp_path / "texts"  # type: ignore[assignment]
    InferenceSession().load(logarithm())
    written = {file.suffix: file.read_text() for file in (tmp_path / "texts").iterdir()}
    assert set(written) == {".graph", ".typed", ".mlir", ".llvm", ".asm"}
    assert "log(%0)" in written[".graph"] and "define" in written[".llvm"]


def test_prints_have_the_style_of_the_settings(capfd: pytest.CaptureFixture[str]) -> None:
    def forward(x: Any) -> Any:
        ops.print(x)
        return x + 1

    DEBUG.print_style = PrintStyle.NONE
    run(forward, X)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("nan-check,assert-level=all", "True all False False"),
        ("sensible", "True all True True"),
        ("source-tracebacks", "False  False True"),
    ],
)
def test_the_environment_sets_them_at_first(said: str, shown: str) -> None:
    code = (
        "from einkorn.graph import Graph, InferenceSession as S\n"
        "print(S.debug.nan_check, S.debug.assert_level, S.debug.device_sync_mode, Graph.debug.source_tracebacks)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"EINKORN_DEBUG": said}, capture_output=True, text=True
    )
    assert done.stdout.strip() == shown, done.stderr


def test_an_unknown_setting_of_the_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from einkorn.graph.engine.debug import DebugConfig

    monkeypatch.setenv("EINKORN_DEBUG", "nan-chek")
    with pytest.raises(ValueError, match="EINKORN_DEBUG is 'nan-chek'") as caught:
        _ = DebugConfig().nan_check
    assert "nan-check" in str(caught.value)
