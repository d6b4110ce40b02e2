"""The example that streams text: a tiny network with random weights, from files of three formats, without PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from einkorn.graph import nn

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import generate as module

    return module


def test_a_network_streams_from_each_format(generate: ModuleType, tmp_path: Path) -> None:
    model = generate.Llama(generate.Sizes(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, length=32))
    params = nn.SamplingParams(seed=1, max_new_tokens=8)
    logits = {}
    for format in generate.FORMATS:
        generate.save(tmp_path / f"{format}.gguf", model, format)
        streamer = generate.Streamer(generate.load(tmp_path / f"{format}.gguf"))
        found = list(streamer.stream(b"hello", params))
        assert len(found) == 8 and found == list(streamer.stream(b"hello", params))
        whole = np.array([[*b"hello", *found]])
        logits[format] = streamer.first(whole)[0].numpy()
        _, *cache = streamer.first(whole[:, :-1])
        step = streamer.next(whole[:, -1:], whole.shape[1] - 1, *cache)[0].numpy()
        np.testing.assert_allclose(step, logits[format], atol=1e-5)
        assert len(list(streamer.stream(b"hello", nn.SamplingParams()))) == 32 - 5 + 1  # to the end of its context
    q8_0 = generate.Streamer(generate.load(tmp_path / "q8_0.gguf")).first(np.array([[*b"hello"]]))[0].numpy()
    f32 = generate.Streamer(generate.load(tmp_path / "f32.gguf")).first(np.array([[*b"hello"]]))[0].numpy()
    assert 0 < np.abs(q8_0 - f32).max() < 0.05 * np.abs(f32).max()

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
    streamer = generate.Streamer(generate.load(tmp_path / "bytes-f32.gguf"))
    assert list(streamer.stream(b"to be", nn.SamplingParams(temperature=0, max_new_tokens=3)))
