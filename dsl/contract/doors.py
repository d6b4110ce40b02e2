"""Describes doors: generated functions through which other programs call an entry, each in its own calling convention.

A door reads the tensors that it is passed as its caller keeps them, finds sizes, memory for outputs and a context, and
calls the entry; Python takes no part in it. What is not plain it hands on: to the next door, or to Python. So a
description is of the plain case alone: contiguous tensors (or views of one pattern), sizes that are known from the
inputs. It names no kernel and no address: one door serves all entries of the same form.

Input: nothing. Output: frozen values that hash and compare by content. Non-goals: no text of a door (see
`compiler.codegen.doors`), no addresses (see `graph.engine.doors`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..signature.dims import Expression, Name, Number
from ..types.dtype import DType
from . import abi

Axis = Number | Name


@dataclass(frozen=True)
class DoorArgument:
    """A tensor that is passed.

    Attributes:
        axes: the size of each axis: a number, or a name; what is met again has to be equal.
        strides: of a view, in elements, as `axes`; a name binds it. None for row-major tensors without gaps.
        mutable: whether it is changed in place.
        scalar: "bool", "int" or "float" where it is passed as such a number of Python's; "number" for both of the last.
    """

    dtype: DType
    axes: tuple[Axis, ...]
    strides: tuple[Axis, ...] | None = None
    mutable: bool = False
    scalar: str = ""


@dataclass(frozen=True)
class DoorOutput:
    """A tensor that is given back, row-major: its size along each axis, of the names of the arguments."""

    dtype: DType
    axes: tuple[Expression, ...]


@dataclass(frozen=True)
class DoorSpec:
    """What a door has to know of an entry.

    Attributes:
        arguments, outputs: in the order of the caller.
        pointers: of each of the entry's pointers, where it comes from: ("input", k), ("output", k), ("constant", k).
        slots: the sizes that the entry is passed.
        relations: pairs of sizes of which the first has to be at least the second, or equal where the third says so.
        small: up to how many elements, in the largest tensor, a call is not worth more than one thread.
        bounded: whether what is done for an element is bounded, so that a small call is a short one.
    """

    arguments: tuple[DoorArgument, ...]
    outputs: tuple[DoorOutput, ...]
    pointers: tuple[tuple[str, int], ...]
    slots: tuple[Expression, ...]
    relations: tuple[tuple[Expression, Expression, bool], ...] = ()
    small: int = 0
    bounded: bool = False


# What a door finds in its table, words of 8 bytes: the entry and what its context says, the threads that have enough of
# a stack, and what its caller's own library offers. Behind these stands what a door of this form needs besides.
ENTRY_WORDS = ("entry", "report", "owner", "pool", "parallel", "threads", "poll", "room")
ROOM_BITS = 12
ROOMS = (
    1 << ROOM_BITS
)  # words that `room` points to: threads with enough stack, each at `room_of(its address)` or the neighbour
ROOM_FACTOR = 0x9E3779B97F4A7C15  # spreads addresses that differ by the size of a stack

PYTHON_WORDS = (
    *ENTRY_WORDS,
    *("incref", "decref", "release", "acquire", "call", "integer", "set_error", "lookup", "equal"),
    *("array_type", "allocate", "list", "tuple", "put_list", "put_tuple", "object", "none"),
    *("float_type", "int_type", "true", "false", "to_int"),
    *(
        "running",
        "next",
        "next_self",
        "fail",
        "out_name",
        "buffer_array",
        "buffer_dtype",
        "buffer_device",
        "device",
        "buffer_type",
    ),
)

# What a call leaves behind its context as long as it has given Python's lock back: the next such call of the table's
# list, and where the address of this one is written. `running` is the first of the list.
RUNNING_NEXT = abi.CONTEXT_SIZE
RUNNING_BACK = abi.CONTEXT_SIZE + 8
RUN_WORDS = abi.CONTEXT_SIZE // 8 + 2


def room_of(thread: int) -> int:
    """Where a thread stands among those with enough stack; or at the place that differs in the last bit."""
    return (thread * ROOM_FACTOR % (1 << 64)) >> (64 - ROOM_BITS)


@dataclass(frozen=True)
class PythonForm:
    """How a function of Python's calls an entry.

    Attributes:
        keywords: of each keyword that is a compile-time parameter, the type of its value.
        out: whether `out=` may come beside them.
        names: how many names of modules are compared with what they were.
        cells: how many variables of functions are.
        buffers: as what outputs are given: "" for an array, or a tuple of several; "list" for a list of buffers, which
            are also taken; "same" for a buffer, or a tuple of several, where the arguments `held` are buffers.
        held: which arguments have to be buffers.
    """

    keywords: tuple[str, ...] = ()
    out: bool = True
    names: int = 0
    cells: int = 0
    buffers: str = ""
    held: tuple[bool, ...] = ()

    def words(self, spec: DoorSpec) -> tuple[str, ...]:
        """The names of the words of the table, in their order."""
        words = [*PYTHON_WORDS]
        words += [f"argument{k}" for k in range(len(spec.arguments))]
        for k in range(len(spec.outputs)):
            words += [f"output{k}", f"buffer_class{k}", f"buffer_of{k}"]
        words += [f"constant{k}" for kind, k in spec.pointers if kind == "constant"]
        for k in range(len(self.keywords)):
            words += [f"keyword{k}", f"value{k}", f"bits{k}"]
        for k in range(self.names):
            words += [f"module{k}", f"name{k}", f"found{k}"]
        for k in range(self.cells):
            words += [f"cell{k}", f"content{k}"]
        return tuple(words)


TORCH_WORDS = (
    *ENTRY_WORDS,
    *("next", "slow", "fail", "holds_lock", "grad_mode", "requires_grad"),
    *("data", "sizes", "rank", "dtype", "contiguous", "empty", "delete"),
    *("allocate_error", "error_table", "error_kind", "destroy_error", "throw", "lock", "unlock", "incref", "decref"),
)


@dataclass(frozen=True)
class TorchForm:
    """How a kernel of PyTorch's dispatcher calls an entry.

    Attributes:
        parameters: the kind of each compile-time parameter, in the order of the schema.
        gradients: whether a tensor that requires a gradient may come, since something computes it.
    """

    parameters: tuple[str, ...] = ()
    gradients: bool = False

    def words(self, spec: DoorSpec) -> tuple[str, ...]:
        """The names of the words of the table, in their order."""
        words = [*TORCH_WORDS]
        words += [f"argument{k}" for k in range(len(spec.arguments))]
        words += [f"output{k}" for k in range(len(spec.outputs))]
        words += [f"constant{k}" for kind, k in spec.pointers if kind == "constant"]
        words += [f"value{k}" for k in range(len(self.parameters))]
        return tuple(words)
