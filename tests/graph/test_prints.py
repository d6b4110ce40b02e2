"""Prints of graphs: their text, and their order among changes of buffers; fences; checks of devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.graphs import HOST

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import BufferType, DeviceRef, DType, Graph, InferenceSession, Model, TensorType, ops

F32 = TensorType(DType.float32, ["n", "m"], HOST)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(model: Model, *arrays: Any) -> str:
        capsys.readouterr()
        model(*arrays)
        return capsys.readouterr().out

    return run


def both(forward: Callable[..., Any], *types: Any) -> list[Model]:
    return [InferenceSession(interpret=i).load(Graph("g", forward, types)) for i in (False, True)]


def test_a_tensor_is_shown_as_nested_lists(said: Callable[..., str]) -> None:
    def forward(x: Any) -> Any:
        ops.print(x * 2, label="twice")
        x.print()
        return x

    for model in both(forward, F32):
        text = said(model, np.float32([[1, 2.5], [-3, np.nan]]))
        assert text == (
            "twice: float32 (2, 2): [[2.0, 5.0],\n [-6.0, nan]]\n"
            "debug_tensor: float32 (2, 2): [[1.0, 2.5],\n [-3.0, nan]]\n"
        )
        assert said(model, np.zeros((0, 2), np.float32)).startswith("twice: float32 (0, 2): []\n")


def test_large_tensors_show_their_ends(said: Callable[..., str]) -> None:
    model = InferenceSession().load(Graph("g", lambda x: (x.print("x"), x)[1], [F32]))
    text = said(model, np.arange(2000, dtype=np.float32).reshape(500, 4))
    lines = text.splitlines()
    assert lines[0] == "x: float32 (500, 4): [[0.0, 1.0, 2.0, 3.0],"
    assert lines[3:5] == [" ...,", " [1988.0, 1989.0, 1990.0, 1991.0],"] and len(lines) == 7
    assert lines[-1] == " [1996.0, 1997.0, 1998.0, 1999.0]]"
    wide = said(model, np.arange(2000, dtype=np.float32).reshape(1, 2000))
    assert wide == "x: float32 (1, 2000): [[0.0, 1.0, 2.0, ..., 1997.0, 1998.0, 1999.0]]\n"


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (np.bool_, "[False, True]"),
        (np.int8, "[0, 1]"),
        (np.uint64, "[0, 1]"),
        (np.float16, "[0.0, 1.0]"),
        (ml_dtypes.bfloat16, "[0.0, 1.0]"),
        (ml_dtypes.float8_e4m3fn, "[0.0, 1.0]"),
        (ml_dtypes.int4, "[0, 1]"),
    ],
)
def test_every_kind_of_dtype(said: Callable[..., str], dtype: Any, text: str) -> None:
    known = DType.from_numpy(np.dtype(dtype))
    model = InferenceSession(interpret=True).load(
        Graph("g", lambda x: (x.print("x"), x)[1], [TensorType(known, [2], HOST)])
    )
    assert said(model, np.array([0, 1]).astype(dtype)) == f"x: {known} (2): {text}\n"


def test_effects_keep_their_order(said: Callable[..., str]) -> None:
    def forward(x: Any, b: Any) -> Any:
        ops.print("begin")
        b.print("before")
        ops.buffer_store(b, ops.sum(ops.sum(x, 0), 1).reshape([]) * 2)
        b.print()
        y = ops.fence(x + 1)
        ops.cond(x[0, 0] > 0, None, lambda: ops.print("above"), lambda: ops.print("below"))
        ops.print("end")
        return y

    for model in both(forward, F32, BufferType(DType.float32, [], HOST)):
        buffer = np.zeros((), np.float32)
        text = said(model, np.ones((2, 2), np.float32), buffer)
        lines = ["begin", "before: float32 (): 0.0", "debug_buffer: float32 (): 8.0", "above", "end"]
        assert text.splitlines() == lines and buffer == 8
        assert "below" in said(model, -np.ones((1, 1), np.float32), buffer)


def test_a_graph_may_do_nothing_but_print(said: Callable[..., str]) -> None:
    assert said(InferenceSession().load(Graph("g", lambda x: ops.print(x, "x"), [F32])), np.ones((1, 1), np.float32))


def test_a_fence_is_no_part_of_a_kernel() -> None:
    fused = InferenceSession().load(Graph("g", lambda x: (x + 1) * 2, [F32]))
    apart = InferenceSession().load(Graph("g", lambda x: ops.fence(x + 1) * 2, [F32]))
    assert [sum(b.source[0] == "temp" for b in m.code.plan.buffers) for m in (fused, apart)] == [0, 1]


def test_what_is_refused() -> None:
    gpu = TensorType(DType.float32, [2], DeviceRef.GPU())
    cases: list[tuple[str, Any]] = [
        ("EK0411", lambda x, y: ops.print(3.5j)),
        ("EK0411", lambda x, y: ops.print(3)),
        ("EK0478", lambda x, y: ops.print(x, label=3)),  # type: ignore[arg-type]
        ("EK0411", lambda x, y: ops.fence(np.ones(2))),
        ("EK0430", lambda x, y: ops.assert_same_device(x, y)),
        ("EK0430", lambda x, y: ops.assert_same_device(first=x, second=y)),
        ("EK0403", lambda x, y: ops.assert_same_device(x, 3)),  # type: ignore[arg-type]
    ]
    for code, forward in cases:
        with pytest.raises(EinkornError) as caught:
            Graph("g", forward, [F32, gpu])
        assert caught.value.code == code, caught.value


X = np.arange(1200, dtype=np.float32).reshape(600, 2) / 7


def printing(interpret: bool, **options: Any) -> Model:
    session = InferenceSession(interpret=interpret)
    session.set_print_options(**options)
    return session.load(Graph("g", lambda x: (x.print("a/b"), ops.print("text"), x)[2], [F32]))


@pytest.mark.parametrize("interpret", [True, False])
def test_styles(said: Callable[..., str], interpret: bool, tmp_path: Path) -> None:
    """All elements, digits, nothing, files of text and of elements; a text is printed always."""
    full = said(printing(interpret, style="full", precision=2), X).splitlines()
    assert full[:2] == ["a/b: float32 (600, 2): [[0.00, 0.14],", " [0.29, 0.43],"] and len(full) == 601
    assert said(printing(interpret, style="none"), X) == "text\n"
    assert said(printing(interpret), X).count("...") == 1
    texts = printing(interpret, directory=tmp_path / "new")
    assert said(texts, X[:1]) == said(texts, X[:2]) == "text\n"
    assert (tmp_path / "new" / "a_b-0.txt").read_text().startswith("a/b: float32 (1, 2): [[0.0, 0.14285")
    assert (tmp_path / "new" / "a_b-1.txt").read_text().endswith("0.42857143]]\n")
    assert said(printing(interpret, style="binary", directory=str(tmp_path)), X) == "text\n"
    assert np.array_equal(np.load(tmp_path / "a_b-0.npy"), X)


def test_elements_of_narrow_floats_go_to_files_as_float32(tmp_path: Path) -> None:
    session = InferenceSession(interpret=True)
    session.set_debug_print_options(style="binary", directory=tmp_path)
    types = [TensorType(dtype, ["n"], HOST) for dtype in (DType.bfloat16, DType.int4, DType.bool)]
    model = session.load(Graph("g", lambda *xs: [(x.print(f"{x.dtype}"), x)[1] for x in xs], types))
    given = [np.array([0, 1, 1]).astype(dtype) for dtype in (ml_dtypes.bfloat16, ml_dtypes.int4, bool)]
    model(*given)
    actual = [np.load(tmp_path / f"{name}-0.npy") for name in ("bfloat16", "int4", "bool")]
    assert [each.dtype for each in actual] == [np.float32, np.int8, bool]
    assert all(np.array_equal(a.astype(int), [0, 1, 1]) for a in actual)
    model(*(each[:0] for each in given))
    assert np.load(tmp_path / "bool-1.npy").shape == (0,)


@pytest.mark.parametrize(
    "options", [{"style": "short"}, {"precision": -1}, {"precision": "2"}, {"directory": 3}, {"style": "binary"}]
)
def test_options_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(EinkornError, match=next(iter(options))) as caught:
        InferenceSession().set_print_options(**options)
    assert caught.value.code == "EK0478"
