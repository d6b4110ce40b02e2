"""The example that streams text: a tiny network with random weights, from files of three formats, without PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor

from einkorn.graph import DeviceRef, DType, TensorType, nn

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import generate as module

    return module


def eager_loss(model: Any, rows: Any) -> float:
    """The mean loss of rows, one at a time and eagerly."""
    actual = [model(Tensor.from_numpy(row[None, :-1])).numpy()[0].astype(np.float64) for row in rows]
    likelihoods = [x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in actual]
    return -float(np.mean([x[np.arange(16), row[1:]] for x, row in zip(likelihoods, rows, strict=True)]))


def test_a_network_streams_from_each_format(generate: ModuleType, tmp_path: Path) -> None:
    model = generate.Llama(generate.Sizes(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, length=32))
    params = nn.SamplingParams(temperature=0, max_new_tokens=8)
    tokens = TensorType(DType.int64, [1, "n"], DeviceRef.CPU())
    text = bytes(np.random.default_rng(0).integers(0, 256, 600, np.uint8))
    logits, losses = {}, {}
    for format in generate.FORMATS:
        generate.save(tmp_path / f"{format}.gguf", model, format)
        loaded = generate.load(tmp_path / f"{format}.gguf")
        made = generate.generator(loaded)
        actual = list(made.stream("hello", params))
        assert len(actual) == 8 and actual == list(made.stream("hello", params))
        logits[format] = loaded.compile(tokens)(np.array([[*b"hello", *actual]])).numpy()[0]
        assert logits[format][4:-1].argmax(-1).tolist() == actual
        assert len(list(made.stream("hello"))) == 32 - 5  # to the end of its context
        losses[format] = generate.judged(loaded, text, 17, 5)
    assert 0 < np.abs(logits["q8_0"][:5] - logits["f32"][:5]).max() < 0.05 * np.abs(logits["f32"]).max()
    rows = np.frombuffer(text[: 35 * 17], np.uint8).reshape(35, 17).astype(np.int64)
    scores = eager_loss(generate.load(tmp_path / "f32.gguf"), rows)
    assert abs(losses["f32"] - scores) < 1e-4 and 0 < abs(losses["q4_0"] - losses["f32"]) < 0.1

    command = [sys.executable, str(EXAMPLES / "generate.py"), "stream", str(tmp_path / "q4_0.gguf"), "--count", "5"]
    blocked = "import sys; sys.modules['torch'] = None; import runpy; sys.argv = sys.argv[1:]; "
    blocked += "runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [command[0], "-c", blocked, *command[1:]]
    run = subprocess.run(command, capture_output=True, env=dict(os.environ), check=True)
    assert run.stdout.startswith(b"def ") and b"5 bytes" in run.stderr


def test_training_writes_three_files(generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    small = generate.Sizes(dim=32, layers=1, heads=2, kv_heads=1, hidden=32, length=300)
    monkeypatch.setattr(generate, "TRAINED", small)
    monkeypatch.setattr(generate, "texts", lambda: b"to be or not to be " * 500)
    monkeypatch.setattr(sys, "argv", ["generate.py", "train", "--seconds", "2", "--folder", str(tmp_path)])
    generate.main()
    made = generate.generator(generate.load(tmp_path / "bytes-f32.gguf"))
    assert list(made.stream("to be", nn.SamplingParams(temperature=0, max_new_tokens=3)))
    monkeypatch.setattr(sys, "argv", ["generate.py", "--count", "3", "--folder", str(tmp_path)])
    monkeypatch.setattr(generate, "train", None)  # the files are there
    generate.main()


def test_texts_that_are_held_out_are_not_trained_on(generate: ModuleType) -> None:
    data = bytes(np.random.default_rng(0).integers(0, 256, 200_000, np.uint8))
    rest, held = generate.split(data)
    assert len(rest) + len(held) >= len(data) - 16 and len(held) == 16 * 4096
    assert held[:64] not in rest and held[-64:] not in rest and data[5000:5064] in rest
