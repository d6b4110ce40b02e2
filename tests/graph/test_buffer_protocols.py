"""What Python itself does with buffers: copies, pickles, operators."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import DTypeError
from einkorn.dsl.types.dtype import DType
from einkorn.graph import CPU, Accelerator, Buffer

WAYS: dict[str, Callable[[Buffer], Buffer]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda buffer: pickle.loads(pickle.dumps(buffer)),
}


def bits(buffer: Buffer) -> bytes:
    array = buffer.to_numpy()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DType)
def test_a_copy_has_the_same_elements_and_memory_of_its_own(dtype: DType, way: str) -> None:
    for shape in [(), (0, 3), (3, 5)]:
        source = Buffer.zeros(shape, dtype)
        if source.num_elements:
            source[...] = True if dtype is DType.bool else 1
        again = WAYS[way](source)
        assert type(again) is type(source) and (again.dtype, again.shape, again.device) == (dtype, shape, CPU())
        assert bits(again) == bits(source)
        if source.num_elements:
            assert again.address != source.address


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_stays_on_its_device(way: str) -> None:
    device = Accelerator("sim")
    for dtype in (DType.float32, DType.int4):
        source = Buffer.from_numpy(np.ones((3, 3), dtype.to_numpy())).to(device)
        again = WAYS[way](source)
        assert again.device == device and again.dtype is dtype and bits(again) == bits(source)


def test_copies_of_views_and_of_read_only_memory_can_be_written() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    array.flags.writeable = False
    for source in (Buffer.from_dlpack(array.T), Buffer.from_numpy(array)):
        for way in WAYS.values():
            again = way(source)
            again[0, 0] = 7
            assert again.item() == 7 if again.num_elements == 1 else again[0, 0].item() == 7
    assert array[0, 0] == 0


def test_a_structure_is_copied_with_its_buffers() -> None:
    shared = Buffer.from_numpy(np.arange(3.0))
    kept = copy.deepcopy({"a": shared, "b": [shared]})
    assert kept["a"] is kept["b"][0] is not shared


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "x + 1": lambda x: x + 1,
    "1.5 * x": lambda x: 1.5 * x,
    "x @ x": lambda x: x @ x,
    "-x": lambda x: -x,
    "abs(x)": abs,
    "x < 2": lambda x: x < 2,
    "x ** 2j": lambda x: x**2j,
    "x |= 1": lambda x: x.__ior__(1),
}


@pytest.mark.parametrize("text", OPERATIONS)
def test_a_buffer_has_no_arithmetic_and_says_what_has(text: str) -> None:
    buffer = Buffer.from_numpy(np.ones((2, 2), np.float32))
    with pytest.raises(DTypeError) as caught:
        OPERATIONS[text](buffer)
    assert caught.value.code == "EK0814"
    assert caught.value.place is not None and caught.value.place.file == __file__
    assert "to_numpy()" in str(caught.value.hint)


def test_arrays_calculate_with_buffers() -> None:
    buffer = Buffer.from_numpy(np.ones(2, np.float32))
    for result in (buffer + np.ones(2, np.float32), np.ones(2, np.float32) + buffer, np.float32(1) + buffer):
        assert isinstance(result, np.ndarray) and result.tolist() == [2, 2]
