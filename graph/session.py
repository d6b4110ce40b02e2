"""Sessions and models: a graph made ready to run, and its calls.

`InferenceSession.load` gets the graph's code; `Model.execute` checks the inputs against the signature, finds or makes
the memory, and makes one native call. With the sizes of the last call nothing is allocated but the outputs.

Input: a `Graph`, then tensors. Output: `Buffer`s. Non-goals: how code is made (see `extensions`).
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dsl import abi
from ..dsl.errors import DeviceError, DTypeError, GraphError, KernelError
from ..dsl.types import DType
from .buffer import Buffer, address_of
from .device import CPU, Device, DeviceRef
from .dims import Dim, StaticDim, SymbolicDim
from .extensions import LoadedCode, Report, load_graph, thread_pool
from .graph import Graph
from .ir import Constant, GraphIR
from .places import user_place
from .type import TensorType


@dataclass(frozen=True)
class TensorSpec:
    """What a model takes or gives at one position."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]
    device: DeviceRef


class InferenceSession:
    """Loads graphs for a set of devices.

    Args:
        devices: what the graphs may run on; the host when left out.

    Raises:
        DeviceError: a device is no device of this machine.
    """

    def __init__(self, devices: Sequence[Device] | None = None) -> None:
        self.devices = [CPU()] if devices is None else list(devices)
        for device in self.devices:
            if not isinstance(device, Device):
                raise DeviceError(
                    f"devices= takes devices such as CPU(), not {device.__class__.__name__}",
                    code="EK0808",
                    argument="devices",
                    place=user_place(),
                )

    def load(self, graph: Graph) -> Model:
        """The graph, compiled or found ready, as a model.

        Raises:
            CompileError: a mistake in a kernel.
            DeviceError: the graph uses a device that the session does not have.
            GraphError: the graph has no output yet.
        """
        if not isinstance(graph, Graph):
            raise GraphError(
                f"load takes a Graph, not {type(graph).__name__}", code="EK0409", place=user_place(), argument="graph"
            )
        ir = graph.ir
        here = {DeviceRef.from_device(device) for device in self.devices}
        for used in ir.types:
            if used.device not in here:
                names = ", ".join(sorted(map(str, here)))
                raise DeviceError(
                    f"graph '{ir.name}' uses {used.device}, and the session has {names}",
                    code="EK0806",
                    place=user_place(),
                    expected=str(used.device),
                    got=names,
                )
        return Model(ir, load_graph(ir))


class Model:
    """A graph that is ready to run. Calls from several threads wait for each other; make one model for each thread."""

    def __init__(self, ir: GraphIR, code: LoadedCode) -> None:
        self._ir = ir
        self._code = code
        self._lock = threading.Lock()
        self._checks = [_InputCheck(position, type) for position, type in enumerate(ir.inputs)]
        self._call = _Call(ir, code)

    @property
    def input_metadata(self) -> list[TensorSpec]:
        """Name, dtype, shape and device of each input; a dim is a size or a name."""
        return [_spec(f"input{k}", type) for k, type in enumerate(self._ir.inputs)]

    @property
    def output_metadata(self) -> list[TensorSpec]:
        """Name, dtype, shape and device of each output; a dim is a size, a name or an expression."""
        return [_spec(f"output{k}", type) for k, type in enumerate(self._ir.output_types)]

    def execute(self, *inputs: Any) -> list[Buffer]:
        """Runs the graph once.

        Args:
            inputs: one for each input type: `Buffer`s, NumPy arrays, or anything that speaks DLPack; contiguous, of
                the declared dtype and shape, on the declared device. Python and NumPy scalars serve inputs of rank 0.

        Returns:
            One buffer for each output.

        Raises:
            GraphError: a wrong number of inputs, a wrong shape, or memory that is not contiguous.
            DTypeError: a wrong dtype, or something that is no tensor.
            KernelError: a kernel stopped itself.
        """
        if len(inputs) != len(self._checks):
            raise GraphError(
                f"graph '{self._ir.name}' takes {len(self._checks)} inputs, {len(inputs)} are given",
                code="EK0451",
                place=user_place(),
                expected=len(self._checks),
                got=len(inputs),
            )
        arrays = [
            value
            if type(value) is np.ndarray and value.dtype == check.dtype and value.flags.c_contiguous
            else check.array(value)
            for value, check in zip(inputs, self._checks, strict=True)
        ]
        with self._lock:
            return self._call.run(arrays)

    __call__ = execute

    def __repr__(self) -> str:
        takes = ", ".join(str(t) for t in self._ir.inputs)
        gives = ", ".join(str(t) for t in self._ir.output_types)
        return f"Model({self._ir.name!r}: ({takes}) -> ({gives}))"


def _spec(name: str, type: TensorType) -> TensorSpec:
    shape = tuple(int(d) if isinstance(d, StaticDim) else str(d) for d in type.shape)
    return TensorSpec(name, type.dtype, shape, type.device)


class _InputCheck:
    """Turns what a caller passes into an array of the right dtype, or says what is wrong."""

    def __init__(self, position: int, type: TensorType) -> None:
        self.name = f"input{position}"
        self.type = type
        self.dtype = type.dtype.to_numpy()

    def array(self, value: Any) -> np.ndarray[Any, Any]:
        if isinstance(value, Buffer):
            found = value.to_numpy()
        elif isinstance(value, np.ndarray):
            found = value
        elif isinstance(value, np.generic) or (isinstance(value, bool | int | float) and self.type.rank == 0):
            found = np.asarray(value, None if isinstance(value, np.generic) else self.dtype)
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


class _Call:
    """The memory of a model's calls, and the native call itself."""

    def __init__(self, ir: GraphIR, code: LoadedCode) -> None:
        self.ir = ir
        self.code = code
        self.device = CPU()
        plan = code.plan
        self.pointers = (ctypes.c_void_p * max(1, len(plan.buffers)))()
        self.dims = (ctypes.c_int64 * max(1, len(plan.slots)))()
        self.pointers_at = ctypes.addressof(self.pointers)
        self.dims_at = ctypes.addressof(self.dims)
        self.input_at = [n for n, b in enumerate(plan.buffers) if b.source[0] == "input"]
        self.output_at = [(n, b.source[1]) for n, b in enumerate(plan.buffers) if b.source[0] == "output"]
        self.dtypes = [t.dtype for t in ir.output_types]
        self.output_dtypes = [dtype.to_numpy() for dtype in self.dtypes]
        self.constants = self._constants()
        self.shapes: list[tuple[int, ...]] | None = None
        self.output_shapes: list[tuple[int, ...]] = []
        self.arena: np.ndarray[Any, Any] | None = None
        self.failure: tuple[Report, str] | None = None
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
                kept.append(node.array)
                self.pointers[number] = node.array.ctypes.data
        return kept

    def run(self, arrays: list[np.ndarray[Any, Any]]) -> list[Buffer]:
        """One call. The arrays have the right dtypes and are contiguous."""
        shapes = [array.shape for array in arrays]
        if shapes != self.shapes:
            self._fit(shapes)
        pointers = self.pointers
        for position, array in zip(self.input_at, arrays, strict=True):
            pointers[position] = address_of(array)
        outputs = [np.empty(s, d) for s, d in zip(self.output_shapes, self.output_dtypes, strict=True)]
        for position, output in self.output_at:
            pointers[position] = address_of(outputs[output])
        if self.code.entry(self.context_at, self.pointers_at, self.dims_at) or self.context.status:
            self._fail()
        for output, buffer in self.code.plan.copies:
            kind, number = self.code.plan.buffers[buffer].source
            if kind == "input":
                outputs[output][...] = arrays[number]
            elif kind == "output":
                outputs[output][...] = outputs[number]
            else:
                node = self.ir.nodes[number]
                assert isinstance(node, Constant)
                outputs[output][...] = node.array
        wrap, device = Buffer._wrap, self.device
        return [wrap(array, device, dtype) for array, dtype in zip(outputs, self.dtypes, strict=True)]

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
        for number, dim in enumerate(plan.slots):
            self.dims[number] = dim.evaluate(sizes)
        self.output_shapes = [tuple(d.evaluate(sizes) for d in t.shape) for t in self.ir.output_types]
        offsets, total = plan.place(sizes)
        self.arena = np.empty(total + 64, np.uint8)
        base = -(-self.arena.ctypes.data // 64) * 64
        for number, offset in offsets.items():
            self.pointers[number] = base + offset
        self.shapes = shapes

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
        type: TensorType,
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

    def _shape_error(self, name: str, type: TensorType, shape: tuple[int, ...], what: str) -> GraphError:
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
            text = _render(report, arguments)
            if report.kind == "print":
                sys.stdout.write(text)
                sys.stdout.flush()
            elif self.failure is None:
                self.failure = (report, text)
        except Exception as error:  # an exception cannot cross native code
            sys.stderr.write(f"einkorn: a report could not be shown: {error!r}\n")

    def _fail(self) -> None:
        """Raises what a kernel reported."""
        self.context.status = 0
        failure, self.failure = self.failure, None
        if failure is None:
            raise KernelError("a kernel failed without saying why", code="EK0702", place=user_place())
        report, text = failure
        what = "assertion failed" if report.kind == "assert" else report.kind
        raise KernelError(
            f"{what} in op '{report.op}'{': ' + text if text else ''}",
            code="EK0701",
            place=report.place,
            op=report.op,
            notes=[f"graph '{self.ir.name}' was called at {user_place()}"],
        )


def _render(report: Report, arguments: Any) -> str:
    """The text of a report: its parts, with the values read from their bit patterns."""
    out = []
    position = 0
    for part in report.parts:
        if isinstance(part, str):
            out.append(part)
            continue
        spec, dtype = part
        bits = arguments[position]
        position += 1
        out.append(format(_number(bits, DType[dtype]), spec))
    return "".join(out)


def _number(bits: int, dtype: DType) -> bool | int | float:
    if dtype.is_float():
        value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
        # A float32 shows its own digits, not those of the double that carries it.
        return float(str(np.float32(value))) if dtype is DType.float32 else value
    if dtype is DType.bool:
        return bool(bits)
    return bits % (1 << 64) if dtype is DType.uint64 else bits
