"""Serves ops of PyTorch by generated kernels: contiguous tensors on the host go to loaded code with no step in Python.

The first call of a kind goes by Python, which makes a door for it and registers it with the dispatcher. Further kinds
get doors of their own, up to four, one behind the other; what none of them serves comes back to Python (`_slow`). Where
libtorch lacks a function that is needed, or no doors can be made, everything goes by Python, with the same results.

Input: a name of PyTorch's, the specialisations of its calls. Output: nothing that is seen, but for the time it takes.
Non-goals: what Python does (see `twin`), and the text of a door (see `compiler.codegen.doors.torch`).
"""

from __future__ import annotations

import ctypes
import functools
import logging
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from ....dsl.contract.doors import DoorSpec, TorchForm
from ....dsl.diagnostics.errors import EinkornError
from ....dsl.diagnostics.forks import fork_lock
from ....dsl.environment.tracebacks import bare
from ....dsl.signature.schema import Form, OpSchema
from ....dsl.types.dtype import DType
from ...driver.python_api import address_of, address_of_function, new_capsule, pointer_of_capsule
from ...driver.shared_library import SharedLibrary
from ...driver.stacks import mark_thread
from ...engine.doors import DoorOwner, door_spec, entry_words, load_door
from ..explained import named
from ..specialise import Specialisation
from .schema import SCALAR_TYPES

_log = logging.getLogger("einkorn.load")

MOST: Final = 4  # doors of an op
_DTYPES: Final = {number: dtype for dtype, number in SCALAR_TYPES.items()}
_KINDS: Final = frozenset(("int", "float", "bool", "dtype"))  # of parameters that come as numbers

_SHIM: Final = {
    "data": "aoti_torch_get_data_ptr",
    "sizes": "aoti_torch_get_sizes",
    "rank": "aoti_torch_get_dim",
    "dtype": "aoti_torch_get_dtype",
    "contiguous": "aoti_torch_is_contiguous",
    "empty": "aoti_torch_empty_strided",
    "delete": "aoti_torch_delete_tensor_object",
    "grad_mode": "aoti_torch_grad_mode_is_enabled",
    "requires_grad": "_ZNK3c1010TensorImpl13requires_gradEv",  # c10::TensorImpl::requires_grad() const
    "allocate_error": "__cxa_allocate_exception",
    "throw": "__cxa_throw",
}
_PYTHON: Final = {
    "holds_lock": "PyGILState_Check",
    "lock": "PyGILState_Ensure",
    "unlock": "PyGILState_Release",
    "incref": "Py_IncRef",
    "decref": "Py_DecRef",
}
# What describes a class of C++ with one base: that it is one, its name, its base. It is known by its name.
_CLASS: Final = ("_ZTVN10__cxxabiv120__si_class_type_infoE", "_ZTISt9exception")
_kept: list[Any] = []  # for ever: whatever doors throw is of it
_NAME: Final = ctypes.create_string_buffer(b"12python_error")
_REGISTER: Final = ("aoti_torch_library_init_impl", "aoti_torch_library_impl", "aoti_torch_delete_library_object")


class _Libtorch:
    """The functions of libtorch that doors call.

    Raises:
        OSError, AttributeError: one is not there.
    """

    def __init__(self) -> None:
        folder = Path(torch.__file__).parent / "lib"
        files = [ctypes.CDLL(str(folder / name)) for name in ("libtorch_cpu.so", "libc10.so")]
        self.words = {word: _address(files, symbol) for word, symbol in _SHIM.items()}
        self.words |= {word: address_of(symbol) for word, symbol in _PYTHON.items()}
        kind, base = (_address(files, symbol) for symbol in _CLASS)
        error_class = (ctypes.c_uint64 * 3)(kind + 16, ctypes.addressof(_NAME), base)
        self.words["error_kind"] = ctypes.addressof(error_class)
        _kept.append(error_class)
        self.start, self.add, self.end = (getattr(files[0], name) for name in _REGISTER)
        self.start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p]
        self.add.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.end.argtypes = [ctypes.c_void_p]
        self.take, self.give = (
            torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr,
            torch._C._aoti.unsafe_alloc_void_ptr_from_tensor,
        )


def _address(files: Sequence[ctypes.CDLL], symbol: str) -> int:
    for file in files:
        if hasattr(file, symbol):
            return address_of_function(getattr(file, symbol))
    raise AttributeError(symbol)


@functools.cache
def libtorch() -> _Libtorch | None:
    """The functions that doors need; None where one of them is not there."""
    try:
        return _Libtorch()
    except (OSError, AttributeError) as missing:
        _log.info("ops of PyTorch go by Python: %s", missing)
        return None


# *** what fails ***

_failed = threading.local()
_SlowFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
_FailFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def _noted(error: BaseException) -> int:
    """The address of what a door throws: its text, its type and itself. Kept until this thread fails again."""
    error = bare(error) if isinstance(error, EinkornError) else error
    text = ctypes.create_string_buffer(str(error).encode())
    words = (ctypes.c_uint64 * 3)(ctypes.addressof(text), id(type(error)), id(error))
    _failed.kept = words, text, error
    return ctypes.addressof(words)


class Doors:
    """The doors of one op.

    Args:
        name: the op's, with its namespace.
        schema: what it takes.
        serve: what Python does for a call: it gets tensors and parameters, and gives tensors.
    """

    def __init__(self, name: str, schema: OpSchema, serve: Callable[[list[Any], dict[str, Any]], Any]) -> None:
        self.name, self.schema, self._serve = name, schema, serve
        self.known: set[Specialisation] = set()
        self.gradients = False
        self._kept: list[Any] = []  # for ever: the dispatcher, and calls under way, know their addresses
        self._tables: list[Any] = []
        self._library = ctypes.c_void_p()
        self._slow = _SlowFunction(self._on_slow)
        self._lock = fork_lock()
        self.possible = (
            bool(schema.inputs)
            and not (schema.variadic or schema.mutable or schema.late)
            and all(argument.form is Form.TENSOR for argument in schema.inputs)
            and all(parameter.kind in _KINDS and _is_written(parameter.default) for parameter in schema.parameters)
        )

    def close(self) -> None:
        """Ends that calls go through the doors there are: the kernel is another one."""
        with self._lock:
            torch_ = libtorch()
            if self._library and torch_ is not None:
                torch_.end(self._library)
            self._library, self._tables, self.known = ctypes.c_void_p(), [], set()

    def open(self, special: Specialisation) -> None:
        """Lets the next call of this kind go through a door, if it can."""
        if not self.possible or special in self.known or len(self._tables) >= MOST or not special.is_loaded:
            return
        with self._lock:
            torch_ = libtorch()
            if torch_ is None or special in self.known or not special.model._code.device.is_host:
                return
            self.known.add(special)
            self._open(special, torch_)

    def _open(self, special: Specialisation, torch_: _Libtorch) -> None:
        caller = special.model._call
        spec = door_spec(caller)
        if spec is None:
            return
        form = TorchForm(tuple(p.kind for p in self.schema.parameters), self.gradients)
        library = load_door("torch", spec, form, own=True)
        if library is None:
            return
        owner = DoorOwner(caller)

        def on_fail(context: int, status: int) -> int:
            error = owner.error(context, status)
            return _noted(named(error, special.schema) if isinstance(error, EinkornError) else error)

        fail = _FailFunction(on_fail)
        words = {**torch_.words, **entry_words(caller, owner), "next": 0}
        words |= {"slow": address_of_function(self._slow), "fail": address_of_function(fail)}
        destroy, what = library.address("ek_destroy"), library.address("ek_what")
        functions = (ctypes.c_uint64 * 5)(0, words["error_kind"], destroy, destroy, what)
        words |= {"error_table": ctypes.addressof(functions) + 16, "destroy_error": destroy}
        words |= self._values(special, spec)
        for number, (kind, k) in enumerate(spec.pointers):
            if kind == "constant":
                words[f"constant{k}"] = caller.pointers[number] or 0
        names = form.words(spec)
        table = (ctypes.c_uint64 * len(names))(*(words[word] & (1 << 64) - 1 for word in names))
        ctypes.c_void_p.from_address(library.address("ek_table")).value = ctypes.addressof(table)
        self._kept += [library, owner, fail, table, functions, special]
        self._mark = library
        if self._tables:
            self._tables[-1][names.index("next")] = library.address("ek_door")
        else:
            self._register(library.address("ek_door"), torch_)
        self._tables.append(table)

    def _values(self, special: Specialisation, spec: DoorSpec) -> dict[str, int]:
        words = {f"argument{k}": SCALAR_TYPES[a.dtype] for k, a in enumerate(spec.arguments)}
        words |= {f"output{k}": SCALAR_TYPES[o.dtype] for k, o in enumerate(spec.outputs)}
        for k, parameter in enumerate(self.schema.parameters):
            value = special.parameters[parameter.name]
            if isinstance(value, float):
                value = struct.unpack("<q", struct.pack("<d", value))[0]
            words[f"value{k}"] = SCALAR_TYPES[value] if isinstance(value, DType) else int(value)
        return words

    def _register(self, address: int, torch_: _Libtorch) -> None:
        namespace, _, name = self.name.partition("::")
        torch_.start(namespace.encode(), b"CPU", b"einkorn", 0, ctypes.byref(self._library))
        torch_.add(self._library, name.encode(), address)

    def _on_slow(self, stack: int, count: int, results: int) -> int | None:
        """Called by the last door, from any thread, for a call that none of them serves."""
        try:
            mark_thread(self._thread)
            words = (ctypes.c_uint64 * max(count, results, 1)).from_address(stack)
            torch_ = libtorch()
            assert torch_ is not None
            inputs = [torch_.take(new_capsule(words[k], None, None)) for k in range(len(self.schema.inputs))]
            parameters = {
                parameter.name: _read(parameter.kind, words[len(inputs) + k])
                for k, parameter in enumerate(self.schema.parameters)
            }
            found = self._serve(inputs, parameters)
            for k, tensor in enumerate(found if isinstance(found, tuple) else (found,)):
                words[k] = pointer_of_capsule(torch_.give(tensor), None)
            return None
        except BaseException as error:  # an exception cannot cross native code
            return _noted(error)

    def _thread(self) -> int:
        thread: SharedLibrary = self._mark
        return int(ctypes.CFUNCTYPE(ctypes.c_size_t)(thread.address("ek_thread"))())


def _is_written(default: Any) -> bool:
    """Whether schemas can write a default: else they say None, which is no number."""
    return not isinstance(default, float) or default - default == 0


def _read(kind: str, word: int) -> Any:
    """A parameter from the dispatcher's stack."""
    if kind == "float":
        return struct.unpack("<d", struct.pack("<Q", word))[0]
    if kind == "bool":
        return bool(word & 0xFF)
    if kind == "dtype":
        return _DTYPES.get(word & 0xFFFFFFFF)
    return word - (1 << 64) if word >> 63 else word
