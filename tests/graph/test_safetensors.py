"""Files of weights: read where they lie, named as programs name them, and never believed."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import HOST

from einkorn.dsl.diagnostics.errors import EinkornError, GraphError
from einkorn.graph import DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.types.safetensors_header import DTYPES
from einkorn.graph.weights import SafetensorWeights, WeightData, WeightsFormat, load_weights, weights_format

NAMES = {dtype: name for name, (_, dtype) in DTYPES.items() if dtype is not None}


def written(path: Path, tensors: Mapping[str, Any], metadata: Any = None, gap: int = 0) -> Path:
    """A file of the format; spaces behind the header move what follows by `gap` bytes."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, array in tensors.items():
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        kind = NAMES[DType.from_numpy(array.dtype)]
        end = len(data) + array.nbytes
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), end]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + gap)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def raw(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


W = np.arange(6, dtype=np.float32).reshape(3, 2)
TENSORS = {
    "layers.0.norm.weight": np.float32([1, 2]),
    "layers.0.linear.weight": W,
    "layers.10.linear.weight": -W,
    "steps": np.int64(7),
    "data": np.zeros((0, 3), np.float16),
}


@pytest.fixture
def weights(tmp_path: Path) -> SafetensorWeights:
    return SafetensorWeights([written(tmp_path / "model.safetensors", TENSORS, {"format": "pt"})])


def test_names_are_attributes_and_indices(weights: SafetensorWeights) -> None:
    layer = weights.layers[0]
    assert (weights.name, layer.name, layer.linear.weight.name) == ("", "layers.0", "layers.0.linear.weight")
    assert layer.linear.weight.exists() and not layer.exists() and not layer.linear.bias.exists()
    assert [name for name, _ in weights.items()] == list(TENSORS)
    assert {name: w.name for name, w in layer.items()} == {
        "norm.weight": "layers.0.norm.weight",
        "linear.weight": "layers.0.linear.weight",
    }
    assert [name for name, _ in weights.layers[1].items()] == []
    assert weights["data"].data().shape == [0, 3] and weights["layers.0"].norm["weight"].exists()
    assert "layers.0" in repr(layer)


def test_data_is_the_files_own_memory(weights: SafetensorWeights) -> None:
    first, second = (weights.layers[0].linear.weight.data() for _ in range(2))
    assert (first.name, first.dtype, first.shape) == ("layers.0.linear.weight", DType.float32, [3, 2])
    assert first.quantization_encoding is None
    assert np.shares_memory(np.asarray(first), np.asarray(second))
    np.testing.assert_array_equal(np.from_dlpack(first), W)
    assert first.data.is_read_only  # type: ignore[attr-defined]
    half = first.astype(DType.bfloat16)
    assert half.dtype is DType.bfloat16 and first.astype(DType.float32) is first
    np.testing.assert_array_equal(np.asarray(half), W.astype(ml_dtypes.bfloat16))


def test_a_model_reads_the_file(weights: SafetensorWeights) -> None:
    w, scale = weights.layers[0].linear.weight.allocate(shape=[3, 2]), weights.layers[0].norm.weight.allocate()
    type = TensorType(DType.float32, ["n", 3], HOST)
    graph = Graph("g", forward=lambda x: ops.matmul(x, w) * scale, input_types=[type])
    registry = weights.allocated_weights
    assert set(registry) == {"layers.0.linear.weight", "layers.0.norm.weight"}
    x = np.ones((2, 3), np.float32)
    for given_ in (registry, {name: weights[name].data() for name in registry}):
        model = InferenceSession().load(graph, weights_registry=given_)
        np.testing.assert_array_equal(model(x)[0].to_numpy(), x @ W * np.float32([1, 2]))


def test_a_weight_in_another_dtype_is_converted(weights: SafetensorWeights) -> None:
    weight = weights.layers[0].linear.weight.allocate(DType.float16)
    assert (weight.dtype, weight.shape) == (DType.float16, [3, 2])
    np.testing.assert_array_equal(np.asarray(weights.allocated_weights[weight.name]), W.astype(np.float16))


def test_a_weight_as_bytes(weights: SafetensorWeights) -> None:
    weight = weights.layers[0].linear.weight.allocate_as_bytes(DType.float32)
    assert (weight.dtype, weight.shape) == (DType.uint8, [3, 8])
    np.testing.assert_array_equal(np.asarray(weights.allocated_weights[weight.name]), W.view(np.uint8))
    assert weights.steps.allocate_as_bytes().shape == [8]


@pytest.mark.parametrize("gap", [0, 1])
def test_every_dtype(tmp_path: Path, gap: int) -> None:
    tensors = {
        dtype.name: np.arange(6).reshape(2, 3).astype(dtype.to_numpy()) for dtype in NAMES if not dtype.is_packed()
    }
    weights = load_weights([written(tmp_path / "model.safetensors", tensors, gap=gap)])
    for name, array in tensors.items():
        actual = weights[name].data()
        assert actual.dtype is DType[name]
        np.testing.assert_array_equal(np.asarray(actual).view(np.uint8), array.view(np.uint8))


def test_packed_and_foreign_dtypes(tmp_path: Path) -> None:
    header = {
        "a": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]},
        "b": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [2, 5]},
    }
    weights = load_weights([raw(tmp_path / "model.safetensors", header, bytes([0x21, 0x43]) + bytes(3))])
    np.testing.assert_array_equal(np.asarray(weights.a.data()).astype(np.float32), [0.5, 1, 1.5, 2])
    with pytest.raises(GraphError, match="F6_E2M3"):
        weights.b.data()


def test_several_files(tmp_path: Path) -> None:
    first = written(tmp_path / "1.safetensors", {"a": W, "b": W})
    second = written(tmp_path / "2.safetensors", {"c": W, "b": -W})
    with pytest.raises(GraphError, match="two files have a weight of the name 'b'"):
        load_weights([first, second])
    weights = SafetensorWeights([first, second], tensors_to_file_idx={"b": 1})
    np.testing.assert_array_equal(np.asarray(weights.b.data()), -W)
    assert [name for name, _ in SafetensorWeights([first, second], tensors=["c"]).items()] == ["c"]
    assert weights_format([first, second]) is WeightsFormat.safetensors


def test_what_is_refused(weights: SafetensorWeights, tmp_path: Path) -> None:
    cases: list[tuple[str, type[Exception], Callable[[], Any]]] = [
        ("EK0435", KeyError, lambda: weights.layers[0].data()),
        ("EK0435", KeyError, lambda: weights.layers[0].norm.wieght.allocate()),
        ("EK0435", ValueError, lambda: weights.layers[0].linear.weight.allocate(shape=[2, 3])),
        ("EK0435", ValueError, lambda: weights.steps.allocate_as_bytes(DType.int32)),
        ("EK0435", ValueError, lambda: weights[1.5]),  # type: ignore[index]
        ("EK0432", ValueError, lambda: weights.steps.allocate(quantization_encoding="q4")),  # type: ignore[arg-type]
        ("EK0478", TypeError, lambda: weights.steps.allocate(dtype=np.int8)),  # type: ignore[arg-type]
        ("EK0434", ValueError, lambda: load_weights([])),
        ("EK0434", ValueError, lambda: load_weights("model.safetensors")),
        ("EK0434", ValueError, lambda: load_weights(["a.safetensors", "b.gguf"])),
        ("EK0434", ValueError, lambda: load_weights(["b.gguf"])),
        ("EK0434", ValueError, lambda: load_weights(["b.bin"])),
        ("EK0434", ValueError, lambda: load_weights([3])),  # type: ignore[list-item]
        ("EK0434", ValueError, lambda: load_weights([tmp_path / "none.safetensors"])),
    ]
    for code, kind, call in cases:
        with pytest.raises(EinkornError) as caught:
            call()
        assert (caught.value.code, isinstance(caught.value, kind)) == (code, True), caught.value
        assert caught.value.place is not None and caught.value.place.file == __file__
    with pytest.raises(EinkornError) as caught:
        weights.layers[0].norm.wieght.data()
    assert "norm.weight" in str(caught.value.hint)


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


MALFORMED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "empty": (lambda p: raw_bytes(p, b""), "has 0 bytes"),
    "seven bytes": (lambda p: raw_bytes(p, bytes(7)), "has 7 bytes"),
    "no header": (lambda p: raw(p, b""), "not a JSON object"),
    "a huge header": (lambda p: raw(p, b"{}", length=1 << 63), "claims a header of"),
    "a header beyond the file": (lambda p: raw(p, b"{}", length=50), "it is truncated"),
    "a list": (lambda p: raw(p, []), "not a JSON object"),
    "text": (lambda p: raw(p, b"{nothing}"), "cannot be read"),
    "no unicode": (lambda p: raw(p, b'{"\xff": 1}'), "cannot be read"),
    "nested": (lambda p: raw(p, b'{"a":' * 100_000), "nested too deeply"),
    "a name twice": (lambda p: raw(p, b'{"a": 1, "a": 1}'), "twice"),
    "a huge number": (lambda p: raw(p, b'{"a": ' + b"9" * 10_000 + b"}"), "header"),
    "metadata of numbers": (lambda p: raw(p, {"__metadata__": {"a": 1}}), "should be a string"),
    "metadata a list": (lambda p: raw(p, {"__metadata__": []}), "should be an object"),
    "no tensor": (lambda p: raw(p, {"a": 3}), "tensor 'a'"),
    "a field too many": (lambda p: raw(p, {"a": {**entry(), "x": 1}}, bytes(8)), "unknown field"),
    "a field too few": (lambda p: raw(p, {"a": {"dtype": "F32"}}), "lacks"),
    "an unknown dtype": (lambda p: raw(p, {"a": entry("F33")}, bytes(8)), "dtype"),
    "a negative size": (lambda p: raw(p, {"a": entry(shape=[-2])}, bytes(8)), "shape[0]"),
    "a size of a float": (lambda p: raw(p, {"a": entry(shape=[2.0])}, bytes(8)), "shape[0]"),
    "too many axes": (lambda p: raw(p, {"a": entry(shape=[1] * 65, offsets=[0, 4])}, bytes(4)), "65 axes"),
    "one offset": (lambda p: raw(p, {"a": entry(offsets=[0])}, bytes(8)), "data_offsets"),
    "offsets backwards": (lambda p: raw(p, {"a": entry(shape=[0], offsets=[8, 0])}, bytes(8)), "data_offsets"),
    "too few bytes for the shape": (lambda p: raw(p, {"a": entry(shape=[3])}, bytes(8)), "takes 12 bytes"),
    "an overflowing shape": (lambda p: raw(p, {"a": entry(shape=[1 << 62, 1 << 62, 0, 4, 1])}, bytes(8)), "takes 0"),
    "a huge shape": (lambda p: raw(p, {"a": entry(shape=[1 << 62, 1 << 62])}, bytes(8)), "takes 2**126"),
    "half a byte": (lambda p: raw(p, {"a": entry("F4", [3], [0, 2])}, bytes(2)), "takes 2 bytes"),
    "truncated": (lambda p: raw(p, {"a": entry()}, bytes(7)), "8 bytes of elements, up to tensor 'a', and 7"),
    "a huge claim": (lambda p: raw(p, {"a": entry(shape=[1 << 50], offsets=[0, 1 << 52])}, b""), "it is truncated"),
    "oversized": (lambda p: raw(p, {"a": entry()}, bytes(9)), "1 bytes behind its last tensor"),
    "a hole": (lambda p: raw(p, {"a": entry(offsets=[4, 12])}, bytes(12)), "4 bytes before tensor 'a'"),
    "shared bytes": (lambda p: raw(p, {"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)), "share bytes, 'a' and"),
    "one place twice": (lambda p: raw(p, {"a": entry(), "b": entry()}, bytes(8)), "share bytes"),
}


def raw_bytes(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files(name: str, tmp_path: Path) -> None:
    make, text = MALFORMED[name]
    path = make(tmp_path / "model.safetensors")
    tracemalloc.start()
    try:
        with pytest.raises(GraphError) as caught:
            load_weights([path])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "EK0434" and text in caught.value.message, caught.value.message
    assert str(path) in caught.value.message and len(caught.value.message) < 1000
    assert peak < 8 << 20, "memory is taken by what the file claims"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_files_with_wrong_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Either an error that names the file, or tensors that lie in it."""
    path = written(tmp_path_factory.getbasetemp() / "fuzz.safetensors", TENSORS)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["change", "cut", "digit", "insert"])):
            case "change":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[max(at, 1) :]
            case "digit":
                content[at] = data.draw(st.sampled_from(b"0123456789,[]{}"))
            case _:
                content[at:at] = data.draw(st.binary(max_size=9))
    path.write_bytes(content)
    try:
        weights = SafetensorWeights([path])
    except GraphError as error:
        assert error.code == "EK0434" and str(path) in error.message
        return
    for _, weight in weights.items():
        actual = weight.data()
        assert np.asarray(actual).nbytes == math.prod(map(int, actual.shape)) * actual.dtype.size_in_bytes


def test_weight_data_of_an_array() -> None:
    actual = WeightData.from_numpy(W, "w")
    assert (actual.name, actual.dtype, actual.shape) == ("w", DType.float32, [3, 2])
    assert np.shares_memory(np.asarray(actual), W) and actual.__dlpack_device__()[0] == 1
