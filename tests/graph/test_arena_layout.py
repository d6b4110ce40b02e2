"""Native code and Python lay out temporaries alike: the same offsets, the same size of the arena, the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from einkorn.dsl.types.dtype import DType
from einkorn.graph import DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.calling import arena_layout
from einkorn.graph.calling.arena_layout import MIN_NATIVE_TEMPORARIES, ArenaLayout, StageLayout
from einkorn.graph.loading.arena import make_native_arena, native_arena
from einkorn.graph.passes.memory_plan import Plan, PlannedBuffer
from einkorn.graph.types.dims import Dim, Shape

HOST = DeviceRef.CPU()


def chain(x: ops.TensorValue, y: ops.TensorValue) -> ops.TensorValue:
    """Products and sums of rows, each of which needs memory of its own, for longer and shorter."""
    kept = [x]
    for number in range(10):
        kept.append(ops.matmul(kept[-1], y) + float(number))
        kept[0] = kept[0] + ops.sum(kept[-1], -1)
    return ops.matmul(kept[0], y) + kept[3] + kept[5]


def planned(kinds: list[tuple[DType, list[Dim], tuple[int, int]]], stages: tuple[int, ...] = ()) -> Plan:
    buffers = tuple(PlannedBuffer(dtype, Shape(shape), ("temp", 0), *life) for dtype, shape, life in kinds)
    return Plan(None, buffers, (), (), stages=stages)


@pytest.fixture(scope="module", autouse=True)
def native() -> None:
    make_native_arena()


def test_results_stay_the_same_when_native_code_takes_over() -> None:
    square = TensorType(DType.float32, ("n", "n"), HOST)
    model = InferenceSession().load(Graph("chain", chain, [TensorType(DType.float32, ("a", "n"), HOST), square]))
    y = np.eye(7, dtype=np.float32)
    results = [model(np.ones((rows, 7), np.float32), y)[0].to_numpy() for rows in (2, 3, 4, 2)]
    np.testing.assert_array_equal(results[0], results[3])
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert native_arena() is not None


def test_offsets_are_those_of_python() -> None:
    n, m = Dim("n"), Dim("m")
    dtypes = (DType.float32, DType.int4, DType.bool, DType.bfloat16, DType.float64)
    shapes: Any = ([n, m], [n * m + 1], [n], [Dim(3), m], [])
    kinds = [(dtypes[k % 5], shapes[k * 7 % 5], (k // 2, k // 2 + k * 5 % 9)) for k in range(40)]
    plan = planned(kinds, stages=(6, 12))
    for sizes in ({"n": 1, "m": 0}, {"n": 17, "m": 33}, {"n": 1000, "m": 999}):
        for stage in range(3):
            layout = StageLayout(plan, stage)
            assert len(layout.arena.numbers) >= MIN_NATIVE_TEMPORARIES
            assert layout.place(sizes) == plan.place(sizes, stage)


def test_native_code_is_what_lays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def observed() -> object:
        calls.append(1)
        return native_arena()

    monkeypatch.setattr(arena_layout, "native_arena", observed)
    monkeypatch.setattr(Plan, "placed", lambda *_: pytest.fail("Python lays out"))
    plan = planned([(DType.int8, [Dim("n")], (0, 1))] * MIN_NATIVE_TEMPORARIES)
    assert ArenaLayout(plan, plan.temps).place([64] * MIN_NATIVE_TEMPORARIES) == (
        [64 * k for k in range(MIN_NATIVE_TEMPORARIES)],
        64 * MIN_NATIVE_TEMPORARIES,
    )
    assert calls


def test_sizes_beyond_memory_are_left_to_python() -> None:
    plan = planned([(DType.float64, [Dim("n")], (0, 1))] * MIN_NATIVE_TEMPORARIES)
    offsets, total = ArenaLayout(plan, plan.temps).place([1 << 61] * MIN_NATIVE_TEMPORARIES)
    assert total == MIN_NATIVE_TEMPORARIES << 64 and offsets[1] == 1 << 64
    assert StageLayout(planned([]), 0).place({}) == ({}, 0)
