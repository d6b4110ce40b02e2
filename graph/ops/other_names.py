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


def no_op(name: str) -> NoReturn:
    """Raises the AttributeError of a name that `ops` does not have."""
    hint = (
        f"it is ops.{RENAMED[name]} here" if name in RENAMED else None if name[:1] == "_" else did_you_mean(name, OPS)
    )
    raise AttributeError(f"einkorn.graph.ops has no op '{name}'" + (f": {hint}" if hint else ""), name=name)


def no_method(value: object, name: str) -> NoReturn:
    """Raises the AttributeError of a name that a tensor of a graph does not have."""
    text = f"'{type(value).__name__}' object has no attribute '{name}'"
    known = name if name in OPS else RENAMED.get(name)
    raise AttributeError(text + (f": write ops.{known}(x, ...)" if known else ""), name=name, obj=value)
