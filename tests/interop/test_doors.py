"""Doors: generated functions that call code directly. What they serve, what they hand on, what they leave behind."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.codegen.llvm import compile_module
from einkorn.compiler.doors.rows import DOORS, door_object, door_text
from einkorn.dsl.contract.doors import DoorArgument, DoorOutput, DoorSpec, PythonForm
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.dsl.signature.dims import DimName
from einkorn.dsl.types.dtype import DType
from einkorn.graph.calling import doors, python_door
from einkorn.graph.calling.doors import door_spec
from einkorn.graph.interop.specialise import specialise
from einkorn.graph.loading.compile import host_target

from . import direct_kernels as kernels

F32 = DType.float32
MISSED = "missed"


def door(kernel: Any, *kinds: Any, scalars: Any = (), keywords: Any = None, **options: Any) -> Any:
    """A door of a kernel that says when it hands a call on."""
    model = specialise(kernel, list(kinds), keywords).model

    def miss(*args: Any, **kwargs: Any) -> Any:
        return MISSED

    made = python_door.python_door(
        model.first_caller, kernel.schema.name, miss, scalars=scalars, keywords=keywords, **options
    )
    assert made is not None
    made(*[object()] * len(kinds))  # from now on this thread is known to have enough of a stack
    return made


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def test_arrays_of_every_size_go_through_one_door() -> None:
    one = door(kernels.add_one, (F32, 2))
    for shape in ((3, 4), (0, 7), (5, 0), (1, 1), (300, 200)):  # the last one on the pool, without the lock
        result = one(floats(*shape))
        assert type(result) is np.ndarray and result.shape == shape and result.flags.owndata
        np.testing.assert_array_equal(result, floats(*shape) + 1)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint64", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    one, x = door(kernels.add_one, (DType[dtype], 1)), floats(9).astype(DType[dtype].to_numpy())
    assert one(x).dtype == x.dtype and one(x).tolist() == (x + 1).tolist()
    assert one(floats(9).astype(np.int16)) is MISSED
    assert one(x.astype(x.dtype.newbyteorder())) is MISSED or x.itemsize == 1


def test_what_is_not_plain_is_handed_on() -> None:
    one, x = door(kernels.add_one, (F32, 1)), floats(8)
    masked, unaligned = np.ma.masked_array(x), np.zeros(33, np.uint8)[1:].view(np.float32)
    for value in (x[::2], x.reshape(2, 4), 3.0, [1.0], None, np.float32(1), masked, unaligned, x.astype(">f4")):
        assert one(value) is MISSED
    assert one() is one(x, x) is one(x, other=x) is one(x=x) is one(x, scale=1.0, out=x) is MISSED
    np.testing.assert_array_equal(one(x), x + 1)


def test_sizes_that_the_signature_names_twice_are_one() -> None:
    add, x = door(kernels.add, (F32, 1), (F32, 1)), floats(5)
    assert add(x, x).tolist() == (x + x).tolist()
    assert add(x, floats(4)) is MISSED
    pairs = door(kernels.pairs, (F32, 1), (F32, 1))
    assert pairs(x, floats(10)).shape == (5,) and pairs(x, floats(9)) is MISSED


def test_sizes_are_computed() -> None:
    halves = door(kernels.halves, (F32, 1))
    for n in (0, 1, 7, 8):
        low, high = halves(floats(n))
        assert (low.size, high.size) == (n // 2, n - n // 2)


def test_a_kernel_that_fails_raises_once_and_leaves_nothing() -> None:
    positive, x = door(kernels.positive, (F32, 1)), floats(40_000) + 1
    for size in (8, 40_000):
        good, bad = x[:size], x[:size].copy()
        bad[size // 2 :] = -1
        before = sys.getrefcount(bad)
        for _ in range(20):
            with pytest.raises(KernelError, match="assertion failed") as caught:
                positive(bad)
            assert len(caught.traceback) == 1 and caught.value.place is not None
            np.testing.assert_array_equal(positive(good), good)
        del caught
        assert sys.getrefcount(bad) <= before + 1
    assert not positive.__self__.keep[2].failures


def test_failures_stay_with_their_caller() -> None:
    positive = door(kernels.positive, (F32, 1))

    def work(number: int) -> bool:
        x = np.full(64 if number % 2 else 40_000, 1 - 2 * (number % 3 == 0), np.float32)
        positive(object())  # a thread's first call is handed on
        for _ in range(50):
            try:
                positive(x)
            except KernelError:
                if number % 3:
                    return False
            else:
                if not number % 3:
                    return False
        return True

    with ThreadPoolExecutor(10) as executor:
        assert all(executor.map(work, range(20)))


def test_out() -> None:
    one, x, y = door(kernels.add_one, (F32, 1)), floats(6), np.empty(6, np.float32)
    assert one(x, out=y) is y and y.tolist() == (x + 1).tolist()
    read_only, buffer = np.empty(6, np.float32), np.empty(10, np.float32)
    read_only.flags.writeable = False
    buffer[:6] = x
    for wrong in (x, np.empty(5, np.float32), np.empty(6), np.empty((6, 1)), read_only, None, [y], np.empty(12)[::2]):
        assert one(x, out=wrong) is MISSED
    assert one(buffer[:6], out=buffer[4:]) is one(buffer[4:], out=buffer[:6]) is MISSED
    assert one(buffer[:5], out=buffer[5:]) is not MISSED and one(np.empty(0, np.float32), out=buffer[:0]) is not MISSED
    large = np.zeros(1 << 19, np.float32)
    assert one(large, out=np.empty_like(large))[0] == 1


def test_parameters_by_keyword() -> None:
    x = floats(4)
    scaled = door(kernels.scale_and_shift, (F32, 1), keywords={"scale": 2.0, "shift": 3.0})
    assert scaled(x, scale=2.0, shift=float("3")).tolist() == (x * 2 + 3).tolist()
    y = np.empty_like(x)
    assert scaled(x, scale=float("2"), shift=3.0, out=y) is scaled(x, out=y, shift=3.0, scale=2.0) is y
    for wrong in ({"scale": 2.0}, {"scale": 2.5, "shift": 3.0}, {"shift": 3.0, "other": 2.0}, {"scale": 2, "shift": 3}):
        assert scaled(x, **wrong) is MISSED
    assert scaled(x) is MISSED


def test_numbers() -> None:
    x, y = floats(4), floats(4)
    axpy = door(kernels.axpy, 2.0, (F32, 1), (F32, 1), scalars=("float", "", ""))
    assert axpy(0.5, x, y).tolist() == (0.5 * x + y).tolist()
    for wrong in (1, True, 1e39, float("nan"), np.float32(1), np.array(1, np.float32)):
        assert axpy(wrong, x, y) is MISSED
    whole = door(kernels.axpy, 2, (DType.int8, 1), (DType.int8, 1), scalars=("int", "", ""))
    z = np.arange(4, dtype=np.int8)
    assert whole(-7, z, z).tolist() == (-6 * z).tolist()
    for wrong in (128, -129, 1 << 70, True, 1.0):
        assert whole(wrong, z, z) is MISSED
    both = door(kernels.axpy, 2.0, (F32, 1), (F32, 1), scalars=("number", "", ""))
    assert both(3, x, y).tolist() == both(3.0, x, y).tolist() and both(True, x, y) is MISSED
    whole = door(kernels.axpy, 2, (F32, 1), (F32, 1), scalars=("int", "", ""))
    assert whole(3, x, y).tolist() == (3 * x + y).tolist() and whole((1 << 24) + 1, x, y) is MISSED


def test_what_is_changed_in_place() -> None:
    mean, x = floats(4), floats(4) + 4
    follow = door(kernels.follow_and_return, (F32, 1), (F32, 1))
    assert follow(mean, x).tolist() == [2.0] * 4 and mean.tolist() == [2, 3, 4, 5]
    mean.flags.writeable = False
    assert follow(mean, x) is follow(x, x) is MISSED
    both = floats(9)
    assert follow(both[:4], both[3:7]) is MISSED and follow(both[:4], both[5:]) is not MISSED


def test_variables_that_have_changed_are_a_miss() -> None:
    module, held = {"K": (first := object())}, [1]

    def outer() -> Any:
        value = held
        return lambda: value

    cell = outer().__closure__[0]
    options = {"names": [(module, "K", first)], "cells": [(cell, held)]}
    one, x = door(kernels.add_one, (F32, 1), **options), floats(3)
    assert one(x) is not MISSED
    module["K"] = object()
    assert one(x) is MISSED
    module["K"] = first
    assert one(x) is not MISSED
    cell.cell_contents = [1]
    assert one(x) is MISSED
    cell.cell_contents = held
    assert one(x) is not MISSED
    del module["K"]
    assert one(x) is MISSED


def test_doors_stand_behind_each_other() -> None:
    first = door(kernels.add_one, (F32, 1))
    model = specialise(kernels.add_one, [(DType.float64, 1)]).model
    both = python_door.python_door(model.first_caller, "add_one", first)
    assert both(floats(3)).dtype == np.float32 and both(floats(3, dtype=np.float64)).dtype == np.float64
    assert both(floats(3, dtype=np.int32)) is MISSED and both(floats(3), out=floats(3)) is not MISSED


def test_buffers_are_given_as_lists() -> None:
    (buffer,) = door(kernels.add_one, (F32, 2), buffers="list")(floats(2, 3))
    assert buffer.dtype is F32 and buffer.device.is_host and buffer.to_numpy().tolist() == (floats(2, 3) + 1).tolist()


def test_new_threads_come_through_at_the_second_call() -> None:
    one, seen, x = door(kernels.add_one, (F32, 1)), [], floats(3)

    def calls() -> None:
        seen.append([one(x) is MISSED for _ in range(3)])

    for size in (0, 1 << 20):  # the second one has less of a stack than code may take
        before = threading.stack_size(size)
        thread = threading.Thread(target=calls)
        thread.start()
        threading.stack_size(before)
        thread.join()
    assert seen == [[True, False, False], [True, True, True]]


def test_threads_side_by_side() -> None:
    one = door(kernels.add_one, (F32, 1))

    def work(number: int) -> bool:
        x = np.full(64 if number % 2 else 50_000, number, np.float32)
        one(x)
        return all((one(x) == number + 1).all() for _ in range(300))

    with ThreadPoolExecutor(10) as executor:
        assert all(executor.map(work, range(20)))


def test_nothing_is_left_behind() -> None:
    one, x, y = door(kernels.add_one, (F32, 1)), floats(64), floats(64)
    scaled = door(kernels.scale_and_shift, (F32, 1), keywords={"scale": 2.0})
    listed = door(kernels.add_one, (F32, 1), buffers="list")
    counted = [x, y, x.dtype, None, np.ndarray, list, listed, F32, one]

    def calls() -> None:
        for _ in range(3000):
            one(x)
            one(x, out=y)
            one(3)
            scaled(x, scale=2.0)
            listed(x)

    calls()
    gc.collect()
    before, blocks = [sys.getrefcount(each) for each in counted], sys.getallocatedblocks()
    calls()
    gc.collect()
    assert all(abs(sys.getrefcount(each) - count) < 10 for each, count in zip(counted, before, strict=True))
    assert abs(sys.getallocatedblocks() - blocks) < 200


def test_a_door_holds_what_it_needs() -> None:
    one = door(kernels.add_one, (F32, 1))
    table = one.__self__
    assert gc.is_tracked(one) and gc.is_tracked(table) and all(table.keep)


def test_one_code_serves_all_kernels_of_a_form() -> None:
    one = door(kernels.add_one, (F32, 2))
    scaled = door(kernels.scale_and_shift, (F32, 2))
    assert one.__self__.address == scaled.__self__.address


def test_texts_name_no_addresses() -> None:
    n = DimName("s0")
    spec = DoorSpec((DoorArgument(F32, (n,)),), (DoorOutput(F32, (n,)),), (("input", 0), ("output", 0)), (n,), (), 9)
    text = door_text("python", spec, PythonForm())
    assert text == door_text("python", spec, PythonForm()) and "inttoptr" not in text and set(DOORS) >= {"python"}


def test_doors_are_code_alone() -> None:
    """Most go through no pass of LLVM's, which would cost more than the entry: even so nothing becomes a library's."""
    n = DimName("s0")
    numbers = (DoorArgument(DType.float32, (), scalar="number"), DoorArgument(DType.int8, (), scalar="int"))
    arguments = (DoorArgument(F32, (n,)), DoorArgument(F32, (n,), (DimName("s1"),)), *numbers)
    pointers = (*(("input", k) for k in range(4)), ("output", 0))
    spec = DoorSpec(arguments, (DoorOutput(F32, (n, n)),), pointers, (n, DimName("s1")), (), 9)
    form = PythonForm(names=2, cells=1, keywords=("float", "int", "str"), out=True)
    text = door_text("python", spec, form)
    made = compile_module(text, host_target(), level=0)
    assert made.undefined == ()
    assert made.link("einkorn_python.so") == door_object("python", text, host_target())


def test_entries_that_are_not_plain_have_no_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    late = specialise(kernels.kept, [(F32, 1)]).model
    assert door_spec(late.first_caller) is None and door_spec(late.first_caller, late=True) is not None
    plain = specialise(kernels.add_one, [(F32, 1)]).model.first_caller
    assert door_spec(plain) is not None
    python_door._works.cache_clear()
    monkeypatch.setenv("EINKORN_DOORS", "0")
    assert python_door.python_door(plain, "add_one", print) is None
    monkeypatch.setenv("EINKORN_DOORS", "1")
    assert python_door.python_door(plain, "add_one", print) is not None
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    assert doors.load_door("python", door_spec(plain), PythonForm()) is None


@pytest.mark.parametrize("lie", ["build", "type", "rank", "float", "tuple", "dict"])
def test_the_probe_believes_nothing(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = specialise(kernels.add_one, [(F32, 1)]).model.first_caller
    python_door._works.cache_clear()
    if lie == "build":
        monkeypatch.setattr(sys, "abiflags", "t", raising=False)
    else:
        position = {"type": 1, "rank": 3, "float": 11, "tuple": 14, "dict": 18}[lie]
        inner = python_door._function

        def lying(*arguments: Any) -> Any:
            function = inner(*arguments)

            def call(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                function.__self__[position] += 1
                return result

            return call

        monkeypatch.setattr(python_door, "_function", lying)
    assert python_door.python_door(plain, "add_one", print) is None
    monkeypatch.undo()
    python_door._works.cache_clear()
    assert python_door.python_door(plain, "add_one", print) is not None
