"""Programs of ranks that are processes of MPI: how they begin, and how they are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BEGIN = """
import numpy as np
from einkorn.distributed import Mesh, rank, size
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.distributed.calls import CollectiveCalls

mesh, n, own = Mesh({"all": size()}), size(), rank()
session = InferenceSession(num_threads=1)

def type_of(*shape, dtype=np.float32):
    return TensorType(DType.from_numpy(np.dtype(dtype)), shape, DeviceRef.CPU())
"""


def run(
    tmp_path: Path, program: str, ranks: int = 2, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "einkorn", "run", "-n", str(ranks), str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **variables})
