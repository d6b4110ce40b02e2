"""Defines the values of a graph: tensors and buffers.

A `TensorValue` stands for a tensor that exists when the graph runs, a `BufferValue` for memory that its ops change.
Operators and methods stage ops in the graph that is being built; they mean what they mean on NumPy arrays, so
comparisons with NaN are false and `//` rounds down. Some of Python's comparisons have no result before the graph
runs (`bool(x)`, `len(x)`, `for row in x`): these raise.

They are in `ops`, which stands on this module and adds the methods and operators that its rows name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.places import Place, user_place
from ...dsl.types.dtype import DType
from ..driver.devices import Device, DeviceRef
from ..driver.dlpack import DLPackArray
from ..types.dims import Dim, Shape
from ..types.tensor_type import BufferType, ShapedType, TensorType
from .numpy_functions import OF_MASKED_ARRAYS, operator_of, refuse_mask
from .numpy_functions import refuse as refuse_function

NUMBER_HINT = "use the functions of ops (x.cast, ops.sqrt), or run the graph: model(...)[0].to_numpy()"
NO_METHOD: ExtensionPoint[Callable[[object, str], NoReturn]] = ExtensionPoint("graph.ops.other_names", "no_method")
Axes = int | tuple[int, ...] | None


class GraphIdentity(Protocol):
    """The graph that a value belongs to: only its identity and its name are used."""

    name: str


class Value:
    """An edge of a graph.

    Attributes:
        graph: where it belongs.
        number: which value of that graph it is.
    """

    __slots__ = ("_type", "graph", "number")

    def __init__(self, graph: GraphIdentity, number: int, type: ShapedType) -> None:
        self.graph = graph
        self.number = number
        self._type = type

    @property
    def tensor(self) -> TensorValue:
        """This value as a tensor.

        Raises:
            GraphError: it is not one.
        """
        if isinstance(self, TensorValue):
            return self
        raise GraphError(f"{self!r} is not a tensor", code="EK0403", place=user_place())

    @property
    def buffer(self) -> BufferValue:
        """This value as a buffer.

        Raises:
            GraphError: it is not one.
        """
        if isinstance(self, BufferValue):
            return self
        raise GraphError(f"{self!r} is not a buffer", code="EK0403", place=user_place())

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._type.dtype

    @property
    def shape(self) -> Shape:
        """One `Dim` an axis."""
        return self._type.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self._type.rank

    @property
    def device(self) -> DeviceRef:
        """Where the tensor lies when the graph runs."""
        return self._type.device

    def __repr__(self) -> str:
        return f"%{self.number}: {self._type}"


class BufferValue(Value):
    """Memory that ops may change. What happens to it happens in the order in which it was staged.

    `buffer[...]` reads it (or a part of it) into a tensor, `buffer[i] = x` writes a part: see `ops.buffer_load` and
    `ops.buffer_store_slice`.
    """

    __slots__ = ()

    @property
    def type(self) -> BufferType:
        """dtype, shape and device together."""
        assert isinstance(self._type, BufferType)
        return self._type

    if TYPE_CHECKING:  # what `ops.buffers` adds

        def print(self, label: str = "debug_buffer") -> None: ...
        def __getitem__(self, indices: object) -> TensorValue: ...

        def __setitem__(self, indices: object, source: TensorValueLike) -> None: ...


class TensorValue(Value):
    """A tensor with value semantics: nothing changes it, every op makes a new one."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers see the declared attributes

        def __getattr__(self, name: str) -> NoReturn:
            if name == OF_MASKED_ARRAYS:
                refuse_mask()
            NO_METHOD.get()(self, name)

    @property
    def type(self) -> TensorType:
        """dtype, shape and device together."""
        assert isinstance(self._type, TensorType)
        return self._type

    @property
    def T(self) -> TensorValue:
        """The last two axes swapped."""
        return self.transpose(-1, -2)

    def __pos__(self) -> TensorValue:
        return self

    def __divmod__(self, other: TensorValueLike) -> tuple[TensorValue, TensorValue]:
        return self // other, self % other

    def __rdivmod__(self, other: TensorValueLike) -> tuple[TensorValue, TensorValue]:
        return self.__rfloordiv__(other), self.__rmod__(other)

    __hash__ = object.__hash__  # a value is hashed by what it is, not by what it equals

    # --- what only a tensor that exists can answer ---

    def __bool__(self) -> NoReturn:
        _unanswerable("has no truth value", "use ops.where to choose between two tensors")

    def __len__(self) -> NoReturn:
        _unanswerable("has no length", "x.shape[0] is the size of the first axis, as a Dim")

    def __iter__(self) -> NoReturn:
        _unanswerable("cannot be iterated or unpacked", "use ops.split, or index with x[i]")

    def __contains__(self, item: object) -> NoReturn:
        _unanswerable("cannot be searched with 'in'", "use == and a reduction")

    def __setitem__(self, indices: object, value: object) -> NoReturn:
        hint = "use ops.where(mask, value, x), or ops.scatter_nd; buffers can be changed: buffer[i] = x"
        _unanswerable("cannot be changed", hint)

    def __array__(self, *args: object, **keywords: object) -> NoReturn:
        _unanswerable("cannot become a NumPy array", "use the functions of ops, or run the graph")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **keywords: object) -> object:
        return operator_of(self, ufunc.__name__, method, inputs, keywords)

    def __array_function__(self, function: Callable[..., object], *args: object) -> NoReturn:
        refuse_function(function.__name__, self)

    if not TYPE_CHECKING:  # a tensor is not a number for type checkers

        def __float__(self) -> NoReturn:
            _unanswerable("has no number", NUMBER_HINT)

        def __int__(self) -> NoReturn:
            _unanswerable("has no number", NUMBER_HINT)

        def __complex__(self) -> NoReturn:
            _unanswerable("has no number", NUMBER_HINT)

        def __index__(self) -> NoReturn:
            _unanswerable("has no number", "use ops.gather for elements by places, and ops.while_loop for rounds")

    # --- what `ops` adds: a row says its method and its operator; here they are declared for type checkers ---

    if TYPE_CHECKING:

        def cast(self, dtype: DType) -> TensorValue: ...
        def reshape(self, shape: Iterable[int | str | Dim]) -> TensorValue: ...
        def permute(self, *dims: int | Iterable[int]) -> TensorValue: ...
        def transpose(self, axis_1: int, axis_2: int) -> TensorValue: ...
        def broadcast_to(
            self, shape: Iterable[int | str | Dim] | TensorValue, out_dims: Iterable[int | str | Dim] | None = None
        ) -> TensorValue: ...
        def flatten(self, start_dim: int = 0, end_dim: int = -1) -> TensorValue: ...
        def rebind(self, shape: Iterable[int | str | Dim], message: str = "", layout: object = None) -> TensorValue: ...
        def to(self, device: DeviceRef | Device) -> TensorValue: ...
        def transfer_to(self, device: DeviceRef | Device) -> TensorValue: ...
        def sum(self, axis: Axes = -1, keepdims: bool = True) -> TensorValue: ...
        def mean(self, axis: Axes = -1, keepdims: bool = True) -> TensorValue: ...
        def max(self, axis: Axes = -1, keepdims: bool = True) -> TensorValue: ...
        def min(self, axis: Axes = -1, keepdims: bool = True) -> TensorValue: ...
        def argmax(self, axis: int | None = -1, keepdims: bool = True) -> TensorValue: ...
        def print(self, label: str = "debug_tensor") -> None: ...
        def argmin(self, axis: int | None = -1, keepdims: bool = True) -> TensorValue: ...
        def var(self, axis: Axes = -1, keepdims: bool = True) -> TensorValue: ...
        def stdev(self, axis: Axes = -1, keepdims: bool = True) -> TensorValue: ...
        def clamp(self, min: TensorValueLike | None = None, max: TensorValueLike | None = None) -> TensorValue: ...
        def clip(self, min: TensorValueLike | None = None, max: TensorValueLike | None = None) -> TensorValue: ...
        def __getitem__(self, indices: object) -> TensorValue: ...
        def __add__(self, other: TensorValueLike) -> TensorValue: ...
        def __radd__(self, other: TensorValueLike) -> TensorValue: ...
        def __sub__(self, other: TensorValueLike) -> TensorValue: ...
        def __rsub__(self, other: TensorValueLike) -> TensorValue: ...
        def __mul__(self, other: TensorValueLike) -> TensorValue: ...
        def __rmul__(self, other: TensorValueLike) -> TensorValue: ...
        def __truediv__(self, other: TensorValueLike) -> TensorValue: ...
        def __rtruediv__(self, other: TensorValueLike) -> TensorValue: ...
        def __floordiv__(self, other: TensorValueLike) -> TensorValue: ...
        def __rfloordiv__(self, other: TensorValueLike) -> TensorValue: ...
        def __mod__(self, other: TensorValueLike) -> TensorValue: ...
        def __rmod__(self, other: TensorValueLike) -> TensorValue: ...
        def __pow__(self, other: TensorValueLike) -> TensorValue: ...
        def __rpow__(self, other: TensorValueLike) -> TensorValue: ...
        def __matmul__(self, other: TensorValueLike) -> TensorValue: ...
        def __rmatmul__(self, other: TensorValueLike) -> TensorValue: ...
        def __neg__(self) -> TensorValue: ...
        def __abs__(self) -> TensorValue: ...
        def __round__(self) -> TensorValue: ...
        def __and__(self, other: TensorValueLike) -> TensorValue: ...
        def __rand__(self, other: TensorValueLike) -> TensorValue: ...
        def __or__(self, other: TensorValueLike) -> TensorValue: ...
        def __ror__(self, other: TensorValueLike) -> TensorValue: ...
        def __xor__(self, other: TensorValueLike) -> TensorValue: ...
        def __rxor__(self, other: TensorValueLike) -> TensorValue: ...
        def __invert__(self) -> TensorValue: ...
        def __lshift__(self, other: TensorValueLike) -> TensorValue: ...
        def __rlshift__(self, other: TensorValueLike) -> TensorValue: ...
        def __rshift__(self, other: TensorValueLike) -> TensorValue: ...
        def __rrshift__(self, other: TensorValueLike) -> TensorValue: ...
        def __eq__(self, other: TensorValueLike) -> TensorValue: ...  # type: ignore[override]
        def __ne__(self, other: TensorValueLike) -> TensorValue: ...  # type: ignore[override]
        def __lt__(self, other: TensorValueLike) -> TensorValue: ...
        def __le__(self, other: TensorValueLike) -> TensorValue: ...
        def __gt__(self, other: TensorValueLike) -> TensorValue: ...
        def __ge__(self, other: TensorValueLike) -> TensorValue: ...


class HoldsTensorValue(Protocol):
    """An object that stands for a tensor of the graph that is being built, such as a parameter of a layer."""

    def __tensorvalue__(self) -> TensorValue: ...


# What an operand of an op may be: a value of the graph, sizes, a number, or an array of any library.
Sizes = Dim | Shape
Numbers = int | float | complex | np.generic
TensorValueLike = TensorValue | HoldsTensorValue | Sizes | Numbers | np.ndarray[Any, Any] | DLPackArray


def _unanswerable(what: str, hint: str) -> NoReturn:
    raise GraphError(f"a tensor {what} while its graph is built", code="EK0450", place=user_place(), hint=hint)


def foreign_value(op: str, argument: str, value: Value, graph: GraphIdentity, place: Place | None) -> GraphError:
    """The error of using a value outside its graph."""
    if value.graph.name == graph.name:
        where = f"another graph of the name {graph.name!r}"
    else:
        where = f"graph {value.graph.name!r}, and the one being built is {graph.name!r}"
    return GraphError(
        f"{op}: argument '{argument}' belongs to {where}",
        code="EK0402",
        place=place,
        op=op,
        argument=argument,
        expected=graph.name,
        got=value.graph.name,
    )
