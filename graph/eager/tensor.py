"""Defines `Tensor`: an array with a dtype, a shape and a device, which ops take and give.

A tensor has value semantics but for what says that it writes: `x[i] = y` and kernels that change their inputs. What was
computed from it before keeps its value, and so does every array that `numpy()` gave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DTypeError, ElementError, GraphError, shown_value
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..arguments import check_bytes, least_bytes, list_of, wrong
from ..driver.arrays import check_storable, rounded, source_of
from ..driver.buffer import Buffer
from ..driver.devices import Device, DeviceRef, device_of
from ..staging.graph import Graph
from ..staging.value import BufferValue, TensorValue
from ..types.dims import Dim, Shape, Sizes
from ..types.promotion import literal_array
from ..types.tensor_type import TensorType, shown
from .contexts import MODE, GraphRealizationContext, RealizationState, defaults
from .kinds import kind_of, no_memory
from .memory import buffer_of, elements_of, exported, on_host, value_lent, value_now, wrapped, writable
from .methods import Methods
from .missing_attributes import MissingAttributes
from .nodes import FRESH, FUNCTIONS, SHARED, Recorded
from .programs import value_of as kept

Dims = Iterable[int | Dim]
ARRAY_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
_new = object.__new__


def made(value: Any, pending: Any = None) -> Tensor:
    """A tensor of a value; `pending` is `FRESH` where nothing else uses that."""
    tensor = _new(Tensor)
    tensor._kind = kind_of(value)
    tensor._value = value
    tensor._pending = pending
    return tensor


ARRAY_API: ExtensionPoint[ModuleType] = ExtensionPoint("array_api")
CALL_KERNEL: ExtensionPoint[Callable[..., object]] = ExtensionPoint("graph.eager.values", "call_kernel")


class Tensor(Methods, Recorded, MissingAttributes):
    """An array with a dtype, a shape and a device. Ops on it run at once, or are recorded (see `einkorn.functional`).

    Tensors are made by `Tensor.constant`, `zeros`, `ones`, `full`, `arange`, `from_dlpack` and by `einkorn.random`.

    Args:
        storage: memory that becomes the value.
        state: a value of a graph, for which the tensor stands.
    """

    __slots__ = ()
    __array_priority__ = 100.0  # NumPy arrays leave the reflected operators to this class

    @placed
    def __init__(self, *args: Any, storage: Buffer | None = None, state: RealizationState | None = None) -> None:
        if args or (storage is None) == (state is None):
            raise DTypeError(
                "a Tensor is made by one of its functions",
                code="EK0841",
                argument="storage",
                hint="Tensor.constant([[1, 2], [3, 4]]), Tensor.zeros([2, 2]), Tensor.from_dlpack(array)",
            )
        self._kind = self._value = None  # type: ignore[assignment]
        self._pending = state
        if storage is not None:
            if not isinstance(storage, Buffer):
                wrong("storage", storage, "a Buffer")
            self._value, self._pending, self._kind = kept(storage), SHARED, kind_of(storage)

    # *** making ***

    @classmethod
    @placed
    def constant(cls, value: Any, *, dtype: DType | None = None, device: Device | DeviceRef | None = None) -> Tensor:
        """A tensor of a number, of nested lists of numbers, or of the elements of an array, which are copied.

        Args:
            value: what it holds.
            dtype: when left out arrays and bools keep theirs, complex numbers become complex64, and other numbers take
                the default, float32 on the host.
            device: where it lies; the default device when left out.
        """
        if isinstance(value, Tensor):
            value = elements_of(value)
        chosen, place = defaults(dtype, device)
        array = literal_array(value, dtype, "constant", user_place())
        keeps = isinstance(value, np.ndarray | np.generic) or hasattr(value, "__dlpack__") or array.dtype == np.bool_
        if dtype is None and not keeps and array.dtype.kind != "c":
            array = literal_array(value, chosen, "constant", user_place())
        return _placed_on(array, place)

    @classmethod
    @placed
    def full(
        cls, shape: Dims, value: complex, *, dtype: DType | None = None, device: Device | DeviceRef | None = None
    ) -> Tensor:
        """A tensor of one number."""
        chosen, place = defaults(dtype, device)
        if MODE.get().lazy:
            return FUNCTIONS["full"](shape, value, chosen, place)  # type: ignore[no-any-return]
        one = literal_array(value, chosen, "full", user_place())
        if one.ndim:
            wrong("value", value, "a number")
        sizes = _sizes(shape)
        check_bytes(least_bytes(chosen, sizes), lambda: f"full: a tensor of {chosen} with the shape {shown(sizes)}")
        try:
            return _placed_on(np.full(sizes, one, one.dtype), place)
        except MemoryError as error:
            raise no_memory("full", chosen, sizes) from error

    @classmethod
    @placed
    def zeros(cls, shape: Dims, *, dtype: DType | None = None, device: Device | DeviceRef | None = None) -> Tensor:
        """A tensor of zeros."""
        return cls.full(shape, 0, dtype=dtype, device=device)

    @classmethod
    @placed
    def ones(cls, shape: Dims, *, dtype: DType | None = None, device: Device | DeviceRef | None = None) -> Tensor:
        """A tensor of ones."""
        return cls.full(shape, 1, dtype=dtype, device=device)

    @classmethod
    @placed
    def full_like(cls, input: Tensor | TensorType, value: complex) -> Tensor:
        """A tensor of one number, with the shape, dtype and device of another."""
        return cls.full(input.shape, value, dtype=input.dtype, device=input.device)

    @classmethod
    @placed
    def zeros_like(cls, input: Tensor | TensorType) -> Tensor:
        """A tensor of zeros, with the shape, dtype and device of another."""
        return cls.full_like(input, 0)

    @classmethod
    @placed
    def ones_like(cls, input: Tensor | TensorType) -> Tensor:
        """A tensor of ones, with the shape, dtype and device of another."""
        return cls.full_like(input, 1)

    @classmethod
    @placed
    def arange(
        cls,
        start: float = 0,
        stop: float | None = None,
        step: float = 1,
        *,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> Tensor:
        """start, start + step, … up to `stop`, which is left out; from 0 on where one number is given."""
        chosen, place = defaults(dtype, device)
        first, last = (0, start) if stop is None else (start, stop)
        numbers = [each.item() if isinstance(each, Tensor) else each for each in (first, last, step)]
        return FUNCTIONS["arange"](*numbers, dtype=chosen, device=place)  # type: ignore[no-any-return]

    @classmethod
    @placed
    def range_like(cls, type: TensorType | Tensor) -> Tensor:
        """The numbers 0, 1, 2, … along the last axis, in the shape, dtype and on the device of a type."""
        *_, size = type.shape
        row = cls.arange(0, int(size), dtype=type.dtype, device=type.device)
        return row.broadcast_to(type.shape)

    @classmethod
    @placed
    def from_dlpack(cls, array: object) -> Tensor:
        """A tensor over the memory of an array of NumPy, PyTorch, JAX, …, which is not copied.

        What others write to it, the tensor shows; ops read it when they are called, under `F.lazy()` too.
        """
        if isinstance(array, Tensor):
            return array
        buffer = Buffer.from_dlpack(array)
        if buffer.is_host and not buffer.is_contiguous:
            return made(kept(buffer.copy()))
        tensor = made(kept(buffer))
        tensor._pending = SHARED
        return tensor

    @classmethod
    @placed
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> Tensor:
        """A tensor over the memory of a NumPy array, as `from_dlpack`."""
        if not isinstance(array, np.ndarray):
            wrong("array", array, "a NumPy array", kind=DTypeError, code="EK0803")
        return cls.from_dlpack(array)

    @classmethod
    @placed
    def from_graph_value(cls, value: TensorValue | BufferValue) -> Tensor:
        """A tensor that stands for a value of the graph that is being built."""
        if not isinstance(value, TensorValue | BufferValue):
            wrong("value", value, "a value of a graph")
        context = MODE.get()
        within = context if isinstance(context, GraphRealizationContext) else None
        return cls(state=RealizationState(value, within))

    # *** what it is ***

    @property
    def type(self) -> TensorType:
        """dtype, shape and device together."""
        if isinstance(self._pending, RealizationState):
            return self._pending.value.type.as_tensor() if self.state_is_buffer else self._pending.value.type  # type: ignore[union-attr,return-value]
        return self._kind.type

    @property
    def state_is_buffer(self) -> bool:
        """Whether it stands for memory of a graph that changes."""
        return isinstance(self._pending, RealizationState) and isinstance(self._pending.value, BufferValue)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._kind.dtype if not isinstance(self._pending, RealizationState) else self._pending.value.dtype

    @property
    def shape(self) -> Sizes:
        """One int an axis; of a value of a graph one `Dim` an axis."""
        if isinstance(self._pending, RealizationState):
            return self._pending.value.shape  # type: ignore[return-value]
        return self._kind.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    ndim = rank

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.num_elements()

    @property
    def device(self) -> Device:
        """Where it lies."""
        if isinstance(self._pending, RealizationState):
            return self._pending.value.device.to_device()
        return self._kind.device

    def num_elements(self) -> int:
        """How many elements it has."""
        return math.prod(int(dim) for dim in self.shape)

    @property
    def T(self) -> Tensor:
        """The last two axes swapped."""
        return self.transpose(-1, -2)

    mT = T

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        """`einkorn.array_api`, the functions of the array API standard for tensors.

        Raises:
            GraphError: EK0819, the standard has no such version.
        """
        if api_version is not None and api_version not in ARRAY_API_VERSIONS:
            wrong("api_version", api_version, f"one of {', '.join(ARRAY_API_VERSIONS)}", code="EK0819")
        return ARRAY_API.get()

    @staticmethod
    def __einkorn_call__(kernel: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        """What a kernel gives that is called with tensors."""
        return CALL_KERNEL.get()(kernel, args, kwargs)

    def __pos__(self) -> Tensor:
        return self

    def __divmod__(self, other: object) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Tensor, Tensor]:
        return other // self, other % self

    # *** its value ***

    @property
    def real(self) -> bool:
        """Whether it has its value."""
        return self._value is not None

    @property
    def realize(self) -> Tensor:
        """This tensor, which has its value now."""
        value_now(self)
        return self

    def __await__(self) -> Generator[Any, None, Tensor]:
        value_now(self)
        return self
        yield  # makes it a generator

    @property
    def state(self) -> RealizationState | None:
        """The value of a graph for which it stands; None where it has or can compute one of its own."""
        return self._pending if isinstance(self._pending, RealizationState) else None

    @property
    def storage(self) -> Buffer | None:
        """Its memory; None where it has no value yet."""
        return None if self._value is None else buffer_of(self)

    @property
    def driver_tensor(self) -> Buffer:
        """Its memory.

        Raises:
            GraphError: EK0840, it has no value yet.
        """
        if self._value is None:
            raise GraphError("the tensor has no value yet", code="EK0840", place=user_place(), hint="x.realize first")
        return buffer_of(self)

    @placed
    def numpy(self) -> np.ndarray[Any, Any]:
        """Its elements as a NumPy array that cannot be written, on the host without a copy."""
        array = on_host(value_lent(self)).view()
        array.flags.writeable = False
        return array

    to_numpy = numpy

    def __tensorvalue__(self) -> TensorValue:
        """The value for which it stands in the graph that is being built: a constant, where it has elements."""
        if isinstance(self._pending, RealizationState):
            return self._pending.value  # type: ignore[return-value]
        graph = Graph.current
        return graph.stage_constant(np.array(elements_of(self)), self._kind.ref, user_place())

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """A function of NumPy's: it gets arrays, and gives what it gives."""
        return function(*_arrays(args), **_arrays(kwargs))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    @placed
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        options = {name: value for name, value in given.items() if value is not None}
        return exported(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return wrapped(value_now(self)).__dlpack_device__()

    @placed
    def item(self) -> bool | int | float:
        """The only element, as a Python number.

        Raises:
            TypeError: there is no exactly one.
        """
        value_now(self)
        if self.num_elements() != 1:
            raise ItemError(
                f"item() needs a tensor of one element, and this one has shape {_shown(self)}",
                code="EK0842",
                expected="one element",
                got=_shown(self),
            )
        return wrapped(value_now(self)).item()

    def tolist(self) -> Any:
        """Its elements as nested lists of Python numbers."""
        return elements_of(self).tolist()

    @placed
    def __bool__(self) -> bool:
        try:
            return bool(self.item())
        except ItemError as error:
            error.hint = "choose one: F.all(x, axis=None) or F.any(x, axis=None)"
            raise

    @placed
    def __float__(self) -> float:
        return float(self.item())

    @placed
    def __int__(self) -> int:
        return int(self.item())

    @placed
    def __complex__(self) -> complex:
        return complex(self.item())

    @placed
    def __index__(self) -> int:
        if not self.dtype.is_integral():
            raise DTypeError(f"a tensor of {self.dtype} is not an index", code="EK0413", expected="integers")
        return int(self.item())

    @placed
    def __len__(self) -> int:
        if self.rank == 0:
            raise ItemError("a tensor of rank 0 has no length", code="EK0842", expected="an axis", got="rank 0")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    @placed
    def __contains__(self, item: object) -> bool:
        return item in elements_of(self)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        if isinstance(self._pending, RealizationState):
            return f"Tensor({self._pending.value!r})"
        if self._value is None:
            return f"Tensor(not computed yet, {self.dtype}, shape={_shown(self)}{_where(self)})"
        text = np.array2string(_readable(self), separator=", ", prefix="Tensor(")
        text += f", shape={_shown(self)}" if 0 in self._kind.sizes and self.rank > 1 else ""
        return f"Tensor({text}, {self.dtype}{_where(self)})"

    def __str__(self) -> str:
        return repr(self) if isinstance(self._pending, RealizationState) else str(_readable(self))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (buffer_of(self),)

    def __copy__(self) -> Tensor:
        return made(value_lent(self)) if not isinstance(self._pending, RealizationState) else self

    def __deepcopy__(self, memo: object) -> Tensor:
        return made(kept(wrapped(value_now(self)).copy()))

    # *** what moves and writes ***

    @placed
    def to(self, device: Device | DeviceRef) -> Tensor:
        """This tensor on a device; itself where it lies there."""
        if isinstance(self._pending, RealizationState):
            return FUNCTIONS["transfer_to"](self, device)  # type: ignore[no-any-return]
        place = device_of(device)
        return self if place == self._kind.device else made(kept(wrapped(value_now(self)).to(place)))

    transfer_to = to

    def to_device(self, device: Device | DeviceRef, /, *, stream: object = None) -> Tensor:
        """As `to`, under the name that the array API standard gives it; copies are ordered without `stream`."""
        return self.to(device)

    @placed
    def __setitem__(self, indices: object, value: object) -> None:
        """Writes numbers, an array or a tensor, broadcast, to the elements that the indices name."""
        if isinstance(self._pending, RealizationState):
            FUNCTIONS["buffer_store_slice"](self, value, indices)
            return
        indices = tuple(_index(each) for each in indices) if isinstance(indices, tuple) else _index(indices)
        source = elements_of(value) if isinstance(value, Tensor) else source_of(value)
        write(self, indices, np.array(source), value)


class ItemError(GraphError, TypeError):
    """A tensor with more or fewer elements than one is used as a number."""


def picked(tensor: Tensor, items: tuple[object, ...]) -> Tensor:
    """The elements that lists, arrays and masks among the indices pick, as NumPy has them.

    Raises:
        ElementError: EK0425, the indices do not suit the tensor; it is an IndexError, too.
    """
    indices = tuple(_index(each) for each in items)
    elements = elements_of(tensor)
    try:
        result = elements[indices]
    except (IndexError, TypeError) as error:
        got = ", ".join("a tensor" if isinstance(each, Tensor) else shown_value(each) for each in items)
        raise ElementError(
            f"a tensor of shape {_shown(tensor)} has no such elements: {error}",
            code="EK0425",
            place=user_place(),
            argument="indices",
            expected=f"indices of shape {_shown(tensor)}",
            got=got,
        ) from None
    return _placed_on(np.array(result, order="C"), tensor._kind.device)


def write(tensor: Tensor, indices: object, source: np.ndarray[Any, Any], given: object) -> None:
    """Writes elements of a tensor. What was computed from it keeps its value.

    Raises:
        IndexError, GraphError, DTypeError: the indices or the elements do not suit it.
    """
    dtype = tensor.dtype
    check_storable(source, given, dtype)
    array = writable(tensor)
    items = indices if isinstance(indices, tuple) else (indices,)
    whole = items if any(each is Ellipsis for each in items) else (*items, ...)  # it keeps elements arrays
    try:
        array[whole] = rounded(source, dtype)
    except (IndexError, ValueError) as error:
        raise GraphError(
            str(error), code="EK0843", place=user_place(), expected=_shown(tensor), got=source.shape
        ) from None
    if not tensor._kind.plain or not tensor._kind.device.is_host:
        place = tensor._kind.device
        tensor._value = kept(Buffer.from_numpy(array).to(place))


def _index(item: object) -> Any:
    if isinstance(item, Tensor):
        return elements_of(item)
    return int(item) if isinstance(item, Dim) else item


def _placed_on(array: np.ndarray[Any, Any], device: Device) -> Tensor:
    if device.is_host and not DType.from_numpy(array.dtype).is_packed():
        return made(array, FRESH)
    return made(kept(Buffer.from_numpy(array).to(device)))


def _sizes(shape: Dims) -> tuple[int, ...]:
    sizes = tuple(int(dim) for dim in Shape(list_of("shape", shape, "sizes")))
    if min(sizes, default=0) < 0:
        wrong("shape", shape, "sizes that are not below 0")
    return sizes


def _unpickled(buffer: Buffer) -> Tensor:
    return made(kept(buffer))


def _arrays(value: object) -> Any:
    """Arguments with arrays in the place of tensors."""
    if isinstance(value, list | tuple):
        return type(value)(map(_arrays, value))
    if isinstance(value, dict):
        return {name: _arrays(each) for name, each in value.items()}
    return value.numpy() if isinstance(value, Tensor) else value


def _readable(tensor: Tensor) -> np.ndarray[Any, Any]:
    array = elements_of(tensor)
    return array if array.dtype.kind in "biufc" else array.astype(np.float32 if tensor.dtype.is_float() else np.int8)


def _shown(tensor: Tensor) -> str:
    return f"({', '.join(str(dim) for dim in tensor.shape)})"


def _where(tensor: Tensor) -> str:
    return "" if tensor.device.is_host else f", {tensor.device}"
