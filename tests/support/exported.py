"""Calls exported models by `ctypes`, as a program without Einkorn does.

model = load(graph)
exported = Exported(model, folder)
exported(*arrays)                 the outputs, or `CallFailed` with the text of the failure
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.graphs import Array

from einkorn.dsl.contract import exports
from einkorn.dsl.types.dtype import DType
from einkorn.dsl.types.packing import pack, unpack
from einkorn.graph.calling.inputs import sizes_of
from einkorn.graph.engine.model import Model

_numbers = itertools.count()


class CallFailed(Exception):
    """A call returned a status."""

    def __init__(self, status: int, text: str, failure: exports.Failure) -> None:
        super().__init__(f"status {status}: {text}")
        self.status, self.text, self.failure = status, text, failure


class Exported:
    """The file of a model, loaded.

    Attributes:
        path: the file.
        library: as `ctypes` has it.
        record: the descriptor.
    """

    def __init__(self, model: Model, folder: Path, name: str = "graph", **how: Any) -> None:
        self.path = folder / f"{name}{next(_numbers)}.so"
        how.setdefault("targets", "host")
        model.export(self.path, name=name, **how)
        self.model = model
        self.open(name)

    def open(self, name: str) -> None:
        self.library = ctypes.CDLL(str(self.path))
        self.record = exports.ModelRecord.in_dll(self.library, f"{name}_model")
        assert self.record.size == ctypes.sizeof(exports.ModelRecord) and self.record.abi == exports.EXPORT_ABI

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> list[int]:
        """The sizes of dims, in the order of the functions."""
        known = sizes_of(self.model.ir.inputs, shapes)[0]
        names = dict.fromkeys(n for type in self.model.ir.inputs for dim in type.shape for n in dim.parameters)
        return [known[name] for name in names]

    def __call__(self, *arrays: Array) -> list[Array]:
        """The outputs of a call. Arrays that the graph changes are changed."""
        types = self.model.ir.inputs
        given = [
            pack(a) if t.dtype.is_packed() else np.ascontiguousarray(a) for a, t in zip(arrays, types, strict=True)
        ]
        sizes = self.sizes([a.shape for a in arrays])
        results = self.call(given, sizes)
        for array, memory, type in zip(arrays, given, types, strict=True):
            if memory is not array and not type.dtype.is_packed():
                array[...] = memory
        return results

    def call(self, given: Sequence[Array | None], sizes: Sequence[int]) -> list[Array]:
        record = self.record
        numbers = (ctypes.c_int64 * (len(sizes) + record.late_dims + 1))(*sizes)
        known = dict(zip(self._names(), sizes, strict=False))
        outputs: list[Any] = []
        addresses = [None if a is None else a.ctypes.data for a in given]
        for k in range(record.outputs):
            tensor = record.tensors[record.inputs + k]
            if tensor.flags & exports.LATE:
                outputs.append(ctypes.c_void_p())
                addresses.append(ctypes.addressof(outputs[-1]))
            else:
                shape = self._shape(tensor, known)
                outputs.append(_room(DType[tensor.dtype.decode()], shape))
                addresses.append(outputs[-1].ctypes.data)
        tensors = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        failure = exports.Failure()
        status = record.call(numbers, tensors, ctypes.addressof(failure))
        if status:
            raise CallFailed(status, self.describe(failure), failure)
        known = dict(zip(self._names(), numbers, strict=False))
        results = []
        for k, output in enumerate(outputs):
            tensor = record.tensors[record.inputs + k]
            dtype, shape = DType[tensor.dtype.decode()], self._shape(tensor, known)
            if isinstance(output, ctypes.c_void_p):
                memory = _room(dtype, shape)
                ctypes.memmove(memory.ctypes.data, output, memory.nbytes)
                self.library[f"{self._prefix()}_free"](output)
                output = memory
            results.append(unpack(output, shape, dtype) if dtype.is_packed() else output)
        return results

    def describe(self, failure: exports.Failure) -> str:
        text = ctypes.create_string_buffer(4096)
        length = self.record.describe(ctypes.addressof(failure), text, len(text))
        assert length == len(text.value)
        return text.value.decode()

    def _prefix(self) -> str:
        return self.path.stem.rstrip("0123456789")

    def _names(self) -> list[str]:
        record = self.record
        return [record.dim_names[k].decode() for k in range(record.dims + record.late_dims)]

    def _shape(self, tensor: exports.Tensor, known: Mapping[str, int]) -> tuple[int, ...]:
        names = {"min": min, "max": max, "ceildiv": lambda a, b: -(-a // b)}
        return tuple(int(eval(tensor.dims[k].decode(), names, dict(known))) for k in range(tensor.rank))


def _room(dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype.is_packed():
        return np.zeros(dtype.bytes_for(int(np.prod(shape, dtype=np.int64))), np.uint8)
    return np.zeros(shape, dtype.to_numpy())
