"""What a network gives, by NumPy in float64 and int64, as intervals: the oracle of random networks.

One function an op, of the operands' `Bounds` and the step's parameters. How many roundings it may take is said next to
it: one where the op is correctly rounded, `FUNCTION` for functions of the mathematical library, and for sums what
summing in any order may be off by.

See also `bounds` (what intervals are).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from einkorn.dsl.types.dtype import DType

from . import bounds as b
from .bounds import Array, Bounds
from .network import Network, Parameters, constant_array, index_of, reshaped

FUNCTION = 8.0  # ulps of a function of the library; the table in docs/numerics.md has none above 4
_erf = np.vectorize(math.erf, otypes=[np.float64])


class Memory:
    """A buffer."""

    def __init__(self, holds: Bounds) -> None:
        self.holds = holds


Rule = Callable[..., Any]


def fine(dtype: DType) -> float:
    """The rounding of what an op accumulates in: float32 for half types."""
    return b.unit(DType.float64) if dtype is DType.float64 else b.unit(DType.float32)


# *** elementwise ***


def unary(function: Callable[[Array], Array], ulps: float = 1.0) -> Rule:
    """A monotone function."""
    return lambda x, p: b.of_corners(function, x.dtype, x, ulps=ulps)


def sloped(function: Callable[[Array], Array], slope: float, near: float = 0.0) -> Rule:
    """A function that is in no place steeper than `slope`, and off by `near` roundings of its argument."""

    def rule(x: Bounds, p: Parameters) -> Bounds:
        off = near * fine(x.dtype) * x.largest
        return b.around(function(x.middle), slope * x.radius, x.dtype, FUNCTION, off)

    return rule


def absolute(x: Bounds, p: Parameters) -> Bounds:
    smallest = np.where((x.low < 0) & (x.high > 0), 0, np.minimum(np.abs(x.low), np.abs(x.high)))
    largest = np.maximum(np.abs(x.low), np.abs(x.high))
    if x.dtype.is_float():
        return b.rounded(smallest, largest, x.dtype, 0.0)
    return b.wrapped(smallest, largest, x.dtype, smallest.astype(np.float64), largest.astype(np.float64))


def number(x: Bounds, p: Parameters) -> Bounds:
    """The plain number of a step, in the dtype that it is combined with."""
    return b.exact(np.full(x.shape, p["number"], np.float64).astype(x.dtype.to_numpy()), x.dtype)


def operands(given: Sequence[Bounds], p: Parameters) -> tuple[Bounds, ...]:
    if "number" not in p:
        return tuple(given)
    return (number(given[0], p), *given) if p.get("first") else (*given, number(given[0], p))


def binary(function: Callable[..., Any], ulps: float = 1.0) -> Rule:
    def rule(*given: Any) -> Bounds:
        x, y = operands(given[:-1], given[-1])
        return b.of_corners(function, x.dtype, x, y, ulps=ulps)

    return rule


def divided(*given: Any) -> Bounds:
    x, y = (b.cast(v, DType.float64) if not v.dtype.is_float() else v for v in operands(given[:-1], given[-1]))
    safe = np.where((y.low > 0) | (y.high < 0), 1.0, np.nan)
    return b.of_corners(lambda u, v: u / v * safe, x.dtype, x, y)


def powered(x: Bounds, p: Parameters) -> Bounds:
    """A float to a power among 2, 3, 0.5 and -1."""
    power = p["number"]
    ends = np.power(x.low, power), np.power(x.high, power)
    low, high = np.minimum(*ends), np.maximum(*ends)
    crossed = (x.low <= 0) & (x.high >= 0)
    if power == 2:
        low = np.where(crossed, 0.0, low)
    if power == -1:
        low = np.where(crossed, np.nan, low)
    return b.rounded(low, high, x.dtype, FUNCTION)


def remainder(x: Bounds, p: Parameters) -> Bounds:
    """By a positive number."""
    by = number(x, p).low
    first, last = np.floor_divide(x.low, by), np.floor_divide(x.high, by)
    if x.dtype.is_float():
        together = np.where(first == last, 1.0, np.nan)
        return b.rounded(np.mod(x.low, by) * together, np.mod(x.high, by), x.dtype, 1.0, b.WIDE * x.largest)
    together = first == last
    low, high = np.where(together, np.mod(x.low, by), 0), np.where(together, np.mod(x.high, by), by - 1)
    return Bounds(low, high, x.dtype)


def compared(surely: Callable[..., Any], never: Callable[..., Any]) -> Rule:
    """`surely` and `never` take the ends of both operands."""

    def rule(*given: Any) -> Bounds:
        x, y = operands(given[:-1], given[-1])
        ends = (x.low, x.high, y.low, y.high)
        return b.truth(np.asarray(surely(*ends)), ~np.asarray(never(*ends)))

    return rule


def negated(x: Bounds) -> Bounds:
    return Bounds(1 - x.high, 1 - x.low, DType.bool)


def both_or_one(x: Bounds, y: Bounds, p: Parameters) -> Bounds:
    sure = x.sure() & y.sure()
    different = x.low ^ y.low
    return Bounds(np.where(sure, different, 0), np.where(sure, different, 1), DType.bool)


def unknown_only(x: Bounds, p: Parameters) -> Bounds:
    """`is_nan` and `is_inf`: not where a number is known."""
    return b.truth(np.zeros(x.shape, np.bool_), np.isnan(x.low) | np.isnan(x.high))


def where(which: Bounds, *given: Any) -> Bounds:
    yes, no = operands(given[:-1], given[-1])
    return b.chosen(which, yes, no)


# *** along axes ***


def axes_of(x: Bounds, p: Parameters) -> tuple[int, ...]:
    axis = p["axis"]
    if axis is None:
        return tuple(range(len(x.shape)))
    return tuple(axis) if isinstance(axis, list | tuple) else (axis,)


def added(x: Bounds, axis: Any, keepdims: bool) -> Bounds:
    """A sum in any order."""
    how: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    low, high = x.low.astype(np.float64).sum(**how), x.high.astype(np.float64).sum(**how)
    if not x.dtype.is_float():
        exactly = x.low.sum(**how, dtype=np.int64), x.high.sum(**how, dtype=np.int64)
        return b.wrapped(*exactly, x.dtype, low, high)
    n = max(1, x.low.size // max(1, low.size))
    return b.rounded(low, high, x.dtype, 1.0, n * fine(x.dtype) * x.largest.sum(**how))


def summed(x: Bounds, p: Parameters) -> Bounds:
    return added(in_sums(x), axes_of(x, p), p["keepdims"])


def in_sums(x: Bounds) -> Bounds:
    """Terms in the dtype of their sum."""
    return x if x.dtype.is_float() else b.cast(x, x.dtype.sum_dtype())


def averaged(x: Bounds, p: Parameters) -> Bounds:
    x = x if x.dtype.is_float() else b.cast(x, DType.float64)
    how: dict[str, Any] = {"axis": axes_of(x, p), "keepdims": p["keepdims"]}
    n = np.float64(np.prod([x.shape[k] for k in how["axis"]], dtype=np.int64))
    off = fine(x.dtype) * x.largest.sum(**how)
    return b.rounded(x.low.sum(**how) / n, x.high.sum(**how) / n, x.dtype, 2.0, off)


def extreme(function: Callable[..., Any]) -> Rule:
    def rule(x: Bounds, p: Parameters) -> Bounds:
        return x.moved(lambda part: np.asarray(function(part, axis=axes_of(x, p), keepdims=p["keepdims"])))

    return rule


def place(sign: int) -> Rule:
    """`argmax`, or `argmin`: any of those that may be the extreme one."""

    def rule(x: Bounds, p: Parameters) -> Bounds:
        low, high = (x.low, x.high) if sign > 0 else (-x.high, -x.low)
        axis = p["axis"]
        rank = len(x.shape)
        if axis is None:
            low, high, axis = low.reshape(-1), high.reshape(-1), 0
        n = low.shape[axis]
        possible = ~(high < low.max(axis=axis, keepdims=True))  # with a NaN, all
        first = possible.argmax(axis=axis)
        last = n - 1 - np.flip(possible, axis).argmax(axis=axis)
        surely = low >= high.max(axis=axis, keepdims=True)  # as large as any: it is this one, or one before it
        last = np.where(surely.any(axis=axis), surely.argmax(axis=axis), last)
        if p["axis"] is None:
            shape = (1,) * rank if p["keepdims"] else ()
            first, last = np.reshape(first, shape), np.reshape(last, shape)
        elif p["keepdims"]:
            first, last = np.expand_dims(first, axis), np.expand_dims(last, axis)
        return Bounds(first.astype(np.int64), last.astype(np.int64), DType.int64)

    return rule


def softmax(logarithm: bool) -> Rule:
    def rule(x: Bounds, p: Parameters) -> Bounds:
        axis = p["axis"]
        if not x.shape[axis]:
            return x
        middle = x.middle
        shifted = middle - middle.max(axis=axis, keepdims=True)
        off = 2 * x.radius.max(axis=axis, keepdims=True)
        off = off + fine(x.dtype) * (4 * x.largest.max(axis=axis, keepdims=True) + x.shape[axis] + FUNCTION)
        log = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
        if logarithm:
            return b.rounded(log - off, log + off, x.dtype)
        return b.rounded(np.exp(log - off), np.exp(log + off), x.dtype, 2.0)

    return rule


def multiplied(x: Bounds, y: Bounds, p: Parameters) -> Bounds:
    """A matrix product: a sum of products in any order."""
    (xm, xr), (ym, yr) = ((v.middle, v.radius) for v in (x, y))
    middle = xm @ ym
    radius = np.abs(xm) @ yr + xr @ np.abs(ym) + xr @ yr
    if not x.dtype.is_float():
        exactly = x.low @ y.low
        sure = radius == 0
        low, high = np.where(sure, exactly, middle - radius), np.where(sure, exactly, middle + radius)
        whole = [np.where(sure, exactly, np.clip(end, -b.LONGEST, b.LONGEST).astype(np.int64)) for end in (low, high)]
        return b.wrapped(*whole, x.dtype, low, high)
    k = x.shape[-1]
    return b.around(middle, radius, x.dtype, 1.0, (k + 2) * fine(x.dtype) * (x.largest @ y.largest))


# *** several ops in one: as the ops that they are made of, which may round more often than they do ***


def _centred(x: Bounds) -> Bounds:
    return sub(x, averaged(x, {"axis": -1, "keepdims": True}), {})


def _per_root(x: Bounds, squared: Bounds, epsilon: float) -> Bounds:
    """An operand divided by the root of the mean of squares."""
    mean = averaged(mul(squared, squared, {}), {"axis": -1, "keepdims": True})
    return mul(x, RULES["rsqrt"](add(mean, {"number": epsilon}), {}), {})


def layer_norm(x: Bounds, gamma: Bounds, beta: Bounds, p: Parameters) -> Bounds:
    return add(mul(_per_root(_centred(x), _centred(x), p["epsilon"]), gamma, {}), beta, {})


def rms_norm(x: Bounds, weight: Bounds, p: Parameters) -> Bounds:
    return mul(_per_root(x, x, p["epsilon"]), weight, {})


def attention(query: Bounds, key: Bounds, value: Bounds, p: Parameters) -> Bounds:
    scores = mul(multiplied(query, key.moved(lambda part: part.swapaxes(-1, -2)), {}), {"number": p["scale"]})
    return multiplied(softmax(False)(scores, {"axis": len(scores.shape) - 1}), value, {})


def windows(x: Bounds, size: Sequence[int], stride: Sequence[int], padding: Sequence[int], outside: Any) -> Bounds:
    """(batch, height, width, places of the window, channels)."""
    ends = ((0, 0), (padding[0], padding[1]), (padding[2], padding[3]), (0, 0))

    def part(whole: Array) -> Array:
        padded = np.pad(whole, ends, constant_values=outside)
        views = np.lib.stride_tricks.sliding_window_view(padded, tuple(size), (1, 2))[:, :: stride[0], :: stride[1]]
        return np.moveaxis(views, 3, -1).reshape(*views.shape[:3], size[0] * size[1], whole.shape[3])

    return x.moved(part)


def convolved(x: Bounds, filter: Bounds, p: Parameters) -> Bounds:
    size, (channels, count) = filter.shape[:2], filter.shape[2:]
    seen = windows(x, size, p["stride"], p["padding"], 0)
    rows = seen.moved(lambda part: part.reshape(*part.shape[:3], size[0] * size[1] * channels))
    return multiplied(rows, filter.moved(lambda part: part.reshape(-1, count)), {})


def largest_in_windows(x: Bounds, p: Parameters) -> Bounds:
    lowest = -np.inf if x.dtype.is_float() else x.dtype.range[0]
    seen = windows(x, p["window"], p["stride"], (1, 1, 1, 1), lowest)
    return extreme(np.max)(seen, {"axis": 3, "keepdims": False})


def mean_of_windows(x: Bounds, p: Parameters) -> Bounds:
    return averaged(windows(x, p["window"], p["stride"], (1, 1, 1, 1), 0), {"axis": 3, "keepdims": False})


# *** movement ***


def joined(*given: Any, new: bool = False) -> Bounds:
    parts, p = given[:-1], given[-1]
    join = np.stack if new else np.concatenate
    ends = [join([getattr(part, name) for part in parts], axis=p["axis"]) for name in ("low", "high")]
    return Bounds(ends[0], ends[1], parts[0].dtype)


def split(x: Bounds, p: Parameters) -> list[Bounds]:
    ends = np.cumsum(p["sizes"])[:-1]
    parts = zip(np.split(x.low, ends, p["axis"]), np.split(x.high, ends, p["axis"]), strict=True)
    return [Bounds(low, high, x.dtype) for low, high in parts]


def moved(move: Callable[[Array, Parameters], Array]) -> Rule:
    return lambda x, p: x.moved(lambda part: move(part, p))


def in_order(x: Bounds, p: Parameters) -> Bounds:
    """The k-th smallest lies between the k-th smallest bounds; what is not known may come anywhere."""
    axis = p["axis"]
    unknown = np.isnan(x.low).any(axis=axis, keepdims=True)

    def part(bound: Array) -> Array:
        result = np.sort(bound, axis=axis)
        result = np.flip(result, axis) if p["descending"] else result
        return np.where(unknown, np.nan, result) if x.dtype.is_float() else result

    return x.moved(part)


def running(x: Bounds, p: Parameters) -> Bounds:
    """A running sum, in any order."""
    x, axis = in_sums(x), p["axis"]

    def sums(part: Array) -> Array:
        part = np.flip(part, axis) if p["reverse"] else part
        if p["exclusive"]:
            first = np.zeros_like(part.take(range(min(1, part.shape[axis])), axis))
            part = np.concatenate([first, part.take(range(max(0, part.shape[axis] - 1)), axis)], axis)
        result = np.cumsum(part, axis)
        return np.flip(result, axis) if p["reverse"] else result

    low, high = sums(x.low.astype(np.float64)), sums(x.high.astype(np.float64))
    if not x.dtype.is_float():
        return b.wrapped(sums(x.low), sums(x.high), x.dtype, low, high)
    return b.rounded(low, high, x.dtype, 1.0, x.shape[axis] * fine(x.dtype) * sums(x.largest))


def spread(x: Bounds, like: Bounds, p: Parameters) -> Bounds:
    return x.moved(lambda part: np.broadcast_to(part, like.shape))


def constant(p: Parameters) -> Bounds:
    return b.exact(constant_array(p), DType[p["dtype"]])


# *** buffers ***


def undefined(x: Bounds, p: Parameters) -> Memory:
    if x.dtype.is_float():
        return Memory(Bounds(np.full(x.shape, np.nan), np.full(x.shape, np.nan), x.dtype))
    first, last = (0, 1) if x.dtype is DType.bool else x.dtype.range
    return Memory(Bounds(np.full(x.shape, first, np.int64), np.full(x.shape, last, np.int64), x.dtype))


def store(memory: Memory, value: Bounds, p: Parameters) -> list[Bounds]:
    memory.holds = value.moved(lambda part: np.broadcast_to(part, memory.holds.shape).copy())
    return []


def store_slice(memory: Memory, value: Bounds, p: Parameters) -> list[Bounds]:
    low, high = memory.holds.low.copy(), memory.holds.high.copy()
    low[index_of(p["index"])], high[index_of(p["index"])] = value.low, value.high
    memory.holds = Bounds(low, high, value.dtype)
    return []


add, sub, mul = binary(np.add), binary(np.subtract), binary(np.multiply)


def _ends(function: Callable[..., Any]) -> Rule:
    return lambda x, y, p: Bounds(function(x.low, y.low), function(x.high, y.high), DType.bool)


def _less(al: Array, ah: Array, bl: Array, bh: Array) -> Any:
    return ah < bl


def _at_most(al: Array, ah: Array, bl: Array, bh: Array) -> Any:
    return ah <= bl


def _swapped(test: Callable[..., Any]) -> Callable[..., Any]:
    return lambda al, ah, bl, bh: test(bl, bh, al, ah)


def _same(al: Array, ah: Array, bl: Array, bh: Array) -> Any:
    return (al == ah) & (bl == bh) & (al == bl)


def _apart(al: Array, ah: Array, bl: Array, bh: Array) -> Any:
    return (ah < bl) | (bh < al)


def _normal(x: Array) -> Any:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _logistic(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


RULES: dict[str, Rule] = {
    "abs": absolute,
    "negate": unary(np.negative),
    "relu": unary(lambda x: np.maximum(x, 0), 0.0),
    **{name: unary(getattr(np, name), 0.0) for name in ("floor", "ceil", "trunc")},
    "round": unary(np.rint, 0.0),
    "sqrt": unary(np.sqrt),
    **{name: unary(getattr(np, name), FUNCTION) for name in ("exp", "log", "log1p", "tanh")},
    "acos": unary(np.arccos, FUNCTION),
    "atanh": unary(np.arctanh, FUNCTION),
    "erf": unary(_erf, FUNCTION),
    "rsqrt": unary(lambda x: 1 / np.sqrt(x), FUNCTION),
    "sigmoid": unary(_logistic, FUNCTION),
    "sin": sloped(np.sin, 1.0),
    "cos": sloped(np.cos, 1.0),
    "gelu": sloped(_normal, 1.13, FUNCTION),
    "silu": sloped(lambda x: x * _logistic(x), 1.1, FUNCTION),
    "is_nan": unknown_only,
    "is_inf": unknown_only,
    "logical_not": lambda x, p: negated(x),
    "logical_and": _ends(np.bitwise_and),
    "logical_or": _ends(np.bitwise_or),
    "logical_xor": both_or_one,
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": divided,
    "floordiv": binary(np.floor_divide),
    "mod": remainder,
    "pow": powered,
    "maximum": binary(np.maximum, 0.0),
    "minimum": binary(np.minimum, 0.0),
    "equal": compared(_same, _apart),
    "not_equal": lambda *given: negated(compared(_same, _apart)(*given)),
    "less": compared(_less, _swapped(_at_most)),
    "less_equal": compared(_at_most, _swapped(_less)),
    "greater": compared(_swapped(_less), _at_most),
    "greater_equal": compared(_swapped(_at_most), _less),
    "where": where,
    "matmul": multiplied,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "attention": attention,
    "conv2d": convolved,
    "max_pool2d": largest_in_windows,
    "avg_pool2d": mean_of_windows,
    "sum": summed,
    "mean": averaged,
    "max": extreme(np.max),
    "min": extreme(np.min),
    "argmax": place(1),
    "argmin": place(-1),
    "softmax": softmax(False),
    "logsoftmax": softmax(True),
    "cast": lambda x, p: b.cast(x, DType[p["dtype"]]),
    "permute": moved(lambda part, p: part.transpose(p["order"])),
    "reshape": moved(lambda part, p: part.reshape(reshaped(part.shape, p))),
    "slice": moved(lambda part, p: np.asarray(part[index_of(p["index"])])),
    "concat": joined,
    "stack": lambda *given: joined(*given, new=True),
    "split": split,
    "flip": moved(lambda part, p: np.flip(part, p["axis"])),
    "roll": moved(lambda part, p: np.roll(part, p["shift"], p["axis"])),
    "tile": moved(lambda part, p: np.tile(part, p["repeats"])),
    "pad": moved(lambda part, p: np.pad(part, np.reshape(p["paddings"], (-1, 2)), p["mode"])),
    "tril": moved(lambda part, p: np.tril(part, p["diagonal"])),
    "triu": moved(lambda part, p: np.triu(part, p["diagonal"])),
    "gather": moved(lambda part, p: np.take(part, p["indices"], p["axis"])),
    "sort": in_order,
    "cumsum": running,
    "clamp": lambda x, p: x.moved(lambda part: np.clip(part, p["low"], p["high"])),
    "any": extreme(np.max),
    "all": extreme(np.min),
    "repeat": moved(lambda part, p: np.broadcast_to(part, (p["by"], *part.shape))),
    "spread": spread,
    "constant": constant,
    "buffer_create": undefined,
    "buffer_load": lambda memory, p: memory.holds,
    "buffer_store": store,
    "buffer_store_slice": store_slice,
}


def results_of(network: Network, arrays: Sequence[Array], custom: Rule) -> tuple[list[Bounds], list[Bounds]]:
    """What each output is, and what each buffer of the inputs holds in the end."""
    rules = RULES | {"custom": custom}
    values: list[Any] = []
    for array, (dtype, _, kind) in zip(arrays, network.inputs, strict=True):
        known = b.exact(array, DType[dtype])
        values.append(Memory(known) if kind == "buffer" else known)
    memories = [value for value in values if isinstance(value, Memory)]
    with np.errstate(all="ignore"):
        for name, operands, parameters in network.steps:
            result = rules[name](*(values[k] for k in operands), parameters)
            values += result if isinstance(result, list) else [result]
    return [values[k] for k in network.outputs], [memory.holds for memory in memories]
