"""Checks what a model takes: each input of a call as storage of the right dtype and shape, or what is wrong with it.

See also `call` (the memory of a call).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DTypeError, EinkornError, GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ...dsl.types.packing import pack
from ..driver.arrays import check_unmasked
from ..driver.buffer import Buffer
from ..types.dims import AlgebraicDim, Dim, StaticDim, SymbolicDim, linear_in
from ..types.promotion import weak_array
from ..types.strides import whole
from ..types.tensor_type import BufferType, ShapedType

WRONG_INPUT = ("EK0452", "EK0453", "EK0454", "EK0477")  # which other inputs may be, too


class InputCheck:
    """Turns what a caller passes into an array of the right dtype, or says what is wrong."""

    def __init__(self, name: str, type: ShapedType) -> None:
        self.name = name
        self.type = type
        self.dtype = type.dtype.to_numpy()
        self.is_buffer = isinstance(type, BufferType)
        self.device = type.device.to_device()
        self.driver = self.device.driver
        # Whether it lies in storage that is not an array of its elements.
        self.special = type.dtype.is_packed() or not self.device.is_host
        self.misalign = self.dtype.alignment - 1  # the bits of an address that have to be 0

    @property
    def _variable(self) -> str:
        """What hints call a value that is passed for the input: names of weights and of files may be none in Python."""
        return self.name if self.name.isidentifier() else "x"

    def scalar(self, value: bool | int | float | complex) -> np.ndarray[Any, Any]:
        """A Python number for an input of rank 0; what the dtype cannot hold is refused, not cut."""
        dtype = self.type.dtype
        if isinstance(value, bool) == (dtype is DType.bool):
            return weak_array(value, dtype, f"'{self.name}'", self.name, user_place())
        raise DTypeError(
            f"'{self.name}' takes a {dtype}, not {value!r}",
            code="EK0452",
            place=user_place(),
            argument=self.name,
            expected=str(dtype),
            got=repr(value),
        )

    def storage(self, value: object) -> tuple[Any, tuple[int, ...]]:
        """The storage and the shape of an input that lies on another device than the host, or is packed."""
        if isinstance(value, Buffer):
            if value._device.driver is not self.driver:  # a device has one
                raise self._elsewhere(value)
            if value.dtype is self.type.dtype:
                return value._array, value.shape
        elif not self.device.is_host and hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
            return self.storage(Buffer.from_dlpack(value))
        if not self.device.is_host:
            raise self._not_on_device(value)
        if self.is_buffer:
            raise DTypeError(
                f"'{self.name}' is changed in place, and only a Buffer of {self.type.dtype} has its packed elements",
                code="EK0452",
                place=user_place(),
                argument=self.name,
                expected=f"Buffer of {self.type.dtype}",
                got=type(value).__name__,
                hint="make one by Buffer.from_numpy(x), and look at it by to_numpy() afterwards",
            )
        result = self.array(value)
        return pack(result), result.shape

    def array(self, value: object) -> np.ndarray[Any, Any]:
        if isinstance(value, Buffer):
            if value._device.driver is not self.driver:  # a device has one
                raise self._elsewhere(value)
            result = value.to_numpy()
        elif isinstance(value, np.ndarray):
            check_unmasked(value, self.name)
            result = value
        elif isinstance(value, np.generic) and not self.is_buffer:
            result = np.asarray(value)
        elif isinstance(value, bool | int | float | complex) and self.type.rank == 0 and not self.is_buffer:
            result = self.scalar(value)
        elif hasattr(value, "__dlpack__"):
            result = Buffer.from_dlpack(value).to_numpy()
        else:
            raise DTypeError(
                f"'{self.name}' is not a tensor but {type(value).__name__}",
                code="EK0452",
                place=user_place(),
                argument=self.name,
                expected=str(self.type),
                got=type(value).__name__,
                hint=_made_array(self._variable, value, self.type.dtype),
            )
        if result.dtype != self.dtype:
            raise DTypeError(
                f"'{self.name}' holds {result.dtype}, the graph takes {self.type.dtype}",
                code="EK0452",
                place=user_place(),
                argument=self.name,
                expected=str(self.type.dtype),
                got=str(result.dtype),
                hint=f"convert it: {_converted(self._variable, value, self.type.dtype)}",
            )
        if not result.flags.c_contiguous and not whole(result):
            raise GraphError(
                f"'{self.name}' has strides of {result.strides} bytes, and its elements take {result.itemsize}",
                code="EK0453",
                place=user_place(),
                argument=self.name,
                expected=f"strides that are multiples of {result.itemsize} bytes",
                got=f"strides {result.strides}",
                hint="copy it: np.ascontiguousarray(x)",
            )
        return result

    def _elsewhere(self, value: Buffer) -> GraphError:
        """Nothing moves by itself."""
        return GraphError(
            f"'{self.name}' lies on {value.device}, and the graph takes it on {self.device}",
            code="EK0430",
            place=user_place(),
            argument=self.name,
            expected=str(self.device),
            got=str(value.device),
            hint=f"move it with .to({self.type.device!r})",
        )

    def _not_on_device(self, value: object) -> DTypeError:
        what = str(value.dtype) if isinstance(value, Buffer) else type(value).__name__
        return DTypeError(
            f"'{self.name}' has to be a Buffer of {self.type.dtype} on {self.device}, and is {what}",
            code="EK0452",
            place=user_place(),
            argument=self.name,
            expected=str(self.type),
            got=what,
            hint="Buffer.from_numpy(x).to(device) makes one of an array",
        )

    def misplaced(self, value: np.ndarray[Any, Any], address: int) -> None:
        """Refuses an array of which native code cannot read the elements where they lie.

        Raises:
            GraphError: EK0464 its address is not aligned.
        """
        if value.size == 0:
            return
        least = self.misalign + 1
        raise GraphError(
            f"'{self.name}' lies at {address:#x}, and elements of {self.type.dtype} need a multiple of {least}",
            code="EK0464",
            place=user_place(),
            argument=self.name,
            expected=f"an address that is a multiple of {least}",
            got=f"{address:#x}",
            hint="copy it: np.array(x)",
        )


def _converted(name: str, value: object, dtype: DType) -> str:
    """How a tensor of a name gets another dtype, as its own library writes it."""
    if isinstance(value, Buffer):
        return f"Buffer.from_numpy({name}.to_numpy().astype({dtype.to_numpy().name!r}))"
    if type(value).__module__.partition(".")[0] == "torch":
        return f"{name}.to(torch.{dtype.name})"
    return f"{name}.astype({dtype.to_numpy().name!r})"


def _made_array(name: str, value: object, dtype: DType) -> str:
    if isinstance(value, list | tuple | bool | int | float | complex):
        return f"make an array of it: np.array({name}, dtype={dtype.to_numpy().name!r})"
    return "pass a Buffer, a NumPy array, or anything that speaks DLPack"


def wrong_inputs(checks: Sequence[InputCheck], inputs: Sequence[object]) -> list[EinkornError]:
    """What is wrong with each of a call's inputs, in their order."""
    results: dict[int, EinkornError] = {}
    shapes: list[tuple[int, ...] | None] = []
    for position, (check, value) in enumerate(zip(checks, inputs, strict=True)):
        try:
            shapes.append(check.storage(value)[1] if check.special else check.array(value).shape)
        except EinkornError as error:
            results[position] = error
            shapes.append(None)
    results |= sizes_of(checks, shapes)[1]
    return [results[position] for position in sorted(results)]


def known_sizes(checks: Sequence[InputCheck], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The value of each symbol.

    Raises:
        GraphError: EK0454, the first input of a wrong shape.
    """
    sizes, wrong = sizes_of(checks, shapes)
    if wrong:
        raise next(iter(wrong.values()))
    return sizes


def sizes_of(
    checks: Sequence[InputCheck], shapes: Sequence[tuple[int, ...] | None]
) -> tuple[dict[str, int], dict[int, GraphError]]:
    """The value of each symbol, and for each input of the wrong shape an error that shows both sides."""
    sizes: dict[str, tuple[int, str]] = {}
    wrong: dict[int, GraphError] = {}
    for position, (check, shape) in enumerate(zip(checks, shapes, strict=True)):
        if shape is not None:
            error = _misfit(sizes, check.name, check.type, shape)
            if error is not None:
                wrong[position] = error
    _solve(sizes, wrong, checks, shapes)
    return {name: size for name, (size, _) in sizes.items()}, wrong


def _misfit(
    sizes: dict[str, tuple[int, str]], name: str, type: ShapedType, shape: tuple[int, ...]
) -> GraphError | None:
    """Unifies the sizes of one input with those that are known."""
    if len(shape) != type.rank:
        return _shape_error(
            name, str(type), str(shape), f"'{name}' has rank {len(shape)}, the graph takes rank {type.rank}"
        )
    for axis, (dim, size) in enumerate(zip(type.shape, shape, strict=True)):
        if isinstance(dim, StaticDim):
            if int(dim) != size:
                text = f"'{name}' has size {size} on axis {axis}, the graph takes {dim}"
                return _shape_error(name, str(type), str(shape), text)
            continue
        if isinstance(dim, AlgebraicDim):
            continue  # when all names have values
        assert isinstance(dim, SymbolicDim)
        known, where = sizes.setdefault(dim.name, (size, f"axis {axis} of '{name}'"))
        if known != size:
            text = f"dim '{dim.name}' is {known} on {where} and {size} on axis {axis} of '{name}'"
            return _shape_error(name, f"{dim.name} = {known}", f"{dim.name} = {size}", text)
    return None


def _solve(
    sizes: dict[str, tuple[int, str]],
    wrong: dict[int, GraphError],
    checks: Sequence[InputCheck],
    shapes: Sequence[tuple[int, ...] | None],
) -> None:
    """Compares sizes that are expressions; one with a single name without a value gives it its value."""
    waiting = [
        (position, axis, dim, shape[axis])
        for position, (check, shape) in enumerate(zip(checks, shapes, strict=True))
        if shape is not None and position not in wrong
        for axis, dim in enumerate(check.type.shape)
        if isinstance(dim, AlgebraicDim)
    ]
    count = -1
    while waiting and count != len(waiting):
        count = len(waiting)
        for each in list(waiting):
            position, axis, dim, size = each
            argument = checks[position].name
            unknown = [name for name in dim.parameters if name not in sizes]
            form = linear_in(dim, unknown[0]) if len(unknown) == 1 else None
            if unknown and form is None:
                continue
            waiting.remove(each)
            values = {name: value for name, (value, _) in sizes.items()}
            if form is not None:
                value = (size - form[1].evaluate(values)) // form[0]
                sizes[unknown[0]] = max(value, 0), f"axis {axis} of '{argument}'"
                values[unknown[0]] = max(value, 0)
            if _value_of(dim, values) != size:
                known = ", ".join(f"{name} = {values[name]}" for name in dim.parameters if name not in unknown)
                text = f"'{argument}' has size {size} on axis {axis}, the graph takes {dim}"
                text = f"{text}, with {known}" if known else text
                wrong.setdefault(position, _shape_error(argument, str(dim), str(size), text))


def _value_of(dim: Dim, values: Mapping[str, int]) -> int | None:
    """The size that an expression is; None where it divides by zero."""
    try:
        return dim.evaluate(values)
    except GraphError:
        return None


def _shape_error(name: str, expected: str, got: str, text: str) -> GraphError:
    return GraphError(text, code="EK0454", place=user_place(), argument=name, expected=expected, got=got)
