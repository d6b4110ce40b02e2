"""Kernels with a batch, `*b`: those that compute each member from its own elements alone, and those that do not."""

from __future__ import annotations

from typing import Any

import numpy as np

from einkorn.dsl import (
    InputTensor,
    OutputTensor,
    exp,
    float32,
    foreach,
    int32,
    register,
    sqrt,
    stack,
    store,
)
from einkorn.stdlib import Max, Sum, argsort, reduce, rowwise, scan, sort, stencil, top_k

Out = OutputTensor
In = InputTensor


@register("batches::softmax")
def softmax(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    def body(row, largest):
        total = reduce(x[row, :], Sum, of=lambda v: exp(v - largest))
        for k in range(x.dim(-1)):
            out[row, k] = exp(x[row, k] - largest) / total

    rowwise(x, Max, body)


@register("batches::rms_norm")
def rms_norm(out: Out[float32, "*b n"], x: In[float32, "*b n"], w: In[float32, "n"], *, eps: float = 1e-5):
    n = x.dim(-1)

    def body(row, squares):
        scale = 1 / sqrt(squares / float32(n) + eps)
        for k in range(n):
            out[row, k] = x[row, k] * scale * w[k]

    rowwise(x, Sum, body, of=lambda v: v * v)


@register("batches::linear")
def linear(out: Out[float32, "*b m"], x: In[float32, "*b n"], w: In[float32, "n m"]):
    def element(i):
        total = 0.0
        for k in range(x.dim(-1)):
            total += x[i[:-1], k] * w[k, i[-1]]
        return total

    foreach(out, element)


@register("batches::sums")
def sums(scaled: Out[float32, "*b n"], total: Out[float32, "*b"], x: In[float32, "*b n"], by: float32):
    foreach(scaled, lambda i: x[i] * by + float32(scaled.dim(-1)))
    rowwise(x, Sum, lambda row, value: store(total, row, value))


@register("batches::columns")
def columns(out: Out[float32, "*b n"], x: In[float32, "*b n n"]):
    """Sums along the axis before the last one."""
    rowwise(x, Sum, lambda row, value: store(out, row, value), axis=-2)


@register("batches::looked_up")
def looked_up(out: Out[float32, "*b n"], index: In[int32, "*b"], table: In[float32, "m n"]):
    foreach(out, lambda i: table[index[i[:-1]], i[-1]])


@register("batches::diagonal")
def diagonal(out: Out[float32, "*b n"], x: In[float32, "*b n n"]):
    foreach(out, lambda i: x[i, i[-1]])


@register("batches::ordered")
def ordered(
    values: Out[float32, "*b n"], places: Out[int32, "*b n"], best: Out[float32, "*b 2"], x: In[float32, "*b n"]
):
    sort(values, x)
    argsort(places, x)
    top_k(best, None, x, 2)


@register("batches::running")
def running(out: Out[float32, "*b n"], near: Out[float32, "*b n"], x: In[float32, "*b n"]):
    scan(out, x, Sum, of=lambda v: v * 2)
    stencil(near, x, lambda at, i: at(-1) - at(1), reach=(1,), border="edge")


INDEPENDENT: dict[str, tuple[Any, str, Any]] = {  # kernel, sizes of its arguments after those of the batch, NumPy's
    "softmax": (softmax, "4", lambda x: _softmax(x)),
    "rms_norm": (rms_norm, "4 w4", lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w),
    "linear": (linear, "4 w4,3", lambda x, w: x @ w),
    "sums": (sums, "4 s", lambda x, by: (x * by + 4, x.sum(-1))),
    "columns": (columns, "4,4", lambda x: x.sum(-2)),
    "looked_up": (looked_up, "i w5,3", lambda index, table: table[index]),
    "diagonal": (diagonal, "4,4", lambda x: np.diagonal(x, axis1=-2, axis2=-1)),
    "ordered": (ordered, "4", lambda x: (np.sort(x), x.argsort(-1), np.sort(x)[..., :-3:-1])),
    "running": (running, "4", lambda x: (x.cumsum(-1) * 2, _differences(x))),
}


def _softmax(x: Any) -> Any:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def _differences(x: Any) -> Any:
    wide = np.concatenate([x[..., :1], x, x[..., -1:]], axis=-1)
    return wide[..., :-2] - wide[..., 2:]


def arguments(sizes: str, *batch: int) -> list[Any]:
    """Arrays of these sizes: `w` has no batch, `i` is an index for each member, `s` a number."""
    random, collected = np.random.default_rng(3), list[Any]()
    for each in sizes.split():
        own = tuple(int(size) for size in each.strip("wsi").split(",") if size)
        if each == "s":
            collected.append(np.float32(1.5))
        elif each == "i":
            collected.append(random.integers(0, 5, batch).astype(np.int32))
        else:
            shape = own if each.startswith("w") else (*batch, *own)
            collected.append(random.standard_normal(shape).astype(np.float32))
    return collected


# Of these the members depend on each other, on their place, or on how many there are.


@register("batches::less_the_mean")
def less_the_mean(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    total = reduce(x, Sum)
    foreach(out, lambda i: x[i] - total)


@register("batches::by_place")
def by_place(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    foreach(out, lambda i: x[i] * float32(i[0]))


@register("batches::by_count")
def by_count(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    foreach(out, lambda i: x[i] / float32(x.size))


@register("batches::backwards")
def backwards(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    foreach(out, lambda i: x[x.dim(0) - 1 - i[0], i[1:]])


@register("batches::first_is_other")
def first_is_other(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    foreach(out, lambda i: 0.0 if i[0] == 0 else x[i])


@register("batches::less_the_first")
def less_the_first(out: Out[float32, "*b"], x: In[float32, "*b n"]):
    first = (0,) * x.rank
    rowwise(x, Sum, lambda row, value: store(out, row, value), of=lambda v: v - x[first])


@register("batches::down")
def down(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    scan(out, x, Sum, axis=0)


@register("batches::counted")
def counted(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    seen = stack[float32](1)

    def body(row, value):
        seen[0] = seen[0] + value
        for k in range(x.dim(-1)):
            out[row, k] = seen[0]

    rowwise(x, Sum, body)


@register("batches::by_position")
def by_position(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    def body(row, value):
        for k in range(x.dim(-1)):
            out[row, k] = x.at(k)

    rowwise(x, Sum, body)


@register("batches::all_in_each")
def all_in_each(out: Out[float32, "*b n"], x: In[float32, "*b n"]):
    rowwise(x, Sum, lambda row, value: foreach(out, lambda i: x[i] + value))


@register("batches::across")
def across(out: Out[float32, "*b"], x: In[float32, "*b n"]):
    """The second tensor lies along the rows of the first."""
    rowwise((x, x[:, 0]), Sum, lambda row, value: store(out, row, value), of=lambda a, b: a * b)


@register("batches::along")
def along(out: Out[float32, "*b"], x: In[float32, "*b n"], y: In[float32, "*b"]):
    rowwise((x, y), Sum, lambda row, value: store(out, row, value), of=lambda a, b: a * b)


DEPENDENT = [
    less_the_mean,
    by_place,
    by_count,
    backwards,
    first_is_other,
    less_the_first,
    down,
    counted,
    by_position,
    all_in_each,
]
