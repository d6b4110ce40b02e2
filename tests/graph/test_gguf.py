"""GGUF files: read where they lie, written, split in parts, and never believed."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.graphs import HOST

from einkorn.cli import application as cli
from einkorn.dsl.diagnostics.errors import EinkornError, GraphError
from einkorn.graph import DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.quantization import QuantizationEncoding
from einkorn.graph.weights import GGUFWeights, WeightsFormat, load_weights, weights_format, write_gguf

W = np.arange(12, dtype=np.float32).reshape(3, 4)
BLOCKS = np.random.default_rng(0).integers(0, 60, (2, 3, 68), np.uint8)
TENSORS: dict[str, Any] = {
    "blk.0.weight": W,
    "blk.0.bias": np.array([1, 2, 3], np.float16),
    "blk.10.weight": BLOCKS,
    "steps": np.int64(7),
    "empty": np.zeros((0, 3), ml_dtypes.bfloat16),
}
METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "eps": 1e-5,
    "flag": True,
    "offset": -3,
    "tokenizer.ggml.tokens": ["<s>", "é", ""],
    "tokenizer.ggml.scores": np.array([0.5, 1], np.float32),
    "eight": np.uint8(8),
}
Q8_0 = QuantizationEncoding.Q8_0


def bits(array: Any) -> Any:
    return np.ravel(array).view(np.uint8)


def written(path: Path, tensors: Any = TENSORS, metadata: Any = METADATA) -> Path:
    write_gguf(path, tensors, metadata, encodings={"blk.10.weight": Q8_0} if "blk.10.weight" in tensors else {})
    return path


@pytest.fixture
def weights(tmp_path: Path) -> GGUFWeights:
    return GGUFWeights(written(tmp_path / "model.gguf"))


def test_what_is_written_comes_back(weights: GGUFWeights) -> None:
    assert [name for name, _ in weights.items()] == list(TENSORS)
    for name, array in TENSORS.items():
        data = weights[name].data()
        assert data.dtype is DType.from_numpy(np.asarray(array).dtype) and data.shape == list(np.shape(array))
        np.testing.assert_array_equal(bits(np.asarray(data)), bits(array))
    assert weights.metadata.keys() == METADATA.keys()
    for name, value in METADATA.items():
        np.testing.assert_array_equal(weights.metadata[name], np.asarray(value, np.float32) if name == "eps" else value)


def test_elements_lie_in_the_file(weights: GGUFWeights) -> None:
    first, second = (weights.blk[0].weight.data() for _ in range(2))
    assert np.shares_memory(np.asarray(first), np.asarray(second)) and first.data.is_read_only  # type: ignore[attr-defined]
    assert np.asarray(first).ctypes.data % 32 == 0


def test_a_quantised_weight(weights: GGUFWeights) -> None:
    weight = weights.blk[10].weight.allocate(quantization_encoding=Q8_0, shape=[2, 3, 64])
    assert (weight.dtype, weight.shape, weight.quantization_encoding) == (DType.uint8, [2, 3, 68], Q8_0)
    assert weight.original_dtype_and_shape == (DType.float32, [2, 3, 64])
    for wrong in (
        lambda: weights.blk[10].weight.allocate(DType.float32),
        lambda: weights.blk[10].weight.allocate(quantization_encoding=QuantizationEncoding.Q4_0),
        lambda: weights.blk[0].weight.allocate(quantization_encoding=Q8_0),
        lambda: weights.blk[10].weight.allocate(shape=[2, 64]),
    ):
        with pytest.raises(EinkornError) as caught:
            wrong()
        assert caught.value.code == "EK0435"
        assert caught.value.place is not None and caught.value.place.file == __file__


def test_a_model_reads_the_file(tmp_path: Path) -> None:
    quantized = BLOCKS[0]
    write_gguf(tmp_path / "m.gguf", {"w": quantized}, encodings={"w": "q8_0"})
    weights = load_weights([tmp_path / "m.gguf"])
    w = weights.w.allocate()
    assert w.quantization_encoding is Q8_0
    graph = Graph("g", lambda x: ops.qmatmul(Q8_0, None, x, w), [TensorType(DType.float32, ["n", 64], HOST)])
    model = InferenceSession().load(graph, weights_registry=weights.allocated_weights)
    x = np.ones((2, 64), np.float32)
    elements = quantized.reshape(3, 2, 34)
    scales = elements[..., :2].copy().view(np.float16).astype(np.float32)
    decoded = (elements[..., 2:].view(np.int8) * scales).reshape(3, 64)
    np.testing.assert_allclose(model(x)[0].to_numpy(), x @ decoded.T, rtol=1e-4, atol=1e-4)


def test_the_gguf_package_agrees(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(written(tmp_path / "ours.gguf", {k: v for k, v in TENSORS.items() if k != "empty"}))
    for tensor in reader.tensors:
        np.testing.assert_array_equal(bits(tensor.data), bits(TENSORS[tensor.name]))
    assert reader.fields["tokenizer.ggml.tokens"].contents() == METADATA["tokenizer.ggml.tokens"]
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "llama")
    writer.add_array("words", ["a", "b"])
    writer.add_float64("number", 0.1)
    writer.add_tensor("w", W)
    for kind in gguf.GGMLQuantizationType:
        if kind in gguf.GGML_QUANT_SIZES and kind >= 2:
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            if kind not in (24, 25, 26, 27, 28, 30):
                writer.add_tensor(kind.name, np.zeros((2, size), np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = GGUFWeights(tmp_path / "theirs.gguf")
    assert weights.metadata["words"] == ["a", "b"] and weights.metadata["number"] == 0.1
    np.testing.assert_array_equal(np.asarray(weights.w.data()), W)
    for row in weights.rows()[1:]:
        elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[row.name]]
        assert row.format.upper() == row.name and row.shape == (2, elements) and row.bytes == 2 * size
    assert weights.Q4_K.data().quantization_encoding is QuantizationEncoding.Q4_K
    with pytest.raises(GraphError, match=r"format: expected .* got Q2_K"):
        weights.Q2_K.data()


# *** several files ***


def parts(folder: Path, count: int, claims: dict[str, Any] | None = None) -> list[Path]:
    paths = [folder / f"m-{k + 1:05}-of-{count:05}.gguf" for k in range(count)]
    for k, path in enumerate(paths):
        metadata = {
            "split.no": np.uint16(k),
            "split.count": np.uint16(count),
            "split.tensors.count": count,
            **(claims or {}),
        }
        write_gguf(path, {f"w{k}": W + k}, metadata)
    return paths


def test_a_split_file_is_one(tmp_path: Path) -> None:
    paths = parts(tmp_path, 3)
    for given in (paths, paths[:1], paths[2:]):
        weights = load_weights(given)
        assert [name for name, _ in weights.items()] == ["w0", "w1", "w2"]
        np.testing.assert_array_equal(np.asarray(weights.w2.data()), W + 2)
    assert weights_format(paths) is WeightsFormat.gguf
    for wrong, text in (
        (paths[:2], "split.count"),
        ([paths[1], paths[0], paths[2]], "split.no"),
        ([paths[0], paths[0], paths[0]], "split.no"),
    ):
        with pytest.raises(GraphError, match=text):
            load_weights(wrong)
    paths[1].unlink()
    with pytest.raises(GraphError, match=r"m-00002-of-00003.gguf in its folder"):
        load_weights(paths[:1])
    with pytest.raises(GraphError, match=r"split.tensors.count'?: expected 2"):
        load_weights(parts(tmp_path, 2, {"split.tensors.count": 5}))
    with pytest.raises(GraphError, match="two files have a weight of the name 'a'"):
        load_weights([written(tmp_path / f"{k}.gguf", {"a": W}, {"split.count": 2, "split.no": k}) for k in range(2)])


def safetensors(path: Path, name: str, array: Any) -> Path:
    header = json.dumps(
        {name: {"dtype": "F32", "shape": list(array.shape), "data_offsets": [0, array.nbytes]}}
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + array.tobytes())
    return path


def test_an_index_of_safetensors_files(tmp_path: Path) -> None:
    safetensors(tmp_path / "1.safetensors", "a", W)
    safetensors(tmp_path / "2.safetensors", "b", -W)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    weights = load_weights([index])
    np.testing.assert_array_equal(np.asarray(weights.b.data()), -W)
    for data, text in (
        ({"weight_map": {"a": "../1.safetensors"}}, "not a .safetensors file of its folder"),
        ({"weight_map": {"a": "/etc/passwd"}}, "not a .safetensors file of its folder"),
        ({"weight_map": {"a": "3.safetensors"}}, "3.safetensors"),
        ({"weight_map": {"c": "1.safetensors"}}, "has weight 'c'"),
        ({"weight_map": {"a": 3}}, "string"),
        ({"weight_map": []}, "object"),
        ({}, "weight_map"),
        ([], "object"),
    ):
        index.write_text(json.dumps(data))
        with pytest.raises(GraphError, match=text) as caught:
            load_weights([index])
        assert caught.value.code == "EK0434"
    index.write_text("{")
    with pytest.raises(GraphError, match="cannot be read"):
        load_weights([index])


# *** hostile files ***


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def head(tensors: int = 0, metadata: int = 0, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, metadata)


def row(name: str = "a", sizes: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def one(*rows: bytes, data: int = 64) -> bytes:
    start = head(len(rows)) + b"".join(rows)
    return start + bytes(-len(start) % 32) + bytes(data)


def field(name: str, kind: int, value: bytes) -> bytes:
    return head(0, 1) + text(name) + struct.pack("<I", kind) + value


HUGE = 1 << 62
MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "magic: expected 4 bytes from byte 0 on, got 0"),
    "another magic": (head(magic=b"GGML"), r"magic: expected b'GGUF', got b'GGML'"),
    "version 1": (head(version=1), "version: expected 2 or 3, got 1"),
    "big-endian": (head(version=3 << 24), "version: expected 2 or 3, got 50331648"),
    "cut in the head": (head()[:20], "metadata_kv_count"),
    "huge tensor count": (head(tensors=HUGE), "tensor_count: expected at most 0 in the 0 bytes"),
    "huge metadata count": (head(metadata=HUGE), "metadata_kv_count: expected at most 0"),
    "a huge name": (head(0, 1) + struct.pack("<Q", HUGE) + bytes(90), "metadata 0: name: length: expected at most 90"),
    "a name that is not a text": (head(0, 1) + struct.pack("<Q", 2) + b"\xff\xfe" + bytes(90), "UTF-8, got byte 0xff"),
    "a name twice": (head(0, 2) + 2 * (text("a") + struct.pack("<IB", 0, 1)) + bytes(9), "a name that no other has"),
    "an unknown type": (field("a", 13, bytes(9)), "metadata 'a': type: expected 0 to 12, got 13"),
    "a bool of 2": (field("a", 7, b"\2"), "metadata 'a': expected 0 or 1, got 2"),
    "bools of 2": (field("a", 9, struct.pack("<IQ", 7, 2) + b"\0\2"), "expected 0 or 1, got 2"),
    "a huge array": (field("a", 9, struct.pack("<IQ", 0, HUGE) + bytes(9)), "metadata 'a': length: expected at most 9"),
    "a huge array of texts": (field("a", 9, struct.pack("<IQ", 8, HUGE)), "metadata 'a': length: expected at most 0"),
    "arrays in arrays": (field("a", 9, struct.pack("<IQ", 9, 1) * 9), "at most 4 arrays in each other"),
    "an alignment of 3": (field("general.alignment", 4, struct.pack("<I", 3)), "general.alignment: expected a power"),
    "an alignment of 0": (field("general.alignment", 4, struct.pack("<I", 0)), "general.alignment"),
    "an alignment that is a text": (field("general.alignment", 8, text("32")), "general.alignment"),
    "five axes": (one(row(sizes=(1,) * 5)), "tensor 'a': n_dims: expected at most 4, got 5"),
    "an unknown format": (one(row(kind=77)), "tensor 'a': type: expected one of 0, 1, 2"),
    "half a block": (one(row(sizes=(40,), kind=8)), r"dims\[0\]: expected a multiple of 32, as q8_0 has blocks"),
    "a size beyond 63 bits": (one(row(sizes=(0, 1 << 63))), r"dims\[1\]: expected at most"),
    "a huge shape": (one(row(sizes=(HUGE, HUGE))), r"offset: expected 2\*\*126.0 bytes within 64 of elements, got 0"),
    "an empty tensor of a huge shape": (one(row(sizes=(0, HUGE, HUGE))), "dims: expected at most"),
    "beyond the end": (one(row(sizes=(17,))), "offset: expected 68 bytes within 64"),
    "a huge offset": (one(row(offset=HUGE)), "tensor 'a': offset: expected 16 bytes within 64"),
    "an odd offset": (one(row(offset=8)), "offset: expected a multiple of 32, got 8"),
    "a tensor twice": (one(row(), row()), "tensor 1: name: expected a name that no other has, got 'a'"),
    "an overlap": (one(row(sizes=(9,)), row("b", offset=32), data=96), "tensor 'b': offset: expected byte"),
    "one place twice": (one(row(), row("b")), "tensor 'b': offset: expected byte"),
    "no elements": (head(1) + row(), "offset: expected 16 bytes within 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files(name: str, tmp_path: Path) -> None:
    data, message = MALFORMED[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(GraphError, match=message) as caught:
            load_weights([path])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    error = caught.value
    assert error.code == "EK0434" and str(path) in error.message and len(error.message) < 1000
    assert error.expected is not None and error.got is not None
    assert error.place is not None and error.place.file == __file__
    assert peak < 1 << 20, "memory is taken by what the file claims"


NUMBERS = [0, 1, 2, 3, 7, 8, 9, 31, 32, 255, 1 << 15, 1 << 31, (1 << 32) - 1, HUGE, 1 << 63, (1 << 64) - 1]


def mutated(data: bytes, dice: random.Random) -> bytes:
    """A file with a few changes: bytes, whole counts, parts that are cut, moved or repeated."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(changed) or 1)
        match dice.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                changed[at : at + 8] = struct.pack("<Q", dice.choice(NUMBERS))
            case 2:
                changed[at : at + 4] = struct.pack("<I", dice.choice(NUMBERS) & 0xFFFFFFFF)
            case 3:
                del changed[at:]
            case 4:
                other = dice.randrange(len(changed) or 1)
                changed[at : at + 16] = changed[other : other + 16]
            case _:
                changed[at:at] = bytes(dice.randrange(256) for _ in range(dice.randrange(9)))
    return bytes(changed)


def try_mutants(path: Path, count: int, seed: int) -> int:
    """How many of the mutants are refused; each is, with a named error, or has tensors that lie in the file."""
    dice = random.Random(seed)
    data = written(path).read_bytes()
    refused = 0
    for _ in range(count):
        mutant = mutated(data, dice)
        path.write_bytes(mutant)
        try:
            weights = GGUFWeights(path)
        except GraphError as error:
            assert error.code == "EK0434" and str(path) in error.message, error
            refused += 1
            continue
        for weight_row in weights.rows():
            assert weight_row.bytes <= len(mutant)
            try:
                assert np.asarray(weights[weight_row.name].data()).nbytes == weight_row.bytes
            except GraphError as error:
                assert error.code == "EK0434" and "format" in error.message
    return refused


def test_mutants(tmp_path: Path) -> None:
    assert try_mutants(tmp_path / "model.gguf", 500, 1) > 100


def test_ten_thousand_mutants(tmp_path: Path) -> None:
    assert try_mutants(tmp_path / "model.gguf", 10_000, 2) > 3000


def test_what_cannot_be_written(tmp_path: Path) -> None:
    cases: list[Callable[[], Any]] = [
        lambda: write_gguf(tmp_path / "a.gguf", {"w": np.zeros(3, np.complex64)}),
        lambda: write_gguf(tmp_path / "a.gguf", {"w": np.zeros((1,) * 5, np.float32)}),
        lambda: write_gguf(tmp_path / "a.gguf", {"w": np.zeros(33, np.uint8)}, encodings={"w": Q8_0}),
        lambda: write_gguf(tmp_path / "a.gguf", {}, encodings={"w": Q8_0}),
        lambda: write_gguf(tmp_path / "a.gguf", {}, {"a": {}}),
        lambda: write_gguf(tmp_path / "a.gguf", {}, {"a": [1, 2]}),
    ]
    for case in cases:
        with pytest.raises(GraphError) as caught:
            case()
        assert caught.value.code == "EK0434" and not (tmp_path / "a.gguf").exists()


# *** the command line ***


def test_the_command_lists_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "model.gguf")
    assert cli.run(["weights", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "general.architecture: 'llama'" in shown and "tokenizer.ggml.tokens: ['<s>', 'é', '']" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["blk.10.weight", "q8_0", "2", "x", "3", "x", "64", "408", "B"] in rows
    assert ["steps", "int64", "scalar", "8", "B"] in rows and rows[-1][:2] == ["5", "tensors,"]
    assert cli.run(["weights", "--json", str(path)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["metadata"]["llama.block_count"] == 4 and data["metadata"]["tokenizer.ggml.scores"] == [0.5, 1]
    assert data["tensors"][0] == {"name": "blk.0.weight", "format": "float32", "shape": [3, 4], "bytes": 48}
    assert cli.run(["weights", str(safetensors(tmp_path / "m.safetensors", "a", W))]) == 0
    assert "F32" in capsys.readouterr().out
    assert cli.run(["weights", str(tmp_path / "none.gguf")]) == 1
    assert "EK0434" in capsys.readouterr().err
    assert cli.run(["weights"]) == 2
