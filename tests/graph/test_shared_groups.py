"""Groups that differ only in numbers share code: it is compiled once, and each call passes its numbers."""

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
