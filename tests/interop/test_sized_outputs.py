"""Direct calls whose `out=` gives the sizes of outputs that follow from no input."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

from einkorn.dsl import (
    InputTensor,
    Int,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    foreach,
    int32,
    int64,
    register,
)
from einkorn.errors import DTypeError, GraphError
from einkorn.graph import Accelerator, Buffer

T = TypeVar("T", bound=Numeric)
U = TypeVar("U", bound=Numeric)


@register("repeated")
def repeated(
    rows: OutputTensor[T, "k n"], numbers: OutputTensor[int64, "(2*k)"], x: InputTensor[T, "n"], *, by: int = 1
) -> None:
    foreach(rows, lambda i: x[i[1]] * by)
    foreach(numbers, lambda i: i + 0)


@register("counted")
def counted(counts: OutputTensor[int32, "bins"], seen: MutableInputTensor[int32, "1"], x: InputTensor[int32, "n"]):
    for k in range(counts.dim(0)):
        counts[k] = 0
    for j in range(x.dim(0)):
        counts[x[j]] += 1
    seen[0] += Int(x.dim(0)).cast(int32)


@register("converted")
def converted(out: OutputTensor[U, "k"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i % x.dim(0)].cast(out.dtype))


x = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize("rows", [2, 0, 5, 2, 1])
def test_sizes_are_those_of_the_memory(rows: int) -> None:
    memory = np.empty((rows, 3), np.float32), np.empty(2 * rows, np.int64)
    for _ in range(3):  # doors open for other calls
        assert repeated(x, out=memory, by=2) is memory
        assert np.array_equal(memory[0], np.broadcast_to(2 * x, (rows, 3)))
        assert np.array_equal(memory[1], np.arange(2 * rows))


def test_memory_with_strides_and_of_other_kinds() -> None:
    table = np.zeros((3, 4), np.float32)
    numbers = np.zeros(12, np.int64)
    repeated(x, out=(table.T[:3], numbers[::2]))
    assert np.array_equal(table[:, :3], np.repeat(x[:, None], 3, 1)) and not table[:, 3].any()
    assert numbers[::2].tolist() == list(range(6)) and not numbers[1::2].any()
    buffers = Buffer.from_numpy(np.empty((2, 3), np.float32)), Buffer.from_numpy(np.empty(4, np.int64))
    repeated(Buffer.from_numpy(x), out=buffers)
    assert buffers[0].to_numpy().tolist() == [x.tolist()] * 2


def test_changed_in_place_next_to() -> None:
    counts, seen = np.empty(4, np.int32), np.zeros(1, np.int32)
    for _ in range(2):
        counted(seen, np.array([0, 3, 3], np.int32), out=counts)
    assert counts.tolist() == [1, 0, 0, 2] and seen[0] == 6


def test_dtypes_of_the_memory() -> None:
    for dtype in (np.int8, np.float64, np.float32):
        assert converted(x, out=np.empty(5, dtype)).tolist() == [0, 1, 2, 0, 1]


def test_on_a_device() -> None:
    gpu = Accelerator("sim")
    out = Buffer.from_numpy(np.empty(4, np.float32)).to(gpu)
    converted(Buffer.from_numpy(x).to(gpu), out=out)
    assert out.to_numpy().tolist() == [0, 1, 2, 0]


def memory(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(np.empty(shape, dtype) for shape, dtype in zip(shapes, (np.float32, np.int64), strict=True))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (memory((2, 3), (5,)), r"gives shape \(4,\) in output 'numbers', and the memory for it has shape \(5,\)"),
        (memory((2, 4), (4,)), r"gives shape \(2, 3\) in output 'rows', and the memory for it has shape \(2, 4\)"),
        (memory((2,), (4,)), r"gives 2 axes in output 'rows', and the memory for it has shape \(2,\)"),
        (
            (np.empty((2, 3)), np.empty(4, np.int64)),
            "gives float32 in output 'rows', and the memory for it holds float64",
        ),
        ((*memory((2, 3), (4,)), x), "do not determine the size 'k'"),
    ],
)
def test_memory_that_does_not_fit(out: Any, message: str) -> None:
    with pytest.raises((GraphError, DTypeError), match=message) as caught:
        repeated(x, out=out)
    assert caught.value.code in ("EK0853", "EK0314")


@pytest.mark.parametrize("out", [None, (memory((2, 3), (4,))[0], None)])
def test_without_memory(out: Any) -> None:
    with pytest.raises(GraphError, match="do not determine the size 'k'") as caught:
        repeated(x, out=out)
    assert caught.value.code == "EK0314"
    assert str(caught.value.hint).startswith("give memory for the output: repeated(x, out=(rows, numbers))")
    with pytest.raises(GraphError) as caught:
        counted(np.zeros(1, np.int32), np.zeros(3, np.int32))
    assert "counted(seen, x, out=counts)" in str(caught.value.hint)


def test_memory_shared_with_an_input() -> None:
    with pytest.raises(GraphError) as caught:
        converted(x, out=x)
    assert caught.value.code == "EK0462"


@register("multiples")
def multiples(out: OutputTensor[int32, "n"], by: Int):
    foreach(out, lambda i: (i[0] * by).cast(int32))


def test_an_op_without_tensors_runs_where_its_output_lies() -> None:
    for memory in (np.zeros(4, np.int32), Buffer.from_numpy(np.zeros(4, np.int32)).to(Accelerator("sim"))):
        assert multiples(3, out=memory) is memory
        assert (memory.to_numpy() if isinstance(memory, Buffer) else memory).tolist() == [0, 3, 6, 9]
