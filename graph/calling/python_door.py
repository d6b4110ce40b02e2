"""Makes functions of CPython's that call loaded code: arrays in, arrays out, with no Python in between.

    function = python_door(caller, "add_one", then)        a built-in function; None where there are no doors
    function(x)                                            where it cannot, it calls `then` with all it was passed

Such a function relies on the memory layout of arrays and objects. A probe reads it at the first use, through
generated code, and compares it with what is known; where anything is otherwise (PyPy, debug builds, builds without the
global lock, another NumPy) there are no such doors. A table is never changed, but for its lists of running calls and of
arenas: a call that is under way may read it. So a function is replaced, not altered, and holds all that it needs.

See also `graph.interop.fast_path` and `engine.model` (when one is made, and where it is put).
"""

from __future__ import annotations

import ctypes
import functools
import logging
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Final

import numpy as np

from ...dsl.contract.doors import NUMPY_SCALAR, PYTHON_WORDS, RUNNING_NEXT, DoorSpec, GetterForm, PythonForm
from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.environment.tracebacks import bare
from ..driver.buffer import Buffer
from ..driver.device_buffer import buffer_class
from ..driver.python_api import address_of, new_function, pointer_of_capsule
from ..driver.shared_library import SharedLibrary
from ..driver.stacks import mark_thread
from ..types.dims import Dim
from ..types.strides import Pattern, pattern_of, whole
from ..types.tensor_type import ShapedType
from .call import Caller
from .door_memory import Arenas, LargeOutputs
from .doors import DoorOwner, door_spec, entry_words, load_door

_log = logging.getLogger("einkorn.load")

FLAGS: Final = 3  # METH_VARARGS | METH_KEYWORDS
ONE: Final = 8  # METH_O
ALLOCATE: Final = 94  # PyArray_NewFromDescr, in NumPy's table of functions
OBJECT: Final = 16  # bytes of the header of an object
ABSENT: Final = object()
RUNNING: Final = PYTHON_WORDS.index("running")

_FUNCTIONS: Final = {
    "incref": "Py_IncRef",
    "decref": "Py_DecRef",
    "release": "PyEval_SaveThread",
    "acquire": "PyEval_RestoreThread",
    "call": "PyObject_Vectorcall",
    "integer": "PyLong_FromLongLong",
    "set_error": "PyErr_SetObject",
    "lookup": "PyDict_GetItemWithError",
    "equal": "PyObject_RichCompareBool",
    "list": "PyList_New",
    "tuple": "PyTuple_New",
    "put_list": "PyList_SetItem",
    "put_tuple": "PyTuple_SetItem",
    "object": "PyType_GenericAlloc",
    "to_int": "PyLong_AsLongLongAndOverflow",
}
_OBJECTS: Final = {"none": None, "float_type": float, "int_type": int, "true": True, "false": False, "out_name": "out"}


class DoorTable(np.ndarray[Any, Any]):
    """The table of a door, an array of words: what its function gets as `self`."""

    keep: tuple[Any, ...]  # all that its words are addresses of
    address: int  # of the function's code
    owner: DoorOwner
    form: PythonForm

    def cancel(self, error: Callable[[], BaseException]) -> None:
        """Ends the calls that run in other threads; each raises an error of its own."""
        at = int(self[RUNNING])
        while at:
            self.owner.on_interrupt(at - RUNNING_NEXT, error())
            at = ctypes.c_size_t.from_address(at).value


class _Method(ctypes.Structure):
    """A function, as CPython describes it (`PyMethodDef`)."""

    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def python_door(
    caller: Caller,
    name: str,
    then: Callable[..., Any],
    *,
    scalars: Sequence[str] = (),
    keywords: Mapping[str, Any] | None = None,
    names: Sequence[tuple[Mapping[Any, Any], Any, Any]] = (),
    cells: Sequence[tuple[object, object]] = (),
    buffers: str = "",
    held: Sequence[bool] = (),
    out: bool = True,
    order: Sequence[int] = (),
    ranks: Sequence[int] = (),
    bounds: Sequence[tuple[Dim, int, int]] = (),
    explain: Callable[[EinkornError], EinkornError] | None = None,
) -> Any:
    """A function that calls the code of a caller, or None where there can be none.

    Args:
        caller: whose code; it is kept, and not changed.
        name: what the function is called.
        then: what is called instead where the door does not serve: arguments of another kind, views.
        scalars: the type of each argument that is a number of Python's, by its name; "" for arrays.
        keywords: compile-time parameters that are passed by name, with the values that the code is for.
        names: (dict, name, value) of each variable of a module that the kernel has read; another value is a miss.
            `ABSENT` stands for none.
        cells: (cell, value) of each variable of a function; or a function and its code.
        buffers, held: as what outputs are given, and which arguments have to be buffers; see `PythonForm`.
        out: whether `out=` may give the memory for a single output.
        order, ranks, bounds: as of `door_spec`.
        explain: makes of the error of a call the one that is raised.
    """
    if not python_works():
        return None
    spec = door_spec(caller, scalars, order, ranks, bounds, arena=True, late=True)
    if spec is None:
        return None
    kinds = tuple(type(value).__name__ for value in (keywords or {}).values())
    single = len(spec.outputs) == 1 and not any(a.strides is not None for a in spec.arguments)
    form = PythonForm(kinds, out and single and not buffers, len(names), len(cells), buffers, tuple(held))
    library = load_door("python", spec, form)
    if library is None:
        return None
    owner = DoorOwner(caller)
    last = then if isinstance(getattr(then, "__self__", None), DoorTable) else _Last(then)
    fail = functools.partial(_failed, owner, explain)
    called = {"fail": fail, "take_output": LargeOutputs(caller, spec).take, "fit_arena": Arenas(caller).fit}
    words = {**_api(), **entry_words(caller, owner), **_next(last), "running": 0, "arenas": 0}
    words |= {word: id(function) for word, function in called.items()}
    kept: list[Any] = [caller, owner, library, last, called]
    _add_values(words, kept, caller, spec)
    for k, (word, value) in enumerate((keywords or {}).items()):
        kept += [(interned := sys.intern(word)), value]
        bits = struct.unpack("<q", struct.pack("<d", value))[0] if type(value) is float else 0
        words |= {f"keyword{k}": id(interned), f"value{k}": id(value), f"bits{k}": bits}
    _add_variables(words, kept, names, cells)
    table = np.array([words[word] & MASK for word in form.words(spec)], np.uint64).view(DoorTable)
    table.address, table.form, table.owner = library.address("ek_door"), form, owner
    return _function(name, table.address, table, kept)


def python_getter(
    name: str,
    value: object,
    then: Callable[..., Any],
    names: Sequence[tuple[Mapping[Any, Any], Any, Any]],
    cells: Sequence[tuple[object, object]],
) -> Any:
    """A function of one argument that gives `value` for as long as variables are what they were, and calls `then` with
    its argument afterwards; None where there can be none. `names` and `cells` as of `python_door`.
    """
    form = GetterForm(len(names), len(cells))
    library = load_door("getter", DoorSpec((), (), (), ()), form) if python_works() else None
    if library is None:
        return None
    kept: list[Any] = [library, value, last := _Last(then)]
    words = {**_api(), "next": address_of("PyObject_CallOneArg"), "next_self": id(last), "value": id(value)}
    _add_variables(words, kept, names, cells)
    table = np.array([words[word] & MASK for word in form.words()], np.uint64).view(DoorTable)
    table.address = library.address("ek_door")
    return _function(name, table.address, table, kept, ONE)


def _add_variables(words: dict[str, int], kept: list[Any], names: Sequence[Any], cells: Sequence[Any]) -> None:
    """The words that say which variables are compared, and with what."""
    for k, (module, word, value) in enumerate(names):
        kept += [module, (key := sys.intern(word) if type(word) is str else word), value]
        words |= {f"module{k}": id(module), f"name{k}": id(key), f"found{k}": 0 if value is ABSENT else id(value)}
    for k, (cell, value) in enumerate(cells):
        kept += [cell, value]
        words |= {f"cell{k}": id(cell) + _beyond_cell(cell), f"content{k}": id(value)}


def _beyond_cell(held: object) -> int:
    """How much further what an object holds lies than what a cell does: the code of a function."""
    return _code_at() - OBJECT if type(held) is FunctionType else 0


@functools.cache
def _code_at() -> int:
    """Where in a function its code lies."""
    words = list((ctypes.c_size_t * (FunctionType.__basicsize__ // 8)).from_address(id(python_door)))
    return 8 * words.index(id(python_door.__code__))


Kinds = tuple[Pattern | str, ...]


def kinds_served(values: Sequence[object], types: Sequence[ShapedType]) -> Kinds | None:
    """The kinds of arguments that one door may serve: the pattern of an array, or the name of a number's type as in
    `DoorArgument.scalar`; None where one argument is something else.

    Args:
        values: the arguments of a call.
        types: those that the code takes.
    """
    kinds: list[Pattern | str] = []
    for value, type_ in zip(values, types, strict=True):
        array = value._array if type(value) is Buffer else value
        if type(array) is np.ndarray and whole(array):
            kinds.append(pattern_of(array))
        elif type_.rank == 0 and type(value) in (bool, int, float):
            kinds.append(type(value).__name__)
        elif type_.rank == 0 and isinstance(value, np.generic) and value.dtype == type_.dtype.to_numpy():
            kinds.append(NUMPY_SCALAR)
        else:
            return None
    return tuple(kinds)


MASK: Final = (1 << 64) - 1


def _add_values(words: dict[str, int], held: list[object], caller: Caller, spec: DoorSpec) -> None:
    """The words that say of which dtypes tensors are, and where constants lie."""
    for k, check in enumerate(caller.checks):
        words[f"argument{k}"] = id(check.dtype)
        held.append(check.dtype)
    for k, argument in enumerate(spec.arguments):
        if argument.scalar == NUMPY_SCALAR:
            words[f"scalar{k}"] = id(argument.dtype.to_numpy().type)
    words["device"] = id(caller.plan.device)
    for k, output in enumerate(spec.outputs):
        dtype, kind = output.dtype.to_numpy(), buffer_class(caller.plan.device, output.dtype)
        held += [dtype, kind, output.dtype]
        words |= {f"output{k}": id(dtype), f"buffer_class{k}": id(kind), f"buffer_of{k}": id(output.dtype)}
    for number, (kind_of, k) in enumerate(spec.pointers):
        if kind_of == "constant":
            words[f"constant{k}"] = caller.memory.pointers[number] or 0


class _Last:
    """What is called where no door serves; it also lets a thread that is new take the doors from now on."""

    __slots__ = ("then",)

    def __init__(self, then: Callable[..., Any]) -> None:
        self.then = then

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mark_thread(_thread)
        try:
            return self.then(*args, **kwargs)
        except EinkornError as error:
            raise bare(error) from error.__cause__


def _next(last: object) -> dict[str, int]:
    """The words for what comes behind a door: another one, or anything that can be called."""
    table = getattr(last, "__self__", None)
    if isinstance(table, DoorTable):
        return {"next": table.address, "next_self": id(table)}
    return {"next": address_of("PyObject_Call"), "next_self": id(last)}


def _failed(owner: DoorOwner, explain: Any, context: int, status: int, *args: Any) -> BaseException:
    """The exception of a call that has failed; raised by the door, so that none of our frames is in its traceback."""
    arrays = [value for value in args if isinstance(value, np.ndarray)]
    error = owner.error(context, status, arrays)
    if not isinstance(error, EinkornError):
        return error
    return bare(error if explain is None else explain(error))


def _function(name: str, code: int, table: DoorTable, held: Sequence[object], flags: int = FLAGS) -> Any:
    method = _Method(name.encode(), code, flags, None)
    table.keep = (method, *held)
    return new_function(ctypes.addressof(method), table, name)


@functools.cache
def _api() -> dict[str, int]:
    """The words that are the same in all tables."""
    words = {word: address_of(name) for word, name in _FUNCTIONS.items()}
    words |= {word: id(value) for word, value in _OBJECTS.items()}
    words["out_name"] = id(sys.intern("out"))
    words |= {"array_type": id(np.ndarray), "buffer_type": id(Buffer), "allocate": _numpy_function(ALLOCATE)}
    return words | _buffer_slots()


def _numpy_function(number: int) -> int:
    """The address of a function of NumPy's C interface."""
    module: Any = np.core if np.__version__.startswith("1.") else np._core  # type: ignore[attr-defined]
    table = pointer_of_capsule(module._multiarray_umath._ARRAY_API, None)
    return ctypes.c_void_p.from_address(table + 8 * number).value or 0


def _buffer_slots() -> dict[str, int]:
    """Where a buffer keeps its array, its dtype and its device."""
    buffer = object.__new__(Buffer)
    values = {"buffer_array": np.empty(0), "buffer_dtype": object(), "buffer_device": object()}
    buffer._array, buffer._dtype, buffer._device = values.values()  # type: ignore[assignment]
    count = (Buffer.__basicsize__ - OBJECT) // 8
    results = list((ctypes.c_size_t * count).from_address(id(buffer) + OBJECT))
    return {slot: OBJECT + 8 * results.index(id(value)) for slot, value in values.items()}


# *** the probe ***


def python_works() -> bool:
    """Whether objects lie in memory as doors read them."""
    library = load_door("probe", DoorSpec((), (), (), ())) if _is_known_build() else None
    return library is not None and _works(library)  # without it nothing is known: doors may be switched on again


@functools.cache
def _works(library: SharedLibrary) -> bool:
    try:
        works = _probe(library)
    except Exception as error:
        raise_if_of_handler(error)
        _log.warning("calls go by Python: %r", error)
        return False
    if not works:
        _log.warning(
            "calls are made in Python: the layout of arrays differs from CPython with NumPy's binary interface"
        )
    return works


def _is_known_build() -> bool:
    """CPython of 64 bits with the global lock, and without counts of references for debugging."""
    return (
        sys.implementation.name == "cpython"
        and sys.byteorder == "little"
        and ctypes.sizeof(ctypes.c_void_p) == 8
        and object.__basicsize__ == OBJECT
        and not set(getattr(sys, "abiflags", "")) & set("td")
        and not hasattr(sys, "gettotalrefcount")
    )


def _probe(library: SharedLibrary) -> bool:
    """Whether generated code finds in four objects what is known of them."""
    seen = np.zeros(20, np.int64).view(DoorTable)
    function = _function("probe", library.address("ek_probe"), seen, [library])
    base, number, names = np.arange(24, dtype=np.float32).reshape(4, 6), 2.5, {"einkorn_name": 1}
    array = base[1:, ::2]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(names))  # the probe gives it back without
    if function(array, number, names, **names) is not names:
        return False
    results = [int(word) for word in seen]
    _, kind, data, rank, dims, strides, owner, dtype, flags = results[:9]
    described = (kind, data, rank & 0xFFFFFFFF, owner, dtype, flags & 0xFFFFFFFF)
    flat = array.base
    if described != (id(np.ndarray), array.ctypes.data, 2, id(flat), id(array.dtype), array.flags.num):
        return False
    layout = [tuple((ctypes.c_int64 * 2).from_address(at)) for at in (dims, strides)]
    others = (results[10], struct.unpack("<d", struct.pack("<q", results[11]))[0], results[13:16], results[17:19])
    wanted = (id(float), number, [id(tuple), 3, id(array)], [id(dict), 1])
    return layout == [array.shape, array.strides] and others == wanted


def _thread() -> int:
    """The address of the calling thread; 0 where there are no doors."""
    library = load_door("probe", DoorSpec((), (), (), ()))  # without it nothing is known: doors may be allowed again
    return 0 if library is None else int(_thread_function(library)())


@functools.cache
def _thread_function(library: SharedLibrary) -> Callable[[], int]:
    function = ctypes.PYFUNCTYPE(ctypes.c_size_t)(library.address("ek_thread"))
    function.library = library  # type: ignore[attr-defined]  # kept: the code is in it
    return function
