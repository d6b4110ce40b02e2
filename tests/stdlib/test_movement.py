"""Kernels that move elements, against NumPy, with sizes that are known to the code and with sizes that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl import DType

Array = np.ndarray[Any, Any]
Run = Callable[..., Array]

DTYPES = (np.bool_, np.int8, np.uint16, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


@pytest.fixture(params=("known", "symbolic"))
def move(request: pytest.FixtureRequest, run: Run, run_symbolic: Run) -> Run:
    return run if request.param == "known" else run_symbolic


def counted(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Elements that show where they come from."""
    return (np.arange(int(np.prod(shape))) % 101).astype(dtype).reshape(shape)


def out(x: Array, shape: tuple[int, ...]) -> list[tuple[DType, tuple[int, ...]]]:
    return [(DType.from_numpy(x.dtype), shape)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(run: Run, dtype: Any) -> None:
    x = counted((3, 4), dtype)
    np.testing.assert_array_equal(run("movement", "permute", x, outputs=out(x, (4, 3)), order=(1, 0)), x.T)
    np.testing.assert_array_equal(run("movement", "reshape", x, outputs=out(x, (6, 2))), x.reshape(6, 2))


@pytest.mark.parametrize(
    "source, target", [((12,), (3, 4)), ((3, 4), (12,)), ((2, 3, 4), (4, 1, 6)), ((1,), (1, 1)), ((0, 3), (5, 0))]
)
def test_reshape(move: Run, source: tuple[int, ...], target: tuple[int, ...]) -> None:
    x = counted(source)
    np.testing.assert_array_equal(move("movement", "reshape", x, outputs=out(x, target)), x.reshape(target))


@pytest.mark.parametrize(
    "order", [(1, 0, 2), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 2, 0, 3), (3, 1, 0, 2), (5, 0, 4, 1, 3, 2)]
)
def test_permute(move: Run, order: tuple[int, ...]) -> None:
    x = counted((2, 3, 5, 4, 3, 2)[: len(order)])
    expected = x.transpose(order)
    np.testing.assert_array_equal(move("movement", "permute", x, outputs=out(x, expected.shape), order=order), expected)


@pytest.mark.parametrize(
    "source, target",
    [((1,), (7,)), ((3, 1), (3, 5)), ((4,), (2, 3, 4)), ((1, 3, 1), (2, 3, 4)), ((3,), (0, 3)), ((1, 1), (1, 1))],
)
def test_broadcast(move: Run, source: tuple[int, ...], target: tuple[int, ...]) -> None:
    x = counted(source)
    np.testing.assert_array_equal(
        move("movement", "broadcast_to", x, outputs=out(x, target)), np.broadcast_to(x, target)
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat(move: Run, axis: int) -> None:
    shapes = [(2, 3, 4), (2, 3, 4)]
    shapes[1] = tuple(5 if k == axis else n for k, n in enumerate(shapes[1]))  # type: ignore[assignment]
    x, y = counted(shapes[0]), -counted(shapes[1])
    expected = np.concatenate([x, y], axis)
    np.testing.assert_array_equal(
        move("movement", "concat2", x, y, outputs=out(x, expected.shape), axis=axis), expected
    )
    nothing = np.ones(tuple(0 if k == axis else n for k, n in enumerate(shapes[0])), np.float32)
    np.testing.assert_array_equal(move("movement", "concat2", x, nothing, outputs=out(x, x.shape), axis=axis), x)


@pytest.mark.parametrize(
    "index, starts, steps",
    [
        (np.s_[2:5, 1:4], (2, 1), (1, 1)),
        (np.s_[::2, ::-1], (0, -1), (2, -1)),
        (np.s_[-2:, 11::-3], (-2, 11), (1, -3)),
        (np.s_[3:3, :], (0, 0), (1, 1)),
    ],
)
def test_slice(move: Run, index: Any, starts: tuple[int, ...], steps: tuple[int, ...]) -> None:
    x = counted((7, 13))
    expected = x[index]
    actual = move("movement", "slice", x, outputs=out(x, expected.shape), starts=starts, steps=steps)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("target", ("sm_80", "gfx942"))
def test_other_targets(check_compiles: Callable[..., None], target: str) -> None:
    x, turned = (DType.float16, (3, 5)), (DType.float16, (5, 3))
    check_compiles(target, "movement", "permute", [x], [turned], order=(1, 0))
    check_compiles(target, "movement", "reshape", [x], [turned])
    check_compiles(target, "movement", "broadcast_to", [x], [(DType.float16, (2, 3, 5))])
    check_compiles(target, "movement", "concat2", [x, x], axis=1)
    check_compiles(target, "movement", "slice", [x], [(DType.float16, (3, 2))], starts=(0, -1), steps=(1, -2))
