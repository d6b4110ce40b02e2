"""Keeps tensors in memory: buffers, which models take and give.

A buffer on the host is a NumPy array with a dtype of Einkorn and a device: going to and from NumPy and, by DLPack, to
and from PyTorch, JAX and others copies nothing. Code that shares memory keeps it alive: a buffer holds a reference to
the array that it was made from, and an array from `to_numpy` to the buffer's memory, so either may be dropped first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Literal, overload

import numpy as np

from ...dsl.diagnostics.errors import DeviceError, DTypeError, GraphError
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ...dsl.types.packing import pack
from ..arguments import dtype_of, flag_of, list_of, wrong
from . import dlpack
from .arrays import check_storable, check_unmasked, index_of, is_pinned, mapped, rounded, sizes_of, source_of
from .buffer_operators import refuse_arithmetic
from .device import Array
from .devices import CPU, Device, DeviceRef, device_of, place_of_stream
from .streams import DeviceStream

BUFFER_CLASS: ExtensionPoint[Callable[..., type[Buffer]]] = ExtensionPoint("graph.driver.device_buffer", "buffer_class")
TAKEN: ExtensionPoint[Callable[[object], Buffer | None]] = ExtensionPoint("graph.driver.device_buffer", "taken")


class Buffer:
    """A tensor in memory: a dtype, a shape of ints, a device.

    Args:
        dtype: the element type.
        shape: sizes >= 0, one an axis.
        device: where to allocate; the host when left out.
        pinned: whether to allocate memory of the host instead that `device` copies from and to directly.
        stream: the stream of the device that uses it first; the thread's when left out. It says the device, too.

    The elements are undefined until written; `Buffer.zeros` clears them.

    Raises:
        GraphError: a size is negative or not an int.
        DeviceError: the device is not available.
    """

    __slots__ = ("__weakref__", "_array", "_device", "_dtype", "_marked_by_hand")
    _array: Array  # what the tensor lies in; subclasses have something else there

    @placed
    def __new__(
        cls,
        dtype: DType,
        shape: Sequence[int],
        device: Device | DeviceRef | None = None,
        pinned: bool = False,
        stream: DeviceStream | None = None,
    ) -> Buffer:
        where = CPU() if pinned else device_of(device) if stream is None else place_of_stream(device, stream)
        return object.__new__(BUFFER_CLASS.get()(where, dtype_of("dtype", dtype)))

    @placed
    def __init__(
        self,
        dtype: DType,
        shape: Sequence[int],
        device: Device | DeviceRef | None = None,
        pinned: bool = False,
        stream: DeviceStream | None = None,
    ) -> None:
        self._device = device_of(device) if stream is None else place_of_stream(device, stream)
        self._dtype = dtype
        sizes = sizes_of(shape, dtype)
        self._array = self._allocate(sizes, pinned).view(dtype.to_numpy()).reshape(sizes)
        if pinned:
            self._device = CPU()

    def _allocate(self, sizes: tuple[int, ...], pinned: bool = False) -> Any:
        """The storage for a tensor of these sizes, as bytes.

        Raises:
            DeviceError: EK0808 there is not enough of it.
        """
        size = self._dtype.bytes_for(math.prod(sizes))
        try:
            driver = self._device.driver
            storage = driver.allocate_pinned(size) if pinned else driver.allocate(size)
        except MemoryError as error:
            text = f"cannot allocate {size} bytes for {self._dtype} of shape {sizes}"
            code, notes = getattr(error, "code", "EK0808"), getattr(error, "notes", [])
            raise DeviceError(text, code=code, notes=notes) from error
        driver.attribute(storage, f"buffers of {self._dtype} {sizes}")
        return storage

    @classmethod
    def _over(cls, storage: Any, device: Device, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        """A buffer over storage; on the host an array that has this shape already, bytes for those of packed dtypes."""
        buffer = object.__new__(cls)
        buffer._array = storage
        buffer._dtype = dtype
        buffer._device = device
        return buffer

    @classmethod
    def _wrap(cls, array: Array, device: Device) -> Buffer:
        """A buffer over an array of the host."""
        return cls._over(array, device, DType.from_numpy(array.dtype), array.shape)

    # --- making ---

    @classmethod
    @placed
    def zeros(cls, shape: Sequence[int], dtype: DType, device: Device | DeviceRef | None = None) -> Buffer:
        """A buffer of zeros; in float8_e8m0fnu, which has none, of NaN, which 0 becomes in it."""
        buffer = cls(dtype, shape, device)
        buffer._clear()
        return buffer

    @classmethod
    @placed
    def scalar(cls, value: object, dtype: DType, device: Device | DeviceRef | None = None) -> Buffer:
        """A buffer of rank 0 that holds `value`.

        Raises:
            DTypeError: the value is of a kind that `dtype` does not hold, a float for an integer for one.
        """
        buffer = cls(dtype, (), device)
        buffer[()] = value
        return buffer

    @classmethod
    @placed
    def from_numpy(cls, array: Array) -> Buffer:
        """A buffer over the array's own memory, which it keeps alive; writes on one side show on the other.

        An array that is not C-contiguous, or not aligned to its element size, is copied. A read-only array gives a
        read-only buffer. Elements of 4 bits, which take a byte each in NumPy, are packed into other memory.

        Raises:
            DTypeError: not a NumPy array, or of a dtype that has no counterpart here.
        """
        if not isinstance(array, np.ndarray | np.generic):
            raise DTypeError(
                f"from_numpy takes a NumPy array, not {type(array).__name__}",
                code="EK0803",
                argument="array",
                expected="numpy.ndarray",
                got=type(array).__name__,
            )
        check_unmasked(array, "array")
        dtype = DType.from_numpy(array.dtype)
        if dtype.is_packed():
            return BUFFER_CLASS.get()(CPU(), dtype)._over(pack(array), CPU(), dtype, array.shape)
        return cls._wrap(np.require(array, requirements=["C", "A"]), CPU())

    @classmethod
    @placed
    def from_dlpack(cls, array: object, *, copy: bool | None = None) -> Buffer:
        """A buffer over the memory of any DLPack producer, which stays its owner.

        Args:
            array: a NumPy array, a `Buffer`, a torch or JAX array, …; strided memory stays strided.
            copy: True always copies, False never does (and raises where one is needed), None copies when needed.

        Raises:
            DTypeError: no DLPack producer, or of a dtype that has no counterpart here.
            DeviceError: its memory lies on an accelerator, or a copy was forbidden but is needed.
        """
        check_unmasked(array, "array")
        copy = None if copy is None else flag_of("copy", copy)
        if isinstance(array, Buffer) and not array.is_host:
            return array.copy() if copy else array
        if isinstance(array, np.ndarray | Buffer):
            source = array._array if isinstance(array, Buffer) else array
            if (array.dtype if isinstance(array, Buffer) else DType.from_numpy(array.dtype)).is_packed():
                return cls._packed_from(array, copy)
        else:
            result = TAKEN.get()(array) if hasattr(array, "__dlpack_device__") else None
            if result is not None:
                return result.copy() if copy else result
            source = dlpack.import_host(array)
        if not source.flags.aligned:
            if copy is False:
                raise DeviceError("the array is not aligned to its elements, so it has to be copied", code="EK0804")
            copy = True
        return cls._wrap(np.array(source, order="C") if copy else source, CPU())

    @classmethod
    def _packed_from(cls, array: Array | Buffer, copy: bool | None) -> Buffer:
        if isinstance(array, Buffer):
            return array.copy() if copy else array
        if copy is False:
            raise DeviceError("elements of 4 bits have to be packed, so the array is copied", code="EK0804")
        return cls.from_numpy(array)

    @classmethod
    @placed
    def mmap(
        cls,
        filename: str | os.PathLike[str],
        dtype: DType,
        shape: Sequence[int] | int,
        mode: Literal["readonly", "r", "copyonwrite", "c", "readwrite", "r+"] = "copyonwrite",
        offset: int = 0,
    ) -> Buffer:
        """A buffer over a file's bytes from `offset` on; by default writes stay in this process.

        Raises:
            DeviceError: the file cannot be read, or is too short.
        """
        sizes = sizes_of((shape,) if isinstance(shape, int) else shape, dtype_of("dtype", dtype))
        data = mapped(filename, dtype, sizes, mode, offset)
        return BUFFER_CLASS.get()(CPU(), dtype)._over(data, CPU(), dtype, sizes)

    # --- looking ---

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, one an axis."""
        return tuple(self._array.shape)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self._array.ndim

    @property
    def device(self) -> Device:
        """Where the memory lies."""
        return self._device

    @property
    def stream(self) -> DeviceStream:
        """The stream of the device that used the memory last; on the host the default one."""
        used = getattr(getattr(self._array, "block", None), "stream", None)
        return used if isinstance(used, DeviceStream) else self._device.default_stream

    @property
    def is_host(self) -> bool:
        """Whether the memory is the process's own."""
        return self._device.is_host

    @property
    def num_elements(self) -> int:
        """How many elements there are; 1 at rank 0."""
        return self._array.size

    @property
    def element_size(self) -> int:
        """Bytes of one element."""
        return self._dtype.size_in_bytes

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all elements."""
        return self._dtype.bytes_for(self.num_elements)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie without gaps in row-major order; never so after a negative step."""
        array = self._array
        return array.flags.c_contiguous and all(stride >= 0 for stride in array.strides)

    @property
    def is_read_only(self) -> bool:
        """Whether writing raises."""
        return not self._array.flags.writeable

    @property
    def pinned(self) -> bool:
        """Whether it is memory of the host that a device copies from and to directly."""
        return is_pinned(self._array)

    @property
    def address(self) -> int:
        """The address of the first element, for native code; valid while the buffer lives."""
        return self._array.ctypes.data

    def __repr__(self) -> str:
        return f"Buffer({self.dtype}, {self.shape}, {self.device})"

    # --- reading and writing elements ---

    @placed
    def item(self) -> bool | int | float:
        """The only element, as a Python number.

        Raises:
            GraphError: there is no exactly one element.
        """
        if self.num_elements != 1:
            raise GraphError(
                f"item() needs a buffer of one element, and this one has shape {self.shape}",
                code="EK0805",
                expected="one element",
                got=self.shape,
            )
        value = self._array.reshape(()).item()
        return float(value) if self.dtype.is_float() else value

    @placed
    def __getitem__(self, index: object) -> Buffer:
        """A view of some elements, by ints, slices, `...` and None; IndexError when an int is out of range."""
        return self._wrap(self._view(index), self._device)

    @placed
    def __setitem__(self, index: object, value: object) -> None:
        """Writes a number, an array or a buffer, broadcast to the elements that `index` names.

        Raises:
            DeviceError: the buffer is read-only.
            DTypeError: the value is of a kind that the dtype does not hold.
            GraphError: shapes differ, or a number is out of the dtype's range.
        """
        self._check_writable()
        source = value.to_numpy() if isinstance(value, Buffer) else source_of(value)
        check_storable(source, value, self._dtype)
        try:
            np.copyto(self._view(index), rounded(source, self._dtype))
        except ValueError as error:
            raise GraphError(str(error), code="EK0805", expected=self.shape, got=source.shape) from error

    def _check_writable(self) -> None:
        if self.is_read_only:
            raise DeviceError("the buffer is read-only, as is what it was made from", code="EK0807", hint="copy() it")

    def _view(self, index: object) -> Array:
        items = index_of(index)
        # The ellipsis keeps NumPy from turning a fully indexed element into a scalar of its own.
        return self._array[items if Ellipsis in items else (*items, ...)]

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Buffer]:
        return (self[position] for position in range(len(self)))

    # --- other views and copies ---

    @placed
    def view(self, dtype: DType, shape: Sequence[int] | None = None) -> Buffer:
        """The same bytes with another dtype and shape.

        Args:
            dtype: the new element type.
            shape: the new sizes; left out, the last axis absorbs a change of element size.

        Raises:
            GraphError: not contiguous, or the bytes do not divide so.
        """
        size = self.size_in_bytes
        dtype_of("dtype", dtype)
        if shape is None:
            if dtype.is_packed() or self._dtype.is_packed():
                raise GraphError(f"a view between {self.dtype} and {dtype} needs the shape", code="EK0805")
            last = self.shape[-1] * self.element_size if self.rank else self.element_size
            if last % dtype.size_in_bytes or (not self.rank and last != dtype.size_in_bytes):
                raise GraphError(
                    f"a shape cannot be deduced: {last} bytes do not make whole elements of {dtype}",
                    code="EK0805",
                )
            sizes = (*self.shape[:-1], last // dtype.size_in_bytes) if self.rank else ()
        else:
            sizes = sizes_of(shape, dtype)
        if dtype.bytes_for(math.prod(sizes)) != size or not self.is_contiguous:
            raise GraphError(
                f"{self!r} cannot be viewed as {dtype} of shape {sizes}",
                code="EK0805",
                expected=f"{size} contiguous bytes" if self.is_contiguous else "a contiguous buffer",
                got=f"{dtype.bytes_for(math.prod(sizes))} bytes",
            )
        return self._seen_as(dtype, sizes)

    def _seen_as(self, dtype: DType, sizes: tuple[int, ...]) -> Buffer:
        """The same bytes, of which there are as many as needed."""
        if dtype.is_packed():
            data = self._array.reshape(-1).view(np.uint8)
            return BUFFER_CLASS.get()(self._device, dtype)._over(data, self._device, dtype, sizes)
        return Buffer._wrap(self._array.reshape(-1).view(dtype.to_numpy()).reshape(sizes), self._device)

    def contiguous(self) -> Buffer:
        """A contiguous copy."""
        return self.copy()

    @placed
    def copy(
        self, device: Device | DeviceRef | DeviceStream | None = None, *, stream: DeviceStream | None = None
    ) -> Buffer:
        """A contiguous copy, on another device when one is given, by work on a stream where one is given."""
        if isinstance(device, DeviceStream):
            device, stream = None, device
        if stream is not None:
            with stream:
                return self.copy(place_of_stream(device, stream))
        buffer = Buffer(self._dtype, self.shape, self._device if device is None else device)
        buffer._take(self)
        return buffer

    def _take(self, source: Buffer) -> None:
        """Copies all elements from a contiguous buffer of as many."""
        np.copyto(self._array, source._host_array().reshape(self._array.shape))

    def _host_array(self) -> Array:
        """The elements as an array of the host: of a packed dtype the bytes."""
        return self._array

    def _clear(self) -> None:
        """Sets each element to 0."""
        self._array.fill(0)

    @overload
    def to(self, device: Device | DeviceRef | DeviceStream) -> Buffer: ...

    @overload
    def to(self, device: Iterable[Device | DeviceRef | DeviceStream]) -> list[Buffer]: ...

    def to(
        self, device: Device | DeviceRef | DeviceStream | Iterable[Device | DeviceRef | DeviceStream]
    ) -> Buffer | list[Buffer]:
        """This buffer on `device`, copied only when it lies elsewhere; for several devices, a list. A stream stands for
        its device, and the copy is work on it."""
        if isinstance(device, DeviceStream):
            with device:
                place: Device = device.device
                return self.to(place)
        if not isinstance(device, Device | DeviceRef):
            devices = list_of("device", device, "devices", "EK0802")
            return [self.to(d if isinstance(d, Device | DeviceStream) else DeviceRef.from_device(d)) for d in devices]
        target = device.to_device() if isinstance(device, DeviceRef) else device
        return self if target == self._device else self.copy(target)

    def disable_auto_sync(self) -> None:
        """Lets the program say when the elements are ready, by `mark_as_ready`.

        Reading the buffer waits for the stream that used it last, and for no other. So it always waits long enough.
        """
        self._marked_by_hand = True

    @placed
    def mark_as_ready(self) -> None:
        """Says that the work that is enqueued by now makes the elements ready.

        Raises:
            DeviceError: EK0845 without `disable_auto_sync` before.
        """
        if not getattr(self, "_marked_by_hand", False):
            text = "mark_as_ready is for buffers whose synchronization the program does itself"
            raise DeviceError(text, code="EK0845", hint="call buffer.disable_auto_sync() first")

    @placed
    def inplace_copy_from(self, src: Buffer) -> None:
        """Copies the elements of `src` into this buffer.

        Raises:
            GraphError: one of the two is not contiguous, or dtype or number of elements differ.
            DeviceError: this buffer is read-only.
        """
        if not isinstance(src, Buffer):
            wrong("src", src, "a Buffer", code="EK0805")
        if not (self.is_contiguous and src.is_contiguous):
            raise GraphError("inplace_copy_from needs two contiguous buffers", code="EK0805")
        if (self._dtype, self.num_elements) != (src._dtype, src.num_elements):
            raise GraphError(
                f"inplace_copy_from needs equal dtypes and sizes, and has {self!r} and {src!r}",
                code="EK0805",
                expected=repr(self),
                got=repr(src),
            )
        self._check_writable()
        self._take(src)

    # --- Python's own copies ---

    def __copy__(self) -> Buffer:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        elements = np.asarray(self._host_array(), order="C")
        return _restored, (elements, self._dtype.name, self.shape, self._device)

    # --- exchange ---

    def to_numpy(self) -> Array:
        """The elements as a NumPy array over the same memory, which it keeps alive."""
        return self._array.view()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        return array.copy() if copy else array.view()

    def __dlpack__(self, **keywords: Any) -> Any:
        return dlpack.export(self._array, keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.HOST_DEVICES[0], 0


def _restored(elements: Array, dtype: str, shape: tuple[int, ...], device: Device) -> Buffer:
    """The buffer that was pickled, on the device that it lay on.

    Raises:
        DeviceError: EK0801, that device is not here.
    """
    kind = DType[dtype]
    near: Buffer = BUFFER_CLASS.get()(CPU(), kind)._over(elements, CPU(), kind, shape)
    return near.to(device)


refuse_arithmetic(Buffer)


class WholeBuffer(Buffer):
    """A buffer without gaps that is reported its shape: what it lies in does not know it."""

    __slots__ = ("_shape",)
    _shape: tuple[int, ...]

    @classmethod
    def _over(cls, storage: Any, device: Device, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        buffer = object.__new__(cls)
        buffer._array, buffer._device, buffer._dtype, buffer._shape = storage, device, dtype, shape
        return buffer

    @placed
    def __init__(
        self,
        dtype: DType,
        shape: Sequence[int],
        device: Device | DeviceRef | None = None,
        pinned: bool = False,
        stream: DeviceStream | None = None,
    ) -> None:
        self._device = device_of(device) if stream is None else place_of_stream(device, stream)
        self._dtype, self._shape = dtype, sizes_of(shape, dtype)
        with stream or nullcontext():
            self._array = self._allocate(self._shape, pinned)
        if pinned:
            self._device = CPU()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def rank(self) -> int:
        return len(self._shape)

    @property
    def num_elements(self) -> int:
        return math.prod(self._shape)

    @property
    def is_contiguous(self) -> bool:
        return True

    @placed
    def item(self) -> bool | int | float:
        if self.num_elements != 1:
            return super().item()
        value: int | float = self.to_numpy().reshape(()).item()
        return float(value) if self.dtype.is_float() else value

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a buffer of rank 0")
        return self._shape[0]

    @placed
    def __setitem__(self, index: Any, value: Any) -> None:
        self._check_writable()
        source = value.to_numpy() if isinstance(value, Buffer) else source_of(value)
        check_storable(source, value, self._dtype)
        whole = self.to_numpy()
        try:
            whole[index] = rounded(source, self._dtype)
        except (ValueError, IndexError, TypeError) as error:
            raise GraphError(str(error), code="EK0805", expected=self.shape, got=source.shape) from error
        self._take(Buffer.from_numpy(whole))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(f"a buffer of {self.dtype} becomes an array by a copy only")
        array = self.to_numpy()
        return array if dtype is None else array.astype(dtype, copy=False)
