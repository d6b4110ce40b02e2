"""The example that finds speech in a stream, where `make models` has installed its file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.as_shipped
ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "build" / "models" / "silero_vad" / "data" / "silero_vad.onnx"


@pytest.mark.skipif(not FILE.exists(), reason="silero-vad is not installed: make models")
def test_speech_is_found(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "models" / "speech.py")],
        cwd=tmp_path,
        env=os.environ | {"EINKORN_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("speech from  2.0")
    assert "times as fast as it sounds" in done.stdout


def test_the_readme_lists_it() -> None:
    assert "examples/models/speech.py" in (ROOT / "README.md").read_text()
