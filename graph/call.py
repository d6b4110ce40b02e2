"""The calls of a model: inputs checked, memory found, one native call, reports raised.

Input: tensors. Output: `Buffer`s. Non-goals: how code is made and loaded (see `extensions`).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dsl import abi
from ..dsl.errors import DeviceError, DTypeError, GraphError, KernelError
from ..dsl.packing import pack
from ..dsl.source import Place
from ..dsl.types import DType
from .buffer import Buffer
from .buffer_packed import PackedBuffer
from .device import CPU
from .dims import Dim, StaticDim, SymbolicDim
from .extensions import LoadedCode, thread_pool
from .ir import Constant, GraphIR, Node
from .memory import ALIGNMENT, address_of, check_memory
from .outputs import Output
from .places import user_place
from .promotion import weak_array
from .reports import Failure, failure_error, nan_notes, read_failure, render
from .type import BufferType, ShapedType

# Names that the hot path uses, found once.
ndarray, wrap = np.ndarray, Buffer._wrap


class InputCheck:
    """Turns what a caller passes into an array of the right dtype, or says what is wrong."""

    def __init__(self, position: int, type: ShapedType) -> None:
        self.name = f"input{position}"
        self.type = type
        self.dtype = type.dtype.to_numpy()
        self.is_buffer = isinstance(type, BufferType)
        self.packed = type.dtype.is_packed()

    def scalar(self, value: bool | int | float) -> np.ndarray[Any, Any]:
        """A Python number for an input of rank 0; what the dtype cannot hold is refused, not cut."""
        dtype = self.type.dtype
        if isinstance(value, bool) == (dtype is DType.bool):
            return weak_array(value, dtype, f"'{self.name}'", self.name, user_place())
        raise DTypeError(
            f"'{self.name}' takes a {dtype}, not {value!r}",
            code="EK0452",
            place=user_place(),
            argument=self.name,
            expected=str(dtype),
            got=repr(value),
        )

    def packed_bytes(self, value: Any) -> tuple[np.ndarray[Any, Any], tuple[int, ...]]:
        """The memory and the shape of an input whose elements share bytes; only a `Buffer` has them so already."""
        if isinstance(value, Buffer) and value.dtype is self.type.dtype:
            return value._array, value.shape
        if self.is_buffer:
            raise DTypeError(
                f"'{self.name}' is changed in place, and only a Buffer of {self.type.dtype} has its packed elements",
                code="EK0452",
                place=user_place(),
                argument=self.name,
                expected=f"Buffer of {self.type.dtype}",
                got=type(value).__name__,
                hint="make one by Buffer.from_numpy(x), and look at it by to_numpy() afterwards",
            )
        found = self.array(value)
        return pack(found), found.shape

    def array(self, value: Any) -> np.ndarray[Any, Any]:
        if isinstance(value, Buffer):
            found = value.to_numpy()
        elif isinstance(value, np.ndarray):
            found = value
        elif isinstance(value, np.generic) and not self.is_buffer:
            found = np.asarray(value)
        elif isinstance(value, bool | int | float) and self.type.rank == 0 and not self.is_buffer:
            found = self.scalar(value)
        elif hasattr(value, "__dlpack__"):
            found = Buffer.from_dlpack(value).to_numpy()
        else:
            raise DTypeError(
                f"'{self.name}' is no tensor but {type(value).__name__}",
                code="EK0452",
                place=user_place(),
                argument=self.name,
                expected=str(self.type),
                got=type(value).__name__,
                hint="pass a Buffer, a NumPy array, or anything that speaks DLPack",
            )
        if found.dtype != self.dtype:
            raise DTypeError(
                f"'{self.name}' holds {found.dtype}, the graph takes {self.type.dtype}",
                code="EK0452",
                place=user_place(),
                argument=self.name,
                expected=str(self.type.dtype),
                got=str(found.dtype),
                hint=f"convert it: x.astype({self.dtype.name!r})",
            )
        if not found.flags.c_contiguous:
            raise GraphError(
                f"'{self.name}' is not contiguous: shape {found.shape}, strides {found.strides} bytes",
                code="EK0453",
                place=user_place(),
                argument=self.name,
                expected="row-major, contiguous",
                got=f"strides {found.strides}",
                hint="copy it: np.ascontiguousarray(x), or Buffer.contiguous()",
            )
        return found


class Call:
    """The memory of a model's calls, and the native call itself."""

    def __init__(self, ir: GraphIR, code: LoadedCode, checks: list[InputCheck]) -> None:
        self.ir = ir
        self.code = code
        self.device = CPU()
        plan = code.plan
        self.pointers = (ctypes.c_void_p * max(1, len(plan.buffers)))()
        self.dims = (ctypes.c_int64 * max(1, len(plan.slots)))()
        self.pointers_at = ctypes.addressof(self.pointers)
        self.dims_at = ctypes.addressof(self.dims)
        again = {number for number, _ in plan.repeats}
        pointer_of = {b.source: n for n, b in enumerate(plan.buffers) if b.source[0] != "temp" and n not in again}
        self.inputs = [(check, pointer_of["input", k]) for k, check in enumerate(checks)]
        self.buffers = [k for k, check in enumerate(checks) if check.is_buffer]
        copied = {output for output, _ in plan.copies}
        self.output_pointers = [None if k in copied else pointer_of["output", k] for k in range(len(ir.outputs))]
        self.outputs: list[Output] = []
        self.constants = self._constants()
        self.shapes: list[tuple[int, ...]] | None = None
        self.arena: np.ndarray[Any, Any] | None = None
        self.failure: Failure | None = None
        self.context = abi.Context()
        self._report = abi.ReportFunction(self._on_report)  # kept: native code holds its address
        self.context.report = ctypes.cast(self._report, ctypes.c_void_p)
        self.context.threads = 1
        pool = thread_pool()
        if pool is not None:
            self.pool = pool
            self.context.pool, self.context.parallel = pool.address, pool.run
            self.context.threads = pool.threads
        self.context_at = ctypes.addressof(self.context)

    def _constants(self) -> list[np.ndarray[Any, Any]]:
        kept = []
        for number, buffer in enumerate(self.code.plan.buffers):
            if buffer.source[0] == "constant":
                node = self.ir.nodes[buffer.source[1]]
                assert isinstance(node, Constant)
                kept.append(pack(node.array) if buffer.dtype.is_packed() else node.array)
                self.pointers[number] = kept[-1].ctypes.data
        return kept

    def run(self, inputs: Sequence[Any]) -> list[Buffer]:
        """One call. This is the hot path: the checks that always hold are one comparison each."""
        pointers, arrays, shapes = self.pointers, [], []
        for value, (check, position) in zip(inputs, self.inputs, strict=True):
            if check.packed:
                value, shape = check.packed_bytes(value)
            else:
                if type(value) is not ndarray or value.dtype != check.dtype or not value.flags.c_contiguous:
                    value = check.array(value)
                shape = value.shape
            arrays.append(value)
            shapes.append(shape)
            pointers[position] = address_of(value)
        if shapes != self.shapes:
            self._fit(shapes)
        if self.buffers:
            check_memory(arrays, self.buffers)
        for number, first in self.code.plan.repeats:
            pointers[number] = pointers[first]
        results = []
        for output in self.outputs:
            array = output.take()
            if output.pointer is not None:
                pointers[output.pointer] = address_of(array)
            make = PackedBuffer.of_bytes if output.packed else wrap
            results.append(make(array, self.device, output.dtype, output.shape))
        if self.code.entry(self.context_at, self.pointers_at, self.dims_at):
            self._fail(arrays)
        if self.code.plan.copies:
            self._copy(arrays, results)
        return results

    def _copy(self, arrays: list[np.ndarray[Any, Any]], results: list[Buffer]) -> None:
        """Outputs that are inputs, constants, or given back twice."""
        for output, buffer in self.code.plan.copies:
            kind, number = self.code.plan.buffers[buffer].source
            if kind == "constant":
                node = self.ir.nodes[number]
                assert isinstance(node, Constant)
                source = pack(node.array) if node.type.dtype.is_packed() else node.array
            else:
                source = arrays[number] if kind == "input" else results[number]._array
            results[output]._array[...] = source

    # sizes

    def _fit(self, shapes: list[tuple[int, ...]]) -> None:
        """Checks the shapes against the signature and lays out the memory for them."""
        sizes = self._sizes(shapes)
        for constraint in self.ir.constraints:
            left, right = constraint.left.evaluate(sizes), constraint.right.evaluate(sizes)
            if not (left == right if constraint.kind == "equal" else left >= right):
                sign = "==" if constraint.kind == "equal" else ">="
                raise GraphError(
                    constraint.message or f"{constraint.left} {sign} {constraint.right} does not hold",
                    code="EK0454",
                    place=user_place(),
                    expected=f"{constraint.left} {sign} {constraint.right}",
                    got=f"{left} and {right}",
                    notes=[f"required at {constraint.place}"] if constraint.place else [],
                )
        plan = self.code.plan
        slots = [dim.evaluate(sizes) for dim in plan.slots]
        outputs = [
            Output(type.dtype, tuple(d.evaluate(sizes) for d in type.shape), pointer)
            for type, pointer in zip(self.ir.output_types, self.output_pointers, strict=True)
        ]
        offsets, total = plan.place(sizes)
        if max([total, *slots, *(output.size for output in outputs)], default=0) >= 1 << 63:
            raise self._too_large(total, None)
        try:
            arena = np.empty(total + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as error:
            raise self._too_large(total, error) from None
        # Nothing failed: only now does the model change, all at once.
        self.shapes = None
        for number, value in enumerate(slots):
            self.dims[number] = value
        self.outputs, self.arena = outputs, arena
        base = -(-address_of(arena) // ALIGNMENT) * ALIGNMENT
        for number, offset in offsets.items():
            self.pointers[number] = base + offset
        self.shapes = shapes

    def _too_large(self, size: int, error: Exception | None) -> DeviceError:
        return DeviceError(
            f"graph '{self.ir.name}' needs {size:,} bytes for its intermediate results, which cannot be had",
            code="EK0813",
            place=user_place(),
            got=size,
            notes=[str(error)] if error else [],
        )

    def forget(self) -> None:
        """In the child of a fork: whatever call was under way is the parent's."""
        self.shapes, self.failure = None, None
        self.context.status = 0

    def _sizes(self, shapes: list[tuple[int, ...]]) -> dict[str, int]:
        """The value of each symbol, or an error that shows both sides."""
        sizes: dict[str, tuple[int, str]] = {}
        for position, (type, shape) in enumerate(zip(self.ir.inputs, shapes, strict=True)):
            name = f"input{position}"
            if len(shape) != type.rank:
                raise self._shape_error(name, type, shape, f"has rank {len(shape)}, the graph takes rank {type.rank}")
            for axis, (dim, size) in enumerate(zip(type.shape, shape, strict=True)):
                self._unify(sizes, name, axis, dim, size, type, shape)
        return {name: size for name, (size, _) in sizes.items()}

    def _unify(
        self,
        sizes: dict[str, tuple[int, str]],
        name: str,
        axis: int,
        dim: Dim,
        size: int,
        type: ShapedType,
        shape: tuple[int, ...],
    ) -> None:
        if isinstance(dim, StaticDim):
            if int(dim) != size:
                raise self._shape_error(name, type, shape, f"has size {size} on axis {axis}, the graph takes {dim}")
            return
        assert isinstance(dim, SymbolicDim)
        known = sizes.setdefault(dim.name, (size, f"axis {axis} of '{name}'"))
        if known[0] != size:
            text = f"dim '{dim.name}' is {known[0]} on {known[1]} and {size} on axis {axis} of '{name}'"
            raise GraphError(
                text,
                code="EK0454",
                place=user_place(),
                argument=name,
                expected=f"{dim.name} = {known[0]}",
                got=f"{dim.name} = {size}",
            )

    def _shape_error(self, name: str, type: ShapedType, shape: tuple[int, ...], what: str) -> GraphError:
        return GraphError(
            f"'{name}' {what}",
            code="EK0454",
            place=user_place(),
            argument=name,
            expected=str(type),
            got=str(shape),
        )

    # reports

    def _on_report(self, site: int, arguments: Any) -> None:
        """Called by native code, from any thread: prints, or notes the first failure."""
        try:
            report = self.code.reports[site]
            if report.kind == "print":
                sys.stdout.write(render(report, arguments))
                sys.stdout.flush()
            elif self.failure is None:
                self.failure = read_failure(report, arguments)
        except Exception as error:  # an exception cannot cross native code
            sys.stderr.write(f"einkorn: a report could not be shown: {error!r}\n")

    def _fail(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Raises what a kernel reported."""
        self.context.status = 0
        failure, self.failure = self.failure, None
        if failure is None:
            raise KernelError("a kernel failed without saying why", code="EK0702", place=user_place())
        called = f"graph '{self.ir.name}' was called at {user_place()}"
        raise failure_error(failure, self._staged(failure.report.op), [*nan_notes(failure, arrays), called])

    def _staged(self, op: str) -> list[Place]:
        """Where an op was staged; several places when the graph has several of that name."""
        return [n.place for n in self.ir.nodes if isinstance(n, Node) and n.name == op and n.place is not None]
