"""The files of `benchmarks/model_files.py`, as far as `make models` has installed them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
