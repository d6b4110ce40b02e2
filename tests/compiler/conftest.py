"""Makes `kernel_harness` (which lies next to the language tests) importable here."""

from __future__ import annotations

import sys
from pathlib import Path

HARNESS = str(Path(__file__).parent.parent / "language")
if HARNESS not in sys.path:
    sys.path.insert(0, HARNESS)
