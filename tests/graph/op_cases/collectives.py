"""Cases of collectives on a single rank. What several ranks do is in tests/distributed."""

from __future__ import annotations

from typing import Any

import numpy as np
from einkorn.distributed import Mesh
from support.op_cases import MOVED, T, case

from einkorn.dsl.types.dtype import DType
from einkorn.graph import ops

N = [{"n": 3, "m": 4}, {"n": 0, "m": 2}, {"n": 40, "m": 33}]


def same(x: Any) -> Any:
    return x


def permuted(x: Any) -> Any:
    return ops.collective_permute(x, Mesh({"model": 1}), [(0, 0)])


def after_barrier(x: Any) -> Any:
    ops.barrier(Mesh({"model": 1}))
    return x


def sent(x: Any) -> Any:
    ops.send(x, Mesh({"model": 1}), to=0)
    return ops.recv(x.type, Mesh({"model": 1}), source=0)


WHOLE = [dtype for dtype in MOVED if not DType.from_numpy(np.dtype(dtype)).is_packed()]
KINDS = ("sum", "max", "min", "mean")
CASES = [
    *(case(f"allreduce.{how}", same, inputs=T("n", "m"), sizes=N) for how in KINDS),
    *(case(f"reducescatter.{how}", same, inputs=T("n", "m"), sizes=N) for how in KINDS),
    case("allgather", same, inputs=T("n", "m"), sizes=N, dtypes=WHOLE),
    case("alltoall", same, inputs=T("n", "m"), sizes=N, dtypes=WHOLE),
    case("distributed_broadcast", same, input=T("n", "m"), sizes=N, dtypes=WHOLE),
    case("collective_permute", same, call=permuted, x=T("n", "m"), sizes=N, dtypes=WHOLE),
    case("barrier", same, call=after_barrier, x=T("n", "m"), sizes=N, dtypes=WHOLE),
    case("send", same, call=sent, x=T("n", "m"), sizes=N, dtypes=WHOLE),
    case("recv", same, call=sent, x=T("n", "m"), sizes=N, dtypes=WHOLE),
    case("shard", same, x=T("n", "m"), sizes=N),
    case("shard_and_stack", lambda inputs: inputs[None], inputs=T("n", "m"), sizes=N),
]
