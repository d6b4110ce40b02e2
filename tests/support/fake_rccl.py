"""RCCL over `fake_hip`: a plugin of pytest for a process that finds `librccl.so.1` in LD_LIBRARY_PATH.

Kernels leave memory as it is there: what is checked are the calls of the library, and its errors.
"""

from __future__ import annotations

from typing import Any

from einkorn.graph.driver.gpu_names import RCCL

from . import fake_hip, fake_nccl


def pytest_configure(config: Any) -> None:
    config.fake_gpu = fake_hip.install()
    config.fake_gpu.count = 3
    config.fake_nccl = fake_nccl.install(config.fake_gpu, RCCL)
