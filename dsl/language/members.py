"""Declares what values answer: the members of numbers, vectors, tensors and pointers, for editors and type checkers.

`Numeric`, the bound of every type variable of kernels, has the members of tensors and of elements alike. What a kernel
may really do is checked by the compiler, which has more facts. Nothing here is imported as a file runs.

To mypy `InputTensor[T, "m n"]` is `T`, and the dims text metadata. Pyright reads the classes at the end of this file:
their `__class_getitem__` makes what stands between the brackets a value, not a type. A class that is a protocol with a
base that is none has all members of that base, and an argument needs those of the protocols alone: an array, a tensor
or a number is an `InputTensor` for a call, and inside the kernel an `InputTensor` has the members of the language.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from typing import Protocol
else:

    class Protocol:
        """A protocol of Python has protocols alone as its bases."""


T = TypeVar("T")


class Members:
    """What tensors, vectors and numbers answer."""

    dtype: Any
    rank: int
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    size: Any
    width: int

    def __init__(self, value: Any = 0) -> None: ...

    def dim(self, axis: int) -> Any:
        """The size of an axis; -1 is the last one."""

    def is_one(self, axis: int) -> bool:
        """Whether the size of an axis is 1, where it is known at compile time."""
        raise NotImplementedError

    def is_known(self, axis: int) -> bool:
        """Whether the size of an axis is known at compile time."""
        raise NotImplementedError

    def position(self, *index: Any) -> Any:
        """The row-major position of an index."""

    def at(self, position: Any, width: int = 1) -> Any:
        """The element at a row-major position, or `width` neighbours from there on."""

    def load(
        self,
        *index: Any,
        width: int = 1,
        stride: Any = 1,
        mask: Any = None,
        other: Any = None,
        align: int | None = None,
    ) -> Any:
        """A vector of neighbours along the last axis; under a mask, lanes that are off are `other`."""

    def store(self, value: Any, *index: Any, stride: Any = 1, mask: Any = None, align: int | None = None) -> None:
        """Stores a scalar or a vector; under a mask, the lanes that are on."""

    def fill(self, value: Any) -> None:
        """Stores one value in every element."""

    def gather(self, *index: Any, mask: Any = None, other: Any = None) -> Any:
        """A vector of elements at the indices in the lanes of vectors."""

    def scatter(self, value: Any, *index: Any, mask: Any = None) -> None:
        """Stores lanes at the indices in the lanes of vectors."""

    def is_aligned(self, bytes: int, *index: Any) -> Any:
        """Whether an element, the first one by default, lies at an address that is a multiple of so many bytes, a power
        of two, and its neighbours along the last axis behind it: what `align=` promises. False, known at compile time,
        where elements are computed as they are read, or stored by another kernel."""

    def tile(self, i: Any, j: Any, shape: Any, fill: Any = 0, align: int = 1) -> Any:
        """A view of tile (i, j) of a tensor of two axes that is cut into tiles of `shape`; beyond the end of the tensor
        elements are read as `fill`, and not stored. `align=16` promises that rows begin, and the rows of the tensor
        end, at multiples of so many bytes: then nothing is tested before they are copied in pieces of 16."""

    def fits_tensor_map(self) -> bool | None:
        """Whether hardware copies tiles of this matrix by a tensor map: whether its address and its strides are
        multiples of 16 bytes, among others. None, known at compile time, where it copies none so."""

    def as_matrix(self) -> Any:
        """The elements as a matrix: all axes but the last one are its rows. Nothing is copied."""

    def transpose(self) -> Any:
        """A matrix in shared memory with its axes exchanged, for `gpu.dot`."""

    def prefetch(self, *index: Any, locality: int = 3, write: bool = False) -> None:
        """Requests memory that is about to be read or written."""

    def pointer(self, *index: Any) -> Any:
        """The address of an element."""

    @property
    def real(self) -> Any:
        """The real part of a complex number; any other number as it is."""

    @property
    def imag(self) -> Any:
        """The imaginary part of a complex number; 0 of any other number."""

    def conj(self) -> Any:
        """The complex number with the opposite imaginary part; any other number as it is."""

    def conjugate(self) -> Any:
        """Another name of `conj`."""

    def cast(self, dtype: Any, *, saturate: bool = False) -> Any:
        """The number as another dtype; `saturate` holds it at the ends of an integer type instead of wrapping."""

    def with_lane(self, lane: Any, x: Any) -> Any:
        """The vector with another number in one lane."""

    def slice(self, offset: int, width: int) -> Any:
        """`width` lanes from `offset` on."""

    def shuffle(self, *lanes: Any, other: Any = None) -> Any:
        """These lanes; those of `other` count on from those of the vector."""

    def take(self, indices: Any) -> Any:
        """The lane that each number of `indices` names."""

    def join(self, *others: Any) -> Any:
        """The lanes of all these vectors."""

    def split(self, parts: int = 2) -> Any:
        """A tuple of as many vectors, of equal widths."""

    def interleave(self, other: Any) -> Any:
        """Lanes of two vectors by turns."""

    def deinterleave(self) -> Any:
        """The even lanes and the odd ones."""

    def reverse(self) -> Any:
        """The lanes from the last to the first."""

    def rotate_left(self, count: int) -> Any:
        """Lane i is lane i + count, round the end."""

    def rotate_right(self, count: int) -> Any:
        """Lane i is lane i - count, round the end."""

    def shift_left(self, count: int, fill: Any = None) -> Any:
        """Lane i is lane i + count, and `fill` where there is none."""

    def shift_right(self, count: int, fill: Any = None) -> Any:
        """Lane i is lane i - count, and `fill` where there is none."""

    def broadcast(self, width: int) -> Any:
        """The number in every lane of a vector."""

    def reduce(self, function: Callable[..., Any]) -> Any:
        """The lanes combined by `function(a, b)`, halves at a time."""

    def reduce_add(self) -> Any:
        """The sum of the lanes; of narrow integers as Int64 or UInt64, of half floats added in float32."""

    def reduce_mul(self) -> Any:
        """The product of the lanes, as wide as `reduce_add`."""

    def reduce_max(self) -> Any:
        """The largest lane."""

    def reduce_min(self) -> Any:
        """The smallest lane."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Any: ...

    def reduce_and(self) -> Any:
        """The bits that all lanes have."""

    def reduce_or(self) -> Any:
        """The bits that some lane has."""

    def reduce_xor(self) -> Any:
        """The bits that an odd number of lanes have."""

    def any(self) -> Any:
        """Whether a lane of a mask is true."""

    def all(self) -> Any:
        """Whether all lanes of a mask are true."""

    def none(self) -> Any:
        """Whether no lane of a mask is true."""

    def count(self) -> Any:
        """How many lanes of a mask are true."""

    def argmax(self) -> Any:
        """The number of the first lane with the largest value."""

    def argmin(self) -> Any:
        """The number of the first lane with the smallest value."""

    def __getitem__(self, index: Any) -> Any: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...
    def __add__(self, other: Any) -> Any: ...
    def __radd__(self, other: Any) -> Any: ...
    def __sub__(self, other: Any) -> Any: ...
    def __rsub__(self, other: Any) -> Any: ...
    def __mul__(self, other: Any) -> Any: ...
    def __rmul__(self, other: Any) -> Any: ...
    def __truediv__(self, other: Any) -> Any: ...
    def __rtruediv__(self, other: Any) -> Any: ...
    def __floordiv__(self, other: Any) -> Any: ...
    def __rfloordiv__(self, other: Any) -> Any: ...
    def __mod__(self, other: Any) -> Any: ...
    def __rmod__(self, other: Any) -> Any: ...
    def __pow__(self, other: Any) -> Any: ...
    def __rpow__(self, other: Any) -> Any: ...
    def __and__(self, other: Any) -> Any: ...
    def __or__(self, other: Any) -> Any: ...
    def __xor__(self, other: Any) -> Any: ...
    def __lshift__(self, other: Any) -> Any: ...
    def __rshift__(self, other: Any) -> Any: ...
    def __neg__(self) -> Any: ...
    def __abs__(self) -> Any: ...
    def __invert__(self) -> Any: ...
    def __lt__(self, other: Any) -> Any: ...
    def __le__(self, other: Any) -> Any: ...
    def __gt__(self, other: Any) -> Any: ...
    def __ge__(self, other: Any) -> Any: ...
    def __eq__(self, other: object) -> Any: ...
    def __ne__(self, other: object) -> Any: ...


class Pointer(Generic[T]):
    """The address of elements of a dtype."""

    dtype: Any

    def bitcast(self, dtype: Any) -> Any:
        """The same address, of elements of another dtype. It has to be a multiple of their size."""

    def load(
        self,
        offset: Any = 0,
        width: int = 1,
        stride: Any = 1,
        mask: Any = None,
        other: Any = None,
        align: int | None = None,
    ) -> Any:
        """A vector of neighbours along the last axis; under a mask, lanes that are off are `other`."""

    def store(self, value: Any, offset: Any = 0, stride: Any = 1, mask: Any = None, align: int | None = None) -> None:
        """Stores a scalar or a vector; under a mask, the lanes that are on."""

    def gather(self, indices: Any, mask: Any = None, other: Any = None) -> Any:
        """A vector of elements at the indices in the lanes of vectors."""

    def scatter(self, value: Any, indices: Any, mask: Any = None) -> None:
        """Stores lanes at the indices in the lanes of vectors."""

    def prefetch(self, offset: Any = 0, locality: int = 3, write: bool = False) -> None:
        """Requests memory that is about to be read or written."""

    def is_aligned(self, bytes: int) -> Any:
        """Whether the address is a multiple of so many bytes, a power of two: what `align=` promises."""

    def __getitem__(self, index: Any) -> Any: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...
    def __add__(self, count: Any) -> Any: ...
    def __radd__(self, count: Any) -> Any: ...
    def __sub__(self, count: Any) -> Any: ...


class Numbers(Protocol):
    """Arrays, tensors, values of graphs, numbers; no text, list, dict or None."""

    def __abs__(self) -> Any: ...


class Memory(Protocol):
    """Buffers, and anything else with DLPack."""

    def __dlpack__(self, **keywords: Any) -> Any: ...


Argument = Numbers | Memory  # what a kernel is called with


class Destination(Protocol):
    """What a kernel writes to, inside of another kernel."""

    def is_known(self, axis: int) -> bool: ...

    def is_one(self, axis: int) -> bool: ...


class AnyTensor(Members, Protocol):  # type: ignore[misc]
    """A tensor of any dtype and rank, whether it is read or written, or memory of `stack` or `scratch`."""


class DTypeMembers:
    """What dtypes answer."""

    bits: int
    part: Any

    def __call__(self, *numbers: Any) -> Any:
        """A number of this dtype."""

    def is_float(self) -> bool:
        raise NotImplementedError

    def is_complex(self) -> bool:
        raise NotImplementedError

    def is_integral(self) -> bool:
        raise NotImplementedError

    def is_signed(self) -> bool:
        raise NotImplementedError

    def is_half(self) -> bool:
        raise NotImplementedError

    def is_storage(self) -> bool:
        raise NotImplementedError

    def is_packed(self) -> bool:
        raise NotImplementedError


class AnyDType(DTypeMembers, Protocol):  # type: ignore[misc]
    """A dtype: `float32`, `x.dtype`, a type variable."""


class InputTensor(Members, Numbers, Protocol):  # type: ignore[misc]
    """A tensor to read."""

    def __class_getitem__(cls, item: Any) -> Any: ...


class MutableInputTensor(Members, Numbers, Protocol):  # type: ignore[misc]
    """A tensor that is changed in place."""

    def __class_getitem__(cls, item: Any) -> Any: ...


class OutputTensor(Members, Destination, Protocol):  # type: ignore[misc]
    """A tensor to write."""

    def __class_getitem__(cls, item: Any) -> Any: ...


class VariadicTensors:
    """Several tensors to read."""

    def __class_getitem__(cls, item: Any) -> Any: ...
    def __getitem__(self, index: Any) -> Any: ...
    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Any: ...


class OutputVariadicTensors(VariadicTensors):
    """Several tensors to write."""


class OutputMark(OutputTensor):
    """Accepted by arguments that are outputs, and by no others."""

    __abs__: None  # type: ignore[assignment]


class VariadicMark(OutputVariadicTensors):
    """Accepted by arguments that stand for any number of tensors, and by no others."""
