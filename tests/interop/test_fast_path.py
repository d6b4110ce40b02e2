"""Doors before kernels: the same results as by Python, no step in Python from the third call on, and what is undone."""

from __future__ import annotations

import contextlib
import copy
import gc
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.dsl.frontend.python.register import Kernel
from einkorn.dsl.frontend.reads import Reads
from einkorn.graph import Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.calling.door_policy import KERNELS
from einkorn.graph.calling.python_door import python_door
from einkorn.graph.interop.fast_path import variables
from einkorn.graph.interop.specialise import specialise
from einkorn.graph.loading.background import BACKGROUND

from . import direct_kernels as kernels
from . import door_kernels


@pytest.fixture(autouse=True)
def fresh() -> None:
    """No kernel has a door before a test."""
    forget()


def forget() -> None:
    for module in (kernels, door_kernels):
        for kernel in vars(module).values():
            if isinstance(kernel, Kernel):
                kernel.__class__, kernel.calls = Kernel, None


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape) + 1


def steps(call: Callable[[], Any]) -> int:
    """How many of our functions of Python are entered in a call, once the doors that were wanted are there."""
    BACKGROUND.wait()
    with contextlib.suppress(EinkornError):
        call()  # says that this thread has room
    entered = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        entered[0] += event == "call" and frame.f_globals.get("__name__", "").startswith("einkorn.")

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered[0]


X, Y, V = floats(6), floats(6) * 10, floats(12)[::2]
CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "one": (lambda: kernels.add_one(X), X + 1),
    "empty": (lambda: kernels.add_one(X[:0]), X[:0]),
    "rank 3": (lambda: kernels.add_one(floats(2, 3, 4)), floats(2, 3, 4) + 1),
    "rank 0": (lambda: kernels.add_one(np.array(3, np.float32)), np.array(4, np.float32)),
    "two": (lambda: kernels.add(X, Y), X + Y),
    "twice the same": (lambda: kernels.add(X, X), X + X),
    "outer": (lambda: kernels.outer(X, Y[:4]), np.outer(X, Y[:4])),
    "parameters": (lambda: kernels.scale_and_shift(X, scale=2.0, shift=-1.0), X * 2 - 1),
    "a parameter as an int": (lambda: kernels.scale_and_shift(X, scale=2), X * 2),
    "a number": (lambda: kernels.axpy(0.5, X, Y), 0.5 * X + Y),
    "a whole number": (lambda: kernels.axpy(2, X, Y), 2 * X + Y),
    "a number for half": (
        lambda: kernels.axpy(0.5, X.astype(np.float16), X.astype(np.float16)), (1.5 * X).astype(np.float16)
    ),
    "out": (lambda: kernels.add(X, Y, out=np.empty_like(X)), X + Y),
    "parameters and out": (lambda: kernels.scale_and_shift(X, scale=3.0, out=np.empty_like(X)), X * 3),
    "two outputs": (lambda: kernels.halves(X), (X[:3], X[3:])),
    "no output": (lambda: kernels.follow(X.copy(), Y, 0.5), None),
    "a view": (lambda: kernels.add_one(V), V + 1),
    "transposed": (lambda: kernels.add_one(floats(3, 4).T), floats(3, 4).T + 1),
    "reversed": (lambda: kernels.add(X[::-1], Y), X[::-1] + Y),
    "broadcast": (lambda: door_kernels.add_rows(np.broadcast_to(X, (3, 6)), Y), np.broadcast_to(X + Y, (3, 6))),
    "loops": (lambda: door_kernels.row_sums(floats(3, 5)), floats(3, 5).sum(1)),
    "late sizes": (lambda: kernels.kept(X - 3), (X - 3)[X > 3]),
    "large": (lambda: kernels.add_one(floats(1 << 19)), floats(1 << 19) + 1),
    "in between": (lambda: kernels.add_one(floats(1 << 17)), floats(1 << 17) + 1),
    "variables": (lambda: door_kernels.scaled_by_module(X), X * 2),
}  # fmt: skip
BY_PYTHON = {"a number for half", "large"}  # of the last one, Python finds the memory


@pytest.mark.parametrize("doors", [True, False])
def test_both_paths_give_the_same(doors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_DOORS", str(int(doors)))
    for name, (call, wanted) in CASES.items():
        forget()
        results = [call() for _ in range(4)]
        for result in results:
            assert type(result) is type(wanted), name
            for mine, theirs in zip(result, wanted, strict=True) if isinstance(wanted, tuple) else [(result, wanted)]:
                np.testing.assert_array_equal(mine, theirs, name, strict=True)
        assert (steps(call) > 0) == (not doors or name in BY_PYTHON), name


def test_buffers_have_doors_of_their_own() -> None:
    x, view = Buffer.from_numpy(X), Buffer.from_dlpack(V)
    for _ in range(3):
        results = kernels.add(x, x), kernels.add(x, Y), kernels.add(view, x), kernels.halves(x)
    assert type(results[0]) is Buffer and [type(each) for each in results[3]] == [Buffer, Buffer]
    for result, wanted in zip(results[:3], (X + X, X + Y, V + X), strict=True):
        np.testing.assert_array_equal(result.to_numpy(), wanted)
    for args in ((x, x), (x, Y), (view, x)):
        assert steps(lambda args=args: kernels.add(*args)) == 0
    assert type(kernels.add(X, Y)) is np.ndarray and type(kernels.add(X, x)) is Buffer
    assert results[0].dtype is DType.float32 and results[0].device.is_host


def test_scalars_of_numpy_have_a_door() -> None:
    for scale in (np.float32(2), np.float32(-0.5)):
        for _ in range(3):
            np.testing.assert_array_equal(kernels.axpy(scale, X, Y), scale * X + Y)
    assert steps(lambda: kernels.axpy(np.float32(3), X, Y)) == 0
    np.testing.assert_array_equal(kernels.axpy(np.float32(3), X, Y), 3 * X + Y)
    for other in (np.float64(0.25), np.int8(3), np.bool_(True), 0.25, 3):  # they are converted, by Python
        for _ in range(3):
            actual = kernels.axpy(other, X, Y)
            BACKGROUND.wait()
        assert actual.dtype == np.float32
        np.testing.assert_array_equal(actual, np.float32(other) * X + Y)


def test_sizes_share_a_door() -> None:
    for n in (1, 2, 3, 100, 5000):
        kernels.add_one(floats(n))
    assert steps(lambda: kernels.add_one(X)) == 0
    assert len(kernels.add_one.calls.now.known) == 1


def test_there_are_at_most_four_doors() -> None:
    dtypes = [np.float32, np.float64, np.int32, np.int64, np.int16]
    for dtype in dtypes:
        for _ in range(3):
            assert kernels.add_one(floats(3, dtype=dtype)).dtype == dtype
        BACKGROUND.wait()
    served = [steps(lambda dtype=dtype: kernels.add_one(floats(3, dtype=dtype))) == 0 for dtype in dtypes]
    assert served == [True] * KERNELS.doors + [False]


def test_a_kernel_with_doors_is_a_kernel() -> None:
    for _ in range(3):
        kernels.add_one(X)
    assert isinstance(kernels.add_one, Kernel) and repr(kernels.add_one) == "<kernel add_one>"
    assert "Adds one to every element." in str(kernels.add_one.__doc__) and type(kernels.add).__name__ == "Kernel"
    assert callable(kernels.add_one) and copy.copy(kernels.add_one) is not None


def test_kernels_and_their_doors_are_freed() -> None:
    moved, _ = door_kernels.made(1.0)
    for _ in range(3):
        moved(X)
    known = weakref.ref(moved)
    assert steps(lambda: moved(X)) == 0
    vars(door_kernels)["__einkorn_registered__"].remove(moved)
    del moved
    gc.collect()
    assert known() is None


def test_variables_that_change_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    call = door_kernels.scaled_by_module
    for _ in range(3):
        call(X)
    for name, value, wanted in (("FACTOR", 3.0, X * 3), ("FACTOR", -1.0, X * 0), ("FACTOR", 2.0, X * 2)):
        monkeypatch.setattr(door_kernels, name, value)
        for _ in range(3):
            np.testing.assert_array_equal(call(X), wanted)
        assert steps(lambda: call(X)) == 0

    class Group:
        LOW = 5.0

    class Inner(Group):
        pass

    reads = Reads()
    reads.in_class(Group, "LOW")
    actual = variables(reads)
    assert actual is not None
    (members, name, value) = actual[0][0]
    assert (name, value) == ("LOW", 5.0) and members["LOW"] == 5.0
    Group.LOW = 6.0
    assert members["LOW"] == 6.0
    reads.in_class(Inner, "LOW")
    assert variables(reads) is None
    moved, change = door_kernels.made(1.0)
    for _ in range(3):
        np.testing.assert_array_equal(moved(X), X + 1)
    assert steps(lambda: moved(X)) == 0
    change(2.0)
    np.testing.assert_array_equal(moved(X), X + 2)


def test_failures_say_the_same_on_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, messages = X - 3, []

    def failing() -> str:
        with pytest.raises(KernelError) as caught:
            kernels.positive(bad)
        assert len(caught.traceback) == 1 or doors == "0"  # none of Einkorn
        return str(caught.value)

    for doors in ("0", "1"):
        monkeypatch.setenv("EINKORN_DOORS", doors)
        kernels.positive.__class__, kernels.positive.calls = Kernel, None
        for _ in range(3):
            kernels.positive(X)
        assert steps(lambda: kernels.positive(X)) == 0 or doors == "0"
        messages.append(failing())
    assert messages[0] == messages[1] and "test_fast_path.py" in messages[0]


def test_mistakes_come_through_doors(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        kernels.add(X, Y)
    for wrong in ((X,), (X, Y, Y), (X, Y[:3]), (X, Y.astype(np.int8)), (X, [1.0]), (X, None)):
        with pytest.raises(EinkornError) as caught:
            kernels.add(*wrong)
        assert "'add'" in str(caught.value) and "test_fast_path.py" in str(caught.value)
    assert steps(lambda: kernels.add(X, Y)) == 0


def test_prints_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        door_kernels.printing(X)
    assert capsys.readouterr().out == "there are 6\n" * 3


class Alarm(Exception):
    """What a signal's handler raises."""


@pytest.mark.parametrize("size", [4, 40_000])
def test_a_call_without_an_end_is_interrupted(size: int) -> None:
    model = specialise(door_kernels.without_end, [(DType.float32, 1)]).model
    endless = python_door(model.first_caller, "without_end", model.execute)

    def ring(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        zero = np.zeros(size, np.float32)
        endless(zero)  # from now on this thread has room
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.15)
            with pytest.raises(Alarm):
                endless(zero + 1)
            np.testing.assert_array_equal(endless(zero), zero)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


WARM = """
import os, sys
sys.path.insert(0, {folder!r})
import numpy as np
from direct_kernels import add_one
x = np.ones(4, np.float32)
for _ in range(3):
    assert add_one(x).tolist() == [2.0] * 4
from einkorn.graph.loading.background import BACKGROUND
from einkorn.graph.interop.own_class import own_member
assert BACKGROUND.wait(60)
assert type(own_member(add_one, "__call__")) is type(len)
print(sorted({{name.split(".")[0] for name in sys.modules}} & {{"llvmlite", "torch_mlir", "mlir"}}))
print([name for name in sys.modules if name.startswith("einkorn.compiler.codegen")])
child = os.fork()
if not child:
    os._exit(0 if all(add_one(x).tolist() == [2.0] * 4 for _ in range(3)) else 1)
print(os.waitpid(child, 0)[1])
"""


def test_a_warm_start_loads_no_compiler_and_children_call_on() -> None:
    text = WARM.format(folder=str(Path(__file__).parent))
    for _ in range(2):  # the first fills the cache
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", "[]", "0"], done.stderr


def test_calls_see_that_the_environment_requests_other_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(9, np.float32)[:8]  # what lies behind it is there

    def refused() -> bool:
        with contextlib.suppress(KernelError):
            door_kernels.beyond(x)
            return False
        return True

    for checks, wanted in ((None, True), ("off", False), ("safe", True), ("off", False), ("off", False), (None, True)):
        if checks is None:
            monkeypatch.delenv("EINKORN_CHECKS", raising=False)
        else:
            monkeypatch.setenv("EINKORN_CHECKS", "".join(checks))  # another object each time
        assert [refused() for _ in range(4)] == [wanted] * 4
        assert wanted or steps(lambda: door_kernels.beyond(x)) == 0


def test_models_have_doors_for_views() -> None:
    pair = [TensorType(DType.float32, ["n"], DeviceRef.CPU())] * 2
    model = InferenceSession().load(Graph("of_views", lambda x, y: x * 2.0 - y, pair))
    x, rows, column = floats(16), floats(2, 16), floats(8, 2)[:, 0]
    kinds = [(x, x + 1), (x[::-1], x), (column, column), (rows[1], x[::-1]), (x[::2], Buffer.from_numpy(x)[8:])]
    for given in kinds:
        for _ in range(4):
            (actual,) = model(*given)
            first, second = (value.to_numpy() if isinstance(value, Buffer) else value for value in given)
            np.testing.assert_array_equal(actual.to_numpy(), first * 2 - second)
        BACKGROUND.wait()
    assert len(model._doors) == 4
    assert [steps(lambda given=given: model(*given)) for given in kinds[:4]] == [1] * 4  # type: ignore[misc]
    with pytest.raises(EinkornError, match="'y'"):
        model(x[::2], x)
    model.cancel()  # nothing is there
    np.testing.assert_array_equal(model(x, x)[0].to_numpy(), x)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int8", "uint64", "bool"])
def test_models_have_doors_for_numbers(name: str) -> None:
    dtype = DType[name]
    one = dtype.to_numpy().type
    types = [TensorType(dtype, shape, DeviceRef.CPU()) for shape in (["n", "m"], [])]
    work = ops.logical_and if dtype is DType.bool else ops.mul
    model = InferenceSession().load(Graph("of_numbers", work, types))
    x = np.arange(6).astype(one).reshape(2, 3)
    numbers = [one(1), np.asarray(1, one), True if dtype is DType.bool else 1, *([1.0] if dtype.is_float() else [])]
    for number in numbers:
        for given in (x, x.T):
            for _ in range(5):
                (actual,) = model(given, number)
                assert actual.dtype is dtype
                np.testing.assert_array_equal(actual.to_numpy(), given)
            BACKGROUND.wait()
    assert model._doors
    for wrong in ("1", None, 1j, np.int16(1), np.complex64(1), *([] if dtype.is_float() else [1.5, 1 << 80, -200])):
        with pytest.raises(EinkornError, match="input1"):
            model(x, wrong)


def test_doors_for_numbers_take_those_that_fit() -> None:
    types = [TensorType(DType.float32, shape, DeviceRef.CPU()) for shape in (["n"], [])]
    model = InferenceSession().load(Graph("of_numbers", lambda x, a: x * a, types))
    x, number = floats(8), np.float32(2)
    for given in (2.0, number, 2):
        for _ in range(4):
            model(x, given)
        BACKGROUND.wait()
    assert len(model._doors) == 3
    assert [steps(lambda given=given: model(x, given)) for given in (3.0, number, 5)] == [1] * 3  # type: ignore[misc]
    for given in (-3.0, 7, np.float32(9), float("inf"), 1 << 70):
        np.testing.assert_array_equal(model(x[1:], given)[0].to_numpy(), x[1:] * np.float32(given))
    for wrong in (1e300, (1 << 24) + 1, True, np.float64(2)):
        with pytest.raises(EinkornError, match="'a'"):
            model(x, wrong)
