"""What random networks are made of: ops that fit what there is, and patterns of several ops as people write them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from einkorn.graph import BufferValue, DType
from einkorn.graph.types.dims import StaticDim

from .network import Network
from .writing import FLOATS, WHOLE, Refused, Writer

CURVES = (
    "tanh",
    "tanh",
    "gelu",
    "gelu",
    *("sigmoid", "silu", "sin", "cos", "erf", "floor", "round", "ceil", "trunc", "exp", "sqrt", "log"),
    *("is_nan", "is_inf"),
)


def unary(w: Writer) -> None:
    if (x := w.numeric()) is None:
        return
    names = ["abs", "negate", "relu"]
    if w.values[x].dtype == DType.uint8:
        names = ["relu"]
    if w.values[x].dtype.is_float():
        names += CURVES
    name = w.rng.choice(names)
    if name == "exp":
        x = w.add("tanh", x)
    if name in ("sqrt", "log") and w.rng.random() < 0.8:
        x = w.add("add", w.add("abs", x), number=1.0)
    w.add(name, x)


def careful(w: Writer) -> None:
    """Functions that are not defined everywhere, where they are."""
    if (x := w.floats()) is None:
        return
    name = w.rng.choice(("acos", "atanh", "rsqrt", "log1p"))
    if name == "rsqrt":
        x = w.add("add", w.add("abs", x), number=0.5)
    elif name == "log1p":
        x = w.add("abs", x)
    else:
        x = w.add("mul", w.add("sin", x), number=0.5)
    w.add(name, x)


def binary(w: Writer) -> None:
    if (x := w.numeric()) is None:
        return
    name = w.rng.choice(("add", "sub", "mul", "add", "sub", "mul", "maximum", "minimum"))
    y = w.partner(x)
    if w.rng.random() < 0.2:
        w.add(name, x, number=w.number(x), first=w.rng.random() < 0.5)
    elif w.rng.random() < 0.5:
        w.add(name, x, y)
    else:
        w.add(name, y, x)


def quotient(w: Writer) -> None:
    if (x := w.numeric()) is None:
        return
    name = w.rng.choice(("div", "floordiv", "mod", "pow"))
    if name == "pow":
        if w.values[x].dtype.is_float():
            x = w.add("add", w.add("abs", x), number=0.5)
            w.add("pow", x, number=w.rng.choice((2.0, 3.0, 0.5, -1.0)))
    elif name == "div" and w.values[x].dtype.is_float():
        y = w.add("add", w.add("abs", w.partner(x)), number=1.0)
        w.add("div", x, y)
    else:
        w.add(name, x, number=w.number(x))


def compare(w: Writer) -> None:
    if (x := w.numeric()) is None:
        return
    name = w.rng.choice(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
    which = w.add(name, x, w.partner(x))
    if w.rng.random() < 0.7:
        if w.rng.random() < 0.3:
            w.add("where", which, x, number=w.number(x))
        else:
            w.add("where", which, x, w.partner(x))


def logic(w: Writer) -> None:
    if (x := w.pick(lambda v: v.dtype == DType.bool)) is None:
        return
    name = w.rng.choice(("logical_not", "logical_and", "logical_or", "logical_xor"))
    w.add(name, *((x,) if name == "logical_not" else (x, w.partner(x))))


def cast(w: Writer) -> None:
    x = w.pick()
    if x is not None:
        w.add("cast", x, dtype=w.rng.choice((w.dtype, w.dtype, *FLOATS, *WHOLE, "bool")))


def permute(w: Writer) -> None:
    if (x := w.pick(lambda v: v.rank > 1)) is not None:
        order = list(range(w.values[x].rank))
        w.rng.shuffle(order)
        if order != sorted(order):
            w.add("permute", x, order=order)


def reshape(w: Writer) -> None:
    if (x := w.pick()) is None:
        return
    shape = list(w.values[x].shape)
    how = w.rng.choice(("flat", "backwards", "merge", "split", "new", "drop"))
    at = w.rng.randrange(len(shape)) if shape else 0
    if how == "merge" and at + 1 < len(shape):
        w.add("reshape", x, how=how, at=at)
    elif how == "split" and shape and isinstance(shape[at], StaticDim) and int(shape[at]) in (4, 6, 8, 12):
        w.add("reshape", x, how=how, at=at, by=2)
    elif (how == "new" and len(shape) < 4) or (how == "drop" and shape and shape[at] == 1):
        w.add("reshape", x, how=how, at=at)
    elif how in ("flat", "backwards"):
        w.add("reshape", x, how=how)


def take(w: Writer) -> None:
    if (x := w.pick(lambda v: v.rank > 0)) is None:
        return
    index: list[Any] = []
    for dim in w.values[x].shape:
        choices: list[Any] = [[None, None, None]] * 4 + [[None, None, 2], [None, None, -1], [None, None, -3]]
        if isinstance(dim, StaticDim) and int(dim) > 1:
            n = int(dim)
            choices += [[1, None, None], [0, n - 1, None], [n - 1, 0, -1], [-2, None, None], w.rng.randrange(n), -1]
        index.append(w.rng.choice(choices))
    if w.rng.random() < 0.2 and w.values[x].rank < 4:
        index.insert(w.rng.randrange(len(index) + 1), "new")
    w.add("slice", x, index=index)


def join(w: Writer) -> None:
    if (x := w.pick(lambda v: v.rank > 0)) is None:
        return
    parts = [x, *(w.alike(x) for _ in range(w.rng.choice((1, 1, 2))))]
    w.rng.shuffle(parts)
    shape = list(w.values[x].shape)
    if w.fits([*shape, len(parts)]):
        name = w.rng.choice(("concat", "concat", "stack"))
        if name == "concat" or len(shape) < 4:
            w.add(name, *parts, axis=w.rng.randrange(len(shape) + (name == "stack")))


def split(w: Writer) -> None:
    if (x := w.pick(lambda v: any(d == 4 or d == 6 for d in v.shape))) is None:
        return
    shape = w.values[x].shape
    axis = w.rng.choice([k for k, d in enumerate(shape) if d == 4 or d == 6])
    whole = int(shape[axis])
    w.add(
        "split", x, axis=axis, sizes=w.rng.choice(([1, whole - 1], [2, whole - 2], [whole // 2] * 2, [1, 0, whole - 1]))
    )


def spread(w: Writer) -> None:
    if (x := w.pick(lambda v: v.rank < 4)) is None:
        return
    by = w.rng.choice((1, 2, 3))
    y = w.pick()
    if y is not None and w.rng.random() < 0.5:
        w.add("spread", w.partner(y), y)
    elif w.fits([*w.values[x].shape, by]):
        w.add("repeat", x, by=by)


def reduce(w: Writer) -> None:
    if (x := w.numeric(lambda v: v.rank > 0)) is None:
        return
    shape = list(w.values[x].shape)
    name = w.rng.choice(("sum", "mean", "max", "min", "argmax", "argmin"))
    axis: Any = w.rng.randrange(len(shape))
    if w.rng.random() < 0.15:
        axis = None
    elif w.rng.random() < 0.2 and len(shape) > 1 and not name.startswith("arg"):
        axis = sorted(w.rng.sample(range(len(shape)), 2))
    axes = range(len(shape)) if axis is None else [axis] if isinstance(axis, int) else axis
    if name in ("sum", "mean") or all(w.filled(shape[k]) for k in axes):
        w.add(name, x, axis=axis, keepdims=w.rng.random() < 0.6)


def softmax(w: Writer) -> None:
    if (x := w.pick(lambda v: v.dtype.is_float() and v.rank > 0)) is not None:
        axis = w.rng.choice((w.values[x].rank - 1, w.rng.randrange(w.values[x].rank)))
        w.add(w.rng.choice(("softmax", "softmax", "logsoftmax")), x, axis=axis)


def rearrange(w: Writer) -> None:
    """Elements in other places, some more than once, some replaced by zeros."""
    if (x := w.pick(lambda v: v.rank > 0)) is None:
        return
    shape = list(w.values[x].shape)
    axis = w.rng.randrange(len(shape))
    ways: list[Callable[[], Any]] = [
        lambda: w.add("flip", x, axis=axis),
        lambda: w.add("roll", x, axis=axis, shift=w.rng.choice((-2, 1, 3))),
    ]
    repeats = [w.rng.choice((1, 1, 2)) for _ in shape]
    if w.fits([*shape, *repeats]):
        ways.append(lambda: w.add("tile", x, repeats=repeats))
    paddings = [w.rng.choice((0, 0, 1, 2)) for _ in range(2 * len(shape))]
    if w.fits([dim + paddings[2 * k] + paddings[2 * k + 1] for k, dim in enumerate(shape)]):
        ways.append(lambda: w.add("pad", x, paddings=paddings, mode="constant"))
        if all(w.filled(dim) for dim in shape):
            ways.append(lambda: w.add("pad", x, paddings=paddings, mode="edge"))
    if len(shape) > 1 and w.values[x].dtype != DType.bool:
        ways.append(lambda: w.add(w.rng.choice(("tril", "triu")), x, diagonal=w.rng.choice((-1, 0, 1))))
    if isinstance(shape[axis], StaticDim) and (n := int(shape[axis])):
        indices = [w.rng.randrange(-n, n) for _ in range(w.rng.choice((1, 2, 4)))]
        if w.fits([*shape[:axis], len(indices), *shape[axis + 1 :]]):
            ways.append(lambda: w.add("gather", x, indices=indices, axis=axis))
    w.rng.choice(ways)()


def along(w: Writer) -> None:
    """What an axis has, in order, summed up, or kept within bounds."""
    if (x := w.numeric(lambda v: v.rank > 0)) is None:
        return
    axis = w.rng.randrange(w.values[x].rank)
    low = w.number(x)
    ways: list[Callable[[], Any]] = [
        lambda: w.add("sort", x, axis=axis, descending=w.rng.random() < 0.5),
        lambda: w.add("cumsum", x, axis=axis, exclusive=w.rng.random() < 0.3, reverse=w.rng.random() < 0.3),
        lambda: w.add("clamp", x, low=low, high=low + w.number(x)),
    ]
    if (flags := w.pick(lambda v: v.dtype == DType.bool and v.rank > 0 and w.filled(v.shape[-1]))) is not None:
        last = w.values[flags].rank - 1
        ways = [lambda: w.add(w.rng.choice(("any", "all")), flags, axis=last, keepdims=w.rng.random() < 0.5)]
    w.rng.choice(ways)()


def weights(w: Writer, shape: list[int], dtype: DType) -> int:
    return w.add("constant", dtype=dtype.name, shape=shape, seed=w.rng.randint(0, 99))


def matmul(w: Writer) -> None:
    if (x := w.numeric(lambda v: v.rank >= 2)) is None:
        return
    value = w.values[x]
    k = value.shape[-1]
    fitting = [
        n
        for n, v in enumerate(w.values)
        if not isinstance(v, BufferValue)
        and v.dtype == value.dtype
        and v.rank >= 2
        and v.shape[-2] == k
        and (v.rank == 2 or list(v.shape[:-2]) == list(value.shape[:-2]))
        and w.fits([*value.shape[:-1], v.shape[-1]])
    ]
    if fitting and w.rng.random() < 0.6:
        w.add("matmul", x, w.rng.choice(fitting))
    elif isinstance(k, StaticDim) and w.rng.random() < 0.7:
        w.add("matmul", x, weights(w, [int(k), w.rng.choice((int(k), 1, 4, 6))], value.dtype))
    elif w.fits([*value.shape[:-1], value.shape[-2]]):
        order = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
        w.add("matmul", x, w.add("permute", x, order=order))


def residual(w: Writer) -> None:
    """A value, and what was made of it, added."""
    if (x := w.numeric()) is not None:
        w.add("add", x, w.alike(x))


def normal(w: Writer) -> None:
    """Layer norm, written out."""
    if (x := w.pick(lambda v: v.dtype.is_float() and v.rank > 0)) is None:
        return
    axis = w.rng.choice((w.values[x].rank - 1, w.rng.randrange(w.values[x].rank)))
    centred = w.add("sub", x, w.add("mean", x, axis=axis, keepdims=True))
    spread = w.add("mean", w.add("mul", centred, centred), axis=axis, keepdims=True)
    w.add("mul", centred, w.add("rsqrt", w.add("add", spread, number=0.5)))


def norm(w: Writer) -> None:
    """The norms of the library."""
    if (x := w.pick(lambda v: v.dtype.is_float() and v.rank > 0 and isinstance(v.shape[-1], StaticDim))) is None:
        return
    value = w.values[x]
    scale = weights(w, [int(value.shape[-1])], value.dtype)
    if w.rng.random() < 0.5:
        w.add("rms_norm", x, scale, epsilon=0.5)
    else:
        w.add("layer_norm", x, scale, weights(w, [int(value.shape[-1])], value.dtype), epsilon=0.5)


def windows(w: Writer) -> None:
    """Convolutions and pools over two axes."""
    if (x := w.numeric(lambda v: v.rank in (2, 4) and all(w.filled(d) for d in v.shape))) is None:
        return
    if w.values[x].rank == 2:
        x = w.add("reshape", w.add("reshape", x, how="new", at=0), how="new", at=3)
    value, stride = w.values[x], w.rng.choice((1, 2))
    grown = [value.shape[0], value.shape[1] + 2, value.shape[2] + 2]
    if w.rng.random() < 0.5:
        if w.fits([*grown, value.shape[3]]):
            name = "avg_pool2d" if value.dtype.is_float() and w.rng.random() < 0.5 else "max_pool2d"
            w.add(name, x, window=[2, w.rng.choice((2, 3))], stride=[stride, 1])
    elif isinstance(value.shape[3], StaticDim) and w.fits([*grown, 3]):
        filter = weights(w, [2, w.rng.choice((1, 3)), int(value.shape[3]), w.rng.choice((1, 3))], value.dtype)
        w.add("conv2d", x, filter, stride=[stride, 1], padding=[w.rng.choice((0, 1)), 1, 1, 1])


def attention(w: Writer) -> None:
    """Scores of rows with each other, and what they choose."""
    if (x := w.pick(lambda v: v.dtype.is_float() and v.rank >= 2)) is None:
        return
    value = w.values[x]
    if w.rng.random() < 0.4:
        w.add("attention", x, x, x, scale=0.25)
    elif w.fits([*value.shape[:-1], value.shape[-2]]):
        order = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
        scores = w.add("mul", w.add("matmul", x, w.add("permute", x, order=order)), number=0.25)
        w.add("matmul", w.add("softmax", scores, axis=value.rank - 1), x)


def custom(w: Writer) -> None:
    """An op of the user's."""
    if (x := w.numeric()) is None:
        return
    value, n = w.values[x], w.number(x)
    shape = list(value.shape)

    def call(name: str, *operands: int, **more: Any) -> None:
        w.add("custom", *operands, name=name, **more)

    ways: list[Callable[[], None]] = [
        lambda: call("scale_add", x, w.alike(x), parameters={"factor": w.rng.choice((1, 2, 3))}),
        lambda: call("unfused_add", x, w.alike(x)),
        lambda: call("both_ways", x),
        lambda: call("blend", x, w.alike(x), numbers=[n], first=True),
        lambda: call("total", *(w.alike(x) for _ in range(w.rng.choice((1, 2, 3)))), variadic=True),
        lambda: call("scaled_all", x, *[w.numeric(lambda v: v.dtype == value.dtype) or x], variadic=True, numbers=[n]),
    ]
    if value.dtype.is_float():
        ways.append(lambda: call("horner", x))
    if shape:
        ways.append(lambda: call("neighbours", x))
        if w.filled(shape[-1]):
            ways.append(lambda: call("scanned", x))
        if w.fits([*shape, 2]):
            ways.append(lambda: call("twice", x))
    if len(shape) == 1:
        if w.fits([*shape, *shape]):
            ways.append(lambda: call("outer", x, w.alike(x)))
        if w.exact[x] and len(w.late) < 2:
            ways += [lambda: choose(w, x)] * 3
    if len(shape) == 2:
        ways += [lambda: call("double_rows", x), lambda: call("running_sum", x), lambda: call("read_rows", x)]
        ways.append(lambda: call("scaled_rows", x, numbers=[n]))
        if w.filled(shape[-1]):
            ways.append(lambda: call("row_totals", x))
    w.rng.choice(ways)()


def choose(w: Writer, x: int) -> None:
    """A size that only the elements determine."""
    bound = w.values[x].shape[0].substitute(w.late)
    made = w.add("custom", x, name="kept", numbers=[1])
    for name in w.values[made].shape.parameters:
        w.late.setdefault(name, bound)


def memory(w: Writer) -> None:
    """Buffers: read, written, changed in place."""
    buffers = [k for k, v in enumerate(w.values) if isinstance(v, BufferValue)]
    if not buffers:
        if w.rng.random() < 0.2 and (x := w.pick(lambda v: True)) is not None:
            w.add("buffer_store", w.add("buffer_create", x), x)
        return
    b = w.rng.choice(buffers)
    buffer = w.values[b]
    x = w.pick(lambda v: v.dtype == buffer.dtype and tuple(v.shape) == tuple(buffer.shape))
    row = None
    if buffer.rank:
        row = w.pick(lambda v: v.dtype == buffer.dtype and tuple(v.shape) == tuple(buffer.shape[1:]))
    if row is None and x is not None and buffer.rank and buffer.dtype != DType.bool:
        total = w.add("sum", x, axis=0, keepdims=False)  # of integers in 64 bits
        same = w.values[total].dtype == buffer.dtype
        row = total if same else w.add("cast", total, dtype=buffer.dtype.name)
    ways: list[Callable[[], Any]] = [lambda: w.add("buffer_load", b)]
    whole: list[Any] = [[None, None, None]] * buffer.rank
    if x is not None:
        ways.append(lambda: w.add("buffer_store", b, x))
        if buffer.rank:
            ways.append(lambda: w.add("buffer_store_slice", b, x, index=[[None, None, -1], *whole[1:]]))
        if buffer.dtype != DType.bool:
            ways += [
                lambda: w.add("custom", b, x, name="axpy_into", numbers=[1], after_first=True, inplace=True),
            ] * 2
    if row is not None and w.filled(buffer.shape[0]) and isinstance(buffer.shape[0], StaticDim):
        ways.append(
            lambda: w.add("buffer_store_slice", b, row, index=[w.rng.randrange(int(buffer.shape[0])), *whole[1:]])
        )
    if buffer.rank == 2 and buffer.dtype != DType.bool:
        ways.append(lambda: w.add("custom", b, name="read_rows", inplace=True))
        if row is not None:
            ways.append(lambda: w.add("custom", b, row, name="bump_and_total", inplace=True))
    w.rng.choice(ways)()


WAYS: list[tuple[Callable[[Writer], None], int]] = [
    (unary, 8), (careful, 2), (binary, 10), (quotient, 4), (compare, 4), (logic, 4), (cast, 3),
    (permute, 5), (reshape, 5), (take, 5), (join, 4), (split, 2), (spread, 3),
    (reduce, 10), (softmax, 5), (matmul, 9), (residual, 6), (normal, 4), (attention, 3), (custom, 14), (memory, 10),
    (rearrange, 4), (along, 4), (norm, 3), (windows, 4),
]  # fmt: skip


def random_network(rng: random.Random) -> Network:
    """A random network; one whose staging failed ends with the step that failed."""
    try:
        return Writer(rng).network(WAYS)
    except Refused as refused:
        return refused.network
