"""Records a call of an op, or runs it at once.

The types of the results are known when this is done, and what is wrong with the arguments has been said. Whether the op
runs now the context decides (see `contexts`); it always does where it reads memory that others may write, where a size
of its result is known only then, and where a chain of recorded calls gets long.

See also `operators` (which ops there are).
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.installation import is_own_module
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.tracebacks import bare
from ...dsl.types.dtype import DType
from ..driver.buffer import Buffer
from ..driver.devices import Device, DeviceRef, device_of
from ..staging.active import ACTIVE
from ..staging.value import Value
from ..types.promotion import weak_array
from .arguments import FOLDED, NUMBERS, Operator, Split
from .contexts import MODE, RealizationState
from .kinds import HOST, kind_of
from .nodes import FRESH, MAX_CHAIN, SHARED, Recorded, lent
from .patterns import OpCall, call_of, checked
from .programs import run_call
from .programs import value_of as kept
from .realize import realize, value_of
from .tensor import Tensor, made

_new = object.__new__
_getframe = sys._getframe
_mode = MODE.get
MAX_PAIRS = 1 << 10  # kinds of a first operand, and of a second to each, that the short way remembers
_NONE: dict[object, OpCall] = {}


def record(operator: Operator, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
    """The results of an op: tensors, alone or as a list or tuple, as the op has it.

    Raises:
        EinkornError: what the op says of its arguments; what its kernel says, if it runs now.
    """
    try:
        return _record(operator, args, kwargs)
    except EinkornError as error:
        raise bare(error) from error.__cause__


def _record(operator: Operator, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
    given = [*args, *kwargs.values()]
    if ACTIVE.get() or any(map(is_staged, given)):
        return staged(operator, args, kwargs)
    if any(map(_is_array, given)):
        args, kwargs = _with_tensors(operator, args, kwargs)
    if operator.prepare is not None:
        try:
            args, kwargs = operator.prepare(*args, **kwargs)
        except TypeError:
            _check_arguments(operator, args, kwargs)
            raise
    split = operator.split(args, kwargs)
    call = call_of(split, _device(split, given))
    numbers = checked(call, split)
    _remember(operator, call, args, kwargs)
    lazy = MODE.get().lazy and call.results is not None and not any(x._pending is SHARED for x in split.operands)
    if lazy:
        frame = _user_frame()
        inputs = (*[x if x._value is None else lent(x) for x in split.operands], *numbers)
        return _deferred(call, inputs, split.operands, frame)
    values = [value_of(x) for x in split.operands]
    if call.shortcut is not None:  # whose results may lie in the same memory
        values = [v.copy() if x._pending is SHARED else lent(x) for x, v in zip(split.operands, values, strict=True)]
    return _run(call, values, numbers)


def _check_arguments(operator: Operator, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Refuses what the op does not take in its own name, and not in that of what prepares its arguments."""
    try:
        inspect.signature(operator.function).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{operator.name}(): {error}") from None


def _run(call: OpCall, values: Sequence[object], numbers: Sequence[object]) -> Any:
    """Runs a call now."""
    try:
        result = run_call(call, values, numbers)
    except EinkornError as error:
        error.place = user_place() or error.place
        raise
    several, pending = call.pattern.several, FRESH if call.shortcut is None else None
    if several is None:
        return _of(result[0], call.result, pending) if result else None
    kinds = call.results or [None] * len(result)
    return several(_of(value, kind, pending) for value, kind in zip(result, kinds, strict=True))


def _of(value: Any, kind: Any, pending: Any) -> Tensor:
    tensor = _new(Tensor)
    tensor._kind = kind or kind_of(value)
    tensor._value = value
    tensor._pending = pending
    return tensor


def _deferred(call: OpCall, inputs: tuple[Any, ...], operands: Sequence[Recorded], frame: Any) -> Any:
    """Records a call."""
    depth = 1
    for each in operands:
        pending = each._pending
        if type(pending) is tuple and pending[4] >= depth:
            depth = pending[4] + 1
    assert call.results is not None
    tensors = [_new(Tensor) for _ in call.results]
    code, instruction = (None, 0) if frame is None else (frame.f_code, frame.f_lasti)
    several = call.pattern.several
    results = None if several is None else tuple(weakref.ref(tensor) for tensor in tensors)
    pending = (call, inputs, code, instruction, depth, results)
    for tensor, kind in zip(tensors, call.results, strict=True):
        tensor._kind, tensor._value, tensor._pending = kind, None, pending
    if depth >= MAX_CHAIN:
        realize(tensors)
    return tensors[0] if several is None else several(tensors)


def _user_frame() -> Any:
    frame = _getframe(1)
    while frame is not None and is_own_module(frame.f_globals.get("__name__", "")):
        frame = frame.f_back  # type: ignore[assignment]
    return frame


def _device(split: Split, given: Sequence[object]) -> Device:
    if split.operands:
        return split.operands[0]._kind.device
    return next((device_of(each) for each in given if isinstance(each, Device | DeviceRef)), HOST)


# *** arrays among the arguments ***


def _is_array(value: object) -> bool:
    if isinstance(value, Recorded):
        return False
    if isinstance(value, list | tuple):
        return any(map(_is_array, value))
    return isinstance(value, np.ndarray) or (hasattr(value, "__dlpack__") and not isinstance(value, np.generic))


def _with_tensors(operator: Operator, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
    """The arguments with tensors in the place of arrays, which take the dtype of the tensor operands."""
    strong = [each for each in _flat([*args, *kwargs.values()]) if isinstance(each, Recorded)]
    dtype: DType | None = strong[0]._kind.dtype if strong else None
    if dtype is not None and operator.integers is not None and not dtype.part.is_float():
        dtype = operator.integers
    device = strong[0]._kind.device if strong else HOST

    def convert(value: object) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(convert(each) for each in value)
        if not _is_array(value):
            return value
        if dtype is None:
            return Tensor.constant(value)
        own = np.asarray(value).dtype if isinstance(value, np.ndarray) else Buffer.from_dlpack(value).dtype.to_numpy()
        if not operator.numbers and (own.kind in "biu" or not dtype.part.is_float()):
            return Tensor.constant(value, device=device)  # indices and masks keep their dtype
        array = weak_array(value, dtype, operator.name, "", user_place())
        array = np.array(array, order="C")
        return made(array if device.is_host and not dtype.is_packed() else kept(Buffer.from_numpy(array).to(device)))

    return tuple(convert(each) for each in args), {name: convert(each) for name, each in kwargs.items()}


def _flat(values: Sequence[object]) -> list[Any]:
    return [one for each in values for one in (_flat(each) if isinstance(each, list | tuple) else [each])]


# *** graphs ***


def is_staged(value: object) -> bool:
    """Whether this is a value of a graph, or stands for one."""
    if isinstance(value, list | tuple):
        return any(map(is_staged, value))
    if isinstance(value, Recorded):
        return isinstance(value._pending, RealizationState)
    return isinstance(value, Value)


def staged(operator: Operator, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
    """Stages an op in a graph: in the one that is being built, or in that of its tensors' context."""
    given = _flat([*args, *kwargs.values()])
    tensors = [each for each in given if isinstance(each, Recorded)]
    states = [each._pending for each in tensors if isinstance(each._pending, RealizationState)]
    context = next((state.ctx for state in states if state.ctx is not None), None)

    def plain(value: object) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(plain(each) for each in value)
        return value.__tensorvalue__() if isinstance(value, Tensor) else value

    def call() -> Any:
        return operator.function(*[plain(each) for each in args], **{n: plain(each) for n, each in kwargs.items()})

    if context is None or ACTIVE.get():
        result = call()
    else:
        with context.graph:
            result = call()
    if not tensors or result is None:
        return result

    def wrapped(value: Any) -> Recorded | Tensor:
        if context is not None:
            return context.create_unrealized(value)
        return Tensor(state=RealizationState(value, None))

    return type(result)(map(wrapped, result)) if isinstance(result, list | tuple) else wrapped(result)


# *** the short way ***


def _remember(operator: Operator, call: OpCall, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Lets the short way find a call of tensors, and of a tensor and a number, by their kinds."""
    if kwargs or call.result is None or call.count + len(call.checks) != len(args) or not 1 <= len(args) <= 2:
        return
    parts = [each._kind if isinstance(each, Recorded) else type(each) for each in args]
    if all(isinstance(each, Recorded) or type(each) in NUMBERS for each in args):
        if len(operator.pairs) >= MAX_PAIRS:
            operator.pairs.clear()
        table = operator.alone if len(parts) == 1 else operator.pairs.setdefault(parts[0], {})
        if len(table) >= MAX_PAIRS:
            table.clear()
        table[parts[-1]] = call


def unary(operator: Operator) -> Callable[[Any], Any]:
    """An op of one tensor as a function: `-x`."""
    alone = operator.alone

    def apply(x: object) -> Any:
        if type(x) is Tensor and (call := alone.get(x._kind)) is not None:
            value = x._value
            if _mode().lazy and (p := x._pending) is not SHARED:
                depth = p[4] + 1 if type(p) is tuple else 1
                return _short(call, (x,) if value is None else (lent(x),), depth, _getframe(1))
            if value is not None and not ACTIVE.get():
                return _run_short(call, value)
        return record(operator, (x,), {})

    return apply


def binary(operator: Operator) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """An op of two operands as a method, and as the reflected one."""
    return _forward(operator), _reflected(operator)


def _forward(operator: Operator) -> Callable[[Any, Any], Any]:
    pairs, folds = operator.pairs, operator.folds

    def apply(x: Any, y: Any) -> Any:
        call: OpCall | None
        p, depth = x._pending, 1
        if type(y) is Tensor:
            try:
                call, q = pairs[x._kind][y._kind], y._pending
            except KeyError:
                return record(operator, (x, y), {})
            if p is None and q is None and _mode().lazy:  # both have values
                frame, tensor = _getframe(1), _new(Tensor)
                tensor._kind, tensor._value = call.result, None
                tensor._pending = (call, (x._value, y._value), frame.f_code, frame.f_lasti, 1, None)
                return tensor
            a, b = x._value, y._value
            if not _mode().lazy or p is SHARED or q is SHARED:
                if a is None or b is None or ACTIVE.get():
                    return record(operator, (x, y), {})
                return _run_short(call, a, b)
            if type(q) is tuple:
                depth = q[4] + 1
            elif q is not None:
                b = lent(y)
            if p is not None and a is not None:
                a = lent(x)
            inputs = (x if a is None else a, y if b is None else b)
        else:
            call = pairs.get(x._kind, _NONE).get(type(y))
            if call is None or (folds and y in FOLDED) or not call.checks[0][1] <= y <= call.checks[0][2]:
                return NotImplemented if isinstance(y, Value) else record(operator, (x, y), {})
            a = x._value
            if type(y) is not call.number:
                y = call.number(y)
            if not _mode().lazy or p is SHARED:
                return record(operator, (x, y), {}) if a is None or ACTIVE.get() else _run_short(call, a, y)
            inputs = (x if a is None else lent(x), y)
        if type(p) is tuple and p[4] >= depth:
            depth = p[4] + 1
        frame = _getframe(1)
        tensor = _new(Tensor)  # as `_short` does
        tensor._kind, tensor._value = call.result, None
        tensor._pending = (call, inputs, frame.f_code, frame.f_lasti, depth, None)
        if depth >= MAX_CHAIN:
            realize((tensor,))
        return tensor

    return apply


def _reflected(operator: Operator) -> Callable[[Any, Any], Any]:
    pairs, folds = operator.pairs, operator.folds

    def reflected(y: Any, x: Any) -> Any:
        call = pairs.get(type(x), _NONE).get(y._kind)
        if call is None or (folds and x in FOLDED):
            return record(operator, (x, y), {})
        if call.checks[0][1] <= x <= call.checks[0][2]:
            b = y._value
            if type(x) is not call.number:
                x = call.number(x)
            if _mode().lazy and (q := y._pending) is not SHARED:
                depth = q[4] + 1 if type(q) is tuple else 1
                return _short(call, (y if b is None else lent(y), x), depth, _getframe(1))
            if b is not None and not ACTIVE.get():
                return _run_short(call, b, x)
        return record(operator, (x, y), {})

    return reflected


def _short(call: OpCall, inputs: tuple[Any, ...], depth: int, frame: Any) -> Tensor:
    """Records a call with a single result."""
    tensor = _new(Tensor)
    tensor._kind = call.result
    tensor._value = None
    tensor._pending = (call, inputs, frame.f_code, frame.f_lasti, depth, None)
    if depth >= MAX_CHAIN:
        realize((tensor,))
    return tensor


def _run_short(call: OpCall, *inputs: object) -> Tensor:
    """Runs a call with a single result now."""
    try:
        if call.door is not None:
            value = call.door(*inputs)
        else:
            value = run_call(call, inputs[: call.count], inputs[call.count :])[0]
    except EinkornError as error:
        error.place = user_place() or error.place
        raise bare(error) from error.__cause__
    tensor = _new(Tensor)
    tensor._kind = call.result
    tensor._value = value
    tensor._pending = FRESH
    return tensor
