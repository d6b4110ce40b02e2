"""Groups that differ only in numbers or sizes share code: it is compiled once, and each call passes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler import groups
from einkorn.compiler.pipeline import GroupCompilation
from einkorn.graph import DType, InferenceSession, ops

X = np.array([[-0.0, 0.0, 1.5, -2.25], [np.inf, -np.inf, np.nan, 3e38]], np.float32)


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The symbols of the groups that are compiled."""
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    symbols: list[str] = []

    class Counted(GroupCompilation):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            symbols.append(args[2])

    monkeypatch.setattr(groups, "GroupCompilation", Counted)
    yield symbols


def check(compiled: list[str], forward: Any, x: Any, expected: int) -> None:
    """Runs a graph, compares it with the interpreter's bits, and counts what was compiled."""
    graph = graphs.build(forward, (x.dtype.type, list(x.shape)))
    wanted = [each.to_numpy() for each in InferenceSession(interpret=True).load(graph).execute(x)]
    compiled.clear()
    for got, each in zip(InferenceSession().load(graph).execute(x), wanted, strict=True):
        np.testing.assert_array_equal(got.to_numpy().view(np.uint8), each.view(np.uint8))
    assert len(compiled) == expected, compiled


def test_floats_of_all_kinds_are_passed(compiled: list[str]) -> None:
    numbers = [0.0, -0.0, 2.5, -1.5, 1e-45, np.inf, -np.inf]

    def forward(x: Any) -> Any:
        return [ops.cumsum(x * number + 3.0, 0) for number in numbers]

    check(compiled, forward, X, 1)


def test_integers_are_passed_with_their_sign(compiled: list[str]) -> None:
    x = np.arange(-6, 6).reshape(3, 4)
    numbers = [-(2**63), -7, 0, 5, 2**63 - 1]

    def forward(x: Any) -> Any:
        return [ops.cumsum(ops.cast(ops.equal(x, n), DType.int32) + ops.cast(x * n, DType.int32), 0) for n in numbers]

    check(compiled, forward, x, 2)  # the elements, and the sums


def test_divisors_are_passed_but_for_powers_of_two(compiled: list[str]) -> None:
    def forward(x: Any) -> Any:
        return [ops.cumsum(x / number, 0) for number in (3.0, 0.1, -1e-40, 0.0, np.inf, np.nan, 2.0, -0.25)]

    check(compiled, forward, X, 3)


def test_integers_of_32_bits_are_passed(compiled: list[str]) -> None:
    x = np.arange(-6, 6, dtype=np.int32).reshape(3, 4)

    def forward(x: Any) -> Any:
        return [ops.cumsum(x * number + number, 0) for number in (-(2**31), -7, 9, 2**31 - 1)]

    check(compiled, forward, x, 1)


def test_functions_of_other_sizes_share_code(compiled: list[str]) -> None:
    def forward(x: Any) -> Any:
        other = ops.reshape(x, [4, 2])
        return ops.silu(x), ops.silu(other), ops.erf(x), ops.erf(other)

    check(compiled, forward, X, 2)


def test_a_number_that_a_kernel_looks_at_is_not_passed(compiled: list[str]) -> None:
    """A power by 2 is a product, and one by 3 is not the same code."""

    def forward(x: Any) -> Any:
        return [ops.cumsum(ops.pow(x, n), 0) for n in (2.0, 3.0)]

    check(compiled, forward, np.abs(X[:1]), 3)  # both powers, and the sums


def test_a_group_that_stands_alone_keeps_its_number(compiled: list[str]) -> None:
    def forward(x: Any) -> Any:
        return [ops.cumsum(x * 2.0, 0), ops.cumsum(x + 2.0, 0)]

    check(compiled, forward, X, 2)


def test_equal_groups_are_still_one(compiled: list[str]) -> None:
    def forward(x: Any) -> Any:
        return [ops.cumsum(x + n, 0) for n in (1.0, 1.0, 1.0)]

    check(compiled, forward, X, 1)


# *** sizes ***


def rows_of(sizes: list[int]) -> Any:
    """A graph of sums along rows of several sizes."""

    def forward(x: Any) -> Any:
        return [ops.mean(x[:, :n] * x[:, :n], axis=1) for n in sizes]

    return forward


def test_sizes_are_passed(compiled: list[str]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 100), np.float32)
    check(compiled, rows_of([7, 33, 64, 99]), x, 1)


def test_sizes_of_one_and_none_are_not_passed(compiled: list[str]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 100), np.float32)
    check(compiled, rows_of([1, 7, 33]), x, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_symbolic_sizes_stand_next_to_passed_ones(compiled: list[str], dtype: Any) -> None:
    graph = graphs.build(rows_of([5, 17, 39]), (dtype, ["batch", 40]))
    interpreted = InferenceSession(interpret=True).load(graph)
    compiled.clear()
    model = InferenceSession().load(graph)
    for batch in (0, 1, 2):
        x = np.random.default_rng(0).standard_normal((batch, 40)).astype(dtype)
        for got, each in zip(model.execute(x), interpreted.execute(x), strict=True):
            np.testing.assert_array_equal(got.to_numpy(), each.to_numpy())
    assert len(compiled) == 1


def test_a_symbolic_size_differs_from_a_number(compiled: list[str]) -> None:
    """One tensor has a symbolic size where another one has a number."""
    types = ((np.float32, ["n", 4]), (np.float32, [5, 4]))
    graph = graphs.build(lambda x, y: [ops.cumsum(x * 2.0, 1), ops.cumsum(y * 2.0, 1)], *types)
    x, y = (np.arange(n * 4, dtype=np.float32).reshape(n, 4) for n in (3, 5))
    for got, each in zip(InferenceSession().load(graph).execute(x, y), (x, y), strict=True):
        np.testing.assert_array_equal(got.to_numpy(), np.cumsum(each * 2, 1))


def test_reshapes_of_memory_and_between_elementwise_ops_share_code(compiled: list[str]) -> None:
    """The slices share code, and so do the means and the products of two cuts of the same axes."""

    def forward(x: Any) -> Any:
        parts = []
        for channels, parted in ((8, 4), (16, 4)):
            split = ops.reshape(x[:, : channels * 6], [2, parted, channels * 6 // parted])
            scaled = split * ops.mean(split, axis=2)
            parts.append(ops.reshape(scaled, [2, channels, 6]) * 2.0)
        return parts

    x = np.random.default_rng(0).standard_normal((2, 96), np.float32)
    check(compiled, forward, x, 3)


def test_a_reshape_between_axes_keeps_its_sizes(compiled: list[str]) -> None:
    """A size that is not known would cost a division for each element."""

    def forward(x: Any) -> Any:
        return [ops.mean(ops.reshape(x[:, : n * 6], [2, 4, n * 6 // 4]), axis=2) for n in (8, 16)]

    check(compiled, forward, np.random.default_rng(0).standard_normal((2, 100), np.float32), 2)


def test_convolutions_of_several_sizes_share_code_and_scratch(compiled: list[str]) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 20, 20, 8), np.float32)
    filters = [random.standard_normal((3, 3, 8, n), np.float32) for n in (16, 32, 48)]

    def forward(x: Any) -> Any:
        return [ops.conv2d(x, ops.constant(each), padding=(1, 1, 1, 1)) for each in filters]

    type = (np.float32, [1, 20, 20, 8])
    graph = graphs.build(forward, type)
    results = [each.to_numpy() for each in InferenceSession().load(graph).execute(x)]
    assert len(compiled) < 6, compiled
    for result, each in zip(results, filters, strict=True):
        alone = graphs.build(lambda x, each=each: ops.conv2d(x, ops.constant(each), padding=(1, 1, 1, 1)), type)
        (wanted,) = InferenceSession().load(alone).execute(x)
        np.testing.assert_array_equal(result, wanted.to_numpy())
