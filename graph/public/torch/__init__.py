"""Calls kernels from PyTorch.

    op = einkorn.torch.op(add_one)                         an op of `torch.library`: op(x), compiled, exported, …
    library = einkorn.torch.CustomOpLibrary("kernels/")    ops that are given their outputs: library.add_one(out, x)

    @einkorn.torch.graph_op                                a graph as an op that is given its outputs
    def softened(x): ...

PyTorch is loaded with this module. See docs/torch.md.
"""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ModuleNotFoundError("einkorn.torch needs PyTorch: pip install torch", name="torch")

from einkorn.graph.interop.torch.callers import CustomOpLibrary, graph_op, op
from einkorn.graph.interop.torch.op import TorchOp as Op

__all__ = ["CustomOpLibrary", "Op", "graph_op", "op"]
