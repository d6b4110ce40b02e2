"""The array API: functions of `einkorn.array_api` give what NumPy's of the same names do, in dtypes of the standard."""

from __future__ import annotations

import inspect
import json
from typing import Any

import einkorn.array_api as xp
import numpy as np
import pytest
from einkorn.tensor import Tensor

from einkorn import functional as F
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import CPU, Accelerator, Buffer, Dim, DType, Graph, TensorType

RNG = np.random.default_rng(16)
MATRIX = RNG.standard_normal((3, 4)).astype(np.float32)
WHOLE = RNG.integers(-5, 5, (3, 4))
BYTES = np.array([[3, 1, 200, 3], [0, 3, 1, 0]], np.uint8)
FLAGS = WHOLE > 0
ODD = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 3.0], np.float64)
SAME: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("abs", (WHOLE,), {}),
    ("acos", (ODD,), {}),
    ("bitwise_and", (FLAGS, ~FLAGS), {}),
    ("bitwise_invert", (FLAGS,), {}),
    ("ceil", (WHOLE,), {}),
    ("clip", (WHOLE, -2, 3), {}),
    ("isfinite", (WHOLE,), {}),
    ("isnan", (ODD,), {}),
    ("logaddexp", (ODD, ODD[::-1].copy()), {}),
    ("logaddexp", (MATRIX * 500, MATRIX * 499), {}),
    ("remainder", (WHOLE, WHOLE[::-1].copy() + 20), {}),
    ("round", (ODD,), {}),
    ("sign", (ODD,), {}),
    ("signbit", (ODD,), {}),
    ("add", (BYTES, BYTES.view(np.int8)), {}),
    ("multiply", (BYTES.astype(np.uint32), BYTES.astype(np.int8)), {}),
    ("less", (WHOLE, 2), {}),
    ("subtract", (2.5, MATRIX), {}),
    ("where", (FLAGS, WHOLE, BYTES[0]), {}),
    ("concat", ([BYTES, BYTES.astype(np.int16)],), {"axis": None}),
    ("expand_dims", (WHOLE,), {"axis": 1}),
    ("squeeze", (WHOLE[None, :, None],), {"axis": (0, 2)}),
    ("flip", (WHOLE,), {"axis": 1}),
    ("moveaxis", (RNG.standard_normal((2, 3, 4)), (0, 1), (-1, 0)), {}),
    ("permute_dims", (RNG.standard_normal((2, 3, 4)),), {"axes": (2, 0, 1)}),
    ("repeat", (WHOLE, 2), {"axis": 1}),
    ("repeat", (WHOLE, np.array([2, 0, 1])), {"axis": 0}),
    ("reshape", (WHOLE, (2, -1)), {}),
    ("roll", (WHOLE, 2), {}),
    ("stack", ([WHOLE, WHOLE],), {"axis": -1}),
    ("tile", (WHOLE, (2, 1, 3)), {}),
    ("unstack", (WHOLE,), {"axis": 1}),
    ("take", (WHOLE, np.array([2, 0])), {"axis": 1}),
    ("take_along_axis", (WHOLE, np.argsort(WHOLE[:1], 1)), {"axis": 1}),
    ("broadcast_arrays", (WHOLE, WHOLE[:, :1]), {}),
    ("meshgrid", (WHOLE[0], WHOLE[:, 0]), {}),
    ("tril", (WHOLE,), {"k": 1}),
    ("linspace", (-1.5, 9.0, 7), {"endpoint": False, "dtype": "float64"}),
    ("linspace", (0.0, 1.0, 11), {"dtype": "float64"}),
    ("eye", (3, 5), {"k": -1, "dtype": "int32"}),
    ("eye", (2, 2), {"k": 7, "dtype": "bool"}),
    ("arange", (9, 0, -2), {}),
    ("arange", (5, 5), {}),
    ("full", ((2, 0, 3), 7), {}),
    ("argmax", (WHOLE,), {}),
    ("argmin", (ODD,), {"keepdims": True}),
    ("argsort", (WHOLE,), {"stable": True}),
    ("sort", (BYTES,), {"axis": 0}),
    ("nonzero", (WHOLE,), {}),
    ("count_nonzero", (WHOLE,), {"axis": 1}),
    ("searchsorted", (np.sort(WHOLE[0]), WHOLE), {"side": "right"}),
    ("searchsorted", (WHOLE[0], WHOLE), {"sorter": np.argsort(WHOLE[0])}),
    ("isin", (WHOLE, np.array([1, -3, 9])), {}),
    ("isin", (WHOLE, np.array([], np.int64)), {"invert": True}),
    ("unique_all", (BYTES,), {}),
    ("unique_counts", (ODD,), {}),
    ("unique_inverse", (WHOLE,), {}),
    ("unique_values", (np.zeros((2, 0), np.float32),), {}),
    ("all", (FLAGS,), {"axis": 1}),
    ("any", (FLAGS,), {}),
    ("max", (WHOLE,), {"axis": (0, 1)}),
    ("min", (ODD,), {}),
    ("sum", (BYTES,), {}),
    ("sum", (BYTES,), {"dtype": "uint8", "axis": 0}),
    ("prod", (WHOLE[0],), {}),
    ("mean", (MATRIX,), {"axis": 0, "keepdims": True}),
    ("std", (MATRIX,), {"correction": 1.0}),
    ("var", (MATRIX,), {"axis": 1, "correction": 0.5}),
    ("cumulative_sum", (WHOLE,), {"axis": 1, "include_initial": True}),
    ("cumulative_prod", (MATRIX[0],), {}),
    ("diff", (WHOLE,), {"n": 2, "prepend": WHOLE[:, :1]}),
    ("matmul", (MATRIX, MATRIX.T), {}),
    ("matrix_transpose", (MATRIX,), {}),
    ("tensordot", (RNG.standard_normal((2, 3, 4)), RNG.standard_normal((4, 3, 5))), {"axes": ((1, 2), (1, 0))}),
    ("vecdot", (BYTES, BYTES), {}),
    ("vecdot", (RNG.standard_normal((2, 3, 1)), RNG.standard_normal((3, 4))), {"axis": -2}),
]


SQUARE = RNG.standard_normal((2, 4, 4)) + 4 * np.eye(4)
POSITIVE = SQUARE @ SQUARE.swapaxes(-1, -2)
LINALG: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("cholesky", (POSITIVE,), {"upper": True}),
    ("cross", (MATRIX[:, :3], WHOLE[:1, :3].astype(np.float32)), {"axis": -1}),
    ("det", (SQUARE,), {}),
    ("det", (np.array([[1.0, 2.0], [2.0, 4.0]]),), {}),
    ("diagonal", (WHOLE,), {"offset": 1}),
    ("diagonal", (WHOLE,), {"offset": -2}),
    ("eigvalsh", (POSITIVE,), {}),
    ("inv", (SQUARE,), {}),
    *[("matrix_norm", (MATRIX,), {"ord": ord}) for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)],
    ("matrix_norm", (MATRIX,), {"keepdims": True, "ord": 2}),
    *[("matrix_power", (SQUARE, n), {}) for n in (0, 1, 2, 7, -3)],
    ("matrix_rank", (np.array([[1.0, 2.0], [2.0, 4.0]]),), {}),
    ("matrix_rank", (np.zeros((2, 3, 3)),), {}),
    ("outer", (WHOLE[0], WHOLE[1]), {}),
    ("pinv", (MATRIX,), {}),
    ("pinv", (MATRIX + 1j * MATRIX[::-1],), {}),
    ("pinv", (np.array([[1 + 1j, 2], [2j, 2 + 2j], [0, 0]]),), {}),
    ("svdvals", (MATRIX - 2j * MATRIX[::-1],), {}),
    ("eigvalsh", (np.array([[2, 1j], [-1j, 3]], np.complex64),), {}),
    ("matrix_rank", (np.array([[1 + 1j, 2], [2j, 2 + 2j]]),), {}),
    ("matrix_norm", (MATRIX - 2j * MATRIX[::-1],), {"ord": "nuc"}),
    ("qr", (MATRIX,), {}),
    ("qr", (MATRIX.T.copy(),), {"mode": "complete"}),
    ("slogdet", (SQUARE,), {}),
    ("slogdet", (np.zeros((3, 0, 0)),), {}),
    ("solve", (SQUARE, MATRIX[0].astype(np.float64)), {}),
    ("solve", (SQUARE, SQUARE[:1]), {}),
    ("svdvals", (MATRIX * np.float32(1e30),), {}),
    ("trace", (WHOLE,), {"offset": -1}),
    *[("vector_norm", (MATRIX,), {"ord": ord, "axis": 1}) for ord in (0, 1, 2, 3.5, np.inf, -np.inf)],
]


def taken(value: Any) -> Any:
    """Arguments with tensors in the place of arrays."""
    if isinstance(value, list):
        return [taken(each) for each in value]
    return xp.asarray(value) if isinstance(value, np.ndarray) else value


def compare(found: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple | list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            compare(one, other)
        return
    wanted = np.asarray(wanted)
    assert isinstance(found, Tensor) and found.shape == wanted.shape
    assert found.dtype is DType.from_numpy(wanted.dtype)
    if wanted.dtype.kind in "fc":
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize(("name", "args", "kwargs"), SAME, ids=[f"{k}-{row[0]}" for k, row in enumerate(SAME)])
def test_it_is_as_numpy_has_it(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    known = {key: DType[each] if key == "dtype" else taken(each) for key, each in kwargs.items()}
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(*args, **kwargs)
    compare(getattr(xp, name)(*map(taken, args), **known), wanted)


@pytest.mark.parametrize(("name", "args", "kwargs"), LINALG, ids=[f"{k}-{row[0]}" for k, row in enumerate(LINALG)])
def test_linear_algebra_is_as_numpy_has_it(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    with np.errstate(all="ignore"):
        wanted = getattr(np.linalg, name)(*args, **kwargs)
    compare(getattr(xp.linalg, name)(*map(taken, args), **kwargs), wanted)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (2, 3, 1), (0, 3), (3, 0)])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("imaginary", [0, 1j], ids=["real", "complex"])
def test_singular_values(shape: tuple[int, ...], full: bool, imaginary: complex) -> None:
    x = RNG.standard_normal(shape)
    x = x + imaginary * RNG.standard_normal(shape) if imaginary else x
    u, s, v = (each.numpy() for each in xp.linalg.svd(xp.asarray(x), full_matrices=full))
    wanted = np.linalg.svd(x, full_matrices=full)
    assert [u.shape, s.shape, v.shape] == [each.shape for each in wanted]
    k = s.shape[-1]
    np.testing.assert_allclose(s, wanted[1], atol=1e-12)
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ v[..., :k, :], x, atol=1e-12)
    for each in (u, v.swapaxes(-1, -2)):
        product = each.swapaxes(-1, -2).conj() @ each
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(product.shape[-1]), product.shape), atol=1e-12)


def test_matrices_without_full_rank() -> None:
    matrices = (np.ones((4, 3)), np.zeros((3, 3)), np.outer([1, 2, 3], [4, 5]).astype(np.float64))
    for x in (*matrices, *(each * (1 - 2j) for each in matrices)):
        u, s, v = (each.numpy() for each in xp.linalg.svd(xp.asarray(x)))
        np.testing.assert_allclose(u.T.conj() @ u, np.eye(len(u)), atol=1e-12)
        np.testing.assert_allclose((u[:, : len(s)] * s) @ v[: len(s)], x, atol=1e-12)
    values, vectors = (each.numpy() for each in xp.linalg.eigh(xp.asarray(POSITIVE)))
    np.testing.assert_allclose((vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2), POSITIVE, rtol=1e-10)
    with pytest.raises(EinkornError, match="the matrix is singular"):
        xp.linalg.inv(xp.asarray(np.ones((2, 2)))).numpy()
    with pytest.raises(EinkornError, match="the matrix is not positive definite"):
        xp.linalg.cholesky(xp.asarray(-np.eye(2))).numpy()


def test_distinct_complex_numbers() -> None:
    """Their order is that of the real parts, then of the imaginary ones, as NumPy has it."""
    x = RNG.integers(-2, 3, (4, 5)) + 1j * RNG.integers(-2, 3, (4, 5))
    values, places, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    compare(list(xp.unique_all(xp.asarray(x))), [values, places, inverse.reshape(x.shape), counts])
    compare(xp.unique_values(xp.asarray(x)), values)
    compare(list(xp.nonzero(xp.asarray(x))), list(np.nonzero(x)))
    compare(xp.count_nonzero(xp.asarray(x)), np.asarray(np.count_nonzero(x)))


def test_descending_orders_are_stable() -> None:
    x = xp.asarray([2, 1, 2, 3, 1])
    assert xp.argsort(x, descending=True).tolist() == [3, 0, 2, 1, 4]
    assert xp.sort(x, descending=True).tolist() == [3, 2, 2, 1, 1]
    assert F.argsort(x, descending=True).tolist() == F.argsort(x, False).tolist() == [3, 0, 2, 1, 4]


def test_tensors_have_what_the_standard_says() -> None:
    x = xp.asarray(WHOLE)
    assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2022.12") is xp
    assert (x.ndim, x.size, x.shape) == (2, 12, (3, 4))
    np.testing.assert_array_equal(x.mT.numpy(), WHOLE.T)
    assert x.to_device(x.device) is x and complex(x[0, 0]) == complex(WHOLE[0, 0])
    assert xp.asarray(MATRIX)[()].shape == (3, 4) and repr(xp.asarray(2.0)[()]) == "Tensor(2., float32)"
    start, stop = xp.asarray(1), xp.asarray([3])
    np.testing.assert_array_equal(x[start:, : stop[0]].numpy(), WHOLE[1:, :3])
    with pytest.raises(EinkornError, match="EK0819"):
        x.__array_namespace__(api_version="1999.01")


def test_sizes_are_ints_where_they_are_known() -> None:
    x = Tensor.zeros([2, 3])
    assert [type(size) for size in x.shape] == [int, int] and type(x.shape[1]) is int
    assert json.dumps(x.shape) == "[2, 3]" and repr(x.shape) == "Shape([2, 3])"
    more, symbolic = (4,), (Dim("n"),)
    assert type(x.shape[:1][0]) is int and type((x.shape + more)[2]) is int and more + x.shape == (4, 2, 3)
    assert x.shape + symbolic == (2, 3, "n")
    assert x.shape.num_elements == 6 and x.shape.is_static and x.shape.static_dims == [2, 3] and x.shape.rank == 2
    with Graph("g", input_types=[TensorType(DType.float32, ["n", 3])]) as graph:
        staged = Tensor.from_graph_value(graph.inputs[0])
        assert staged.shape[0] == Dim("n") and staged.ndim == 2
        graph.output(staged.state.value)


def test_numbers_and_lists() -> None:
    kinds = [(1, DType.int64), (1.0, DType.float32), (True, DType.bool), ([[1], [2]], DType.int64), ([], DType.float32)]
    assert [xp.asarray(value).dtype for value, _ in kinds] == [dtype for _, dtype in kinds]
    assert xp.asarray([1, 2], dtype=xp.float64).dtype is DType.float64
    assert xp.asarray(1e39).item() == float("inf") and xp.asarray([1e39], dtype=xp.float64).item() == 1e39
    assert xp.add(xp.asarray(1.0), 16777217).item() == 16777216.0  # which the operator refuses: it is not exact
    assert xp.where(xp.asarray([True, False]), 1, 2.5).tolist() == [1.0, 2.5]
    x = xp.asarray([1.0, 2.0])
    assert xp.asarray(x) is x and xp.asarray(x, copy=False) is x
    other = xp.asarray(x, copy=True)
    other[0] = 9
    assert x.tolist() == [1, 2] and other.tolist() == [9, 2]
    for made in (xp.positive(x), xp.reshape(x, (2,)), xp.clip(x), xp.diff(x, n=0), xp.astype(x, xp.float32), x[:]):
        made[1] = 7
        assert x.tolist() == [1, 2] and made.tolist() == [1, 7]
    array = np.zeros(2, np.float32)
    shared, copied = xp.asarray(array, copy=False), xp.asarray(array)
    array[0] = 5
    assert shared.tolist() == [5, 0] and copied.tolist() == [0, 0]
    assert xp.from_dlpack(array).tolist() == xp.from_dlpack(Buffer.from_numpy(array)).tolist() == [5, 0]


def test_dtypes_are_requested() -> None:
    assert xp.isdtype(xp.int8, "signed integer") and xp.isdtype(xp.uint8, ("bool", "integral"))
    assert not xp.isdtype(xp.float32, "integral") and xp.isdtype(xp.float32, (xp.float64, xp.float32))
    assert xp.result_type(xp.uint8, xp.int8) is xp.int16 and xp.result_type(xp.asarray(1.0), 2) is xp.float32
    assert xp.can_cast(xp.int8, xp.int16) and not xp.can_cast(xp.int16, xp.uint16)
    assert (xp.iinfo(xp.int8).min, xp.iinfo(xp.uint16).max) == (-128, 65535)
    assert xp.finfo(xp.float64).eps == np.finfo(np.float64).eps and xp.finfo(DType.bfloat16).bits == 16
    info = xp.__array_namespace_info__()
    assert info.default_device() == CPU() and CPU() in info.devices()
    assert info.dtypes(kind="real floating") == {"float32": xp.float32, "float64": xp.float64}
    assert info.capabilities()["boolean indexing"] and info.default_dtypes()["integral"] is xp.int64
    assert xp.astype(xp.asarray([1.9, -1.9]), xp.int32).tolist() == [1, -1]


def test_elements_that_are_not_there() -> None:
    x = xp.zeros((2, 3))
    wrong: list[Any] = [5, (0, 0, 0), slice(0, 9), xp.asarray([True, False, True]), xp.asarray([7])]
    for key in wrong:
        with pytest.raises(IndexError, match="EK0425"):
            x[key]
    with pytest.raises(IndexError, match="EK0425"):
        xp.asarray(True)[xp.asarray([False])]


def test_functions_run_where_their_tensors_lie() -> None:
    there = Accelerator("sim")
    x = xp.asarray([3, 1, 3, 2], device=there)
    actual = xp.unique_all(x)
    assert all(each.device == there for each in actual) and actual.values.tolist() == [1, 2, 3]
    assert xp.eye(2, device=there).device == there and xp.zeros_like(x).device == there
    assert xp.isin(x, 3).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("EK0818", lambda: xp.add(1, 2)),
        ("EK0818", lambda: xp.add(xp.asarray(1), np.ones(2))),
        ("EK0818", lambda: xp.sum([1, 2])),  # type: ignore[arg-type]
        ("EK0818", lambda: xp.iinfo(xp.float32)),
        ("EK0818", lambda: xp.finfo(xp.int32)),
        ("EK0818", lambda: xp.result_type(1, 2)),
        ("EK0818", lambda: xp.result_type(xp.int8, 2.5)),
        ("EK0819", lambda: xp.isdtype(xp.int8, "whole")),
        ("EK0819", lambda: xp.searchsorted(xp.asarray([1]), 1, side="middle")),  # type: ignore[arg-type]
        ("EK0410", lambda: xp.add(xp.asarray([1], dtype=xp.uint64), xp.asarray([1]))),
        ("EK0412", lambda: xp.add(xp.asarray([1]), 2.5)),
        ("EK0413", lambda: xp.sin(xp.asarray([1]))),
        ("EK0420", lambda: xp.broadcast_shapes((2, 3), (4, 3))),
        ("EK0421", lambda: xp.squeeze(xp.ones((2, 3)), axis=0)),
        ("EK0422", lambda: xp.nonzero(xp.asarray(1))),
        ("EK0422", lambda: xp.cumulative_sum(xp.ones((2, 3)))),
        ("EK0427", lambda: xp.vecdot(xp.ones(2), xp.ones(3))),
        ("EK0427", lambda: xp.tensordot(xp.ones((2, 3)), xp.ones((2, 3)), axes=1)),
        ("EK0421", lambda: xp.linalg.det(xp.ones((2, 3)))),
        ("EK0421", lambda: xp.linalg.qr(xp.ones(3))),
        ("EK0427", lambda: xp.linalg.solve(xp.eye(2), xp.ones(3))),
        ("EK0422", lambda: xp.linalg.cross(xp.ones(2), xp.ones(2))),
        ("EK0819", lambda: xp.linalg.matrix_norm(xp.eye(2), ord=7)),
        ("EK0804", lambda: xp.asarray([1, 2], copy=False)),
        ("EK0804", lambda: xp.asarray(np.ones(2), dtype=xp.float32, copy=False)),
    ],
)
def test_mistakes_have_codes_and_the_users_line(code: str, call: Any) -> None:
    with pytest.raises(EinkornError) as caught:
        call()
    assert caught.value.code == code and caught.value.place is not None
    assert "lambda" in caught.value.place.source_line()


def test_every_function_is_documented_and_listed() -> None:
    assert all(hasattr(xp, name) for name in xp.__all__)
    functions = [getattr(xp, name) for name in xp.__all__ if inspect.isfunction(getattr(xp, name))]
    assert len(functions) > 130
    for function in functions:
        assert function.__doc__ and inspect.signature(function).return_annotation, function.__name__
