"""Layers whose weights are shared by ranks: the same results on 1, 2 and 4 ranks, and what of a file a rank reads."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.distributed import Mesh, run_threads, size
from einkorn.tensor import Tensor
from support.split_layers import DIM, HEADS, HIDDEN, Layer, f32, numbers

from einkorn.dsl.diagnostics.errors import EinkornError, GraphError
from einkorn.graph import nn
from einkorn.graph.distributed.communicator import Alone
from einkorn.graph.quantization import QuantizationConfig, QuantizationEncoding
from einkorn.graph.weights import load_weights, write_gguf


def state_of(module: nn.Module[..., Any]) -> dict[str, Any]:
    return {
        name: numbers(*(int(dim) for dim in each.shape), seed=seed)
        for seed, (name, each) in enumerate(module.parameters)
    }


def on_ranks(count: int, make: Callable[[Any], nn.Module[..., Any]], state: dict[str, Any], x: Any) -> list[Any]:
    """The result of each rank, of a layer that they share and that takes the whole state."""

    def program() -> Any:
        module = make(Mesh({"model": size()})["model"])
        module.load_state_dict(state)
        return module.compile(f32("b", *x.shape[1:]))(x).numpy()

    return run_threads(program, count)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_transformer_layer(count: int) -> None:
    """One rank has the bits of the layer that is not split; several ranks add up their sums in another order."""
    whole = Layer(None)
    state, x = state_of(whole), numbers(2, 7, DIM, seed=99)
    whole.load_state_dict(state)
    wanted = whole.compile(f32("b", 7, DIM))(x).numpy()
    for mine in on_ranks(count, Layer, state, x):
        if count == 1:
            assert mine.tobytes() == wanted.tobytes()
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)


def test_experts_whose_sums_have_two_terms_have_the_same_bits() -> None:
    def made(group: Any) -> nn.Module[..., Any]:
        return nn.MoE(DIM, 16, 8, 2, split_experts=group)

    whole = made(None)
    state, x = state_of(whole), numbers(3, 5, DIM)
    whole.load_state_dict(state)
    wanted = whole.compile(f32("b", 5, DIM))(x).numpy()
    for count in (2, 4, 8):
        for mine in on_ranks(count, made, state, x):
            np.testing.assert_array_equal(mine, wanted)


def test_layers_of_names_of_their_own_are_split_by_hand() -> None:
    """Separate projections, and two layers that stay apart between the first and the second."""

    def made(group: Any) -> nn.Module[..., Any]:
        parts = nn.Linear(DIM, HIDDEN, split_out=group), nn.Linear(HIDDEN, DIM, split_in=group)
        return nn.Sequential(nn.Attention(DIM, HEADS, fused=False, split_heads=group), *parts)

    whole = made(None)
    state, x = state_of(whole), numbers(1, 6, DIM)
    whole.load_state_dict(state)
    wanted = whole.compile(f32("b", 6, DIM))(x).numpy()
    for mine in on_ranks(2, made, state, x):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)


def test_two_axes_of_a_mesh() -> None:
    """Rows of a batch over one axis, weights over the other."""
    state, x = state_of(nn.MLP(DIM, HIDDEN)), numbers(4, DIM)

    def program() -> Any:
        mesh = Mesh({"data": 2, "model": 2})
        layer = nn.MLP(DIM, HIDDEN, split_hidden=mesh["model"])
        layer.load_state_dict(state)
        return mesh["data"].rank, layer.compile(f32("b", DIM))(mesh["data"].part(x)).numpy()

    whole = nn.MLP(DIM, HIDDEN)
    whole.load_state_dict(state)
    wanted = whole.compile(f32("b", DIM))(x).numpy()
    for number, mine in run_threads(program, 4):
        np.testing.assert_allclose(mine, wanted[2 * number : 2 * number + 2], rtol=1e-5, atol=1e-6)


def test_quantised_weights_are_cut_between_blocks(tmp_path: Path) -> None:
    path = tmp_path / "layer.gguf"
    halves = np.array([0.5], np.float16).view(np.uint8)
    rows = np.random.default_rng(0).integers(0, 99, (6, 4, 34), np.uint8)
    rows[..., :2] = halves
    write_gguf(path, {"weight": rows.reshape(6, 136)}, {"general.architecture": "x"}, encodings={"weight": "q8_0"})
    x = numbers(3, 128)

    def program() -> Any:
        group = Mesh({"model": size()})["model"]
        results = []
        hows: list[dict[str, Any]] = [{"split_in": group}, {"split_out": group}]
        for how in hows:
            layer = nn.Linear(128, 6, bias=False, encoding="q8_0", **how)
            layer.load_state_dict({"weight": load_weights([path]).weight.data()})
            columns = group.part(x, 1) if "split_in" in how else x
            results.append(layer.compile(f32("b", columns.shape[1]))(np.ascontiguousarray(columns)).numpy())
        return results

    (wanted, _), *_ = run_threads(program, 1)
    first, second = run_threads(program, 2)
    np.testing.assert_allclose(first[0], wanted, rtol=1e-5)
    np.testing.assert_allclose(np.concatenate([first[1], second[1]], 1), wanted, rtol=1e-5)


class OneOfFour(Alone):
    """The communicator of a rank whose neighbours are not there: it loads, and calls nothing."""

    rank, size = 1, 4


def file_of(path: Path, **arrays: Any) -> Path:
    """A safetensors file whose elements begin with a page."""
    entries, end = {}, 0
    for name, array in arrays.items():
        entries[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    header = json.dumps(entries).encode().ljust(4088)
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"".join(each.tobytes() for each in arrays.values()))
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="counts the pages of a mapped file as Linux does")
def test_a_rank_maps_its_part_of_a_file_alone(tmp_path: Path) -> None:
    weight = numbers(8192, 2048)
    path = file_of(tmp_path / "layer.safetensors", weight=weight)
    layer = nn.Linear(2048, 8192, bias=False, split_out=Mesh({"model": 4}, OneOfFour()))
    layer.load_state_dict({"weight": load_weights([path]).weight.data()})
    part = layer.weight.numpy()
    np.testing.assert_array_equal(part, weight[2048:4096])
    assert 0.2 * weight.nbytes < mapped(path) < 0.35 * weight.nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="counts the pages of a mapped file as Linux does")
def test_a_compiled_layer_has_its_part_once(tmp_path: Path) -> None:
    """In panels: neither calls of few nor of many rows read the file again, and parts of its columns are no copies."""
    state = {"up_proj.weight": numbers(4096, 512) / 16, "down_proj.weight": numbers(512, 4096) / 16}
    path = file_of(tmp_path / "layer.safetensors", **state)
    xs = [numbers(rows, 512) for rows in (1, 2, 5, 40)]

    def made(group: Any) -> Any:
        layer = nn.MLP(512, 4096, gated=False, bias=False, split_hidden=group)
        layer.load_state_dict({name: each.data() for name, each in load_weights([path]).items()})
        return layer, layer.compile(f32("rows", 512))

    def program() -> Any:
        layer, compiled = made(Mesh({"model": 4})["model"])
        assert not layer.down_proj.weight.driver_tensor.is_contiguous
        results = [compiled(x).numpy() for x in xs]
        return compiled.model.memory["constants"], results

    _, whole = made(None)
    size = sum(each.nbytes for each in state.values())
    for constants, results in run_threads(program, 4):
        assert size / 4 <= constants < 1.02 * size / 4
        for x, result in zip(xs, results, strict=True):
            np.testing.assert_allclose(result, whole(x).numpy(), rtol=1e-4, atol=1e-4)
    assert mapped(path) < 0.02 * size
    again = pickle.loads(pickle.dumps(whole.model))  # which reads it
    assert again(xs[0])[0].to_numpy().tobytes() == whole(xs[0]).numpy().tobytes()


def mapped(path: Path) -> int:
    """The bytes of a file that have been read through maps of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    total = 0
    for line in lines:
        if line.endswith(str(path)):
            total += next(int(each.split()[1]) for each in lines if each.startswith("Rss:"))
    return total * 1024


def test_parts_of_columns_are_copied_and_no_more() -> None:
    """What a rank keeps of a weight that is cut along its inputs is its part, of its own memory."""
    weight = numbers(16, 64)
    layer = nn.Linear(64, 16, split_in=Mesh({"model": 4}, OneOfFour()))
    layer.load_state_dict({"weight": weight, "bias": weight[:, 0]})
    assert layer.weight.driver_tensor.size_in_bytes == weight.nbytes // 4
    assert not np.shares_memory(layer.weight.numpy(), weight)
    np.testing.assert_array_equal(layer.weight.numpy(), weight[:, 16:32])
    np.testing.assert_array_equal(layer.bias.numpy(), weight[:, 0])


def test_layers_are_pickled_and_copied_with_the_names_of_their_groups() -> None:
    x = numbers(2, DIM)

    def program() -> Any:
        layer = nn.MLP(DIM, HIDDEN, split_hidden=Mesh({"model": 2})["model"])
        results = [each.compile(f32("b", DIM))(x).numpy() for each in (layer, copy.deepcopy(layer))]
        return *results, pickle.loads(pickle.dumps(layer)).compile(f32("b", DIM))(x).numpy()

    for first, second, third in run_threads(program, 2):
        assert first.tobytes() == second.tobytes() == third.tobytes()


WRONG: list[tuple[str, Callable[[Any], Any]]] = [
    ("num_heads", lambda g: nn.Attention(12, 6, split_heads=g)),
    ("num_kv_heads", lambda g: nn.Attention(32, 8, 2, split_heads=g)),
    ("num_experts", lambda g: nn.MoE(8, 8, 6, 2, split_experts=g)),
    ("in_dim", lambda g: nn.Linear(6, 8, split_in=g)),
    ("out_dim", lambda g: nn.Linear(8, 6, split_out=g)),
    ("sections", lambda g: nn.Linear(8, 8, split_out=g, sections=(6, 2))),
    ("split_in", lambda g: nn.Linear(8, 8, split_in=g, split_out=g)),
    ("split_heads", lambda g: nn.Attention(32, 8, split_heads="model")),  # type: ignore[arg-type]
    ("encoding", lambda g: nn.Linear(64, 64, split_out=g, encoding=QuantizationEncoding.INT8_ROW)),
    (
        "encoding",
        lambda g: nn.Linear(64, 64, split_in=g, encoding="gptq", config=QuantizationConfig("gptq", 4, 32)),
    ),
]


@pytest.mark.parametrize(("argument", "make"), WRONG)
def test_what_ranks_cannot_share(argument: str, make: Callable[[Any], Any]) -> None:
    group = Mesh({"model": 4}, OneOfFour())["model"]
    with pytest.raises(GraphError) as caught:
        make(group)
    assert caught.value.argument == argument and "test_split_layers.py" in str(caught.value.place)


def test_weights_of_another_shape_and_eager_calls() -> None:
    layer = nn.Linear(8, 8, split_in=Mesh({"model": 4}, OneOfFour()))
    with pytest.raises(nn.StateError, match="'weight' is float32"):
        layer.load_state_dict({"weight": np.zeros((9, 8), np.float32), "bias": np.zeros(8, np.float32)})
    with pytest.raises(nn.StateError, match="'weight' is float32"):
        layer.load_state_dict({"weight": np.zeros(8, np.float32), "bias": np.zeros(8, np.float32)})
    with pytest.raises(EinkornError) as caught:
        layer(Tensor.ones([1, 2]))
    assert caught.value.code == "EK0866"
