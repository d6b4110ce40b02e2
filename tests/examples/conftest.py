"""The network MiniLM with one layer and weights made here."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
TABLES = {"word_embeddings": 40, "position_embeddings": 16, "token_type_embeddings": 2}


@pytest.fixture
def minilm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module of the network, with one layer and weights of our own."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    import minilm as module

    monkeypatch.setattr(module, "LAYERS", 1)
    monkeypatch.setattr(module, "model_folder", lambda: tmp_path)
    save(tmp_path / "model.safetensors", random_weights())
    return module


def random_weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {f"embeddings.{n}.weight": (rows, 384) for n, rows in TABLES.items()}
    layer = "encoder.layer.0"
    for name, outputs, inputs in (
        *((f"attention.self.{n}", 384, 384) for n in ("query", "key", "value")),
        *(("attention.output.dense", 384, 384), ("intermediate.dense", 1536, 384), ("output.dense", 384, 1536)),
    ):
        shapes |= {f"{layer}.{name}.weight": (outputs, inputs), f"{layer}.{name}.bias": (outputs,)}
    for name in ("embeddings", f"{layer}.attention.output", f"{layer}.output"):
        shapes |= {f"{name}.LayerNorm.weight": (384,), f"{name}.LayerNorm.bias": (384,)}
    return {name: (rng.standard_normal(shape) * 0.05).astype(np.float32) for name, shape in shapes.items()}


def save(file: Path, arrays: dict[str, Any]) -> None:
    """Writes a safetensors file."""
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in arrays.values()))
