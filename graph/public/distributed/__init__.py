"""Graphs over several ranks: processes of MPI, or threads of this one. See docs/several-processes.md.

mesh = Mesh({"model": 2})
graph = Graph("layer", lambda x: ops.allreduce.sum(x, mesh["model"]), [TensorType(DType.float32, [4], CPU)])
"""

from einkorn.graph.distributed.communicator import CollectiveCall, Communicator
from einkorn.graph.distributed.mesh import Mesh, RankGroup
from einkorn.graph.distributed.signals import Signals
from einkorn.graph.distributed.world import rank, run_threads, size

__all__ = ["CollectiveCall", "Communicator", "Mesh", "RankGroup", "Signals", "rank", "run_threads", "size"]
