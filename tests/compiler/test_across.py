"""Loops that read across memory go through blocks of rows and columns; others stay as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import KernelFile
from support import graphs
from support.graphs import Array

from einkorn.compiler.ir.program import Op, walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.graph import (
    BufferType,
    BufferValue,
    DeviceRef,
    Graph,
    InferenceSession,
    TensorType,
    TensorValue,
    ops,
)

TEXT = """
from einkorn.dsl import InputTensor, OutputTensor, complex128, float32, float64, foreach, register, uint8

@register("turned")
def turned(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "m n"]):
    foreach(out, lambda i: x[i[1], i[0]])

@register("columns_last")
def columns_last(out: OutputTensor[float32, "n h w c"], x: InputTensor[float32, "n c h w"]):
    foreach(out, lambda i: x[i[0], i[3], i[1], i[2]] + 1)

@register("straight")
def straight(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"]):
    foreach(out, lambda i: x[i[0], i[1]])

@register("swapped_first")
def swapped_first(out: OutputTensor[float32, "n m k"], x: InputTensor[float32, "m n k"]):
    foreach(out, lambda i: x[i[1], i[0], i[2]])

@register("wide")
def wide(out: OutputTensor[complex128, "n m"], x: InputTensor[complex128, "m n"]):
    foreach(out, lambda i: x[i[1], i[0]])

@register("pixels")
def pixels(out: OutputTensor[uint8, "n h w c"], x: InputTensor[uint8, "n c h w"]):
    foreach(out, lambda i: x[i[0], i[3], i[1], i[2]])

@register("several")
def several(
    out: OutputTensor[float32, "n m"],
    x: InputTensor[float32, "m n"],
    y: InputTensor[float64, "m n"],
    z: InputTensor[float32, "n m"],
):
    foreach(out, lambda i: x[i[1], i[0]] * x[i[1], i[0]] + y[i[1], i[0]].cast(float32) * z[i])

@register("checks_range")
def checks_range(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "m n"]):
    def element(i):
        assert x[i[1], i[0]] > 0, "positive"
        return x[i[1], i[0]]
    foreach(out, element)
"""


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def operations(folder: Path, op: str, inputs: list[tuple[DType, tuple[int, ...]]]) -> list[Op]:
    path = folder / "kernels.py"
    path.write_text(TEXT, encoding="utf-8")
    spec = KernelFile(path).entry(op, inputs, {})[0]
    program = typed_program(spec, lookup("x86-64-v3"))
    return [op for function in program.functions for op in walk(function.body)]


def way(found: list[Op]) -> str:
    if any(op.name == "shuffle" for op in found):
        return "tiles"
    return "lines" if any(getattr(op.attrs.get("hints"), "unrolled", False) for op in found) else ""


@pytest.mark.parametrize(
    ("op", "shape", "wanted"),
    [
        ("turned", (50, 40), "tiles"),
        ("turned", (50, 7), ""),  # columns share lines
        ("turned", (16, 50), ""),  # short rows read few lines
        ("columns_last", (2, 64, 8, 8), "tiles"),
        ("columns_last", (2, 64, 6, 3), "tiles"),  # the rows of an image are one
        ("columns_last", (2, 3, 8, 8), ""),
        ("straight", (40, 50), ""),
        ("swapped_first", (40, 50, 60), ""),
        ("checks_range", (40, 50), ""),
    ],
)
def test_which_loops_go_through_blocks(op: str, shape: tuple[int, ...], wanted: str, tmp_path: Path) -> None:
    assert way(operations(tmp_path, op, [(DType.float32, shape)])) == wanted


def test_elements_of_other_sizes(tmp_path: Path) -> None:
    assert way(operations(tmp_path, "wide", [(DType.complex128, (50, 40))])) == "lines"
    assert way(operations(tmp_path, "pixels", [(DType.uint8, (2, 64, 8, 8))])) == "tiles"


def test_what_is_read_twice_is_turned_once(tmp_path: Path) -> None:
    inputs: list[tuple[DType, tuple[int, ...]]] = [
        (DType.float32, (90, 80)),
        (DType.float64, (90, 80)),
        (DType.float32, (80, 90)),
    ]
    actual = operations(tmp_path, "several", inputs)
    tiles = [op for op in actual if op.name == "alloca"]
    assert [op.results[0].dtype for op in tiles] == [DType.float32, DType.float64]
    assert sum(op.attrs["count"] * op.results[0].dtype.size_in_bytes for op in tiles) <= 16 << 10


def forward(x: TensorValue, y: TensorValue, z: TensorValue, narrow: TensorValue) -> list[TensorValue]:
    turned = ops.transpose(x, 0, 1)
    last = ops.permute(z, [0, 2, 3, 1])
    return [
        turned,
        turned * 2 + y,
        last,
        ops.permute(z, [3, 1, 2, 0]),
        ops.transpose(narrow, 0, 1),
        ops.equal(turned, y),
    ]


def reference(x: Array, y: Array, z: Array, narrow: Array) -> list[Array]:
    return [x.T, x.T * 2 + y, z.transpose(0, 2, 3, 1), z.transpose(3, 1, 2, 0), narrow.T, y == x.T]


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [(np.float32, np.uint8), (np.float64, np.float16), (np.complex64, np.bool_), (np.complex128, np.int16)],
)
def test_all_sizes(wide: type[np.generic], narrow: type[np.generic]) -> None:
    """Whole blocks, what is left over on each side, one row, one column, nothing; contiguous arrays and views."""
    inputs = [(dtype, list(dims)) for dtype, dims in ((wide, "mn"), (wide, "nm"), (wide, "bchw"), (narrow, "mn"))]
    model = graphs.load(forward, *inputs)
    for m, n, c in ((16, 16, 24), (33, 270, 17), (1, 40, 1), (300, 1, 40), (8, 17, 8), (0, 20, 33), (20, 0, 0)):
        x = graphs.numbers((m, n), wide)
        given = [x, graphs.numbers((n, m), wide), graphs.numbers((2, c, 5, 19), wide), x.real.astype(narrow)]
        for arrays in (given, [np.repeat(array, 2, -1)[..., ::2] for array in given]):
            for number, (each, wanted) in enumerate(
                zip(graphs.results(model, *arrays), reference(*arrays), strict=True)
            ):
                np.testing.assert_array_equal(each, wanted, err_msg=f"output {number}, {m} x {n}, {c} channels")


def test_what_is_turned_is_also_changed() -> None:
    """A buffer that is read across and changed in place."""

    def forward(buffer: BufferValue, y: TensorValue) -> TensorValue:
        x = ops.buffer_load(buffer)
        ops.buffer_store(buffer, x + ops.transpose(x, 0, 1) * 2 + ops.transpose(y, 0, 1))
        return x * 1.0

    types = [kind(DType.float32, ["n", "n"], DeviceRef.CPU()) for kind in (BufferType, TensorType)]
    model = InferenceSession().load(Graph("changed", forward, input_types=types))
    for n in (3, 64, 130):
        held = graphs.numbers((n, n), np.float32)
        y = held[::-1].copy()
        for _ in range(2):
            before = held.copy()
            actual = model(held, y)[0].to_numpy()
            np.testing.assert_array_equal(actual, before)
            np.testing.assert_array_equal(held, before + before.T * 2 + y.T)
