"""Describes exports: files through which C programs call a graph, without Python and without a compiler.

An export holds the code of a graph, a door of C functions, and its weights. `ExportSpec` is what the door is written
from. The records that C programs see have their layout here, in numbers: the generated code, the header and the tests
read it.

See also `compiler.doors.c` (the functions), `compiler.doors.c_header` (the header), `graph.engine.export`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final

from ..diagnostics.dataclass import dataclass
from ..signature.dims import Expression
from ..types.dtype import DType
from . import abi

EXPORT_ABI: Final = 1  # of the descriptor and the functions

# Statuses of a call. `abi.INTERRUPTED` is -1 and `abi.NO_MEMORY` is -2; above 0 is 1 + the site of a failed check.
WRONG_ARGUMENT: Final = -3
WRONG_SIZE: Final = -4
WRONG_WORKSPACE: Final = -5
WRONG_MACHINE: Final = -6
SMALL_STACK: Final = -7
WRONG_WEIGHTS: Final = -8

ALIGNMENT: Final = 64  # bytes: of workspaces, weights and temporaries
FAILURE_VALUES: Final = 28

# What the door calls, apart from what kernels call, and the library that has it.
DOOR_CALLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("aligned_alloc", "free", "memcpy", "memmove", "memset", "snprintf", "strtod"), "libc.so.6"),
    **dict.fromkeys(
        ("strcmp", "strlen", "write", "syscall", "open", "close", "fstat", "mmap", "munmap", "lseek"), "libc.so.6"
    ),
    **dict.fromkeys(("memcmp", "bcmp", "dladdr", "clock_gettime", "sysconf", "getauxval", "getrlimit"), "libc.so.6"),
    **dict.fromkeys(
        (
            *(f"pthread_{name}" for name in ("create", "join", "self", "getattr_np", "getspecific", "setspecific")),
            *(f"pthread_attr_{name}" for name in ("init", "destroy", "setstacksize", "getstack")),
            *("pthread_key_create", "pthread_key_delete"),
        ),
        "libpthread.so.0",
    ),
}

PLAIN_STACK: Final = 64 << 10  # bytes that every thread is taken to have: calls that need more look whether there are


class ExportedFailure(ctypes.Structure):
    """`einkorn_failure`: why a call has failed. The caller owns it; 256 bytes.

    Fields:
        status: as the function returned it.
        argument: the number of the tensor that is wrong, inputs first, then outputs; else -1.
        axis: the axis of it; else -1.
        row: the row of the model's table of messages; else -1.
        expected, got: sizes, where the message compares two.
        values: what a failed check shows, as 64-bit patterns.
    """

    _fields_ = (
        ("status", ctypes.c_int32),
        ("argument", ctypes.c_int32),
        ("axis", ctypes.c_int32),
        ("row", ctypes.c_int32),
        ("expected", ctypes.c_int64),
        ("got", ctypes.c_int64),
        ("values", ctypes.c_int64 * FAILURE_VALUES),
    )


class ExportedTensor(ctypes.Structure):
    """`einkorn_tensor`: an input or an output of a model.

    Fields:
        name, dtype: as text.
        rank: the number of axes.
        flags: `CHANGED` of an input that the call changes, `LATE` of an output whose memory the call allocates.
        dims: the size of each axis as text: a number, or an expression over the names of the model's dims.
    """

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("flags", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.c_char_p)),
    )


CHANGED: Final = 1
LATE: Final = 2

CallFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
WorkspaceFunction = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
InFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
DescribeFunction = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


MODEL_FIELDS: Final = (
    ("size", ctypes.c_int64),
    ("abi", ctypes.c_int64),
    ("name", ctypes.c_char_p),
    ("target", ctypes.c_char_p),
    ("inputs", ctypes.c_int64),
    ("outputs", ctypes.c_int64),
    ("dims", ctypes.c_int64),
    ("late_dims", ctypes.c_int64),
    ("tensors", ctypes.POINTER(ExportedTensor)),
    ("dim_names", ctypes.POINTER(ctypes.c_char_p)),
    ("plan_bytes", ctypes.c_int64),
    ("stack_bytes", ctypes.c_int64),
    ("weights_bytes", ctypes.c_int64),
    ("workspace", WorkspaceFunction),
    ("prepare", CallFunction),
    ("run", InFunction),
    ("call_in", InFunction),
    ("call", CallFunction),
    ("describe", DescribeFunction),
    ("digest", ctypes.c_char_p),
)


class ModelRecord(ctypes.Structure):
    """`einkorn_model`: what a program can read of an exported model; a constant in the file.

    Fields:
        size: of this record in bytes; later versions append fields.
        abi: `EXPORT_ABI`.
        name, target: of the graph; what the code was made for.
        inputs, outputs: how many there are.
        dims: how many sizes a call is given; `late_dims` further ones are computed by the call.
        tensors: the inputs, then the outputs.
        dim_names: the names of the sizes, the computed ones last.
        plan_bytes: what `prepare` fills.
        stack_bytes: what a thread needs of a stack.
        weights_bytes: of all weights.
        workspace(sizes): bytes, or a status below 0; null where sizes are computed by the call.
        prepare(sizes, plan, failure), run(plan, tensors, workspace, failure): null there, too.
        call_in(sizes, tensors, workspace, failure): null there, too.
        call(sizes, tensors, failure): takes its own workspace. `tensors` are the addresses of all inputs and outputs;
            of an output that is late, where its address is written.
        describe(failure, text, room): the text of a failure.
        digest: of the code, the messages and the names, as hexadecimal text.
    """

    _fields_ = MODEL_FIELDS


# *** what a door is written from ***


@dataclass(frozen=True)
class Shown:
    """A value in a message.

    Attributes:
        value: its number among the values of the report; `GOT` and `EXPECTED` are those of the record.
        dtype: the dtype that its 64 bits hold.
        spec: the format, as Python writes it.
    """

    value: int
    dtype: DType
    spec: str = ""


GOT: Final = -1
EXPECTED: Final = -2


@dataclass(frozen=True)
class Message:
    """A row of the table of messages.

    Attributes:
        parts: texts and values, in their order.
        status: what a call returns; 0 of a print.
        argument, axis: the tensor and the axis that are wrong; else -1.
        values: how many values a report of this row brings.
    """

    parts: tuple[str | Shown, ...]
    status: int
    argument: int = -1
    axis: int = -1
    values: int = 0


@dataclass(frozen=True)
class ExportTensor:
    """An input or an output: its name in C, its sizes, and from which stage on these are known."""

    name: str
    dtype: DType
    axes: tuple[Expression, ...]
    changed: bool = False
    stage: int = 0


@dataclass(frozen=True)
class ExportTemporary:
    """A temporary: the number of its pointer, its sizes, the groups between which it lives, the stage that has it, and
    where it lies in its arena, if that does not depend on the sizes of a call."""

    pointer: int
    dtype: DType
    axes: tuple[Expression, ...]
    first: int
    last: int
    stage: int = 0
    offset: int | None = None


@dataclass(frozen=True)
class SizeRelation:
    """A condition on two sizes, with the row of its message. `kind` is "equal", "at_least" or "broadcast"."""

    kind: str
    left: Expression
    right: Expression
    row: int
    stage: int = 0


@dataclass(frozen=True)
class SizeLimit:
    """That a tensor has no more bytes than 63 bits count; an axis of size 0 counts as 1. `fixed` is the product of the
    bytes of an element and the known sizes."""

    axes: tuple[Expression, ...]
    fixed: int
    row: int
    stage: int = 0


@dataclass(frozen=True)
class ExportWeight:
    """A constant or weight: its name, and the number of its elements' bytes."""

    name: str
    bytes: int


@dataclass(frozen=True)
class GivenWeight:
    """A weight that is not in the file of the code: its name, what its address is a multiple of, and where it begins in
    the file of weights, if there is one."""

    name: str
    alignment: int
    bytes: int
    offset: int = 0


@dataclass(frozen=True)
class WeightsFile:
    """A file of weights: how many bytes it has, and what it begins with."""

    size: int
    head: bytes


@dataclass(frozen=True)
class ExportSpec:
    """What the door of an exported graph has to know of it.

    Attributes:
        name: begins every symbol.
        title: the name of the graph.
        target: what the code is made for.
        dims: the names in C of the sizes that a call is given.
        late: for each step, the names of the sizes that it computes.
        inputs, outputs: in the order of the graph.
        pointers: of each pointer of the entry its kind and number: ("input", k), ("output", k), ("weight", k),
            ("given", k), ("temp", k), ("sizes", k) or ("empty", 0).
        slots: the sizes that the entry is passed, each with its stage.
        checks: conditions, in the order in which they are looked at.
        temps: the temporaries.
        copies: outputs that are copies of a buffer: (output, pointer).
        weights: what the pointers of this kind are.
        given, file: weights that are not in the file of the code, and the file that has them; None where the program
            gives them.
        messages: the table of messages: a row for each site of the code, then those of the door.
        rows: the first row of messages of the door by kind; see `graph.engine.export`.
        small: up to how many elements, in the largest tensor, a call is done by one thread.
        stack: bytes of a stack that a call needs.
        threads: whether calls use the pool of the file, or that of the host.
        digest: of all of it.
        branches: whether the entry has branches or loops, which exchange pointers in its array of them.
    """

    name: str
    title: str
    target: str
    dims: tuple[str, ...]
    late: tuple[tuple[str, ...], ...]
    inputs: tuple[ExportTensor, ...]
    outputs: tuple[ExportTensor, ...]
    pointers: tuple[tuple[str, int], ...]
    slots: tuple[tuple[Expression, int], ...]
    checks: tuple[SizeRelation | SizeLimit, ...]
    temps: tuple[ExportTemporary, ...]
    copies: tuple[tuple[int, int], ...]
    weights: tuple[ExportWeight, ...]
    messages: tuple[Message, ...]
    rows: tuple[tuple[str, int], ...]
    small: int = 0
    stack: int = 0
    threads: bool = True
    digest: str = ""
    given: tuple[GivenWeight, ...] = ()
    file: WeightsFile | None = None
    branches: bool = False

    @property
    def tensors(self) -> tuple[ExportTensor, ...]:
        """The inputs, then the outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def late_names(self) -> tuple[str, ...]:
        """The names of all sizes that the call computes."""
        return tuple(name for names in self.late for name in names)

    @property
    def stages(self) -> int:
        """How often the entry is called."""
        return len(self.late) + 1

    @property
    def prints(self) -> bool:
        """Whether a kernel prints."""
        return any(message.status == 0 for message in self.messages)

    @property
    def reports(self) -> bool:
        """Whether a kernel fails or prints: such sites come first in the table of messages."""
        return any(message.status >= 0 for message in self.messages)

    @property
    def looks_at_stacks(self) -> bool:
        """Whether a call looks how much of its thread's stack is left."""
        return self.stack > PLAIN_STACK

    def row(self, kind: str) -> int:
        """The first row of messages of a kind."""
        return dict(self.rows)[kind]


NO_MEMORY: Final = abi.NO_MEMORY
