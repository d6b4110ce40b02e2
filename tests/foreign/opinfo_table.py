"""What each op of PyTorch's OpInfo is in Einkorn's graphs.

A row takes what a sample has, tensors as graph values, and gives values. What a row cannot say it refuses by
`Unsupported`, with the reason. Names are those of `torch.testing._internal.common_methods_invocations.op_db`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from einkorn.graph import ConvInputLayout, DType, FilterLayout, TensorValue, ops

NCHW, FCRS = ConvInputLayout.NCHW, FilterLayout.FCRS
TABLE: dict[str, Callable[..., Any]] = {}


class Unsupported(Exception):
    """A sample needs an unsupported feature, and which."""


def row(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function the row of these ops."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            TABLE[name] = function
        return function

    return declare


def refuse(reason: str) -> Any:
    raise Unsupported(reason)


# *** elementwise ***

_SAME = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor lgamma log log10 log1p log2 "
    "reciprocal rsqrt sigmoid sin sinh sqrt square tan tanh trunc"
)
for _name in _SAME.split():
    TABLE[_name] = getattr(ops, _name)
TABLE |= {
    "neg": ops.negate,
    "sign": ops.sign,
    "isnan": ops.is_nan,
    "isinf": ops.is_inf,
    "isfinite": ops.is_finite,
    "nn.functional.hardsigmoid": ops.hard_sigmoid,
    "nn.functional.hardswish": ops.hard_swish,
    "nn.functional.logsigmoid": ops.log_sigmoid,
    "nn.functional.softsign": ops.softsign,
    "rad2deg": lambda x: x * (180 / math.pi),
    "deg2rad": lambda x: x * (math.pi / 180),
    "positive": lambda x: x,
    "frac": lambda x: x - ops.trunc(x),
    "isreal": lambda x: ops.equal(x, x) | ops.is_nan(x),
    "isposinf": lambda x: ops.is_inf(x) & (x > 0.0),
    "isneginf": lambda x: ops.is_inf(x) & (x < 0.0),
    "nn.functional.tanhshrink": lambda x: x - ops.tanh(x),
}


def _without_inplace(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, inplace=False: op(x)


for _name in ("relu", "relu6", "silu", "mish", "selu"):
    TABLE[f"nn.functional.{_name}"] = _without_inplace(getattr(ops, _name))


@row("round")
def _round(x: Any, decimals: int = 0) -> Any:
    return ops.round(x) if decimals == 0 else refuse("decimals=")


@row("nn.functional.gelu")
def _gelu(x: Any, approximate: str = "none") -> Any:
    return ops.gelu(x, approximate)


@row("nn.functional.elu")
def _elu(x: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return ops.elu(x, alpha)


@row("nn.functional.celu")
def _celu(x: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return ops.celu(x, alpha)


@row("nn.functional.leaky_relu")
def _leaky_relu(x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return ops.leaky_relu(x, negative_slope)


@row("nn.functional.hardtanh")
def _hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    return ops.hard_tanh(x, min_val, max_val)


@row("nn.functional.softplus")
def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return refuse("a threshold of its own") if threshold != 20 else ops.softplus(x, beta)


@row("nn.functional.hardshrink")
def _hardshrink(x: Any, lambd: float = 0.5) -> Any:
    return ops.shrink(x, lambd)


@row("nn.functional.softshrink")
def _softshrink(x: Any, lambd: float = 0.5) -> Any:
    return ops.shrink(x, lambd, lambd)


@row("nn.functional.threshold")
def _threshold(x: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    return ops.where(x > threshold, x, value)


@row("nn.functional.prelu")
def _prelu(x: Any, weight: Any) -> Any:
    if x.rank == 0:
        weight = ops.reshape(weight, [])
    if weight.rank and x.rank > 1:
        weight = ops.reshape(weight, [weight.shape[0], *[1] * (x.rank - 2)])
    return ops.prelu(x, weight)


@row("clamp")
def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    return x if min is None and max is None else ops.clamp(x, min, max)


@row("clamp_min")
def _clamp_min(x: Any, min: Any) -> Any:
    return ops.maximum(x, min)


@row("clamp_max")
def _clamp_max(x: Any, max: Any) -> Any:
    return ops.minimum(x, max)


def _scaled(value: Any, alpha: Any) -> Any:
    return value if alpha == 1 else value * alpha


@row("add")
def _add(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x + _scaled(y, alpha)


@row("sub")
def _sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x - _scaled(y, alpha)


@row("rsub")
def _rsub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return y - _scaled(x, alpha)


@row("div", "true_divide")
def _div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return x // y
    return ops.trunc(x / y) if rounding_mode == "trunc" else x / y


for _name, _op in {
    "mul": ops.mul,
    "floor_divide": ops.floordiv,
    "fmod": ops.fmod,
    "remainder": ops.mod,
    "pow": ops.pow,
    "float_power": lambda x, y: ops.pow(_double(x), _double(y)),
    "atan2": ops.atan2,
    "maximum": ops.maximum,
    "minimum": ops.minimum,
    "fmax": lambda x, y: ops.where(ops.is_nan(y), x, ops.where(ops.is_nan(x), y, ops.maximum(x, y))),
    "fmin": lambda x, y: ops.where(ops.is_nan(y), x, ops.where(ops.is_nan(x), y, ops.minimum(x, y))),
    "eq": ops.equal,
    "ne": ops.not_equal,
    "lt": ops.less,
    "le": ops.less_equal,
    "gt": ops.greater,
    "ge": ops.greater_equal,
    "hypot": ops.hypot,
    "copysign": ops.copysign,
    "nextafter": ops.nextafter,
    "heaviside": lambda x, y: ops.where(ops.equal(x, 0.0), y, ops.where(x > 0.0, ops.ones_like(x), ops.zeros_like(x))),
    "logical_and": lambda x, y: _truth(x) & _truth(y),
    "logical_or": lambda x, y: _truth(x) | _truth(y),
    "logical_xor": lambda x, y: _truth(x) ^ _truth(y),
    "xlogy": lambda x, y: ops.where(ops.equal(x, 0.0) & ~ops.is_nan(y), 0.0, x * ops.log(y)),
    "logaddexp": lambda x, y: ops.maximum(x, y) + ops.log1p(ops.exp(-ops.abs(x - y))),
    "__radd__": lambda x, y: y + x,
    "__rmul__": lambda x, y: y * x,
    "__rsub__": lambda x, y: y - x,
    "__rdiv__": lambda x, y: y / x,
    "__rmod__": lambda x, y: y % x,
    "__rpow__": lambda x, y: y**x,
    "__rmatmul__": lambda x, y: y @ x,
}.items():
    TABLE[_name] = _op
TABLE["logical_not"] = lambda x: ~_truth(x)


def _double(value: Any) -> Any:
    return value.cast(DType.float64) if isinstance(value, TensorValue) else value


def _truth(value: Any) -> Any:
    return value if value.dtype is DType.bool else ops.not_equal(value, 0)


@row("lerp")
def _lerp(x: Any, end: Any, weight: Any) -> Any:
    return x + (end - x) * weight


@row("addcmul")
def _addcmul(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    return x + _scaled(a * b, value)


@row("addcdiv")
def _addcdiv(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    return x + _scaled(a / b, value)


@row("where")
def _where(x: Any, condition: Any, y: Any) -> Any:
    return ops.where(condition, x, y)


@row("masked_fill")
def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return ops.where(mask, value, x)


@row("nan_to_num")
def _nan_to_num(x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    most = 3.4028234663852886e38
    x = ops.where(ops.is_nan(x), nan or 0.0, x)
    x = ops.where(ops.is_inf(x) & (x > 0.0), most if posinf is None else posinf, x)
    return ops.where(ops.is_inf(x) & (x < 0.0), -most if neginf is None else neginf, x)


# *** reductions ***


def _axes(x: Any, dim: Any) -> Any:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return tuple(range(x.rank))
    return dim


def _reduced(op: Callable[..., Any], x: Any, dim: Any, keepdim: bool) -> Any:
    if x.rank == 0:
        return ops.reshape(op(ops.reshape(x, [1]), 0), [])
    axes = _axes(x, dim)
    for axis in sorted((a % x.rank for a in ([axes] if isinstance(axes, int) else axes)), reverse=True):
        x = op(x, axis)
        if not keepdim:
            x = ops.squeeze(x, axis)
    return x


def _typed(x: Any, dtype: Any) -> Any:
    if dtype is None:
        return x
    known = {name: getattr(DType, name) for name in ("float32", "float64", "int64", "int32", "float16", "bfloat16")}
    return x.cast(known[str(dtype).removeprefix("torch.")])


@row("sum", "nansum")
def _sum(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return _typed(_reduced(ops.sum, _typed(x, dtype), dim, keepdim), dtype)


TABLE["nansum"] = lambda x, dim=None, keepdim=False, dtype=None: _sum(
    ops.where(ops.is_nan(x), 0.0, x), dim, keepdim, dtype
)


@row("mean")
def _mean(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return _over_axes(ops.mean, _typed(x, dtype), dim, keepdim)


def _over_axes(op: Callable[..., Any], x: Any, dim: Any, keepdim: bool) -> Any:
    """For reductions that cannot be done axis by axis."""
    if x.rank == 0:
        return ops.reshape(op(ops.reshape(x, [1]), 0), [])
    axes = _axes(x, dim)
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    return op(x, axes, keepdims=keepdim)


@row("amax")
def _amax(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _reduced(lambda y, axis: ops.max(y, axis=axis), x, dim, keepdim)


@row("amin")
def _amin(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _reduced(lambda y, axis: ops.min(y, axis=axis), x, dim, keepdim)


@row("all")
def _all(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _reduced(ops.all, _truth(x), dim, keepdim)


@row("any")
def _any(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _reduced(ops.any, _truth(x), dim, keepdim)


@row("count_nonzero")
def _count_nonzero(x: Any, dim: Any = None) -> Any:
    return _reduced(ops.sum, ops.not_equal(x, 0).cast(DType.int64), dim, False)


@row("prod")
def _prod(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return _typed(_reduced(ops.prod, _typed(x, dtype), dim, keepdim), dtype)


def _moments(op: Callable[..., Any], root: bool) -> Callable[..., Any]:
    def moment(
        x: Any, dim: Any = None, unbiased: Any = None, *, correction: Any = None, keepdim: bool = False, **rest: Any
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        delta = correction if correction is not None else (1 if unbiased is None or unbiased else 0)
        value = _over_axes(op, x, dim, keepdim)
        if delta == 0:
            return value
        axes = _axes(x, dim)
        count = 1
        for axis in (axes,) if isinstance(axes, int) else axes:
            count = count * int(x.shape[axis])
        factor = count / (count - delta) if count > delta else math.nan if count == delta else math.inf
        if count < delta:
            return refuse("fewer elements than the correction")
        return value * (math.sqrt(factor) if root else factor)

    return moment


TABLE["var"], TABLE["std"] = _moments(ops.var, root=False), _moments(ops.stdev, root=True)


@row("logsumexp")
def _logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    return _over_axes(ops.logsumexp, x, dim, keepdim)


def _indexed(op: Callable[..., Any]) -> Callable[..., Any]:
    def index(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if x.rank == 0:
            return ops.reshape(op(ops.reshape(x, [1]), 0), [])
        if dim is None:
            flat = op(ops.reshape(x, [-1]), 0)
            return ops.reshape(flat, [1] * x.rank if keepdim else [])
        result = op(x, dim)
        return result if keepdim else ops.squeeze(result, dim)

    return index


TABLE["argmax"], TABLE["argmin"] = _indexed(ops.argmax), _indexed(ops.argmin)


@row("cumsum")
def _cumsum(x: Any, dim: int, dtype: Any = None) -> Any:
    return _typed(ops.cumsum(_typed(x, dtype), dim), dtype) if x.rank else _typed(x, dtype)


@row("cumprod")
def _cumprod(x: Any, dim: int, dtype: Any = None) -> Any:
    return _typed(ops.cumprod(_typed(x, dtype), dim), dtype) if x.rank else _typed(x, dtype)


@row("softmax")
def _softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    return ops.softmax(_typed(x, dtype), dim) if x.rank else ops.ones_like(_typed(x, dtype))


@row("nn.functional.softmin")
def _softmin(x: Any, dim: int, dtype: Any = None) -> Any:
    return _softmax(-_typed(x, dtype), dim)


@row("log_softmax")
def _log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    return ops.logsoftmax(_typed(x, dtype), dim) if x.rank else ops.zeros_like(_typed(x, dtype))


# *** shapes ***


def _sizes(given: tuple[Any, ...]) -> list[Any]:
    return list(given[0]) if len(given) == 1 and isinstance(given[0], Sequence) else list(given)


@row("reshape", "view", "view_copy")
def _reshape(x: Any, *shape: Any) -> Any:
    sizes = _sizes(shape)
    if -1 in sizes and any(int(s) == 0 for s in x.shape):
        known = math.prod(s for s in sizes if s != -1)
        sizes = [0 if s == -1 and known else s for s in sizes]
    return ops.reshape(x, sizes)


@row("reshape_as", "view_as")
def _reshape_as(x: Any, other: Any) -> Any:
    return ops.reshape(x, other.shape)


@row("permute", "permute_copy")
def _permute(x: Any, *dims: Any) -> Any:
    return ops.permute(x, _sizes(dims))


@row("transpose", "transpose_copy")
def _transpose(x: Any, a: int, b: int) -> Any:
    return ops.transpose(x, a, b) if x.rank else x


TABLE["T"] = lambda x: ops.permute(x, list(range(x.rank))[::-1])
TABLE["mT"] = lambda x: ops.transpose(x, -1, -2)
TABLE["t"] = TABLE["t_copy"] = lambda x: ops.transpose(x, 0, 1) if x.rank == 2 else x
TABLE["ravel"] = lambda x: ops.reshape(x, [-1]) if x.shape.num_elements != 0 else ops.reshape(x, [0])
TABLE["contiguous"] = TABLE["clone"] = lambda x, **_: x
TABLE["zeros_like"] = lambda x, **options: ops.zeros_like(x) if not options.get("dtype") else refuse("dtype=")
TABLE["ones_like"] = lambda x, **options: ops.ones_like(x) if not options.get("dtype") else refuse("dtype=")
TABLE["fliplr"] = lambda x: ops.flip(x, 1)
TABLE["flipud"] = lambda x: ops.flip(x, 0)


@row("flatten")
def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return ops.flatten(x, start_dim, end_dim)


@row("unsqueeze", "unsqueeze_copy")
def _unsqueeze(x: Any, dim: int) -> Any:
    return ops.unsqueeze(x, dim)


@row("squeeze", "squeeze_copy")
def _squeeze(x: Any, dim: Any = None) -> Any:
    wanted = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    chosen = {d % x.rank for d in wanted} if x.rank else set()
    return ops.reshape(x, [s for k, s in enumerate(x.shape) if k not in chosen or s != 1])


@row("expand", "expand_copy", "broadcast_to")
def _expand(x: Any, *shape: Any) -> Any:
    sizes = _sizes(shape)
    sizes = [x.shape[k - len(sizes)] if s == -1 else s for k, s in enumerate(sizes)]
    return ops.broadcast_to(x, sizes)


TABLE["expand_as"] = lambda x, other: ops.broadcast_to(x, other.shape)


@row("cat")
def _cat(tensors: Any, dim: int = 0) -> Any:
    if any(x.rank == 1 and x.shape[0] == 0 for x in tensors) and any(x.rank != 1 for x in tensors):
        return refuse("empty tensors of rank 1 among others")
    return ops.concat(list(tensors), dim)


@row("stack")
def _stack(tensors: Any, dim: int = 0) -> Any:
    return ops.stack(list(tensors), dim)


@row("chunk")
def _chunk(x: Any, chunks: int, dim: int = 0) -> Any:
    if int(x.shape[dim]) % chunks:
        return refuse("chunks of different sizes")
    return ops.chunk(x, chunks, dim)


@row("split")
def _split(x: Any, size: Any, dim: int = 0) -> Any:
    whole = int(x.shape[dim])
    sizes = list(size) if isinstance(size, Sequence) else [min(size, whole - k) for k in range(0, whole, size)]
    return ops.split(x, sizes, dim)


@row("split_with_sizes", "split_with_sizes_copy")
def _split_with_sizes(x: Any, sizes: Any, dim: int = 0) -> Any:
    return ops.split(x, list(sizes), dim)


@row("unbind", "unbind_copy")
def _unbind(x: Any, dim: int = 0) -> Any:
    return [ops.squeeze(part, dim) for part in ops.split(x, [1] * int(x.shape[dim]), dim)]


@row("narrow", "narrow_copy")
def _narrow(x: Any, dim: int, start: Any, length: int) -> Any:
    if isinstance(start, TensorValue):
        return refuse("start as a tensor")
    dim, start = dim % x.rank, start % int(x.shape[dim]) if int(x.shape[dim]) else 0
    return x[(*[slice(None)] * dim, slice(start, start + length))]


@row("select")
def _select(x: Any, dim: int, index: int) -> Any:
    return x[(*[slice(None)] * (dim % x.rank), index)]


@row("slice")
def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[(*[slice(None)] * (dim % x.rank), slice(start, end, step))]


@row("tile")
def _tile(x: Any, dims: Any) -> Any:
    dims = [1] * (x.rank - len(dims)) + list(dims)
    if 0 in dims:
        return refuse("repeats of 0: the documentation requests positive ones")
    return ops.tile(ops.reshape(x, [*[1] * (len(dims) - x.rank), *x.shape]), dims)


@row("repeat")
def _repeat(x: Any, dims: Any) -> Any:
    return _tile(x, dims)


@row("repeat_interleave")
def _repeat_interleave(x: Any, repeats: Any, dim: Any = None, **rest: Any) -> Any:
    if isinstance(repeats, TensorValue):
        return ops.repeat_interleave(x, repeats, dim, out_dim="repeated")
    return ops.repeat_interleave(x, repeats, dim)


@row("flip")
def _flip(x: Any, dims: Any) -> Any:
    return ops.flip(x, dims) if len(dims) else x


@row("roll")
def _roll(x: Any, shifts: Any, dims: Any = None) -> Any:
    if isinstance(dims, Sequence) and not dims:
        dims = None
    return ops.roll(x, shifts, dims)


@row("movedim")
def _movedim(x: Any, source: Any, destination: Any) -> Any:
    come = [source] if isinstance(source, int) else list(source)
    go = [destination] if isinstance(destination, int) else list(destination)
    order = [k for k in range(x.rank) if k not in {c % x.rank for c in come}]
    for to, frm in sorted((g % x.rank, c % x.rank) for g, c in zip(go, come, strict=True)):
        order.insert(to, frm)
    return ops.permute(x, order)


@row("tril")
def _tril(x: Any, diagonal: int = 0) -> Any:
    return ops.tril(x, diagonal)


@row("triu")
def _triu(x: Any, diagonal: int = 0) -> Any:
    return ops.triu(x, diagonal)


@row("nn.functional.pad", "constant_pad_nd")
def _pad(x: Any, pad: Any, value: Any = 0) -> Any:
    return _padded(x, pad, "constant", value)


def _padded(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    pairs = [(pad[k], pad[k + 1]) for k in range(0, len(pad), 2)][::-1]
    paddings = [0, 0] * (x.rank - len(pairs)) + [side for pair in pairs for side in pair]
    known = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return ops.pad(x, paddings, known[mode], 0 if value is None else value)


TABLE["nn.functional.pad"] = _padded


# *** indices ***


@row("gather")
def _gather(x: Any, dim: int, index: Any) -> Any:
    if x.rank == 0 or index.rank == 0:
        return refuse("rank 0")
    for axis in range(x.rank):
        if axis != dim % x.rank and index.shape[axis] != x.shape[axis]:
            x = x[(*[slice(None)] * axis, slice(0, int(index.shape[axis])))]
    return ops.take_along_axis(x, index, dim)


@row("take_along_dim")
def _take_along_dim(x: Any, index: Any, dim: Any = None) -> Any:
    if dim is None:
        return ops.take_along_axis(ops.reshape(x, [-1]), ops.reshape(index, [-1]), 0)
    shape = [
        max(int(a), int(b)) if k != dim % x.rank else None
        for k, (a, b) in enumerate(zip(x.shape, index.shape, strict=True))
    ]
    x = ops.broadcast_to(x, [s if wanted is None else wanted for s, wanted in zip(x.shape, shape, strict=True)])
    index = ops.broadcast_to(
        index, [s if wanted is None else wanted for s, wanted in zip(index.shape, shape, strict=True)]
    )
    return ops.take_along_axis(x, index, dim)


@row("index_select")
def _index_select(x: Any, dim: int, index: Any) -> Any:
    return ops.gather(x, index if index.rank else ops.reshape(index, [1]), dim) if x.rank else refuse("rank 0")


@row("nn.functional.embedding")
def _embedding(weight: Any, index: Any, **rest: Any) -> Any:
    return refuse("max_norm=") if rest.get("max_norm") is not None else ops.gather(weight, index, 0)


@row("nonzero", "argwhere")
def _nonzero(x: Any, as_tuple: bool = False) -> Any:
    return refuse("as_tuple=, rank 0") if as_tuple or x.rank == 0 else ops.nonzero(x, "found")


@row("sort", "msort")
def _sort(x: Any, dim: Any = -1, descending: bool = False, stable: bool = False) -> Any:
    if x.rank == 0:
        return refuse("rank 0")
    return ops.sort(x, dim, descending)


TABLE["msort"] = lambda x: ops.sort(x, 0) if x.rank else refuse("rank 0")


@row("argsort")
def _argsort(x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return ops.argsort(x, not descending, dim) if x.rank else refuse("rank 0")


@row("topk")
def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.rank == 0:
        return refuse("rank 0")
    return list((ops.top_k if largest else ops.bottom_k)(x, k, dim))


@row("nn.functional.one_hot")
def _one_hot(x: Any, num_classes: int = -1) -> Any:
    return refuse("classes from the data") if num_classes < 0 else ops.one_hot(x, num_classes, dtype=DType.int64)


# *** products ***

for _name in ("matmul", "mm", "bmm", "dot", "vdot", "mv"):
    TABLE[_name] = lambda x, y: ops.matmul(x, y)
TABLE["outer"] = lambda x, y: ops.reshape(x, [-1, 1]) * ops.reshape(y, [1, -1])


@row("addmm", "addmv", "baddbmm")
def _addmm(x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return (_scaled(x, beta) if beta else 0.0) + _scaled(ops.matmul(a, b), alpha)


@row("addr")
def _addr(x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return (_scaled(x, beta) if beta else 0.0) + _scaled(TABLE["outer"](a, b), alpha)


@row("nn.functional.linear")
def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    y = ops.matmul(x, ops.transpose(weight, 0, 1) if weight.rank == 2 else weight)
    return y if bias is None else y + bias


@row("inner")
def _inner(x: Any, y: Any) -> Any:
    if x.rank == 0 or y.rank == 0:
        return x * y
    flat = ops.matmul(ops.reshape(x, [-1, x.shape[-1]]), ops.transpose(ops.reshape(y, [-1, y.shape[-1]]), 0, 1))
    return ops.reshape(flat, [*x.shape[:-1], *y.shape[:-1]])


# *** neural networks ***


def _numbers(value: Any, count: int) -> tuple[int, ...]:
    given = (value,) * count if isinstance(value, int) else tuple(value)
    return given * count if len(given) == 1 else given


def _convolution(axes: int) -> Callable[..., Any]:
    op = (ops.conv1d, ops.conv2d, ops.conv3d)[axes - 1]
    layout = FilterLayout.FCQRS if axes == 3 else FCRS

    def convolution(
        x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        single = x.rank == axes + 1
        if single:
            x = ops.unsqueeze(x, 0)
        steps, spread = _numbers(stride, axes), _numbers(dilation, axes)
        if isinstance(padding, str):
            reach = [d * (int(k) - 1) for d, k in zip(spread, weight.shape[2:], strict=True)]
            pairs = [(0, 0) if padding == "valid" else (r // 2, r - r // 2) for r in reach]
        else:
            pairs = [(p, p) for p in _numbers(padding, axes)]
        y = op(
            x,
            weight,
            stride=steps if axes > 1 else steps[0],
            dilation=spread if axes > 1 else spread[0],
            padding=tuple(side for pair in pairs for side in pair),
            groups=groups,
            bias=bias,
            input_layout=NCHW,
            filter_layout=layout,
        )
        return ops.squeeze(y, 0) if single else y

    return convolution


for _axes_count in (1, 2, 3):
    TABLE[f"nn.functional.conv{_axes_count}d"] = _convolution(_axes_count)


def _pool(kind: str, axes: int) -> Callable[..., Any]:
    op = getattr(ops, f"{kind}_pool{axes}d")

    def pool(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        *more: Any,
        dilation: Any = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
        return_indices: bool = False,
    ) -> Any:
        if more or divisor_override is not None or return_indices:
            return refuse("divisor_override=, return_indices=")
        single = x.rank == axes + 1
        if single:
            x = ops.unsqueeze(x, 0)
        size = _numbers(kernel_size, axes)
        step = size if stride is None or stride == [] else _numbers(stride, axes)
        known: dict[str, Any] = {"padding": _numbers(padding, axes), "ceil_mode": ceil_mode, "input_layout": NCHW}
        known |= {"count_boundary": count_include_pad} if kind == "avg" else {"dilation": _numbers(dilation, axes)}
        if axes == 1:
            known = {name: v[0] if isinstance(v, tuple) else v for name, v in known.items()}
        y = op(x, size if axes > 1 else size[0], step if axes > 1 else step[0], **known)
        return ops.squeeze(y, 0) if single else y

    return pool


for _axes_count in (1, 2, 3):
    for _kind in ("max", "avg"):
        TABLE[f"nn.functional.{_kind}_pool{_axes_count}d"] = _pool(_kind, _axes_count)


@row("nn.functional.layer_norm")
def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    if eps <= 0:
        return refuse("an epsilon below 0")
    if len(shape) != 1:
        flat = ops.reshape(x, [*x.shape[: x.rank - len(shape)], math.prod(shape)])
        weight, bias = (None if v is None else ops.reshape(v, [-1]) for v in (weight, bias))
        return ops.reshape(_layer_norm(flat, [math.prod(shape)], weight, bias, eps), x.shape)
    size = int(x.shape[-1])
    weight = ops.ones([size]) if weight is None else weight
    bias = ops.zeros([size]) if bias is None else bias
    return ops.layer_norm(x, weight, bias, eps)


@row("nn.functional.group_norm")
def _group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    if eps <= 0:
        return refuse("an epsilon below 0")
    size = int(x.shape[1])
    return ops.group_norm(
        x, ops.ones([size]) if weight is None else weight, ops.zeros([size]) if bias is None else bias, groups, eps
    )


@row("nn.functional.batch_norm")
def _batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, **rest: Any
) -> Any:
    if training or x.rank < 2:
        return refuse("training=" if training else "no axis of channels")
    size = int(x.shape[1])
    weight = ops.ones([size]) if weight is None else weight
    bias = ops.zeros([size]) if bias is None else bias
    return ops.batch_norm(x, weight, bias, mean, var, rest.get("eps", 1e-5))


@row("nn.functional.local_response_norm")
def _lrn(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    return (
        refuse("even sizes lie otherwise in PyTorch")
        if size % 2 == 0
        else ops.local_response_norm(x, size, alpha, beta, k)
    )


@row("nn.functional.pixel_shuffle")
def _pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    factor = upscale_factor
    *lead, c, h, w = x.shape
    c = c // factor**2
    y = ops.reshape(x, [*lead, c, factor, factor, h, w])
    n = len(lead)
    y = ops.permute(y, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return ops.reshape(y, [*lead, c, h * factor, w * factor])


@row("nn.functional.grid_sample", "grid_sampler_2d")
def _grid_sample(
    x: Any, grid: Any, mode: Any = "bilinear", padding_mode: Any = "zeros", align_corners: Any = None
) -> Any:
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    mode = modes[mode] if isinstance(mode, int) else mode
    padding_mode = paddings[padding_mode] if isinstance(padding_mode, int) else padding_mode
    return ops.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@row("nn.functional.unfold")
def _unfold(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    if x.rank == 3:
        return ops.squeeze(_unfold(ops.unsqueeze(x, 0), kernel_size, dilation, padding, stride), 0)
    known = [_numbers(v, 2) for v in (kernel_size, stride, dilation, padding)]
    return ops.unfold(x, known[0], stride=known[1], dilation=known[2], padding=known[3])


@row("nn.functional.scaled_dot_product_attention")
def _attention(q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, **rest: Any) -> Any:
    if dropout_p:
        return refuse("dropout_p=")
    return ops.attention(q, k, v, mask=attn_mask, causal=rest.get("is_causal", False), scale=rest.get("scale"))


@row("nn.functional.normalize")
def _normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    return ops.l2_normalize(x, dim, eps) if p == 2 else refuse("p= other than 2")


@row("nn.functional.glu")
def _glu(x: Any, dim: int = -1) -> Any:
    a, b = ops.chunk(x, 2, dim)
    return a * ops.sigmoid(b)


@row("nn.functional.mse_loss")
def _mse(x: Any, y: Any, reduction: str = "mean") -> Any:
    return _loss(ops.square(x - y), reduction)


@row("nn.functional.l1_loss")
def _l1(x: Any, y: Any, reduction: str = "mean") -> Any:
    return _loss(ops.abs(x - y), reduction)


def _loss(x: Any, reduction: str) -> Any:
    if reduction == "none":
        return x
    return _mean(x) if reduction == "mean" else _sum(x)


@row("einsum")
def _einsum(tensors: Any, equation: str) -> Any:
    return ops.einsum(equation, *tensors)


def _transposed(axes: int) -> Callable[..., Any]:
    op = (ops.conv1d_transpose, ops.conv2d_transpose, ops.conv3d_transpose)[axes - 1]

    def convolution(
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        single = x.rank == axes + 1
        if single:
            x = ops.unsqueeze(x, 0)
        if groups > 1 or any(_numbers(output_padding, axes)):
            return refuse("groups=, output_padding=")
        one = axes == 1
        order = [*range(2, axes + 2), 1, 0]  # of (in, out, ...): spatial axes, out, in
        y = op(
            x,
            ops.permute(weight, order),
            stride=_numbers(stride, axes)[0] if one else _numbers(stride, axes),
            dilation=_numbers(dilation, axes)[0] if one else _numbers(dilation, axes),
            padding=tuple(p for p in _numbers(padding, axes) for _ in range(2)),
            bias=bias,
            input_layout=NCHW,
        )
        return ops.squeeze(y, 0) if single else y

    return convolution


for _axes_count in (1, 2, 3):
    TABLE[f"nn.functional.conv_transpose{_axes_count}d"] = _transposed(_axes_count)
