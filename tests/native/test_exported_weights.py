"""Weights of exported files: inside, next to the code, given by the program; packed for the processors of the file."""

from __future__ import annotations

import ctypes
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.exported import CallFailed, Exported

from einkorn.dsl.contract import exports
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, Weight, ops
from einkorn.graph.engine import export
from einkorn.graph.engine.exported_weights import StoredWeight, lay_out
from einkorn.graph.engine.model import Model
from einkorn.graph.ir import PreparedValue

F32 = np.float32
HOST = DeviceRef.CPU()
SIZE = 256


def weights() -> dict[str, graphs.Array]:
    return {"w": graphs.numbers((SIZE, SIZE), F32, 1), "b": graphs.numbers((SIZE,), F32, 2)}


@pytest.fixture(scope="module")
def held() -> dict[str, graphs.Array]:
    return weights()


@pytest.fixture(scope="module")
def model(held: dict[str, graphs.Array]) -> Model:
    def forward(x: Any) -> Any:
        matrix, bias = Weight("w", DType.float32, (SIZE, SIZE), HOST), Weight("b", DType.float32, (SIZE,), HOST)
        return ops.relu(ops.matmul(x, ops.transpose(matrix, 0, 1)) + bias)

    graph = Graph("layer", forward, [TensorType(DType.float32, ("n", SIZE), HOST)])
    return InferenceSession().load(graph, weights_registry=held)


X = graphs.numbers((5, SIZE), F32, 3)


def same(model: Model, exported: Exported) -> None:
    assert exported(X)[0].tobytes() == graphs.results(model, X)[0].tobytes()


@pytest.mark.parametrize("target", ["x86-64-v3", "host"])
def test_weights_are_packed_for_the_processors_of_the_file(model: Model, tmp_path: Path, target: str) -> None:
    assert any(isinstance(item, PreparedValue) for item in model.ir.nodes)
    same(model, Exported(model, tmp_path, targets=target))


def test_weights_in_a_file_next_to_the_code(model: Model, tmp_path: Path) -> None:
    exported = Exported(model, tmp_path, "layer", weights="beside")
    file = exported.path.with_name(f"{exported.path.name}.safetensors")
    assert exported.path.stat().st_size < SIZE * SIZE * 4 < file.stat().st_size
    same(model, exported)
    data, code = file.read_bytes(), exported.path.read_bytes()
    for number, (changed, said) in enumerate(
        (
            (data[:-1], "bytes, and was exported with"),
            (data[:40] + b"00" + data[42:], "is not the one"),
            (None, "cannot be opened"),
        )
    ):
        exported.path = tmp_path / f"moved{number}.so"
        exported.path.write_bytes(code)
        if changed is not None:
            exported.path.with_name(f"{exported.path.name}.safetensors").write_bytes(changed)
        exported.open("layer")
        with pytest.raises(CallFailed, match=said) as caught:
            exported(X)
        assert caught.value.status == exports.WRONG_WEIGHTS
    failure = exports.ExportedFailure()
    path = ctypes.c_char_p(str(file).encode())
    assert exported.library.layer_open_weights(path, ctypes.byref(failure)) == 0
    same(model, exported)


def test_large_weights_are_written_next_to_an_object(
    model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "layer.o.safetensors"
    model.export(tmp_path / "layer.o", targets="host")
    assert not file.exists()
    monkeypatch.setattr(export, "MOST_IN_OBJECT", SIZE * SIZE)
    with caplog.at_level(logging.WARNING, "einkorn.export"):
        model.export(tmp_path / "layer.so", targets="host")
        assert not caplog.text and not (tmp_path / "layer.so.safetensors").exists()
        model.export(tmp_path / "layer.o", targets="host", header=tmp_path / "layer.h")
    assert "written to layer.o.safetensors" in caplog.text and file.stat().st_size > SIZE * SIZE * 4
    assert "_open_weights" in (tmp_path / "layer.h").read_text()


def test_weights_that_the_program_gives(model: Model, held: dict[str, graphs.Array], tmp_path: Path) -> None:
    exported = Exported(model, tmp_path, "layer", weights="given")
    with pytest.raises(CallFailed, match=r"weight .[wb]. was not given: call layer_set_weight first") as caught:
        exported(X)
    assert caught.value.status == exports.WRONG_WEIGHTS
    function, failure = exported.library.layer_set_weight, exports.ExportedFailure()
    for name, array in held.items():
        assert function(name.encode(), ctypes.c_void_p(array.ctypes.data), ctypes.byref(failure)) == 0
    same(model, exported)
    address = held["w"].ctypes.data
    for wrong, place, said in ((b"u", address, "no weight of this name"), (b"w", address + 2, "multiple of 4")):
        assert function(wrong, ctypes.c_void_p(place), ctypes.byref(failure)) == exports.WRONG_WEIGHTS
        assert said in exported.describe(failure)
    same(model, exported)


def header_of(*weights: tuple[str, DType, tuple[int, ...], bytes]) -> dict[str, Any]:
    """What the file of these weights says of its tensors."""
    stored = [StoredWeight(*weight, array=None) for weight in weights]
    _, _, header = lay_out(stored)
    assert len(header) % exports.ALIGNMENT == 0
    parsed: dict[str, Any] = json.loads(header[8:])
    return parsed


def test_weights_of_float8_and_complex_numbers_keep_their_dtypes() -> None:
    header = header_of(
        ("a", DType.float8_e4m3fn, (2, 32), bytes(64)),
        ("b", DType.complex64, (8,), bytes(64)),
        ("c", DType.float4_e2m1fn, (2, 2), bytes(2)),
    )
    assert (header["a"]["dtype"], header["a"]["shape"]) == ("F8_E4M3", [2, 32])
    assert (header["b"]["dtype"], header["b"]["shape"]) == ("C64", [8])
    assert (header["c"]["dtype"], header["c"]["shape"]) == ("U8", [2])  # packed


def test_a_weight_may_be_called_as_a_gap() -> None:
    header = header_of(("_gap1", DType.uint8, (3,), bytes(3)), ("b", DType.uint8, (5,), bytes(5)))
    assert header["_gap1"]["data_offsets"] == [0, 3] and header["b"]["data_offsets"] == [64, 69]
