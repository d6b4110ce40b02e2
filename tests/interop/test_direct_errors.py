"""Calls that cannot be: the error names op, argument, what was expected and what came, and the caller's line; and all
is as before."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import DType, kernels_of
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.interop import specialise as specialising
from einkorn.graph.interop.specialise import prepared
from einkorn.graph.loading import load
from einkorn.graph.loading.background import BACKGROUND

from . import direct_kernels as k

X = np.arange(5, dtype=np.float32)
FIXED = np.zeros(5, np.float32)
FIXED.flags.writeable = False


class Cuda:
    """A tensor of another device, as DLPack gives it."""

    shape = (5,)

    def __dlpack__(self, **keywords: Any) -> Any:
        raise BufferError

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


WRONG: dict[str, tuple[Callable[[], Any], str, str]] = {
    "dtypes that differ": (lambda: k.add(X, X.astype(int)), "EK0317", "'T' is float32 in argument 'x' but int64"),
    "a dtype that is not taken": (lambda: k.scale_and_shift(X.astype(int)), "EK0316", "'x' has dtype int64"),
    "text": (lambda: k.add_one(np.array(["a"])), "EK0850", "'x' holds <U1"),
    "rank": (lambda: k.add(X, X.reshape(5, 1)), "EK0311", "'y' has rank 2"),
    "a number for a tensor": (lambda: k.pairs(X, 3), "EK0311", "'twice' has rank 0"),
    "a tensor for a number": (lambda: k.follow(X.copy(), X, X), "EK0311", "'rate' has rank 1"),
    "a shared dim": (lambda: k.add(X, X[:3]), "EK0312", "'n' is 5 in argument 'x' .axis 0. but 3 in argument 'y'"),
    "a computed dim": (lambda: k.pairs(X, X), "EK0313", "'twice' has size 5 on axis 0"),
    "too many": (lambda: k.add(X, X, X), "EK0851", "takes 2 arguments .x, y., and 3 are given"),
    "too few": (lambda: k.add(X), "EK0851", "is called without 'y'"),
    "an unknown keyword": (lambda: k.scale_and_shift(X, scal=2.0), "EK0851", "no parameter 'scal'"),
    "an input by name": (lambda: k.add(X, y=X), "EK0851", "takes 'y' by its place"),
    "an output by name": (lambda: k.halves(X, low=X), "EK0851", "'low', which is an output"),
    "a parameter by place": (lambda: k.scale_and_shift(X, 2.0), "EK0851", "takes 1 argument"),
    "a parameter's type": (lambda: k.scale_and_shift(X, scale="2"), "EK0322", "'scale' is float"),
    "no parameter": (lambda: k.tile_twice(X), "EK0321", "missing parameter k"),
    "a list": (lambda: k.add([1.0], [2.0]), "EK0850", "'x' is not a tensor but"),
    "an object": (lambda: k.add(X, object()), "EK0850", "'y' is not a tensor but"),
    "None": (lambda: k.add_one(None), "EK0850", "'x' is not a tensor but None"),
    "complex": (lambda: k.add_one(X + 1j), "EK0316", "'x' has dtype complex64"),
    "a masked array": (lambda: k.add_one(np.ma.masked_array(X, X > 2)), "EK0477", "'x' is a masked array"),
    "out of another shape": (lambda: k.add_one(X, out=np.empty(4, np.float32)), "EK0853", "gives shape .5,. in"),
    "out of another dtype": (lambda: k.add_one(X, out=np.empty(5)), "EK0853", "gives float32 in output 'out'"),
    "out is read-only": (lambda: k.add_one(X, out=FIXED), "EK0461", "that is read-only"),
    "out is an input": (lambda: k.add_one(X, out=X), "EK0462", "'out' shares memory with 'x'"),
    "out overlaps": (lambda: k.add_one(X[:4], out=X[1:]), "EK0462", "'out' shares memory with 'x'"),
    "too few places": (lambda: k.halves(X, out=X), "EK0853", "has 2 outputs .low, high., and out= has 1 place"),
    "out is a number": (lambda: k.add_one(X, out=3.0), "EK0853", "cannot write into 3.0"),
    "out is a list": (lambda: k.add_one(X, out=[1.0, 2.0]), "EK0853", "cannot write into 1.0"),
    "late sizes": (lambda: k.kept(X, out=np.empty(1, np.float32)), "EK0454", "output 'out' has the shape .1,."),
    "a read-only mutable": (lambda: k.follow(FIXED, X, 0.5), "EK0461", "'mean' is changed in place"),
    "a number changed": (lambda: k.follow(1.0, X, 0.5), "EK0311", "'mean' has rank 0"),
    "a mutable that is shared": (lambda: k.follow(X, X, 0.5), "EK0462", "'mean' is changed in place, and shares"),
    "a float for an int": (lambda: k.axpy(2.5, X.astype(int), X.astype(int)), "EK0412", "2.5 is a float"),
    "a number too large": (lambda: k.axpy(1e300, X, X), "EK0412", "1e.300 overflows float32"),
    "an int too large": (lambda: k.axpy(300, X.astype(np.int8), X.astype(np.int8)), "EK0412", "300 does not fit"),
    "two devices": (lambda: k.add(X, Cuda()), "EK0852", "'x' .a NumPy array. lies on cpu:0, and 'y' .* on cuda:0"),
    "a device that is not here": (lambda: k.add_one(Cuda()), "EK0852", "lies on cuda:0, which this process cannot use"),
    "an output whose dtype is unknown": (lambda: k.converted(X), "EK0318", "'U' of output 'out'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name: str) -> None:
    call, code, text = WRONG[name]
    kernels = [kernel for kernel in vars(k).values() if hasattr(kernel, "schema")]
    with pytest.raises(EinkornError, match=text) as caught:
        call()
    known = {id(kernel): dict(prepared(kernel).known) for kernel in kernels}
    for again in range(2):
        with pytest.raises(EinkornError, match=text) as caught:
            call()
        error = getattr(caught.value, "errors", [caught.value])[0]
        assert error.code == code and error.op is not None and "graph" not in str(error), again
        assert error.place is not None and error.place.file == __file__, str(error)
        files = {os.path.basename(frame.filename) for frame in traceback.extract_tb(caught.value.__traceback__)}
        assert not files & {"direct.py", "specialise.py", "kinds.py", "binding.py", "outputs.py", "model.py", "bind.py"}
    assert {id(kernel): prepared(kernel).known for kernel in kernels} == known
    assert list(X) == [0, 1, 2, 3, 4] and not FIXED.any()


def test_devices_are_named() -> None:
    there = Buffer.from_numpy(X).to(Accelerator("sim"))
    with pytest.raises(EinkornError, match=r"'x' \(a Buffer\) lies on gpu:0 .*, and 'y' \(a NumPy array\) on cpu:0"):
        k.add(there, X)
    with pytest.raises(EinkornError, match=r"runs on gpu:0 .* lies on cpu:0"):
        k.add_one(there, out=np.empty(5, np.float32))


def test_the_traceback_is_the_callers() -> None:
    with pytest.raises(EinkornError) as caught:
        k.add(X, X[:2])
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames if frame.filename == __file__] == ["test_the_traceback_is_the_callers"]
    # Only the method that every call goes through stands there next to the caller.
    assert {frame.name for frame in frames if frame.filename != __file__} <= {"__call__", "call"}


def test_failing_calls_keep_no_memory() -> None:
    bad = np.full(1000, -1, np.float32)

    def fail() -> None:
        with pytest.raises(EinkornError):
            k.positive(bad)
        with pytest.raises(EinkornError):
            k.add(bad, X)

    def objects() -> int:
        BACKGROUND.wait()  # what compiles there has objects of its own
        gc.collect()
        return len(gc.get_objects())

    for _ in range(5):
        fail()
    before = objects()
    for _ in range(50):
        fail()
    assert objects() < before + 100


def test_interrupted_while_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(4, np.uint32)
    whole = specialising.InferenceSession.load

    def interrupted(*args: Any, **keywords: Any) -> Any:
        _thread.interrupt_main()
        return whole(*args, **keywords)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the process that started this may ignore it
    with monkeypatch.context() as patch:
        patch.setattr(specialising.InferenceSession, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            k.outer(x, x)
            for _ in range(1000):  # the signal comes between two instructions
                pass
    signal.signal(signal.SIGINT, before)
    assert k.outer(x, x).sum() == 16


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are POSIX's")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_calls_in_a_child_after_a_fork() -> None:
    x = np.ones(100_000, np.float32)
    k.add(x, x)
    state = prepared(k.add)
    with state.lock, specialising._lock:  # as another thread may hold them
        child = os.fork()
        if child == 0:
            code = 1
            try:
                fine = (k.add(x, x) == 2).all() and k.add(x.astype(np.int8), x.astype(np.int8)).dtype == np.int8
                code = 0 if fine else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (k.add(x, x) == 2).all()


def test_dtypes_are_given_by_out() -> None:
    assert k.converted(X, out=np.empty(5, np.float16)).dtype == np.float16
    assert k.converted(X, out=Buffer(DType.int8, (5,))).dtype is DType.int8


def test_impossible_sizes_are_refused_by_the_op() -> None:
    text = "from einkorn.dsl import *\n" + (
        '@register("window")\n'
        'def window(out: OutputTensor[float32, "(n - k + 1)"], x: InputTensor[float32, "n"], '
        'w: InputTensor[float32, "k"]):\n'
        "    foreach(out, lambda i: x[i[0]] * w[0])\n"
    )
    window = kernels_of(text, name="<window>")["window"]
    assert window(X, X[:3]).shape == (3,)
    with pytest.raises(EinkornError, match=r"^[^\n]*op 'window': its result has the shape .* would have size -2"):
        window(X[:2], X)


def test_a_first_call_shows_how_far_its_compilation_is(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []

    @contextmanager
    def shown(name: str, verb: str) -> Iterator[Any]:
        reported.append(f"{verb} {name}")
        yield lambda done, count: None

    monkeypatch.setattr(load, "shown_progress", shown)
    text = "from einkorn.dsl import *\n" + (
        '@register("fresh")\n'
        'def fresh(out: OutputTensor[float64, "n"], x: InputTensor[float64, "n"]):\n'
        f"    foreach(out, lambda i: x[i] + {int.from_bytes(os.urandom(4))}.0)\n"
    )
    fresh = kernels_of(text, name="<fresh>")["fresh"]
    fresh(np.ones(3))
    fresh(np.ones(4))
    assert reported == ["compiling op fresh"]
    host = DeviceRef.CPU()
    twice = Graph("twice", custom_extensions=[fresh], input_types=[TensorType(DType.float64, ["n"], host)])
    with twice:
        x = twice.inputs[0]
        twice.output(ops.custom(fresh, host, [x + x], [x.type])[0])
    InferenceSession().load(twice)
    assert reported == ["compiling op fresh", "compiling graph twice"]
