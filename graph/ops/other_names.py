"""Maps the names of ops in NumPy, PyTorch and ONNX to Einkorn's names, for hints."""

from __future__ import annotations

from typing import NoReturn

from ...dsl.diagnostics.errors import did_you_mean
from .stage import OPS

RENAMED = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "bmm": "matmul",
    "cat": "concat",
    "concatenate": "concat",
    "conv_transpose2d": "conv2d_transpose",
    "divide": "div",
    "expand": "broadcast_to",
    "expand_dims": "unsqueeze",
    "gt": "greater",
    "index_select": "gather",
    "interpolate": "resize",
    "isinf": "is_inf",
    "isnan": "is_nan",
    "linalg_norm": "l2_norm",
    "log_softmax": "logsoftmax",
    "lt": "less",
    "masked_select": "nonzero",
    "mm": "matmul",
    "multiply": "mul",
    "nms": "non_maximum_suppression",
    "power": "pow",
    "reduce_max": "max",
    "reduce_mean": "mean",
    "reduce_min": "min",
    "reduce_sum": "sum",
    "remainder": "mod",
    "repeat": "tile",
    "scaled_dot_product_attention": "attention",
    "subtract": "sub",
    "swapaxes": "transpose",
    "take": "gather",
    "topk": "top_k",
    "view": "reshape",
}

AFTERWARDS = "a tensor has elements when the graph has run: model(...)[0].to_numpy()"
# what tensors of NumPy and PyTorch have, and no op stands for
WRITTEN = {
    "astype": "write x.cast(DType.float32)",
    "clone": "nothing changes a tensor of a graph: use x",
    "contiguous": "nothing changes a tensor of a graph: use x",
    "copy": "nothing changes a tensor of a graph: use x",
    "detach": "nothing changes a tensor of a graph: use x",
    "double": "write x.cast(DType.float64)",
    "float": "write x.cast(DType.float32)",
    "half": "write x.cast(DType.float16)",
    "int": "write x.cast(DType.int32)",
    "item": AFTERWARDS,
    "long": "write x.cast(DType.int64)",
    "mT": "write x.T",
    "ndim": "write x.rank",
    "numpy": AFTERWARDS,
    "size": "write x.shape[0] for the size of an axis, x.shape.num_elements for all elements",
    "to_numpy": AFTERWARDS,
    "tolist": AFTERWARDS,
}


def no_op(name: str) -> NoReturn:
    """Raises the AttributeError of a name that `ops` does not have."""
    hint = (
        f"it is ops.{RENAMED[name]} here" if name in RENAMED else None if name[:1] == "_" else did_you_mean(name, OPS)
    )
    raise AttributeError(f"einkorn.graph.ops has no op '{name}'" + (f": {hint}" if hint else ""), name=name)


def op_for(name: str) -> str | None:
    """The op that does what a function of this name does in NumPy."""
    return name if name in OPS else RENAMED.get(name)


def no_method(value: object, name: str) -> NoReturn:
    """Raises the AttributeError of a name that a tensor of a graph does not have."""
    text = f"'{type(value).__name__}' object has no attribute '{name}'"
    known = op_for(name)
    hint = f"write ops.{known}(x, ...)" if known else WRITTEN.get(name)
    if hint is None:
        raise AttributeError(text, name=name, obj=value)
    raise AttributeError(f"{text}: {hint}", name=name)  # without `obj`, for which Python adds a guess of its own
