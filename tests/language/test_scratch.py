"""`scratch[T](n)`: storage of run-time size, in loops, elements, parallel bodies and helpers; what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import ALL, KernelFile, random_values

from einkorn.compiler.check import check_kernels
from einkorn.dsl import kernels_of
from einkorn.errors import CompileError, KernelError
from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

FILE = Path(__file__).parent / "scratch_kernels.py"

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(FILE)


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    return dict(kernels_of(FILE.read_text(), str(FILE)))


def distance(a: bytes, b: bytes) -> int:
    row = list(range(len(b) + 1))
    for i, one in enumerate(a):
        last, row = row, [i + 1]
        for j, other in enumerate(b):
            row.append(min(last[j] + (one != other), last[j + 1] + 1, row[j] + 1))
    return row[-1]


@pytest.mark.parametrize(
    ("a", "b"), [(b"kitten", b"sitting"), (b"", b"abc"), (b"abc", b""), (b"", b""), (b"a" * 40, b"ab" * 30)]
)
def test_levenshtein(kernels: KernelFile, a: bytes, b: bytes) -> None:
    (got,) = kernels("levenshtein", np.frombuffer(a, np.uint8), np.frombuffer(b, np.uint8))
    assert got.tolist() == [distance(a, b)]


@pytest.mark.parametrize(("limit", "primes"), [(0, 0), (2, 0), (3, 1), (100, 25), (1000, 168)])
def test_sieve(kernels: KernelFile, limit: int, primes: int) -> None:
    assert kernels("primes_below", np.array([limit]))[0].tolist() == [primes]


@pytest.mark.parametrize("bins", [1, 7, 100])
def test_histograms_of_rows(kernels: KernelFile, bins: int) -> None:
    x = np.random.default_rng(0).integers(0, 1000, (9, 50))
    (got,) = kernels("row_histograms", x, np.array([bins]))
    assert got.tolist() == [np.bincount(row % bins).max() for row in x]


@pytest.mark.parametrize("n", [0, 1, 300])
def test_counting_sort(kernels: KernelFile, n: int) -> None:
    x = np.random.default_rng(1).integers(0, 90, n)
    assert kernels("counting_sort", x)[0].tolist() == sorted(x.tolist())


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(3, 11), (0, 4), (4, 0)])
def test_every_dtype(kernels: KernelFile, dtype: Any, shape: tuple[int, int]) -> None:
    x = random_values(np.random.default_rng(2), dtype, shape[0] * shape[1]).reshape(shape)
    (got,) = kernels("reversed_rows", x)
    assert got.tobytes() == np.ascontiguousarray(x[:, ::-1]).tobytes()


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.complex64, np.complex128], ids=str)
def test_two_axes(kernels: KernelFile, dtype: Any) -> None:
    x = np.arange(35).reshape(5, 7).astype(dtype)
    assert np.array_equal(kernels("transposed_twice", x)[0], x + x)


def test_elements_of_a_loop(kernels: KernelFile) -> None:
    x = np.arange(20, dtype=np.float32)
    assert np.array_equal(kernels("in_elements", x)[0], np.cumsum(x))


def test_pieces_of_other_sizes(kernels: KernelFile) -> None:
    sizes = np.array([3, 0, 500, 2, 501, 7])
    assert kernels("several", sizes)[0].tolist() == [int(n * (n - 1) + n) for n in sizes]


def test_complex_numbers_and_bools(kernels: KernelFile) -> None:
    x = np.array([1 + 2j, -1 + 1j, 3 - 1j], np.complex64)
    assert np.array_equal(kernels("mixed", x)[0], np.where(x.real > 0, x * 2, x))


@pytest.mark.parametrize("checks", ["off", "safe", "all"])
def test_calls_with_threads(compiled: dict[str, Any], checks: str) -> None:
    x = np.random.default_rng(3).integers(0, 1000, (700, 60))
    bins = np.array([33])
    got = compiled["row_histograms"].compile(x, bins, checks=checks)(x, bins)
    assert got.tolist() == [np.bincount(row % 33).max() for row in x]


@pytest.mark.parametrize("checks", ["off", "safe", "all"])
def test_storage_in_functions_and_nested_loops(compiled: dict[str, Any], checks: str) -> None:
    x = np.array([3, 0, 500, 2, 7])
    at = range(len(x))
    wanted = [[sum(range(i, i + x[i])) for i in at], [sum(range(i, 2 * i + x[i])) for i in at]]
    assert [out.tolist() for out in compiled["sums_from"].compile(x, checks=checks)(x)] == wanted
    m = np.random.default_rng(4).integers(0, 100, (9, 33))
    assert np.array_equal(compiled["sums_of_rows"].compile(m, checks=checks)(m), np.cumsum(m, 1))


@pytest.mark.parametrize("how", ["element", "vector", "pointer"])
def test_unwritten_elements_are_found(compiled: dict[str, Any], how: str) -> None:
    x = np.arange(4, dtype=np.float32)
    with pytest.raises(KernelError, match="is read before it is written") as caught:
        compiled["unwritten"].compile(x, how=how, checks="all")(x)
    assert caught.value.code == "EK0749"
    assert caught.value.place is not None and "kept" in (caught.value.place.source_line() or "")


def test_written_elements_are_not(compiled: dict[str, Any]) -> None:
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(compiled["unwritten"].compile(x, how="", checks="all")(x), x)


@pytest.mark.parametrize("checks", ["off", "safe", "all"])
def test_sizes_that_cannot_be(compiled: dict[str, Any], checks: str) -> None:
    call = compiled["of_size"].compile(np.array([1, 1]), checks=checks)
    assert call(np.array([3, 0])).tolist() == [30]
    cases = {
        (-1, 4): "EK0747",
        (4, -1): "EK0747",
        (1 << 40, 1 << 40): "EK0748",
        (1 << 62, 1): "EK0748",
        (1 << 32, 1 << 32): "EK0748",
    }
    for sizes, code in cases.items():
        with pytest.raises(KernelError) as caught:
            call(np.array(sizes))
        assert caught.value.code == code and caught.value.place is not None
        assert "scratch[int64]" in (caught.value.place.source_line() or "")
    assert call(np.array([1, 2])).tolist() == [12]


def address_space() -> int:
    """The KiB of addresses that this process has."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmSize"))


def test_a_task_that_fails_frees_its_storage(compiled: dict[str, Any]) -> None:
    """Failing calls that each left their megabytes would take gigabytes of addresses."""
    call = compiled["leaves_early"].compile(np.array([1]))
    sizes = np.full(8, 1 << 17)
    before = address_space()
    for _ in range(300):
        with pytest.raises(KernelError, match="too large"):
            call(sizes)
    assert address_space() - before < 1 << 20  # KiB
    assert call(np.arange(8)).tolist() == list(range(8))


def test_fused_in_a_graph() -> None:
    cpu = DeviceRef.CPU()

    def forward(x: Any) -> Any:
        one = ops.custom("in_elements", cpu, [ops.relu(x)])[0]
        return ops.custom("in_elements", cpu, [one * 2.0])[0] + 1.0

    types = [TensorType(DType.float32, ["n"], cpu)]
    model = InferenceSession([CPU()]).load(Graph("g", forward=forward, input_types=types, custom_extensions=[FILE]))
    x = np.arange(-3, 9, dtype=np.float32)
    assert np.array_equal(model(x)[0].to_numpy(), np.cumsum(2 * np.cumsum(np.maximum(x, 0))) + 1)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("kept = scratch[float32]()", "EK0208"),
        ("kept = scratch[float32](x.dim(0), cleared=True)", "EK0208"),
        ("kept = scratch[float32](1.5)", "EK0205"),
        ("kept = scratch(4)", "EK0207"),
        ("kept = scratch[float32](-4)", "EK0747"),
    ],
)
def test_wrong_uses(text: str, code: str) -> None:
    source = f"""
from einkorn.dsl import *


@register("wrong")
def wrong(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    {text}
    foreach(out, lambda i: x[i])
"""
    x = np.ones(3, np.float32)
    with pytest.raises((CompileError, KernelError)) as caught:
        kernels_of(source)["wrong"](x)
    assert caught.value.code == code


def test_gpus_have_none() -> None:
    actual = check_kernels(str(FILE), ["gfx942"]).errors
    codes = {error.code for error in actual}
    assert "EK0227" in codes and codes <= {"EK0227", "EK0820"}  # the other: host code that uses elements
