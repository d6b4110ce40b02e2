"""A feed-forward layer whose weights are shared by all ranks: einkorn run -n 2 examples/distributed/layer.py

The first product is cut by columns and the second by rows, so that the ranks exchange one tensor: the sum at the end.
"""

from __future__ import annotations

import numpy as np
from einkorn.distributed import Mesh, rank, size

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

ROWS, WIDTH, HIDDEN = 6, 64, 256


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, WIDTH), np.float32)
    w1 = rng.standard_normal((WIDTH, HIDDEN), np.float32) / 8
    w2 = rng.standard_normal((HIDDEN, WIDTH), np.float32) / 16

    model = Mesh({"model": size()})["model"]
    columns, rows = model.part(w1, axis=1), model.part(w2, axis=0)
    arrays = [x, np.ascontiguousarray(columns), rows]
    types = [TensorType(DType.float32, each.shape, DeviceRef.CPU()) for each in arrays]
    graph = Graph("layer", lambda x, w1, w2: ops.allreduce.sum(ops.relu(x @ w1) @ w2, model), types)
    y = InferenceSession().load(graph)(*arrays)[0].to_numpy()

    assert np.allclose(y, np.maximum(x @ w1, 0) @ w2, atol=1e-4)
    print(f"{size()} ranks share {w1.size + w2.size} weights, rank {rank()} has {columns.size + rows.size}: {y[0, :3]}")


main()
