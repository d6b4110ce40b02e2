"""What ops launch, on a device that records: sizes beyond 32 bits and beyond the limits of grids; no Python between."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.gpu_case import GpuCase
from support.gpu_cases_examples import CASES
from support.recording_device import RecordingDriver, recording_kind

from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver import devices
from einkorn.graph.engine.model import Model

GPU = DeviceRef.GPU()
F32, I8 = DType.float32, DType.int8


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDriver]:
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, recording_kind()])
    driver = Accelerator(0).driver
    assert isinstance(driver, RecordingDriver)
    yield driver


def load(forward: Callable[..., Any], *types: tuple[DType, list[Any]]) -> Model:
    taken = [TensorType(dtype, shape, GPU) for dtype, shape in types]
    return InferenceSession(devices=[Accelerator(0)]).load(Graph("recorded", forward, taken))


LARGE: dict[str, tuple[Callable[..., Any], list[tuple[DType, list[Any]]], list[tuple[int, ...]]]] = {
    "elementwise": (lambda x: ops.abs(x), [(I8, ["n"])], [(0,), (1,), (257,), (3_000_000_001,)]),
    "transpose": (lambda x: ops.permute(x, [1, 0]), [(I8, ["m", "n"])], [(0, 5), (1, 1), (70001, 40001)]),
    "rows": (lambda x: ops.softmax(x), [(F32, ["m", "n"])], [(0, 3), (3, 0), (1, 1), (40_000_001, 3), (3, 40_000_001)]),
    "sum": (lambda x: ops.sum(x, axis=0), [(F32, ["m", "n"])], [(5, 0), (1, 1), (70001, 2003), (3, 40_000_001)]),
    "total": (lambda x: ops.sum(ops.reshape(x, [-1])), [(F32, ["n"])], [(1,), (100_000_001,)]),
    "matmul": (lambda x, y: x @ y, [(F32, ["m", "k"]), (F32, ["k", "n"])], [(1, 1), (2_000_003, 5), (7, 2_000_003)]),
}


@pytest.mark.parametrize("name", LARGE)
def test_grids_cover_what_is_computed_and_keep_to_the_limits(name: str, driver: RecordingDriver) -> None:
    forward, types, shapes = LARGE[name]
    model = load(forward, *types)
    for shape in shapes:
        driver.launches.clear()
        arrays = [shape, (shape[-1], 3)][: len(types)]  # of a product the second has three columns
        outputs = model.execute(*(Buffer(dtype, size, GPU) for (dtype, _), size in zip(types, arrays, strict=True)))
        assert driver.problems == []
        written = math.prod(outputs[0].shape)
        if written == 0:
            assert all(each.arguments for each in driver.launches)
            continue
        assert driver.launches, shape
        last = driver.launches[-1]
        assert last.grid[0] < 2**31 and max(last.grid[1:]) <= 65535
        stored = {value for p, value in zip(last.kernel.parameters, last.arguments, strict=True) if "write" in p.access}
        assert outputs[0].address in stored
        if name == "elementwise":
            assert last.threads * 16 >= written


def test_many_batches_are_no_axis_of_the_grid(driver: RecordingDriver) -> None:
    model = load(lambda x, y: x @ y, (F32, ["b", 2, 3]), (F32, ["b", 3, 2]))
    model.execute(Buffer(F32, (70_001, 2, 3), GPU), Buffer(F32, (70_001, 3, 2), GPU))
    assert driver.problems == [] and max(driver.launches[-1].grid[1:]) <= 65535
    assert driver.launches[-1].threads >= 70_001 * 4 // 16


def test_no_python_runs_between_two_ops(driver: RecordingDriver) -> None:
    """The only Python that an entry calls is the recording function, which says nothing but the entry called it."""
    model = load(lambda x: [ops.softmax(ops.sum(x, axis=0)), ops.cumsum(x)], (F32, ["m", "n"]))
    x = Buffer.from_numpy(np.zeros((5, 7), np.float32)).to(GPU)
    kept = model.execute(x)
    driver.launches.clear()
    call = model.first_caller
    calls: list[str] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "site-packages" not in frame.f_code.co_filename:
            calls.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        assert call.native.entry(call.native.context_at, call.memory.pointers_at, call.memory.dims_at) == 0
    finally:
        sys.setprofile(None)
    assert len(kept) == 2 and driver.problems == []
    launches = [number for number, name in enumerate(calls) if name == "launch"]
    assert len(launches) == len(driver.launches) >= 3
    for first, second in itertools.pairwise(launches):
        assert set(calls[first + 1 : second]) <= {
            *("decoded", "look", "_three", "_value", "<genexpr>", "string_at", "__init__", "<lambda>"),
        }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_examples_launch_what_the_device_takes(case: GpuCase, driver: RecordingDriver) -> None:
    inputs = case.inputs()
    taken, given = ([TensorType(*type, GPU) for type in case.types(arrays)] for arrays in (inputs, case.expected()))
    graph = Graph(
        "example",
        lambda *values: ops.custom(case.op, GPU, values, given, parameters=dict(case.params)),
        taken,
        custom_extensions=[case.path],
    )
    model = InferenceSession(devices=[Accelerator(0)]).load(graph)
    buffers = [Buffer.from_numpy(array).to(GPU) for array in inputs]
    results = model.execute(*buffers)
    assert driver.problems == [] and driver.launches
    read, written = set(), set()
    for each in driver.launches:
        for parameter, value in zip(each.kernel.parameters, each.arguments, strict=True):
            read |= {value} if "read" in parameter.access else set()
            written |= {value} if "write" in parameter.access else set()
    assert {result.address for result in results} <= written and {buffer.address for buffer in buffers} <= read
