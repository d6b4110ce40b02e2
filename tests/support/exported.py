"""Calls exported models by `ctypes`, as a program without Einkorn does.

model = load(graph)
exported = Exported(model, folder)
exported(*arrays)                 the outputs, or `CallFailed` with the text of the failure
check_equal(model, exported, arrays)
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.graphs import Array, numbers, results

from einkorn.dsl.contract import exports
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.dsl.package.library import LoadedKernel
from einkorn.dsl.signature.schema import OpSchema, Role
from einkorn.dsl.types.dtype import DType
from einkorn.dsl.types.packing import pack, unpack
from einkorn.graph import BufferType, ops
from einkorn.graph.calling.inputs import sizes_of
from einkorn.graph.engine.model import Model
from einkorn.graph.interop.direct import kind_of
from einkorn.graph.interop.kinds import device_of_call, operand_of
from einkorn.graph.interop.specialise import prepared, specialised
from einkorn.graph.interop.spread import spread_of

_numbers = itertools.count()


def attention(x: Any, w: Any) -> Any:
    """Products, and a softmax over them: several groups with temporaries between them."""
    return ops.softmax(ops.matmul(ops.exp(ops.softmax(ops.matmul(x, w))), ops.transpose(w, 0, 1)))


def attention_arrays(b: int = 5, k: int = 7, n: int = 9) -> list[Array]:
    """Inputs of `attention`."""
    return [numbers((b, k), np.float32, 1), numbers((k, n), np.float32, 2)]


class CallFailed(Exception):
    """A call returned a status."""

    def __init__(self, status: int, text: str, failure: exports.ExportedFailure) -> None:
        super().__init__(f"status {status}: {text}")
        self.status, self.text, self.failure = status, text, failure


class Exported:
    """The file of a model, loaded.

    Attributes:
        path: the file.
        library: as `ctypes` has it.
        record: the descriptor.
    """

    folder: object = None  # kept as long as the file is used

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
        known = sizes_of(self.model.first_caller.plan.checks, shapes)[0]
        names = dict.fromkeys(n for type in self.model.ir.inputs for dim in type.shape for n in dim.parameters)
        return [known[name] for name in names]

    def __call__(self, *arrays: Array) -> list[Array]:
        """The outputs of a call. Arrays that the graph changes are changed."""
        types = self.model.ir.inputs
        given = [
            pack(a) if t.dtype.is_packed() else np.ascontiguousarray(a) for a, t in zip(arrays, types, strict=True)
        ]
        sizes = self.sizes([np.shape(a) for a in arrays])
        result = self.call(given, sizes)
        for array, memory, type in zip(arrays, given, types, strict=True):
            if isinstance(type, BufferType) and memory is not array and not type.dtype.is_packed():
                array[...] = memory
        return result

    def call(self, given: Sequence[Array | None], sizes: Sequence[int]) -> list[Array]:
        record = self.record
        numbers = (ctypes.c_int64 * (len(sizes) + record.late_dims + 1))(*sizes)
        known = dict(zip(self.dim_names, sizes, strict=False))
        outputs: list[Any] = []
        addresses = [None if a is None else a.ctypes.data for a in given]
        for k in range(record.outputs):
            tensor = record.tensors[record.inputs + k]
            if tensor.flags & exports.LATE:
                outputs.append(ctypes.c_void_p())
                addresses.append(ctypes.addressof(outputs[-1]))
            else:
                shape = self.shape(tensor, known)
                outputs.append(room(DType[tensor.dtype.decode()], shape))
                addresses.append(outputs[-1].ctypes.data)
        tensors = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        failure = exports.ExportedFailure()
        status = record.call(numbers, tensors, ctypes.addressof(failure))
        if status:
            raise CallFailed(status, self.describe(failure), failure)
        known = dict(zip(self.dim_names, numbers, strict=False))
        collected = []
        for k, output in enumerate(outputs):
            tensor = record.tensors[record.inputs + k]
            dtype, shape = DType[tensor.dtype.decode()], self.shape(tensor, known)
            if isinstance(output, ctypes.c_void_p):
                memory = room(dtype, shape)
                ctypes.memmove(memory.ctypes.data, output, memory.nbytes)
                self.library[f"{self._prefix()}_free"](output)
                output = memory
            collected.append(unpack(output, dtype, shape) if dtype.is_packed() else output)
        return collected

    def describe(self, failure: exports.ExportedFailure) -> str:
        text = ctypes.create_string_buffer(4096)
        length = self.record.describe(ctypes.addressof(failure), text, len(text))
        assert length == len(text.value)
        return text.value.decode()

    def _prefix(self) -> str:
        return self.path.stem.rstrip("0123456789")

    @property
    def dim_names(self) -> list[str]:
        """The names of the sizes that a call is given, then of those that it computes."""
        record = self.record
        return [record.dim_names[k].decode() for k in range(record.dims + record.late_dims)]

    def shape(self, tensor: exports.ExportedTensor, known: Mapping[str, int]) -> tuple[int, ...]:
        """The sizes of a tensor, from those of the dims."""
        names = {"min": min, "max": max, "ceildiv": lambda a, b: -(-a // b)}
        return tuple(int(eval(tensor.dims[k].decode(), names, dict(known))) for k in range(tensor.rank))


def room(dtype: DType, shape: tuple[int, ...]) -> Array:
    """Memory for a tensor, packed as C keeps it."""
    if dtype.is_packed():
        return np.zeros(dtype.bytes_for(int(np.prod(shape, dtype=np.int64))), np.uint8)
    return np.zeros(shape, dtype.to_numpy())


def check_equal(model: Model, exported: Exported, arrays: Sequence[Array], *, nan_bits: bool = True) -> None:
    """Compares calls of both: they give the same outputs, change their inputs alike, or both fail. Without `nan_bits`
    all NaNs are equal: those that operations make have the sign bit on some processors."""
    ours, theirs = ([array.copy() for array in arrays] for _ in range(2))
    try:
        wanted = results(model, *ours)
    except EinkornError:
        try:
            exported(*theirs)
        except CallFailed:
            return
        raise AssertionError("the exported call does not fail") from None
    compare([*wanted, *ours], [*exported(*theirs), *theirs], nan_bits=nan_bits)


def compare(wanted: Sequence[Array], actual: Sequence[Array], *, nan_bits: bool = True) -> None:
    """Compares tensors to the bit; without `nan_bits` all NaNs are equal."""
    for k, (a, b) in enumerate(zip(wanted, actual, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), k
        if not nan_bits:
            a, b = _one_nan(a), _one_nan(b)
        assert a.tobytes() == b.tobytes(), f"tensor {k}: {a!r} and {b!r}"


def _one_nan(array: Array) -> Array:
    """The array, with one pattern of bits for all NaNs."""
    if array.dtype.kind == "c":
        part = np.dtype(f"f{array.dtype.itemsize // 2}")
        return _one_nan(np.ascontiguousarray(array).view(part))
    with np.errstate(invalid="ignore"):
        unordered = array != array
    return np.where(unordered, np.abs(array), array) if unordered.any() else array


def results_by_export(
    kernel: LoadedKernel, schema: OpSchema, arrays: Sequence[Array], parameters: dict[str, Any], outs: Any
) -> list[Array] | None:
    """As a caller of `check_op`: the outputs of the exported op, then the inputs that it has changed."""
    if outs is not None or any(not array.flags.c_contiguous for array in arrays):
        return None
    state, op = prepared(kernel), schema.name
    names = [argument.name for argument in schema.inputs]
    operands = [operand_of(array, op, name) for array, name in zip(arrays, names, strict=True)]
    if spread_of([operands[k].shape for k in state.joint]) is not None:
        return None  # a call of the kernel gives all operands one shape first
    several = {argument.name for argument in kernel.schema.inputs}
    counts = {name: count for name, count in schema.counts if name in several}
    device = device_of_call(op, names, operands)
    kinds = [kind_of(operand) for operand in operands]
    made = specialised(kernel, state, kinds, counts, parameters, device, None, None, None)
    result = _exported(made.model)(*arrays)
    return result + [a for argument, a in zip(schema.inputs, arrays, strict=True) if argument.role is Role.MUTABLE]


@functools.lru_cache(maxsize=64)
def _exported(model: Model) -> Exported:
    folder = tempfile.TemporaryDirectory()
    exported = Exported(model, Path(folder.name))
    exported.folder = folder
    return exported
