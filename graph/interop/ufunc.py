"""Makes ufuncs of NumPy of elementwise kernels: `add_one.ufunc`.

A ufunc has a loop for each dtype of the kernel's type variables; code for a dtype is made when it is first used. NumPy
does the rest: broadcasting, strides, `out=`, `where=`, `reduce`. Loops raise what kernels report. Where there can be no
such loops, an object with the same calls works by Python: without doors, under `EINKORN_CHECKS=all`, and with NumPy
before 2.0, whose loops cannot raise.

See also `compiler.doors.ufunc` (the loops themselves).
"""

from __future__ import annotations

import copyreg
import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...dsl.contract.checks import SAFE, parse_checks
from ...dsl.contract.doors import DoorSpec
from ...dsl.contract.foreign_doors import FIND_WORDS, LOOP_WORDS, MOVE, MOVED
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.knobs import knobs
from ...dsl.frontend.caller import Called
from ...dsl.signature.schema import OpSchema
from ...dsl.types.dtype import DType
from ..calling.doors import load_door
from ..calling.python_door import ABSENT, python_getter
from ..driver.python_api import address_of, pointer_of_capsule
from .elementwise import operation_of, signature_trouble, trouble_of
from .fast_path import variables
from .foreign_calls import call_table, foreign_calls, own_door
from .own_class import drop_own, set_own
from .python_ufunc import PythonUfunc
from .specialise import CHECKS, AnyKernel, Specialisation, prepared, specialise

MAX_LOOPS = 64  # loops of one ufunc: more type variables than that allow are not multiplied out

_FROM_FUNCTIONS, _ADD_LOOP = 1, 43  # in NumPy's table of functions for ufuncs
_REDUCTION_INITIAL, _STRIDED_LOOP = 4, 5
# What NumPy takes for the identity of a ufunc, by opcode: operations whose order does not matter are reduced along
# several axes at once. `min` and `max` have no element that changes nothing.
_NO_IDENTITY, _REORDERABLE = -1, -2
_IDENTITIES = {"add": 0, "mul": 1, "and_": 2, "or_": 0, "xor": 0, "min": _REORDERABLE, "max": _REORDERABLE}
_VALUES: dict[int, dict[str, object]] = {-2: {"identity": None}, -1: {}, 0: {"identity": 0}, 1: {"identity": 1},
                                      2: {"identity": -1}}  # fmt: skip
_NO_FLOAT_ERRORS = 1 << 1  # flag of a loop: kernels do not keep the floating-point flags
_IS_REORDERABLE = 1 << 3  # flag of a loop: elements may be reduced in any order
_ARITY, _TYPES_OFFSETS = (16, 20), {"functions": 32, "data": 40, "ntypes": 48, "types": 64}


class _LoopSlot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


_InitialFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint8, ctypes.c_void_p)


class _LoopSpec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("casting", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("dtypes", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
    )


def ufunc_of(kernel: AnyKernel) -> np.ufunc | PythonUfunc:
    """The kernel as a ufunc; the same one as long as the kernel, and what it reads, stay as they are.

    From then on the kernel's attribute `ufunc` is read without Python, where there are doors.

    Raises:
        GraphError: EK0898 the kernel is not elementwise, with the reason.
        CompileError: a mistake in the kernel.
    """
    checks = CHECKS[0].get(CHECKS[1], ABSENT)
    state, native = prepared(kernel), _loops_work()
    with state.lock:
        entry: np.ufunc | PythonUfunc | None = state.ufuncs.get(native)
        if entry is None:
            rows = _elementwise_rows(kernel)
            identity = _identity(kernel, rows)
            entry = _Maker(kernel, rows, identity).made() if native else PythonUfunc(kernel, rows, _VALUES[identity])
            state.ufuncs[native] = entry
        reads = variables(state.reads)
        if native and reads is not None:
            getter = python_getter("ufunc", entry, ufunc_of, [*reads[0], (*CHECKS, checks)], reads[1])
            if getter is not None:
                set_own(kernel, "ufunc", property(getter, doc=Called.ufunc.__doc__))
        else:
            drop_own(kernel, "ufunc")
    return entry


def _loops_work() -> bool:
    """Whether loops can be made here, which call entries without Python."""
    if int(np.__version__.partition(".")[0]) < 2 or parse_checks(knobs.checks or SAFE).level == "all":
        return False
    return load_door("probe", DoorSpec((), (), (), ())) is not None


def _elementwise_rows(kernel: AnyKernel) -> list[tuple[DType, ...]]:
    """The dtypes of each loop of a kernel that is elementwise."""
    schema = kernel.schema
    trouble = signature_trouble(schema)
    rows = [] if trouble else [row for row in _rows(schema) if not any(dtype.is_packed() for dtype in row)]
    if rows:
        trouble = trouble_of(_specialised(kernel, rows[0]))
    elif not trouble:
        trouble = "it takes dtypes alone that NumPy does not have"
    if trouble:
        raise GraphError(
            f"op '{schema.name}' is not a ufunc: {trouble}",
            code="EK0898",
            place=user_place(),
            op=schema.name,
            expected='tensors of one shape "*s", and an index that reads and stores elements and does no more',
            notes=[f"it is defined at {schema.place}"] if schema.place else [],
            hint="call the kernel itself: it takes whole arrays",
        )
    return rows


def _rows(schema: OpSchema) -> list[tuple[DType, ...]]:
    """The dtypes of inputs and outputs of each loop, those to which NumPy converts most readily first."""
    variables = [(name, sorted(dtypes, key=_rank)) for name, dtypes in schema.typevars]
    rows = []
    for chosen in itertools.islice(itertools.product(*(dtypes for _, dtypes in variables)), MAX_LOOPS):
        known = dict(zip((name for name, _ in variables), chosen, strict=True))
        arguments = [*schema.inputs, *schema.outputs]
        rows.append(tuple(a.dtype if isinstance(a.dtype, DType) else known[a.dtype] for a in arguments))
    return rows


def _identity(kernel: AnyKernel, rows: Sequence[tuple[DType, ...]]) -> int:
    """What NumPy takes for the identity: that of the one operation that all loops are, where they are one."""
    schema, firsts = kernel.schema, {row[0].kind: row for row in reversed(rows)}
    if (len(schema.inputs), len(schema.outputs)) != (2, 1) or any(len(set(row)) > 1 for row in rows):
        return _NO_IDENTITY
    operations = {operation_of(_specialised(kernel, row)) for row in firsts.values()}
    return _IDENTITIES.get(operations.pop(), _NO_IDENTITY) if len(operations) == 1 else _NO_IDENTITY


def _rank(dtype: DType) -> tuple[int, int, bool]:
    """NumPy takes the first loop that it can convert to without loss: small ones come first."""
    return ("bool", "uint", "int", "float", "complex").index(dtype.kind), dtype.bits, dtype is DType.bfloat16


def _specialised(kernel: AnyKernel, row: Sequence[DType]) -> Specialisation:
    inputs = len(kernel.schema.inputs)
    return specialise(kernel, [(dtype, 1) for dtype in row[:inputs]], outputs=row[inputs:])


class _Maker:
    """Makes one ufunc, and its loops when they are requested. It lives as long as the process, as ufuncs do."""

    def __init__(self, kernel: AnyKernel, rows: list[tuple[DType, ...]], identity: int) -> None:
        self.kernel = kernel
        self.rows = rows
        self.identity = identity
        self.kept: list[Any] = []

    def made(self) -> np.ufunc:
        """The ufunc."""
        schema = self.kernel.schema
        name, doc = schema.name.replace("::", "_").encode(), schema.doc.encode()
        table = _ufunc_table()
        make = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_void_p] * 3, *[ctypes.c_int] * 4, *[ctypes.c_char_p] * 2,
                                 ctypes.c_int)(table[_FROM_FUNCTIONS])  # fmt: skip
        add = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(table[_ADD_LOOP])
        self.kept += [self, name, doc]
        made: np.ufunc = make(None, None, None, 0, len(schema.inputs), len(schema.outputs), self.identity, name, doc, 0)
        _kernels[id(made)] = self.kernel
        for number, address in enumerate(self._loops()):
            dtypes = [row_dtype.to_numpy() for row_dtype in self.rows[number]]
            classes = (ctypes.c_void_p * len(dtypes))(*(id(type(dtype)) for dtype in dtypes))
            initial = self._initial(dtypes[-1])
            slots = (_LoopSlot * 3)(_LoopSlot(_STRIDED_LOOP, address), *initial, _LoopSlot(0, None))
            sizes = len(schema.inputs), len(schema.outputs)
            flags = _NO_FLOAT_ERRORS | (0 if self.identity == _NO_IDENTITY else _IS_REORDERABLE)
            loop = _LoopSpec(name, *sizes, 0, flags, ctypes.addressof(classes), ctypes.addressof(slots))
            add(made, ctypes.addressof(loop))
            self.kept += [dtypes, classes, slots, loop]
        self._promote(made)
        _kept.append(self.kept)
        return made

    def _initial(self, dtype: np.dtype[Any]) -> list[_LoopSlot]:
        """The slot for the function that says what a reduction begins with, where the ufunc has an identity."""
        value = _VALUES[self.identity].get("identity")
        if value is None:
            return []
        empty = np.array(value).astype(dtype).tobytes()
        # To any other float, -0.0 adds nothing, where 0.0 would make 0.0 of -0.0.
        first = np.array(-0.0).astype(dtype).tobytes() if self.identity == 0 and dtype.kind not in "biu" else empty

        def initial(_: int | None, is_empty: int, to: int) -> int:
            ctypes.memmove(to, empty if is_empty else first, len(empty))
            return 1

        self.kept.append(function := _InitialFunction(initial))
        return [_LoopSlot(_REDUCTION_INITIAL, ctypes.cast(function, ctypes.c_void_p).value)]

    def _promote(self, made: np.ufunc) -> None:
        """Lets NumPy convert to the loops of its own dtypes, as it does for its own ufuncs: by their list of types."""
        chars = b"".join(
            bytes(dtype.to_numpy().num for dtype in row)
            for row in self.rows
            if all(dtype.to_numpy().num < 32 for dtype in row)
        )
        count = len(chars) // (made.nin + made.nout)
        types, functions = ctypes.create_string_buffer(chars), (ctypes.c_void_p * max(1, count))()
        self.kept += [types, functions]
        at = id(made)
        for field in ("functions", "data"):
            ctypes.c_void_p.from_address(at + _TYPES_OFFSETS[field]).value = ctypes.addressof(functions)
        ctypes.c_void_p.from_address(at + _TYPES_OFFSETS["types"]).value = ctypes.addressof(types)
        ctypes.c_int.from_address(at + _TYPES_OFFSETS["ntypes"]).value = count

    def _loops(self) -> Sequence[int]:
        """The addresses of the loops, which find the code of their dtypes."""
        self._method = self.find
        words = {"find": id(self._method)} | {name: address_of(name) for name in FIND_WORDS[1:]}
        result = own_door("ufuncs", DoorSpec((), (), (), ()), len(self.rows), FIND_WORDS, words)
        if result is None:
            self._forbidden()
        return [result.address(f"ek_loop{number}") for number in range(len(self.rows))]

    def find(self, number: int | None) -> int:
        """The address of the loop of one dtype."""
        calls = foreign_calls(_specialised(self.kernel, self.rows[number or 0]))
        moves = load_door("moves", DoorSpec((), (), (), ()))
        words = {"calls": call_table(), "owner": calls.number, "raise": calls.fail_at, **calls.words}
        words |= {} if moves is None else {f"move{size}": moves.address(f"{MOVE}{size}") for size in MOVED}
        result = None if calls.spec is None or moves is None else own_door("ufunc", calls.spec, None, LOOP_WORDS, words)
        if result is None:
            self._forbidden()
        return result.address("ek_door")

    def _forbidden(self) -> NoReturn:
        name = self.kernel.schema.name
        drop_own(self.kernel, "ufunc")
        raise GraphError(
            f"a loop of ufunc '{name}' is compiled when it is first used, which is not possible any more",
            code="EK0899",
            place=user_place(),
            op=name,
            notes=["EINKORN_NO_JIT and EINKORN_DOORS=0 forbid it, and it takes LLVM"],
            hint=f"take the ufunc anew: {name.rpartition('::')[2]}.ufunc",
        )


_kept: list[Any] = []
_kernels: dict[int, AnyKernel] = {}  # of ufuncs, which live as long as the process, by identity
_of_numpy: Callable[[object], object] = copyreg.dispatch_table.get(np.ufunc, lambda ufunc: ufunc.__name__)


def _reduced(ufunc: np.ufunc) -> Any:
    """What pickles a ufunc: the kernel, where it is one of a kernel."""
    kernel = _kernels.get(id(ufunc))
    return _of_numpy(ufunc) if kernel is None else (ufunc_of, (kernel,))


copyreg.pickle(np.ufunc, _reduced)


def _ufunc_table() -> Any:
    """NumPy's functions for ufuncs, by their numbers."""
    capsule = np._core._multiarray_umath._UFUNC_API  # type: ignore[attr-defined]
    return ctypes.cast(pointer_of_capsule(capsule, None), ctypes.POINTER(ctypes.c_void_p))
