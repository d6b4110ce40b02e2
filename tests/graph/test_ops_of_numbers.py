"""What rows of functions of numbers cannot say: attributes, bounds, operators of bits, reductions of one element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.graphs import Case, numbers, widely

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import DeviceRef, DType, Graph, TensorType, ops


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def _refused(forward: Any, *types: TensorType) -> EinkornError:
    with pytest.raises(EinkornError) as caught:
        Graph("g", forward, types)
    return caught.value


def test_attributes_of_activations() -> None:
    x = numbers((40,), np.float64, 3)
    cases: dict[str, Case] = {
        "softplus": (lambda x: ops.softplus(x, beta=2), lambda x: np.logaddexp(0, 2 * x) / 2),
        "elu": (lambda x: ops.elu(x, alpha=0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
        "selu": (lambda x: ops.selu(x, 2.0, gamma=3), lambda x: 3 * np.where(x > 0, x, 2 * np.expm1(x))),
        "celu": (lambda x: ops.celu(x, alpha=2), lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2))),
        "leaky": (lambda x: ops.leaky_relu(x, negative_slope=0.2), lambda x: np.where(x < 0, 0.2 * x, x)),
        "thresholded": (lambda x: ops.thresholded_relu(x, alpha=0.3), lambda x: np.where(x > 0.3, x, 0)),
        "hard tanh": (lambda x: ops.hard_tanh(x, -2, max_val=3), lambda x: np.clip(x, -2, 3)),
        "hard sigmoid": (lambda x: ops.hard_sigmoid(x, 0.25, 9), lambda x: np.clip(0.25 * x + 9, 0, 1)),
        "soft shrink": (
            lambda x: ops.shrink(x, lambd=1.5, bias=1.5),
            lambda x: np.where(np.abs(x) <= 1.5, 0, x - np.sign(x) * 1.5),
        ),
    }
    graphs.check(cases, x, ulps=8)
    for value in ("a", None, float("nan"), True):
        error = _refused(lambda x, v=value: ops.elu(x, alpha=v), TensorType(DType.float32, [3]))
        assert (error.code, error.op, error.argument) == ("EK0478", "elu", "alpha"), error


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint16])
def test_clamp(dtype: Any) -> None:
    x, low, high = numbers((5, 4), dtype, 1), numbers((4,), dtype, 2), numbers((5, 1), dtype, 3)
    cases: dict[str, Case] = {
        "both": (lambda x, a, b: ops.clamp(x, a, b), widely(lambda x, a, b: np.minimum(np.maximum(x, a), b))),
        "low": (lambda x, a, b: ops.clip(x, min=2), lambda x, a, b: np.maximum(x, x.dtype.type(2))),
        "high": (lambda x, a, b: x.clamp(max=b), lambda x, a, b: np.minimum(x, b)),
        "numbers": (lambda x, a, b: x.clip(1, 3), lambda x, a, b: np.clip(x, x.dtype.type(1), x.dtype.type(3))),
    }
    graphs.check(cases, x, low, high, shapes=[["m", "n"], ["n"], ["m", 1]])
    types = [TensorType(DType.from_numpy(np.dtype(dtype)), ["m"]), TensorType(DType.bool, ["m"])]
    assert _refused(lambda x, f: ops.clamp(x), *types).code == "EK0478"
    assert _refused(lambda x, f: ops.clamp(f, min=0), *types).code == "EK0413"
    assert _refused(lambda x, f: ops.clamp(x, [1]), *types).code == "EK0403"


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_operators_of_bits(dtype: Any) -> None:
    """Integers and bools share the operators."""
    x, y, flag = numbers((30,), dtype, 1), numbers((30,), dtype, 2), numbers((30,), np.bool_, 3)
    bits = 8 * np.dtype(dtype).itemsize
    cases: dict[str, Case] = {
        "and": (lambda x, y, f: x & y, lambda x, y, f: x & y),
        "or": (lambda x, y, f: 3 | x, lambda x, y, f: x | x.dtype.type(3)),
        "xor": (lambda x, y, f: x ^ 7, lambda x, y, f: x ^ x.dtype.type(7)),
        "not": (lambda x, y, f: ~x, lambda x, y, f: ~x),
        "left": (lambda x, y, f: x << 3, lambda x, y, f: x << x.dtype.type(3)),
        "right": (lambda x, y, f: x >> 2, lambda x, y, f: x >> x.dtype.type(2)),
        "reflected": (lambda x, y, f: 1 << (y & 3), lambda x, y, f: x.dtype.type(1) << (y & x.dtype.type(3))),
        "beyond": (lambda x, y, f: x << bits, lambda x, y, f: np.zeros_like(x)),
        "not of bools": (lambda x, y, f: ~f, lambda x, y, f: ~f),
        "bools": (lambda x, y, f: (True & f) ^ (f | False), lambda x, y, f: np.zeros_like(f)),
    }
    graphs.check(cases, x, y, flag)
    assert _refused(lambda x: x & 1.5, TensorType(DType.int32, [2])).code == "EK0412"
    assert _refused(lambda x: x | x, TensorType(DType.float32, [2])).code == "EK0413"
    assert _refused(lambda x: x << 1, TensorType(DType.bool, [2])).code == "EK0413"


def test_reductions_of_one_element_and_of_none() -> None:
    """Without axes a reduction sees one element at a time; without elements it says what nothing makes."""
    x, none = np.array([[-2.0, 0.0, 3.0]]), np.zeros((2, 0))
    cases: dict[str, Case] = {
        "var": (lambda x, e: ops.var(x, ()), lambda x, e: np.zeros_like(x)),
        "l1": (lambda x, e: ops.l1_norm(x, ()), lambda x, e: np.abs(x)),
        "any": (lambda x, e: ops.any(x, ()), lambda x, e: x != 0),
        "count": (lambda x, e: ops.count_nonzero(x, ()), lambda x, e: (x != 0).astype(np.int64)),
        "prod": (lambda x, e: ops.prod(x, ()), lambda x, e: x),
        "method": (lambda x, e: x.stdev(axis=1, keepdims=False), lambda x, e: x.std(1)),
        "bool": (lambda x, e: ops.all(x > -3, None, False), lambda x, e: np.all(x > -3)),
        "var of none": (lambda x, e: e.var(), lambda x, e: np.full((2, 1), np.nan)),
        "prod of none": (lambda x, e: ops.prod(e), lambda x, e: np.ones((2, 1))),
        "any of none": (lambda x, e: ops.any(e), lambda x, e: np.zeros((2, 1), bool)),
        "all of none": (lambda x, e: ops.all(e), lambda x, e: np.ones((2, 1), bool)),
        "norm of none": (lambda x, e: ops.l2_norm(e), lambda x, e: np.zeros((2, 1))),
        "logsumexp of none": (lambda x, e: ops.logsumexp(e), lambda x, e: np.full((2, 1), -np.inf)),
    }
    graphs.check(cases, x, none)
    integers = numbers((4, 5), np.int16, 1)
    wide: dict[str, Case] = {
        "var": (ops.var, lambda x: x.astype(np.float64).var(-1, keepdims=True)),
        "stdev": (ops.stdev, lambda x: x.astype(np.float64).std(-1, keepdims=True)),
    }
    graphs.check(wide, integers, ulps=8)


SCANS: dict[str, tuple[Any, Any]] = {"cumsum": (ops.cumsum, np.cumsum), "cumprod": (ops.cumprod, np.cumprod)}


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_scans_in_both_directions(dtype: Any) -> None:
    """Exclusive and backwards, along every axis, over sizes around a vector, and in a long row of pieces."""

    def expected(function: Any, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
        x = np.flip(x, axis) if reverse else x
        collected = function(x, axis)
        if exclusive:
            collected = np.roll(collected, 1, axis)
            if collected.shape[axis]:
                collected[(slice(None),) * (axis % x.ndim) + (0,)] = function is np.cumprod
        return np.flip(collected, axis) if reverse else collected

    cases: dict[str, Case] = {
        f"{name} {axis} {exclusive} {reverse}": (
            lambda x, f=function, k=(axis, exclusive, reverse): f(x, axis=k[0], exclusive=k[1], reverse=k[2]),
            lambda x, f=numpy, k=(axis, exclusive, reverse): expected(f, x, *k),
        )
        for name, (function, numpy) in SCANS.items()
        for axis in (-1, 0)
        for exclusive in (False, True)
        for reverse in (False, True)
    }
    small = (1 + numbers((3, 16), np.int8, 1) / 1000).astype(dtype)
    model = graphs.check(cases, small, shapes=[["m", "n"]], ulps=16)
    for shape in ((1, 1), (5, 33), (2, 0), (0, 3), (1, 40001), (300, 2)):
        x = (1 + numbers(shape, np.int8, 2) / 4e4).astype(dtype)
        graphs.compare(model, cases, x, ulps=2000 if max(shape) > 1000 else 64)


def test_norms_refuse() -> None:
    x, channels, w = (TensorType(DType.float32, shape) for shape in (["m", 6], ["m", "c", 3], [5]))
    for code, argument, forward in (
        ("EK0421", "gamma", lambda x, c, w: ops.layer_norm(x, w, 0, 1e-5)),
        ("EK0421", "beta", lambda x, c, w: ops.layer_norm(x, 1, w, 1e-5)),
        ("EK0421", "weight", lambda x, c, w: ops.rms_norm(x, w, 1e-5)),
        ("EK0478", "epsilon", lambda x, c, w: ops.layer_norm(x, 1, 0, 0.0)),
        ("EK0478", "epsilon", lambda x, c, w: ops.layer_norm(x, 1, 0, epsilon="a")),
        ("EK0478", "epsilon", lambda x, c, w: ops.rms_norm(x, 1, -1.0)),
        ("EK0421", "input", lambda x, c, w: ops.group_norm(c, 1, 0, 2)),
        ("EK0421", "num_groups", lambda x, c, w: ops.group_norm(x, 1, 0, 4)),
        ("EK0421", "num_groups", lambda x, c, w: ops.group_norm(x, 1, 0, 0)),
        ("EK0421", "input", lambda x, c, w: ops.instance_norm(w, 1, 0)),
        ("EK0421", "mean", lambda x, c, w: ops.batch_norm(x, 1, 0, w, 1)),
        ("EK0422", "axis", lambda x, c, w: ops.l2_normalize(x, axis=2)),
    ):
        error = _refused(forward, x, channels, w)
        assert (error.code, error.argument) == (code, argument), error
        assert isinstance(error, ValueError)


def test_orders_refuse() -> None:
    x, some, number = (TensorType(DType.float32, shape) for shape in (["m", 6], [5], []))
    for code, argument, forward in (
        ("EK0422", "axis", lambda x, s, n: ops.argsort(x, axis=2)),
        ("EK0422", "axis", lambda x, s, n: ops.argsort(n)),
        ("EK0422", "axis", lambda x, s, n: ops.sort(x, -3)),
        ("EK0478", "ascending", lambda x, s, n: ops.argsort(x, 2)),
        ("EK0478", "descending", lambda x, s, n: ops.sort(x, 0, "up")),
        ("EK0478", "k", lambda x, s, n: ops.top_k(x, 1.5)),
        ("EK0421", "k", lambda x, s, n: ops.top_k(s, 6)),
        ("EK0421", "k", lambda x, s, n: ops.bottom_k(x, -1, 0)),
    ):
        error = _refused(forward, x, some, number)
        assert (error.code, error.argument) == (code, argument), error
    model = graphs.load(lambda x: ops.top_k(x, 3), (np.float32, ["n"]))
    with pytest.raises(EinkornError) as caught:
        model(np.zeros(2, np.float32))
    assert caught.value.code == "EK0454" and "k is 3" in str(caught.value)


def test_random_numbers_look_random() -> None:
    """Ops of one graph differ; the same seed gives the same; the moments are those of the distributions."""
    count = 100_000

    def forward(seed: Any) -> list[Any]:
        ops.random.set_seed(seed)
        return [ops.random.uniform([count], (-1, 3)), ops.random.normal([count]), ops.random.normal([count])]

    model = graphs.load(forward, (np.int64, []))
    first, again, other = (graphs.results(model, np.array(seed)) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    even, normal, second = first
    assert even.min() >= -1 and even.max() < 3 and abs(even.mean() - 1) < 0.02 and abs(even.var() - 16 / 12) < 0.02
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02 and abs(np.mean(normal**3)) < 0.1
    assert abs(np.corrcoef(normal, second)[0, 1]) < 0.02 and abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < 0.02


def test_random_ops_refuse() -> None:
    x, whole = TensorType(DType.float32, ["m", 6]), TensorType(DType.int64, [2])
    for code, op, argument, forward in (
        ("EK0478", "random.uniform", "range", lambda x, s: ops.random.uniform([2], range=(1, 1))),
        ("EK0478", "random.uniform", "range", lambda x, s: ops.random.uniform([2], range=(1, 2, 3))),
        ("EK0478", "random.uniform", "range[0]", lambda x, s: ops.random.uniform([2], range=("a", 1))),
        ("EK0413", "random.uniform", "dtype", lambda x, s: ops.random.uniform([2], dtype=DType.int8)),
        ("EK0478", "random.normal", "std", lambda x, s: ops.random.normal([2], std=0)),
        ("EK0478", "random.gaussian", "std", lambda x, s: ops.random.gaussian([2], std=-1.0)),
        ("EK0478", "random.set_seed", "value", lambda x, s: ops.random.set_seed(1.5)),
        ("EK0478", "random.set_seed", "value", lambda x, s: ops.random.set_seed(s)),
        ("EK0478", "random.dropout", "p", lambda x, s: ops.random.dropout(x, 1.0)),
    ):
        error = _refused(forward, x, whole)
        assert (error.code, error.op, error.argument) == (code, op, argument), error


def test_transforms_of_every_kind() -> None:
    """Lengths given and left out, normalizations, axes, real and complex input, there and back, as NumPy has them."""
    x, z = numbers((3, 10), np.float64, 1), numbers((3, 6, 2), np.float64, 2)

    def parts(value: Any) -> Any:
        return np.stack([value.real, value.imag], -1)

    pairs = z[..., 0] + 1j * z[..., 1]
    wanted: list[Any] = []
    staged: list[Any] = []
    for name, n in (("ortho", 4), ("forward", None), ("backward", 13)):
        wanted += [np.fft.rfft(x, n, 0, name), np.fft.irfft(pairs, n, 1, name)]
        wanted += [np.fft.irfft(x, n, 0, name), parts(np.fft.fft(x, n, 1, name))]
        staged += [
            lambda x, z, n=n, k=name: ops.rfft(x, n, 0, normalization=k),
            lambda x, z, n=n, k=name: ops.irfft(z, n=n, axis=-1, normalization=k, input_is_complex=True),
            lambda x, z, n=n, k=name: ops.irfft(x, n, 0, k, buffer_size_mb=1),
            lambda x, z, n=n, k=name: ops.fft(x, n=n, axis=-1, normalization=k, input_is_complex=False),
        ]
    results = graphs.run(lambda x, z: [stage(x, z) for stage in staged], x, z)
    for got, expected in zip(results, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13)
    (back,) = graphs.run(lambda z: ops.ifft(ops.fft(z, axis=0), axis=0), z)
    np.testing.assert_allclose(back, z, rtol=0, atol=1e-14)
    for transform in (
        lambda x: ops.view_as_real(ops.rfft(x)),
        lambda x: ops.fft(x, input_is_complex=False),
        lambda x: ops.ifft(x, input_is_complex=False),
    ):
        (whole,) = graphs.run(transform, x.astype(np.float32))
        assert whole[:, 0, 1].tolist() == whole[:, 5, 1].tolist() == [0, 0, 0]  # of real numbers exactly


def test_transforms_of_real_numbers_in_halves() -> None:
    """Of an even length they are complex ones of half of it: whole rows, rows cut off, and rows filled with zeros."""
    x = numbers((2, 7), np.float64, 1)
    z = numbers((2, 7, 2), np.float64, 2)
    pairs, wanted = z[..., 0] + 1j * z[..., 1], list[Any]()
    lengths = (2, 6, 14, 64)
    for n in lengths:
        whole = np.fft.rfft(x, n)
        wanted += [whole, np.fft.irfft(pairs, n), np.fft.irfft(x, n)]
    results = graphs.run(
        lambda x, z: [
            value
            for n in lengths
            for value in (ops.rfft(x, n), ops.irfft(z, n, input_is_complex=True), ops.irfft(x, n))
        ],
        x,
        z,
    )
    for got, expected in zip(results, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13)
        assert got.dtype.kind == "f" or not got[:, [0, -1]].imag.any()  # no imaginary part at the ends


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 4e-7), (np.float64, 1e-15)])
def test_transforms_are_accurate(dtype: Any, bound: float) -> None:
    """The error of all numbers together, as a share of the whole, for products of small primes and for primes."""
    model = graphs.load(lambda z: ops.fft(z), (dtype, ["m", "n", 2]))
    for n in (1024, 4096, 8192, 3 * 5 * 7 * 11, 509, 2 * 2 * 3 * 3 * 5 * 5):
        z = numbers((2, n, 2), dtype, n)
        got = graphs.results(model, z)[0].astype(np.float64)
        expected = np.fft.fft(z[..., 0].astype(np.float64) + 1j * z[..., 1])
        error = np.linalg.norm(got[..., 0] + 1j * got[..., 1] - expected) / np.linalg.norm(expected)
        assert error < bound * (1 if dtype is np.float32 else 2), (n, error)


def test_signals_refuse() -> None:
    x, pairs, odd = (TensorType(DType.float32, shape) for shape in (["m", 6], ["m", 3, 2], ["n"]))
    cpu = DeviceRef.CPU()
    for code, argument, forward in (
        ("EK0421", "input_tensor", lambda x, z, o: ops.fft(x)),
        ("EK0422", "axis", lambda x, z, o: ops.fft(z, axis=2)),
        ("EK0421", "n", lambda x, z, o: ops.fft(z, 0)),
        ("EK0478", "n", lambda x, z, o: ops.irfft(x, "m")),
        ("EK0414", "normalization", lambda x, z, o: ops.rfft(x, normalization="none")),
        ("EK0421", "n", lambda x, z, o: ops.irfft(x[:, :1])),
        ("EK0478", "window_length", lambda x, z, o: ops.hann_window(-1, cpu)),
        ("EK0478", "window_length", lambda x, z, o: ops.hann_window(2.0, cpu)),
        ("EK0413", "dtype", lambda x, z, o: ops.hann_window(2, cpu, dtype=DType.int32)),
        ("EK0421", "x", lambda x, z, o: ops.as_interleaved_complex(z[:, :1, 0])),
        ("EK0421", "rhs", lambda x, z, o: ops.complex.mul(z, x)),
        ("EK0420", "rhs", lambda x, z, o: ops.complex.mul(z, z[:, :2])),
    ):
        error = _refused(forward, x, pairs, odd)
        assert (error.code, error.argument) == (code, argument), error
    model = graphs.load(ops.as_interleaved_complex, (np.float32, ["n"]))
    assert graphs.results(model, np.arange(4, dtype=np.float32))[0].tolist() == [[0, 1], [2, 3]]
    with pytest.raises(EinkornError) as caught:
        model(np.zeros(3, np.float32))
    assert caught.value.code == "EK0454" and "odd" in str(caught.value)


def test_einsum_refuses() -> None:
    x, y, flag = (
        TensorType(d, s) for d, s in ((DType.float32, ["m", 3]), (DType.float32, [4, "n"]), (DType.bool, [3]))
    )
    for code, forward in (
        ("EK0414", lambda x, y, f: ops.einsum("ij,jk->ik", x)),
        ("EK0414", lambda x, y, f: ops.einsum("ij->ijk", x)),
        ("EK0414", lambda x, y, f: ops.einsum("ij->ii", x)),
        ("EK0414", lambda x, y, f: ops.einsum("i->i", x)),
        ("EK0414", lambda x, y, f: ops.einsum("ijk", x)),
        ("EK0414", lambda x, y, f: ops.einsum("i1", x)),
        ("EK0414", lambda x, y, f: ops.einsum("......ij", x)),
        ("EK0478", lambda x, y, f: ops.einsum(3, x)),
        ("EK0420", lambda x, y, f: ops.einsum("ij,jk", x, y)),
        ("EK0420", lambda x, y, f: ops.einsum("ii", x)),
        ("EK0413", lambda x, y, f: ops.einsum("i->", f)),
        ("EK0403", lambda x, y, f: ops.einsum("i->", "text")),
    ):
        error = _refused(forward, x, y, flag)
        assert (error.code, error.op) == (code, "einsum"), error
