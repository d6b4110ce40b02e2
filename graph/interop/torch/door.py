"""Serves ops of PyTorch by generated kernels: tensors on the host go to loaded code with no step in Python.

The first call of a kind goes by Python, which makes a door for it and enters it in the index of the op's kernel of the
dispatcher; kinds are distinguished by dtypes, ranks, layouts and parameters, and there may be any number of them.
Another kernel serves the dispatcher's key of autograd, so that ops with derivatives, and those that write in place,
cost no more as long as no derivative is needed. What has no door comes back to Python. Where libtorch lacks a
function that is needed, or no doors can be made, everything goes by Python, with the same results.

See also `python_fallback` (what Python does), `compiler.doors.torch` (the text of a door).
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from ....dsl.contract import doors as contract
from ....dsl.contract.doors import DISPATCH_WORDS, DoorSpec, TorchForm, hash_of
from ....dsl.diagnostics.errors import EinkornError
from ....dsl.diagnostics.forks import fork_lock
from ....dsl.environment.tracebacks import bare
from ....dsl.signature.schema import Form, OpSchema, Role, TensorArgument
from ....dsl.types.dtype import DType
from ...calling.call import Caller
from ...calling.doors import DoorOwner, door_spec, entry_words, load_door
from ...driver.python_api import address_of_function
from ...driver.shared_library import SharedLibrary
from ...driver.stacks import STACKS_ADDRESS, mark_thread
from ...loading.background import BACKGROUND
from ...types.strides import Pattern, pattern_of_strides
from ..arranged import Order
from ..explained import named
from ..specialise import Specialisation
from ..spread import joint_inputs
from ..tuned import Bounds
from .libtorch import Libtorch, libtorch
from .python_fallback import Arguments
from .schema import SCALAR_TYPES, number_type
from .tensors import DTYPES, TORCH_DTYPES, flat

_DTYPE_OF: Final = {number: TORCH_DTYPES[dtype] for dtype, number in SCALAR_TYPES.items() if dtype in TORCH_DTYPES}
_MASKS: Final = {"bool": 0xFF, "dtype": 0xFFFFFFFF}  # what counts of a word of the stack
_ALL: Final = (1 << 64) - 1
# What a parameter is on the stack, by its kind.
_ON_STACK: Final = {
    **dict.fromkeys(("int", "float", "bool", "dtype"), contract.STACK_PARAMETER),
    "str": contract.STACK_TEXT,
    "ints": contract.STACK_INTEGERS,
}

Key = tuple[int, ...]

# *** what fails ***

_failed = threading.local()
_SlowFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
_FailFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def _noted(error: BaseException) -> int:
    """The address of what a kernel throws: its text, its type and itself. Kept until this thread fails again."""
    error = bare(error) if isinstance(error, EinkornError) else error
    text = ctypes.create_string_buffer(str(error).encode())
    words = (ctypes.c_uint64 * 3)(ctypes.addressof(text), id(type(error)), id(error))
    _failed.kept = words, text, error
    return ctypes.addressof(words)


# *** the code of kernels ***

_lock = fork_lock()
_free: list[tuple[SharedLibrary, int]] = []  # kernels that stand for no op yet
_errors: list[object] = []  # for ever: the tables of functions of exceptions


def _kernel() -> tuple[SharedLibrary, int] | None:
    """The code of a kernel that stands for no op yet, by its number in a library; None where none can be made."""
    with _lock:
        if not _free:
            library = load_door("torch kernels", DoorSpec((), (), (), ()), own=True)
            if library is None:
                return None
            _free.extend((library, number) for number in reversed(range(contract.KERNELS)))
        return _free.pop()


class Doors:
    """The doors of one op, and the kernels of the dispatcher that find them.

    Args:
        name: the op's, with its namespace.
        schema: what it takes.
        into: whether its outputs are given.
        serve: what Python does for a call: it gets tensors and parameters, and gives tensors.
        derive: the same where autograd comes first; None where that is no matter of the doors.
        numbers: as what numbers are passed, by the names of inputs, where the schema leaves it open.
    """

    def __init__(
        self,
        name: str,
        schema: OpSchema,
        into: bool,
        serve: Callable[..., object],
        derive: Callable[..., object] | None = None,
        numbers: Mapping[str, str] | None = None,
    ) -> None:
        self.numbers = numbers or {}
        self.name, self.into, self._serve, self._derive = name, into, serve, derive
        self.guarded = False  # whether the kernel for the host checks for derivatives, since nothing before it does
        self.known: set[Any] = set()
        self._entered: list[tuple[Key, int]] = []  # the address of each record; several of a key are tried in turn
        self._kept: list[Any] = []  # for ever: the dispatcher, and calls under way, know their addresses
        self._libraries: list[ctypes.c_void_p] = []
        self._table: Any = None
        self._index: Any = None
        self._thread: Any = None
        self._lock = fork_lock()
        self.renew(schema)

    def renew(self, schema: OpSchema) -> None:
        """Ends that calls go through the doors there are: the kernel is another one, with this signature."""
        with self._lock:
            self.schema, self.known, self._entered, self._index = schema, set(), [], None
            if self._table is not None:
                self._table[DISPATCH_WORDS.index("index")] = ctypes.addressof(_EMPTY)
        self.arguments = schema.tensors if self.into else schema.inputs
        self.possible = (
            bool(self.arguments)
            and all(a.form is not Form.SCALAR or self._number(schema, a) != "Scalar" for a in self.arguments)
            and all(parameter.kind in _ON_STACK and _is_written(parameter.default) for parameter in schema.parameters)
        )

    def _number(self, schema: OpSchema, argument: TensorArgument) -> str:
        """As what a number is passed."""
        return self.numbers.get(argument.name) or number_type(schema, argument)

    # *** registering ***

    def close(self) -> None:
        """Takes the kernels away from the dispatcher; the next call of a kind brings them back."""
        self.renew(self.schema)
        with self._lock:
            torch_ = libtorch()
            if torch_ is not None:
                for library in self._libraries:
                    torch_.end(library)
            self._libraries, self._table = [], None

    def open(self, call: Arguments, values: Sequence[object]) -> None:
        """Lets later calls of this kind go through a door, if they can: it is compiled in the background.

        Args:
            call: a call that was served.
            values: its tensors and numbers, in the order of the op's schema.
        """
        special, order = call.special, call.order
        if not self.possible or special is None or not special.is_loaded or libtorch() is None:
            return
        key = self._key(call.parameters, values)
        kind = key, special, call.bounds, order
        if key is None or kind in self.known or not special.model.code.device.is_host:
            return
        with self._lock:
            if kind in self.known:
                return
            self.known.add(kind)
        pairs = list(zip(self.arguments, values, strict=True))
        inputs = flat([value for argument, value in pairs if argument.role is not Role.OUTPUT])
        joint = joint_inputs(special.schema) if order else ()
        lying = [value.permute(order) if k in joint else value for k, value in enumerate(inputs)]
        patterns = tuple(_pattern(value) if isinstance(value, torch.Tensor) else None for value in lying)
        form = _form(pairs, self.schema, special, order)
        if form is not None:
            BACKGROUND.submit(functools.partial(self._open, kind, patterns, form))

    def _open(self, kind: Any, patterns: tuple[Pattern, ...], form: TorchForm) -> None:
        with self._lock:
            if kind in self.known:  # it was not closed meanwhile
                key, special, bounds, order = kind
                self._open_now(key, special, bounds, order, patterns, form)

    def _open_now(
        self,
        key: Key,
        special: Specialisation,
        bounds: Bounds,
        order: Order,
        patterns: tuple[Pattern, ...],
        form: TorchForm,
    ) -> None:
        joint = joint_inputs(special.schema) if order else ()
        ranks = [len(order) if k in joint else 0 for k in range(len(patterns))]
        inputs = special.schema.inputs
        scalars = [self._number(special.schema, a) if a.form is Form.SCALAR else "" for a in inputs]
        caller = _caller_for(special.model.first_caller, patterns)
        spec = door_spec(caller, scalars, order, ranks, bounds, apart=True, late=True)
        made = None if spec is None else self._door(special, caller, spec, form)
        if made is None or not self._register():
            return
        code, table = made
        record = (ctypes.c_uint64 * (4 + len(key)))(hash_of(key), len(key), code, ctypes.addressof(table), *key)
        self._kept += [table, record]
        self._enter(key, ctypes.addressof(record))

    def _enter(self, key: Key, address: int) -> None:
        """Writes an address into the index, or into a larger one. Calls under way read one or the other."""
        if self._index is None or 2 * len(self._entered) >= self._index[0]:
            places = 8 if self._index is None else 2 * (self._index[0] + 1)
            index = (ctypes.c_uint64 * (places + 1))(places - 1)
            for each, entry in self._entered:
                _put(index, each, entry)
            self._index = index
            self._kept.append(index)
        _put(self._index, key, address)
        self._entered.append((key, address))
        self._table[DISPATCH_WORDS.index("index")] = ctypes.addressof(self._index)

    def _register(self) -> bool:
        """Puts kernels before Python; whether there are any."""
        if self._table is not None:
            return True
        torch_, dispatcher = libtorch(), _kernel()
        if torch_ is None or dispatcher is None:
            return False
        library, number = dispatcher
        kinds, masks = self._layout()
        slow, gate = (
            _SlowFunction(functools.partial(self._on_slow, f)) for f in (self._serve, self._derive or self._serve)
        )
        destroy, what = library.address("ek_destroy"), library.address("ek_what")
        functions = (ctypes.c_uint64 * 5)(0, torch_.words["error_kind"], destroy, destroy, what)
        words = torch_.words | {"index": ctypes.addressof(_EMPTY), "room": STACKS_ADDRESS}
        words |= {"kinds": ctypes.addressof(kinds), "masks": ctypes.addressof(masks)}
        words |= {"slow": address_of_function(slow), "slow_gate": address_of_function(gate)}
        words |= {"error_table": ctypes.addressof(functions) + 16, "destroy_error": destroy}
        self._table = (ctypes.c_uint64 * len(DISPATCH_WORDS))(*(words[word] & _ALL for word in DISPATCH_WORDS))
        self._kept += [library, kinds, masks, slow, gate, functions, self._table]
        _errors.append((library, functions, self._table))
        self._thread = ctypes.CFUNCTYPE(ctypes.c_size_t)(library.address("ek_thread"))
        ctypes.c_void_p.from_address(library.address("ek_table")).value = ctypes.addressof(self._table)
        tables = (ctypes.c_uint64 * contract.KERNELS).from_address(library.address("ek_tables"))
        tables[number] = ctypes.addressof(self._table)
        self._add(torch_, b"CPU", library.address(f"ek_{'gate' if self.guarded else 'kernel'}{number}"))
        if self._derive is not None:
            self._add(torch_, b"AutogradCPU", library.address(f"ek_gate{number}"))
        return True

    def _add(self, torch_: Libtorch, key: bytes, address: int) -> None:
        namespace, _, name = self.name.partition("::")
        library = ctypes.c_void_p()
        torch_.start(namespace.encode(), key, b"einkorn", 0, ctypes.byref(library))
        torch_.add(library, name.encode(), address)
        self._libraries.append(library)
        packet = getattr(getattr(torch.ops, namespace), name, None)
        if packet is not None:  # else the op was dropped while this was compiled
            packet.default._dispatch_cache.clear()

    def _layout(self) -> tuple[Any, Any]:
        """What the dispatcher's stack holds, word by word: which kind of value, and what counts of a number."""
        kinds, masks = [], []
        for argument in self.arguments:
            of_form = {Form.SCALAR: contract.STACK_NUMBER, Form.VARIADIC: contract.STACK_LIST}
            kinds.append(of_form.get(argument.form, contract.STACK_TENSOR))
            masks.append(_ALL)
        for parameter in self.schema.parameters:
            kinds.append(_ON_STACK[parameter.kind])
            masks.append(_MASKS.get(parameter.kind, _ALL))
        return (ctypes.c_uint8 * len(kinds))(*kinds), (ctypes.c_uint64 * len(masks))(*masks)

    # *** a door ***

    def _door(self, special: Specialisation, caller: Caller, spec: DoorSpec, form: TorchForm) -> tuple[int, Any] | None:
        """The code of a door, and its table."""
        torch_, library = libtorch(), load_door("torch", spec, form)
        if library is None or torch_ is None:
            return None
        owner = DoorOwner(caller)

        def on_fail(context: int, status: int) -> int:
            error = owner.error(context, status)
            return _noted(named(error, special.schema) if isinstance(error, EinkornError) else error)

        fail = _FailFunction(on_fail)
        words = {**torch_.words, **entry_words(caller, owner), "fail": address_of_function(fail)}
        words |= {f"output{k}": SCALAR_TYPES[output.dtype] for k, output in enumerate(spec.outputs)}
        for number, (kind, k) in enumerate(spec.pointers):
            if kind == "constant":
                words[f"constant{k}"] = caller.memory.pointers[number] or 0
        names = form.words(spec)
        table = (ctypes.c_uint64 * len(names))(*(words[word] & _ALL for word in names))
        self._kept += [library, owner, fail, special, caller]
        return library.address("ek_door"), table

    def _key(self, parameters: Mapping[str, object], values: Sequence[object]) -> Key | None:
        """The key of a call as kernels make it; None where there is none."""
        words: list[int] = []
        for value in values:
            if isinstance(value, list | tuple):
                words.append(len(value))
            for each in flat([value]):
                words += _words(each) if isinstance(each, torch.Tensor) else ()
        for parameter in self.schema.parameters:
            words += _words_of_parameter(parameters.get(parameter.name, parameter.default))  # not what tuning chose
        return None if -1 in words or len(words) >= 2 * contract.MOST_TENSORS else tuple(words)

    # *** what has no door ***

    def _on_slow(self, serve: Callable[..., Any], stack: int, count: int, results: int) -> int | None:
        """Called by a kernel, from any thread, for a call that it does not serve."""
        try:
            mark_thread(self._thread)
            words = (ctypes.c_uint64 * max(count, results, 1)).from_address(stack)
            torch_ = libtorch()
            assert torch_ is not None
            values: list[Any] = []
            for argument, word in zip(self.arguments, words, strict=False):
                if argument.form is Form.SCALAR:
                    values.append(_read(self._number(self.schema, argument), word))
                else:
                    values.append(torch_.take_list(word) if argument.form is Form.VARIADIC else torch_.take(word))
            rest = words[len(values) : count]
            pairs = zip(self.schema.parameters, rest, strict=True)
            outputs = serve(
                *values, **{parameter.name: _parameter(torch_, parameter.kind, word) for parameter, word in pairs}
            )
            if results:
                for k, each in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
                    words[k] = torch_.give_list(each) if isinstance(each, list) else torch_.give(each)
            return None
        except BaseException as error:  # an exception cannot cross native code
            return _noted(error)


_EMPTY: Final = (ctypes.c_uint64 * 2)()  # an index of nothing


def _put(index: Any, key: Key, address: int) -> None:
    """Writes an address into the first free place for its key."""
    place = hash_of(key) & index[0]
    while index[1 + place]:
        place = (place + 1) & index[0]
    index[1 + place] = address


def _caller_for(caller: Caller, patterns: tuple[Pattern, ...]) -> Caller:
    """The code for tensors that lie so."""
    return caller.variant(patterns) if any(patterns) else caller


def _pattern(tensor: torch.Tensor) -> Pattern:
    """How the axes of a tensor lie in memory; as `types.strides.pattern_of` for arrays."""
    if tensor.is_contiguous():
        return None
    return pattern_of_strides(tensor.stride(), 1)


_STRIDES: Final = {0: contract.AXIS_REPEATED, 1: contract.AXIS_NEIGHBOURS}


def _words(tensor: torch.Tensor) -> tuple[int, ...]:
    """The words of a tensor in a key; -1 for one that has no door."""
    if tensor.dtype not in DTYPES or DTYPES[tensor.dtype] not in SCALAR_TYPES:
        return (-1,)
    word = SCALAR_TYPES[DTYPES[tensor.dtype]] | tensor.dim() << contract.RANK_SHIFT
    if tensor.is_contiguous():
        return (word,)
    if tensor.dim() > contract.MOST_RANK:
        return (-1,)
    places, dense = 0, 1
    axes = [(-stride, axis) for axis, stride in enumerate(tensor.stride())]
    for stride, axis in axes:
        word |= _STRIDES.get(-stride, contract.AXIS_STEPS) << (contract.AXES_SHIFT + 2 * axis)
        places |= sum(other < (stride, axis) for other in axes) << (contract.PLACE_BITS * axis)
        reach = math.prod(tensor.shape[other[1]] for other in axes if other > (stride, axis))
        dense &= tensor.shape[axis] == 1 or -stride == reach
    return word, places | dense << contract.DENSE_SHIFT


def _words_of_parameter(value: Any) -> list[int]:
    """The words of a parameter in a key."""
    if isinstance(value, str):
        data = value.encode()
        return [len(data), *(int.from_bytes(data[k : k + 8], "little") for k in range(0, len(data), 8))]
    if isinstance(value, list | tuple):
        return [len(value), *(each & _ALL for each in value)]
    if isinstance(value, float):
        value = struct.unpack("<q", struct.pack("<d", value))[0]
    return [(SCALAR_TYPES[value] if isinstance(value, DType) else int(value)) & _ALL]


def _form(
    pairs: Sequence[tuple[TensorArgument, object]], schema: OpSchema, special: Specialisation, order: Order
) -> TorchForm | None:
    """How a door gets its tensors; None where Python has to look closer."""
    inputs: list[int] = []
    outputs: list[int] = []
    gaps: list[bool] = []
    place = 0
    for argument, value in pairs:
        for each in flat([value]):
            if argument.role is Role.OUTPUT:
                outputs.append(place)
                gaps.append(not (each.permute(order) if order else each).is_contiguous())
                if gaps[-1] and (special.mutable or 0 in each.stride()):
                    return None
            else:
                inputs.append(place)
            place += 1
    if outputs:
        return TorchForm(tuple(inputs), tuple(outputs), tuple(gaps))
    counts = dict(special.schema.counts)
    lists = tuple(counts[a.name] if a.form is Form.VARIADIC else -1 for a in schema.outputs)
    return TorchForm(lists=lists if any(count >= 0 for count in lists) else None)


def _is_written(default: object) -> bool:
    """Whether schemas can write a default: else they say None, which is not a number."""
    return not isinstance(default, float) or default - default == 0


def _parameter(torch_: Libtorch, kind: str, word: int) -> Any:
    """A parameter from the dispatcher's stack, which has it no longer."""
    if kind == "str":
        return torch_.take_text(word)
    return [_read("int", item) for item in torch_.take_items(word)] if kind == "ints" else _read(kind, word)


def _read(kind: str, word: int) -> Any:
    """A number from the dispatcher's stack."""
    if kind == "float":
        return struct.unpack("<d", struct.pack("<Q", word))[0]
    if kind == "bool":
        return bool(word & 0xFF)
    if kind == "dtype":
        number = word & 0xFFFFFFFF
        return _DTYPE_OF.get(number, f"dtype {number} of PyTorch's")
    return word - (1 << 64) if word >> 63 else word
