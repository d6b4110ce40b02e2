"""Describes doors: generated functions through which other programs call an entry, each in its own calling convention.

A door reads the tensors that it is passed as its caller keeps them, finds sizes, memory for outputs and a context, and
calls the entry; Python takes no part in it. What is not plain it hands on: to the next door, or to Python. So a
description is of the plain case alone: contiguous tensors (or views of one pattern), sizes that are known from the
inputs. It names no kernel and no address: one door serves all entries of the same form.

See also `compiler.doors`, `graph.calling.doors`.
"""

from __future__ import annotations

from ..diagnostics.dataclass import dataclass
from ..signature.dims import DimName, DimNumber, Expression, names_in
from ..types.dtype import DType
from . import abi

Axis = DimNumber | DimName
NUMPY_SCALAR = "numpy"  # as what a scalar of NumPy's is passed that has the dtype of the argument


@dataclass(frozen=True)
class DoorArgument:
    """A tensor that is passed.

    Attributes:
        axes: the size of each axis: a number, or a name; a name that comes again has to be equal.
        strides: of a view, in elements, as `axes`; a name binds it. None for row-major tensors without gaps.
        mutable: whether it is changed in place.
        scalar: "bool", "int" or "float" where it is passed as such a number of Python's; "number" for both of the last.
        places: for each axis which axis of the caller's tensor it is, -1 where the tensor lacks it and the size is 1;
            empty where the order is the caller's.
    """

    dtype: DType
    axes: tuple[Axis, ...]
    strides: tuple[Axis, ...] | None = None
    mutable: bool = False
    scalar: str = ""
    places: tuple[int, ...] = ()


@dataclass(frozen=True)
class DoorOutput:
    """A tensor that is given back, row-major: its size along each axis, of the names of the arguments.

    `places` says for each axis which axis of the caller's tensor it is; empty where the order is the same.
    """

    dtype: DType
    axes: tuple[Expression, ...]
    places: tuple[int, ...] = ()


@dataclass(frozen=True)
class DoorSpec:
    """What a door has to know of an entry.

    Attributes:
        arguments, outputs: in the order of the caller.
            slots: the sizes that the entry is passed.
        relations: pairs of sizes of which the first has to be at least the second, or equal where the third says so.
        small: up to how many elements, in the largest tensor, a call is not worth more than one thread.
        bounded: whether what is done for an element is bounded, so that a small call is a short one.
        temps: the sizes of each intermediate result that lies in memory.
        late: the names of the sizes that the first of two stages computes; empty where the entry has one stage.
    """

    arguments: tuple[DoorArgument, ...]
    outputs: tuple[DoorOutput, ...]
    pointers: tuple[tuple[str, int], ...]
    slots: tuple[Expression, ...]
    relations: tuple[tuple[Expression, Expression, bool], ...] = ()
    small: int = 0
    bounded: bool = False
    temps: tuple[tuple[Expression, ...], ...] = ()
    late: tuple[str, ...] = ()

    def is_late(self, *expressions: Expression) -> bool:
        """Whether one of these sizes is known only after the first stage."""
        return any(name.name in self.late for expression in expressions for name in names_in(expression))


# What a door finds in its table, words of 8 bytes: the entry and what its context says, the threads that have enough of
# a stack, and what its caller's own library offers. Behind these stands what a door of this form needs in addition.
ENTRY_WORDS = ("entry", "report", "owner", "pool", "parallel", "threads", "poll", "collectives", "room")
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
        "take_output",
        "fit_arena",
        "arenas",
    ),
)
LARGE_BYTES = 1 << 20  # from here on outputs take the memory of earlier ones again

# What a call of an entry with intermediate results takes from the list `arenas`, whose first word points to the first,
# and puts back: a record of words, the address of the next one, the bytes of its memory, the number of elements of each
# intermediate result, and the address of each. The list changes with Python's lock held alone, and has few records.
ARENA_BYTES, ARENA_COUNTS = 8, 16
MOST_ARENAS = 8

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
        out: whether `out=` may come next to them.
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
        words += [f"scalar{k}" for k, argument in enumerate(spec.arguments) if argument.scalar == NUMPY_SCALAR]
        for k in range(len(spec.outputs)):
            words += [f"output{k}", f"buffer_class{k}", f"buffer_of{k}"]
        words += [f"constant{k}" for kind, k in spec.pointers if kind == "constant"]
        for k in range(len(self.keywords)):
            words += [f"keyword{k}", f"value{k}", f"bits{k}"]
        return (*words, *variable_words(self.names, self.cells))


@dataclass(frozen=True)
class GetterForm:
    """How a function of Python's gives an object that holds for as long as variables are what they were.

    Attributes:
        names, cells: as of `PythonForm`.
    """

    names: int = 0
    cells: int = 0

    def words(self) -> tuple[str, ...]:
        """The names of the words of the table, in their order."""
        return ("lookup", "incref", "next", "next_self", "value", *variable_words(self.names, self.cells))


def variable_words(names: int, cells: int) -> list[str]:
    """The names of the words for variables that are compared with what they were."""
    words = [f"{word}{k}" for k in range(names) for word in ("module", "name", "found")]
    return words + [f"{word}{k}" for k in range(cells) for word in ("cell", "content")]


TORCH_WORDS = (
    *ENTRY_WORDS,
    *("fail", "holds_lock", "version"),
    *("data", "sizes", "strides", "empty", "copy", "delete", "new_list", "put_list"),
)


@dataclass(frozen=True)
class TorchForm:
    """How a door of PyTorch gets its tensors. All tensors of a call, those of lists one by one, and numbers that are
    passed at run time come as words in a row.

    Attributes:
        inputs: the position of each input among these words; None where they are the inputs in order.
        outputs: the position of each output that the caller gives; None where the door makes the outputs.
        gaps: of each output that is given, whether it is not row-major: it is copied to.
        lists: of each result, -1 for a tensor, or the length of a list; None where each output is a result.
    """

    inputs: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None
    gaps: tuple[bool, ...] = ()
    lists: tuple[int, ...] | None = None

    def words(self, spec: DoorSpec) -> tuple[str, ...]:
        """The names of the words of the table, in their order."""
        words = [*TORCH_WORDS]
        words += [f"output{k}" for k in range(len(spec.outputs))]
        words += [f"constant{k}" for kind, k in spec.pointers if kind == "constant"]
        return tuple(words)


# A kernel of PyTorch's dispatcher finds the door for a call by a key: a word for each number that is a compile-time
# parameter, the length of each text with its bytes in words, the length of each list with its integers, and a word for
# each tensor: its dtype, its rank, and two bits for the stride of
# each axis, unless it is row-major; then another word has the place of each axis in memory, and whether there are no
# gaps. The table says what the stack holds (`kinds`, with `masks` for numbers). `index` has how many places there are
# less one, and in each null or the address of a door's record, at the place that the hash of its key says or behind it.
# A record is the hash, the number of words of the key, the code of the door, its table, and the key.
DISPATCH_WORDS = (
    *("index", "kinds", "masks", "slow", "slow_gate", "room"),
    *("dtype", "rank", "contiguous", "sizes", "strides", "delete", "list_size", "list_item", "delete_list"),
    *("text_size", "text_data", "delete_text"),
    *("grad_mode", "requires_grad", "tangent", "undefined", "included", "keys_offset", "plain_keys"),
    *("mode0", "mode1", "mode2"),
    *("allocate_error", "error_table", "error_kind", "destroy_error", "throw", "lock", "unlock", "incref", "decref"),
)
STACK_TENSOR, STACK_LIST, STACK_PARAMETER, STACK_NUMBER, STACK_TEXT, STACK_INTEGERS = range(6)
HASH_FACTOR = 0x9E3779B97F4A7C15
MOST_TENSORS = 256  # of a call, those of lists one by one
MOST_RANK = 15  # of a tensor that is not row-major
KERNELS = 64  # of the dispatcher that one library has code for
RANK_SHIFT, AXES_SHIFT = 8, 16  # in the word of a tensor
AXIS_REPEATED, AXIS_NEIGHBOURS, AXIS_STEPS = 1, 2, 3  # the bits of an axis: stride 0, stride 1, others
PLACE_BITS, DENSE_SHIFT = 4, 63  # in the second word


def hash_of(key: tuple[int, ...]) -> int:
    """The hash of a key, as generated code computes it."""
    result = 0
    for word in key:
        result = (result ^ word) * HASH_FACTOR % (1 << 64)
        result ^= result >> 29
    return result
