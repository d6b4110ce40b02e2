"""Names the shared libraries by which programs reach GPUs; a machine without them has none that can be used."""

from __future__ import annotations

import sys
from typing import Final

CUDA_LIBRARY: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
HIP_LIBRARY: Final = "amdhip64.dll" if sys.platform == "win32" else "libamdhip64.so"
