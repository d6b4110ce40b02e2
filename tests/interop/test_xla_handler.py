"""The handler for XLA, called as XLA calls it, with structures that are made here: no JAX is needed."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import DType
from einkorn.dsl.contract.foreign_doors import handler_words
from einkorn.graph.interop.foreign_calls import foreign_calls, own_door
from einkorn.graph.interop.specialise import specialise

from . import direct_kernels as k
from . import elementwise_kernels as e

F32, F32_CODE, S32_CODE = DType.float32, 11, 4
Explain = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
Create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.c_void_p),
    )


class _Several(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
    )


class _Frame(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("api", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int32),
        ("args", _Several),
        ("rets", _Several),
        ("attrs", ctypes.c_uint8 * 48),
        ("future", ctypes.c_void_p),
    )


class _Extension(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("type", ctypes.c_int32),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.c_void_p),
    )


class _Error(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int32),
    )


class Handler:
    """A handler, and XLA's side of it."""

    def __init__(self, kernel: Any, kinds: Sequence[Any], **parameters: Any) -> None:
        self.calls = foreign_calls(specialise(kernel, kinds, parameters))
        spec = self.calls.spec
        assert spec is not None
        self.texts: dict[int, Any] = {}
        self.explain, self.create = Explain(self._explained), Create(self._created)
        words = {**self.calls.words, "interrupt": 0, "explain": ctypes.cast(self.explain, ctypes.c_void_p).value or 0}
        library = own_door("xla", spec, None, handler_words(spec), words)
        assert library is not None
        self.function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(library.address("ek_door"))
        self.api = (ctypes.c_void_p * 8)()
        self.api[6] = ctypes.cast(self.create, ctypes.c_void_p).value
        self.errors: dict[int, tuple[str, int]] = {}

    def _explained(self, context: int, status: int) -> int:
        text = str(self.calls.error(context, status)).encode()
        kept = self.texts[threading.get_ident()] = ctypes.create_string_buffer(text)
        return ctypes.addressof(kept)

    def _created(self, arguments: int) -> int:
        made = _Error.from_address(arguments)
        assert made.struct_size == 28 and made.extension is None
        self.errors[threading.get_ident()] = (made.message.decode(), made.code)
        return 1

    def __call__(self, args: Sequence[Any], rets: Sequence[Any], change: Callable[[_Frame], None] | None = None) -> Any:
        """None, or the text and the code of the error."""
        kept: list[Any] = []

        def several(arrays: Sequence[np.ndarray[Any, Any]]) -> _Several:
            buffers = [self.buffer(array, kept) for array in arrays]
            table = (ctypes.c_void_p * max(1, len(buffers)))(*map(ctypes.addressof, buffers))
            kept.extend((buffers, table))
            return _Several(ctypes.sizeof(_Several), None, len(buffers), None, ctypes.addressof(table))

        frame = _Frame(168, None, ctypes.addressof(self.api), None, 3, several(args), several(rets))
        if change is not None:
            change(frame)
        failed = self.function(ctypes.addressof(frame))
        return self.errors.pop(threading.get_ident()) if failed else None

    @staticmethod
    def buffer(array: np.ndarray[Any, Any], kept: list[Any]) -> _Buffer:
        dims = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        kept.append(dims)
        code = {"float32": F32_CODE, "int32": S32_CODE}[array.dtype.name]
        return _Buffer(48, None, code, array.ctypes.data, array.ndim, ctypes.addressof(dims))


def test_it_answers_the_question_for_its_version() -> None:
    metadata = (ctypes.c_int32 * 12)(*[-1] * 12)
    extension = _Extension(32, 1, None, ctypes.addressof(metadata))
    frame = _Frame(168, ctypes.addressof(extension))
    handler = Handler(k.add_one, [(F32, 2)])
    assert handler.function(ctypes.addressof(frame)) is None
    assert list(metadata)[6:8] == [0, 3] and list(metadata)[:6] == [-1] * 6 and list(metadata)[8:] == [-1] * 4


def test_it_runs_for_every_size() -> None:
    add_one, outer, follow = (
        Handler(k.add_one, [(F32, 2)]),
        Handler(k.halves, [(F32, 1)]),
        Handler(k.follow_and_return, [(F32, 1), (F32, 1)], rate=0.25),
    )
    for shape in ((2, 3), (0, 4), (1, 1), (300, 300)):
        x, out = np.random.default_rng(0).random(shape, dtype=np.float32), np.zeros(shape, np.float32)
        assert add_one([x], [out]) is None and np.array_equal(out, x + 1)
    x, low, high = np.arange(7, dtype=np.float32), np.zeros(3, np.float32), np.zeros(4, np.float32)
    assert outer([x], [low, high]) is None and np.array_equal(np.concatenate([low, high]), x)
    mean, change = np.zeros(7, np.float32), np.zeros(7, np.float32)
    assert follow([mean, x], [change, mean]) is None and np.array_equal(mean, x / 4)
    scalar = Handler(k.add_one, [(F32, 0)])
    one, two = np.array(1, np.float32), np.array(0, np.float32)
    assert scalar([one], [two]) is None and two == 2


def test_buffers_that_do_not_fit_are_an_error_and_nothing_is_written() -> None:
    add = Handler(k.add, [(F32, 1), (F32, 1)])
    follow = Handler(e.drift, [(F32, 1)])
    x, out = np.ones(5, np.float32), np.zeros(5, np.float32)

    def smaller(frame: _Frame) -> None:
        frame.struct_size = 64

    cases: list[tuple[Handler, list[Any], list[Any], Any]] = [
        (add, [x, x[:3]], [out], None),
        (add, [x, x[None]], [out], None),
        (add, [x, x.astype(np.int32)], [out], None),
        (add, [x], [out], None),
        (add, [x, x], [out, out], None),
        (add, [x, x], [out[:4]], None),
        (add, [x, x], [out], smaller),
        (follow, [x], [out], None),  # the result has other memory than the argument
    ]
    for handler, args, rets, change in cases:
        collected = handler(args, rets, change)
        assert collected is not None and collected[1] == 3 and "do not fit the kernel" in collected[0]
    assert not out.any() and x.all()

    def preparing(frame: _Frame) -> None:
        frame.stage = 1

    assert add([x, x], [out], preparing) is None and not out.any()


def test_a_failure_has_the_text_of_the_kernel_on_every_thread() -> None:
    handler = Handler(k.in_parallel, [(F32, 1)])
    good, collected = np.ones(100_000, np.float32), []

    def call(number: int) -> None:
        bad, out = good.copy(), np.zeros_like(good)
        bad[number * 7] = -1
        collected.append((handler([bad], [out]), handler([good], [out]), np.array_equal(out, good)))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(collected) == 10
    for failed, worked, right in collected:
        assert failed[1] == 9 and "elements have to be positive" in failed[0] and worked is None and right
    assert not handler.calls.failures


@pytest.mark.parametrize("knob", ["EINKORN_DOORS", "EINKORN_NO_JIT"])
def test_there_is_none_where_doors_are_closed(knob: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = foreign_calls(specialise(k.add_one, [(F32, 1)]))
    assert calls.spec is not None
    monkeypatch.setenv(knob, "0" if knob == "EINKORN_DOORS" else "1")
    assert own_door("xla", calls.spec, None, handler_words(calls.spec), {}) is None
