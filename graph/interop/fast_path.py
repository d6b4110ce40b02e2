"""Puts doors in front of kernels: soon after the second call of a kind, no step of a call is made in Python.

A kernel object gets a class of its own whose `__call__` is a built-in function: its newest door. Each door hands
on what it does not serve to the one before it, the first to Python. There are at most four: dtypes, ranks, parameters,
kinds of views. What comes later stays with Python. Doors are made in the background: no call waits for one.

See also `calling.python_door` (what a door is).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...dsl.contract.doors import NUMPY_SCALAR
from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.frontend.caller import Called
from ...dsl.frontend.reads import Reads
from ...dsl.types.dtype import DType
from ..calling.call import Caller
from ..calling.door_policy import KERNELS, TUNED_KERNELS, CallCounter
from ..calling.python_door import ABSENT, python_door
from ..driver.buffer import Buffer
from ..loading.background import BACKGROUND
from ..types.strides import pattern_of, whole
from .arranged import Arranged
from .explained import explained
from .own_class import set_own
from .specialise import CHECKS, AnyKernel, PreparedKernel, Specialisation, prepared, specialise
from .spread import Spread, spread_of

OTHER = "other"  # a number of NumPy's that is converted
NUMBERS = {bool: "bool", int: "int", float: "float"}

CHOICE: ExtensionPoint[Callable[..., tuple[Specialisation, object]]] = ExtensionPoint("graph.interop.tuned", "choice")
_lock = fork_lock()


def serve(
    kernel: AnyKernel,
    state: PreparedKernel,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    laid: Arranged | None = None,
) -> None:
    """After a call that Python has served: a door for calls like this one, when they repeat. `laid` is the call as its
    arrays lie, where Python has served that."""
    fast_path: FastPath | None = state.fast_path
    if fast_path is None or fast_path.loaded is not state.loaded:  # its doors compare with other variables
        fast_path = state.fast_path = FastPath(kernel, state)
    fast_path.note(state, args, kwargs, laid)


class FastPath:
    """The doors of a kernel, for as long as its program stays what it is."""

    def __init__(self, kernel: AnyKernel, state: PreparedKernel) -> None:
        self.kernel = weakref.ref(kernel)
        self.loaded = state.loaded
        self.first: Any = _ToPython(kernel)  # what is called
        self.counter = CallCounter(TUNED_KERNELS if state.loaded.is_tuned else KERNELS)

    def note(
        self, state: PreparedKernel, args: tuple[Any, ...], kwargs: Mapping[str, Any], laid: Arranged | None = None
    ) -> None:
        """Counts a call; after the second of a kind a door is made."""
        tuned = state.loaded.is_tuned
        if self.counter.is_full:
            BACKGROUND.resume()
            return
        order: Sequence[int] = ()
        ranks: Sequence[int] = ()
        if laid is not None:
            order, ranks = laid.order, [np.ndim(value) for value in args]
            args, kwargs = laid.args, laid.kwargs
        kind = _kind(args, kwargs, state.joint)
        if kind is None:
            return
        kind = (*kind, order, *ranks)
        chosen = _chosen(kernel, args, kwargs) if tuned and (kernel := self.kernel()) is not None else None
        if tuned and chosen is None:
            return
        if chosen is not None:
            kind = (*kind, chosen[1])
        with _lock:
            if self.counter.is_due(kind):
                self.want(state, args, kwargs, order, ranks, chosen)

    def want(
        self,
        state: PreparedKernel,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        order: Sequence[int],
        ranks: Sequence[int],
        chosen: tuple[Specialisation, Any] | None,
    ) -> None:
        """Lets a door for calls like this one be made in the background, where there can be one."""
        kernel, reads = self.kernel(), variables(state.reads)
        if kernel is None or reads is None:
            return
        named = {name: kwargs[name] for name in sorted(kwargs) if name != "out"}
        made, bounds = (_served(kernel, state, args, named), ()) if chosen is None else chosen
        if made is None or not made.is_loaded or (caller := _caller(made, args)) is None:
            return
        scalars = [_scalar_name(value, type_.dtype) for value, type_ in zip(args, made.inputs, strict=True)]
        if OTHER in scalars:
            return
        names, cells = reads
        held = [type(value) is Buffer for value in args]
        self.counter.doors += 1
        make = partial(
            python_door,
            caller,
            kernel.__name__,
            scalars=scalars,
            keywords=named,
            names=[*names, (*CHECKS, ABSENT if state.checks is None else state.checks)],
            cells=cells,
            buffers="same" if any(held) else "",
            held=held if any(held) else (),
            order=order,
            ranks=ranks,
            bounds=bounds,
            explain=lambda error: explained(error, made, ()),
        )
        BACKGROUND.submit(partial(self.open, make))

    def open(self, make: Callable[..., object]) -> None:
        """Makes a door, and puts it before the others."""
        door = make(then=self.first)
        present = self.is_present()
        with _lock:
            if door is None:
                self.counter.doors -= 1
            elif present:
                self.first = door
                self.install()

    def is_present(self) -> bool:
        """Whether the kernel's program is still that of these doors."""
        kernel = self.kernel()
        return kernel is not None and prepared(kernel).fast_path is self

    def install(self) -> None:
        """Lets the kernel be called through the newest door."""
        kernel = self.kernel()
        if kernel is not None:
            set_own(kernel, "__call__", self.first)


class _ToPython:
    """What the last door hands calls on to: the kernel, which its doors do not keep alive."""

    __slots__ = ("kernel",)

    def __init__(self, kernel: AnyKernel) -> None:
        self.kernel = weakref.ref(kernel)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kernel = self.kernel()
        assert kernel is not None  # code that calls has it
        return Called.__call__(kernel, *args, **kwargs)


def _kind(args: tuple[object, ...], kwargs: Mapping[str, object], joint: Sequence[int]) -> Any:
    """What one door serves; None where none does."""
    results: list[Any] = []
    for value in args:
        array = value._array if type(value) is Buffer else value
        if type(array) is np.ndarray:
            if not whole(array):
                return None
            results.append((type(value), array.dtype, array.ndim, pattern_of(array)))
        elif type(value) in NUMBERS or _is_scalar(value):
            results.append(type(value))
        else:
            return None
    if any(map(_is_scalar, args)) and not any(type(value) is np.ndarray for value in args):
        return None
    if "out" in kwargs and type(kwargs["out"]) is not np.ndarray:
        return None
    passed = ((name, tuple(value) if type(value) is list else value) for name, value in kwargs.items() if name != "out")
    named = frozenset((name, type(value), value) for name, value in passed)
    return tuple(results), named, _spread(args, joint)


def _is_scalar(value: object) -> bool:
    """Whether it is a number of NumPy's own dtypes."""
    return isinstance(value, np.generic) and value.dtype.num < np.dtype(object).num


def _scalar_name(value: Any, dtype: DType) -> str:
    """As what a door takes an argument; see `DoorArgument`. A number of NumPy's has to have the argument's dtype."""
    if not _is_scalar(value):
        return NUMBERS.get(type(value), "")
    return NUMPY_SCALAR if value.dtype == dtype.to_numpy() else OTHER


def _spread(args: tuple[object, ...], joint: Sequence[int]) -> Spread | None:
    return spread_of([getattr(args[k], "shape", ()) for k in joint])


def _array_of(value: object) -> Any:
    """The array that an argument is, or that a buffer holds; None for a number."""
    return value._array if type(value) is Buffer else value if isinstance(value, np.ndarray) else None


def _served(
    kernel: AnyKernel, state: PreparedKernel, args: tuple[Any, ...], parameters: Mapping[str, Any]
) -> Specialisation | None:
    """What has served such a call."""
    kinds: list[Any] = []
    inputs = state.schema.inputs
    known = {a.dtype for a, value in zip(inputs, args, strict=False) if _array_of(value) is not None}
    for argument, value in zip(inputs, args, strict=False):
        array = _array_of(value)
        if _is_scalar(value):  # as `direct.kind_of`
            kinds.append(value.item() if argument.dtype in known else (DType.from_numpy(value.dtype), 0))
        else:
            kinds.append(value if array is None else (DType.from_numpy(array.dtype), array.ndim))
    try:
        made = specialise(kernel, kinds, parameters, spread=_spread(args, state.joint))
    except EinkornError:  # dtypes that follow from `out=` alone
        return None
    return made


def _chosen(
    kernel: AnyKernel, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[Specialisation, Any] | None:
    """What has served such a call of a kernel that is tuned, and the bounds of the sizes for which it is chosen."""
    passed = {name: kwargs[name] for name in sorted(kwargs) if name != "out"}
    made = _served(kernel, prepared(kernel), args, passed)
    if made is None or made.spread is not None:  # calls that broadcast go by Python
        return None
    shapes = [np.shape(_array_of(value)) if _array_of(value) is not None else () for value in args]
    return CHOICE.get()(made, shapes, passed)


def _caller(made: Specialisation, args: tuple[object, ...]) -> Caller | None:
    """Whose code has read arrays that lie so."""
    caller = made.model.first_caller
    arrays = map(_array_of, args)
    patterns = tuple(None if array is None else pattern_of(array) for array in arrays)
    return caller.known.get(patterns) if any(patterns) else caller


def variables(reads: Reads) -> tuple[list[tuple[dict[str, Any], str, Any]], list[tuple[Any, Any]]] | None:
    """The names that a program was made of, as doors compare them: members of classes are names of their dicts. None
    where one of them is inherited, or a variable was empty. Helpers are compared as variables that hold their code."""
    names, cells = list(reads.globals), list(reads.cells)
    for owner, name, value in reads.members:
        (members,) = (each for each in gc.get_referents(vars(owner)) if type(each) is dict)
        if name not in members:
            return None
        names.append((members, name, value))
    if any(not _holds(cell, value) for cell, value in cells):
        return None
    return names, [*cells, *reads.codes]


def _holds(cell: Any, value: Any) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:
        return False
