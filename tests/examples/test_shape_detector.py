"""The detector that is made and imported as a model of ONNX finds what is in its picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.as_shipped
PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "models" / "shape_detector.py"


def test_shapes_are_found(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        env=os.environ | {"EINKORN_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "found 24 of 24 shapes, with 0 finds too many" in done.stdout
    with Image.open(tmp_path / "shapes.png") as image:
        assert image.size == (1024, 1024)
        assert np.asarray(image.convert("HSV"))[..., 1].max() > 150  # the boxes have colours


def test_the_readme_lists_the_detector() -> None:
    assert "examples/models/shape_detector.py" in (PROGRAM.parents[2] / "README.md").read_text()
