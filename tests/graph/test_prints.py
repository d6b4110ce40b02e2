"""Prints of graphs: their text, and their order among changes of buffers; fences; checks of devices."""

from __future__ import annotations

from collections.abc import Callable
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
    assert [sum(b.source[0] == "temp" for b in m._code.plan.buffers) for m in (fused, apart)] == [0, 1]


def test_what_is_refused() -> None:
    gpu = TensorType(DType.float32, [2], DeviceRef.GPU())
    cases: list[tuple[str, Any]] = [
        ("EK0403", lambda x, y: ops.print(3.5j)),
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
