"""Products with small weights: they are packed, and share the code of products with large ones."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler import groups
from einkorn.compiler.sharing import SharedGroup, shared_groups
from einkorn.dsl.contract.unit import EntrySpec
from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model

Array = np.ndarray[Any, Any]
SHAPES = [(1, 128), (9, 8), (128, 64), (128, 256)]  # inner axis and columns

pytestmark = pytest.mark.as_shipped


def weights(transposed: bool) -> dict[str, Array]:
    rng, made = np.random.default_rng(0), dict[str, Array]()
    for number, (k, n) in enumerate(SHAPES):
        made[f"w{number}"] = rng.standard_normal((n, k) if transposed else (k, n)).astype(np.float32)
        made[f"b{number}"] = rng.standard_normal(n).astype(np.float32)
    return made


def layers(transposed: bool, rows: Any = "m") -> Graph:
    """A layer for each weight, each with an input of its own."""
    given = weights(transposed)

    def constant(name: str) -> Any:
        return ops.constant_external(name, TensorType(DType.float32, given[name].shape, DeviceRef.CPU()))

    def forward(*xs: Any) -> Any:
        made = []
        for number, x in enumerate(xs):
            weight = constant(f"w{number}")
            right = ops.transpose(weight, 0, 1) if transposed else weight
            made.append(ops.silu(ops.matmul(x, right) + constant(f"b{number}")))
        return tuple(made)

    types = [TensorType(DType.float32, [rows, k], DeviceRef.CPU()) for k, _ in SHAPES]
    return Graph("layers", forward=forward, input_types=types)


def agree(model: Model, transposed: bool, rows: int) -> list[bytes]:
    """Compares the results with those of float64."""
    given, rng = weights(transposed), np.random.default_rng(rows)
    xs = [rng.standard_normal((rows, k)).astype(np.float32) for k, _ in SHAPES]
    results = [each.to_numpy() for each in model(*xs)]
    for number, (x, result) in enumerate(zip(xs, results, strict=True)):
        weight = given[f"w{number}"].astype(np.float64)
        y = x @ (weight.T if transposed else weight) + given[f"b{number}"]
        assert result.shape == y.shape
        assert np.allclose(result, y / (1 + np.exp(-y)), atol=2e-4), (SHAPES[number], rows)
    return [each.tobytes() for each in results]


@pytest.mark.parametrize("transposed", [False, True])
def test_layers_of_any_weights_share_code(transposed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One panel of columns, or one step along the inner axis, is a number like any other."""
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path))
    seen: list[SharedGroup] = []

    def record(spec: EntrySpec) -> list[SharedGroup]:
        found = shared_groups(spec)
        seen.extend(found)
        return found

    monkeypatch.setattr(groups, "shared_groups", record)
    model = InferenceSession(devices=[CPU()]).load(layers(transposed), weights_registry=weights(transposed))
    name = "matmul_transposed_packed" if transposed else "matmul_packed"
    products = [each.group for each in seen if each.group.group.nodes[each.group.group.root].kernel.schema.name == name]
    assert len(products) == len(SHAPES)
    assert len({each.key for each in products}) == 1
    for rows in (0, 1, 3, 5, 29):
        agree(model, transposed, rows)


@pytest.mark.parametrize("transposed", [False, True])
def test_packed_small_matrices_give_the_same_bits(transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = InferenceSession(devices=[CPU()]).load(layers(transposed), weights_registry=weights(transposed))
    monkeypatch.setenv("EINKORN_WITHOUT", "graph")
    plain = InferenceSession(devices=[CPU()]).load(layers(transposed), weights_registry=weights(transposed))
    for rows in (0, 1, 2, 3, 4, 5, 14, 29, 300):
        assert agree(model, transposed, rows) == agree(plain, transposed, rows), rows


@pytest.mark.parametrize(("rows", "packed"), [(1, 1), (3, 1), (4, len(SHAPES)), (600, 0), ("m", len(SHAPES))])
def test_small_matrices_of_few_rows_stay(rows: Any, packed: int) -> None:
    """A product that is known to have few rows reads a small matrix where it lies."""
    model = InferenceSession(devices=[CPU()]).load(layers(False, rows), weights_registry=weights(False))
    made = [each.prepared for each in model.passes if each.name == "pack_weights"]
    assert sum(made) == packed
    agree(model, False, 7 if rows == "m" else rows)


def test_in_all_forms(tmp_path: Path) -> None:
    """In a package, also one for narrower vectors, in a pickled model, and with all checks."""
    session = InferenceSession(devices=[CPU()])
    own = session.load(layers(True), weights_registry=weights(True))
    own.export(tmp_path / "own.pkg")
    own.export(tmp_path / "narrow.pkg", targets=["x86-64-v3"])
    checked = InferenceSession(devices=[CPU()], checks="all").load(layers(True), weights_registry=weights(True))
    for rows in (2, 5):
        wanted = agree(own, True, rows)
        for model in (session.load(tmp_path / "own.pkg"), pickle.loads(pickle.dumps(own)), checked):
            assert agree(model, True, rows) == wanted
        agree(session.load(tmp_path / "narrow.pkg"), True, rows)
