"""Runs a model by the C API of ONNX Runtime, as a program in C does: through the table of functions of its library.

run = OnnxModel(path, threads=1).bound({"words": array, "mask": array}, ["directions"])
run()                                       one call; its outputs are freed
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

VERSION = 17  # of the interface; later libraries have it, too
# The places of functions in the table, `OrtApi`: what is there stays where it is.
ERROR_TEXT, CREATE_ENV, CREATE_SESSION, RUN, CREATE_OPTIONS, SET_THREADS = 2, 3, 7, 9, 10, 24
CREATE_TENSOR, CREATE_MEMORY_INFO, RELEASE_VALUE = 49, 69, 96
ELEMENTS = {"float32": 1, "int64": 7}


def library_path() -> Path | None:
    """The library of the package onnxruntime; None where it is not installed, or without one."""
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "capi").glob("libonnxruntime.so.*"))), None)


class _ApiBase(ctypes.Structure):
    _fields_ = (("get", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)), ("version", ctypes.c_void_p))


class OnnxModel:
    """A session for the model of a file."""

    def __init__(self, path: Path, threads: int) -> None:
        where = library_path()
        assert where is not None
        library = ctypes.CDLL(str(where))
        library.OrtGetApiBase.restype = ctypes.POINTER(_ApiBase)
        table = library.OrtGetApiBase().contents.get(VERSION)
        self.functions = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
        environment, options, self.session = (ctypes.c_void_p() for _ in range(3))
        self.call(CREATE_ENV, ctypes.c_int(3), b"benchmark", ctypes.byref(environment))
        self.call(CREATE_OPTIONS, ctypes.byref(options))
        self.call(SET_THREADS, options, ctypes.c_int(threads))
        self.call(CREATE_SESSION, environment, str(path).encode(), options, ctypes.byref(self.session))

    def call(self, place: int, *arguments: Any) -> None:
        """Calls a function of the table; RuntimeError with its message where it fails."""
        status = ctypes.CFUNCTYPE(ctypes.c_void_p)(self.functions[place])
        failed = ctypes.cast(status, ctypes.CFUNCTYPE(ctypes.c_void_p, *(type(_plain(a)) for a in arguments)))(
            *map(_plain, arguments)
        )
        if failed:
            text = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(self.functions[ERROR_TEXT])(failed)
            raise RuntimeError((text or b"").decode())

    def bound(self, inputs: Mapping[str, np.ndarray[Any, Any]], outputs: Sequence[str]) -> Callable[[], None]:
        """A call with these arrays."""
        memory = ctypes.c_void_p()
        self.call(CREATE_MEMORY_INFO, ctypes.c_int(1), ctypes.c_int(0), ctypes.byref(memory))
        values = (ctypes.c_void_p * len(inputs))()
        for k, array in enumerate(inputs.values()):
            shape = (ctypes.c_int64 * array.ndim)(*array.shape)
            place = ctypes.c_void_p.from_buffer(values, k * ctypes.sizeof(ctypes.c_void_p))
            data, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
            rank, kind = ctypes.c_size_t(array.ndim), ctypes.c_int(ELEMENTS[array.dtype.name])
            self.call(CREATE_TENSOR, memory, data, size, shape, rank, kind, ctypes.byref(place))
        names = (ctypes.c_char_p * len(inputs))(*(name.encode() for name in inputs))
        wanted = (ctypes.c_char_p * len(outputs))(*(name.encode() for name in outputs))
        results = (ctypes.c_void_p * len(outputs))()
        counts = ctypes.c_size_t(len(inputs)), ctypes.c_size_t(len(outputs))
        pointer, size_type = ctypes.c_void_p, ctypes.c_size_t
        run = ctypes.CFUNCTYPE(
            pointer, pointer, pointer, pointer, pointer, size_type, pointer, size_type, pointer
        )(self.functions[RUN])  # fmt: skip
        release = ctypes.CFUNCTYPE(None, pointer)(self.functions[RELEASE_VALUE])
        held = (inputs, values, names, wanted, results, memory)

        def call() -> None:
            places = [ctypes.addressof(each) for each in (names, values, wanted, results)]
            assert held and not run(
                self.session, None, places[0], places[1], counts[0], places[2], counts[1], places[3]
            )
            for k, value in enumerate(results):
                release(value)
                results[k] = None

        return call


def _plain(argument: Any) -> Any:
    """An argument as a value whose type `ctypes` has."""
    if isinstance(argument, bytes):
        return ctypes.c_char_p(argument)
    if isinstance(argument, ctypes._SimpleCData):
        return argument
    return ctypes.cast(argument, ctypes.c_void_p)
