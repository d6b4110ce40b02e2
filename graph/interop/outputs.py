"""Checks the memory that a caller gives by `out=`, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DTypeError, EinkornError, GraphError, plural, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..driver.arrays import check_outputs
from ..driver.buffer import Buffer
from ..driver.devices import Device
from .kinds import Operand, operand_of

CODE = "EK0853"


@dataclass(frozen=True)
class OutputPlace:
    """Where one output goes: the caller's own memory, or fresh memory that is copied there afterwards."""

    name: str
    operand: Operand
    memory: Any
    copied: bool


def memory_of(op: str, out: Any) -> list[Operand | None]:
    """What is given for each output; None where fresh memory is wanted.

    Raises:
        DTypeError: EK0853 one is not a tensor that can be written.
    """
    several = isinstance(out, tuple | list)
    given = list(out) if several else [out]
    names = [f"out[{number}]" if several else "out" for number in range(len(given))]
    return [None if value is None else _operand(op, name, value) for name, value in zip(names, given, strict=True)]


def _operand(op: str, name: str, value: object) -> Operand:
    if not isinstance(value, bool | int | float | complex | np.generic):
        try:
            return operand_of(value, op, name)
        except EinkornError as error:
            if error.code != "EK0850":
                raise
    text = f"cannot write into {shown_value(value)}, which is given as {name}="
    _wrong(op, text, name, "an array, a Buffer or a tensor", type(value).__name__, None, DTypeError)


def checked(
    op: str,
    names: Sequence[str],
    memory: Sequence[Operand | None],
    wanted: Sequence[tuple[DType, tuple[int, ...] | None]],
    device: Device,
) -> list[OutputPlace | None]:
    """The memory for each output. A shape of None is computed on the way, and checked then.

    Raises:
        GraphError, DTypeError: EK0853 it is for more or fewer outputs, of another dtype, shape or device; EK0461 it is
            read-only.
    """
    if len(memory) != len(names):
        text = f"has {plural(len(names), 'output')} ({', '.join(names)}), and out= has {plural(len(memory), 'place')}"
        written = f"write out=({', '.join(names)})" if len(names) > 1 else "write out=y"
        hint = written if names else "what it changes comes as an argument"
        _wrong(op, text, "out", len(names), len(memory), hint)
    results: list[OutputPlace | None] = []
    for name, operand, (dtype, shape) in zip(names, memory, wanted, strict=True):
        if operand is None:
            results.append(None)
            continue
        if operand.device != device:
            text = f"runs on {device}, and the memory for output '{name}' lies on {operand.device}"
            _wrong(op, text, name, str(device), str(operand.device), None)
        if operand.dtype is not dtype:
            text = f"gives {dtype} in output '{name}', and the memory for it holds {operand.dtype}"
            _wrong(op, text, name, str(dtype), str(operand.dtype), None, DTypeError)
        if shape is not None and operand.shape != shape:
            text = f"gives shape {shape} in output '{name}', and the memory for it has shape {operand.shape}"
            _wrong(op, text, name, shape, operand.shape, None)
        results.append(_place(op, name, operand))
    return results


def check_rank(op: str, name: str, operand: Operand, rank: int) -> None:
    """Refuses memory that has another number of axes than its output.

    Raises:
        GraphError: EK0853.
    """
    if len(operand.shape) != rank:
        text = f"gives {plural(rank, 'axis')} in output '{name}', and the memory for it has shape {operand.shape}"
        _wrong(op, text, name, rank, len(operand.shape), None)


def _place(op: str, name: str, operand: Operand) -> OutputPlace:
    array = operand.value if isinstance(operand.value, np.ndarray) else getattr(operand.value, "_array", None)
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise GraphError(
            f"op '{op}' writes output '{name}' to out=, and that is read-only",
            code="EK0461",
            place=user_place(),
            op=op,
            argument=name,
            expected="memory that can be written",
            got="read-only memory",
        )
    assert operand.dtype is not None
    plain = not isinstance(array, np.ndarray) or (array.flags.c_contiguous and array.flags.aligned)
    if isinstance(array, np.ndarray) and any(stride < 0 for stride in array.strides):
        plain = False  # of axes of size 1, which NumPy does not look at
    packed = isinstance(operand.value, np.ndarray) and operand.dtype.is_packed()
    if plain and not packed:
        return OutputPlace(name, operand, operand.value, False)
    assert operand.device is not None and not isinstance(operand.device, str)
    return OutputPlace(name, operand, Buffer(operand.dtype, operand.shape, operand.device), True)


def check_apart(
    op: str, names: Sequence[str], inputs: Sequence[Operand], outputs: Sequence[OutputPlace | None]
) -> None:
    """The memory that is written shares nothing with inputs, or with the memory of other outputs.

    Raises:
        GraphError: EK0462.
    """
    arrays = {name: _storage(operand.value) for name, operand in zip(names, inputs, strict=True)}
    lying = {name: array for name, array in arrays.items() if array is not None}
    written = [None if each is None else _storage(each.operand.value) for each in outputs]
    try:
        check_outputs(list(lying), list(lying.values()), written)
    except EinkornError as error:
        for number, place in enumerate(outputs):
            if place is not None:
                error.message = error.message.replace(f"out[{number}]", f"the memory for output '{place.name}'")
                error.argument = place.name if error.argument == f"out[{number}]" else error.argument
        error.message, error.op = f"op '{op}': {error.message}", op
        raise


def _storage(value: object) -> Any:
    return value if isinstance(value, np.ndarray) else getattr(value, "_array", None)


def filled(place: OutputPlace) -> None:
    """Copies a result to where the caller wants it."""
    if place.copied:
        target = place.operand.value
        source = place.memory.to_numpy()
        if isinstance(target, Buffer):
            np.copyto(target._array, source)
        else:
            np.copyto(target, source)


def _wrong(
    op: str,
    text: str,
    argument: str | None,
    expected: str | int | tuple[int, ...],
    got: str | int | tuple[int, ...],
    hint: str | None,
    kind: type[EinkornError] = GraphError,
) -> NoReturn:
    raise kind(
        f"op '{op}' {text}",
        code=CODE,
        place=user_place(),
        op=op,
        argument=argument,
        expected=expected,
        got=got,
        hint=hint,
    )
