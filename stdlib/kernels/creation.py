"""Makes tensors of few numbers: sequences, indicators; and the sizes of what others make."""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import (
    DType,
    Element,
    Index,
    InputTensor,
    Integral,
    Numeric,
    OutputTensor,
    VariadicTensors,
    bitcast,
    bool8,
    ceil,
    float64,
    foreach,
    int64,
    register,
    static_assert,
    uint64,
)

E = TypeVar("E", bound=Element)
I = TypeVar("I", bound=Integral)  # noqa: E741
N = TypeVar("N", bound=Numeric)
S = TypeVar("S", int64, float64)


@register("range")
def range_(out: OutputTensor[N, "*s"], start: S, step: S, *, dtype: DType) -> None:
    """start, start + step, start + 2 * step, ..., as many as `out` holds; floats are computed in float64."""
    static_assert(dtype == N, "the dtype of the output differs from the parameter")
    foreach(out, lambda i: (start + i[0].cast(S) * step).cast(N))


@register("range_size")
def range_size(out: OutputTensor[int64, "1"], start: S, stop: S, step: S) -> None:
    """How many steps lead from `start` to `stop`, the last one perhaps beyond."""
    foreach(out, lambda i: _steps(start, stop, step))


def _steps(start: Numeric, stop: Numeric, step: Numeric) -> Any:
    assert step != 0, "the step has to be another number than 0"
    if start.dtype.is_float():
        count = ceil((stop - start) / step)
        assert count >= 0, f"steps of {step} do not lead from {start} to {stop}"
        return count.cast(int64)
    assert (start <= stop) if step > 0 else (stop <= start), f"steps of {step} do not lead from {start} to {stop}"
    distance = bitcast(stop - start if step > 0 else start - stop, uint64)  # it may be too large for int64
    stride = bitcast(step if step > 0 else 0 - step, uint64)
    whole = distance // stride
    return bitcast(whole if whole * stride == distance else whole + 1, int64)


@register("one_hot")
def one_hot(
    out: OutputTensor[E, "*a{axis} depth *b"], indices: InputTensor[I, "*a{axis} *b"], on: E, off: E, *, axis: int
) -> None:
    """`on` where the place along `axis` is the index, `off` elsewhere; a negative index counts from the end."""
    depth = out.dim(axis)

    def element(i: tuple[Index, ...]):
        given = indices[(*i[:axis], *i[axis + 1 :])].cast(int64)
        return on if given == i[axis] or given + depth == i[axis] else off

    foreach(out, element)


@register("sizes")
def sizes(out: OutputTensor[int64, "k"], x: InputTensor[I, "k"]) -> None:
    """Sizes as they are given, for the host to read."""
    foreach(out, lambda i: x[i].cast(int64))


@register("require_sizes", fuse=False, effects=True)
def require_sizes(done: OutputTensor[int64, "1"], left: int64, right: int64, *, kind: str, text: str) -> None:
    """Ends the call with `text` unless two sizes are as `kind` says: "equal", "at_least" or "broadcast"."""

    def checked(_: Index):
        if kind == "equal":
            assert left == right, f"{text}: {left} and {right}"
        elif kind == "at_least":
            assert left >= right, f"{text}: {left} and {right}"
        else:
            assert (left - right) * (left - 1) * (right - 1) == int64(0), f"{text}: {left} and {right}"
        return 0

    foreach(done, checked)


@register("size_of")
def size_of(out: OutputTensor[int64, ""], x: InputTensor[bool8, "m 0"], y: InputTensor[bool8, "n 0"]) -> None:
    """The size of the first axis of x without that of y; neither has elements."""
    foreach(out, lambda i: x.dim(0) - y.dim(0))


@register("shape_of")
def shape_of(out: OutputTensor[int64, "(count)"], xs: VariadicTensors[bool8, "n_k 0"], *, count: int) -> None:
    """The sizes of the first axes of tensors that have no elements."""

    def size(i: tuple[Index, ...]):
        result = xs[0].dim(0)
        for k, x in enumerate(xs):
            result = x.dim(0) if i[0] == k else result
        return result

    foreach(out, size)
