"""Holds what is known at import: literals, weights, and shapes with symbolic dims in them.

A model computes shapes by ops on tensors: Shape, Gather, Concat, Reshape. Here these are evaluated as the model is
read. `KnownTensor` is a NumPy array; where a size is symbolic, it is an array of objects, of ints and dims. What cannot
be decided of a symbolic size raises, and the node is then staged like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from .. import ops
from ..driver.devices import DeviceRef
from ..ops.stage import current
from ..staging.sizes import stage_dim
from ..staging.value import TensorValue
from ..types.dims import Dim, StaticDim, dim_max
from ..types.tensor_type import TensorType

if TYPE_CHECKING:
    from onnx import GraphProto

Array = np.ndarray[Any, Any]
MAX_INDEX_ELEMENTS = 1 << 10  # integers that may be indices for ops
MOST_SCANNED = 1 << 22  # elements of a tensor that are looked at; larger ones stay in the file until they are used
_SUMMING = {"BatchNormalization", "Conv", "ConvTranspose", "GRU", "Gemm", "LSTM", "MatMul", "RNN"}
_SUMMING |= {"FusedConv", "FusedGemm", "FusedMatMul"}
_MOVING = {"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
_DOMAINS = {"", "ai.onnx", "com.microsoft", "com.microsoft.nchwc"}  # in which these are the ops that they are called
LIMIT = 1 << 16  # more elements are not computed at import, whatever a file claims


class UnknownAtImport(Exception):
    """Something is not known at import after all."""


@dataclass(eq=False)
class KnownTensor:
    """A tensor whose elements are known, or are dims.

    Attributes:
        array: the elements, in the NumPy dtype of `dtype`; or objects, ints and dims.
        dtype: their type in the model.
        weight: the name of the weight that it is as a tensor.
        staged: makes the tensor where `array` was computed of weights, of these: they may be others when a graph is
            loaded.
    """

    array: Array
    dtype: DType
    weight: str | None = None
    staged: Callable[[], TensorValue] | None = None

    @property
    def held(self) -> bool:
        """Whether the elements are those of weights, or computed of these."""
        return self.weight is not None or self.staged is not None

    @property
    def symbolic(self) -> bool:
        """Whether some element is a dim without a number."""
        return bool(self.array.dtype == object)

    def numbers(self) -> Array:
        """The elements as numbers; raises `UnknownAtImport` where one is a symbolic dim."""
        if self.symbolic:
            raise UnknownAtImport
        return self.array

    def tensor(self, device: DeviceRef) -> TensorValue:
        """The tensor, as a constant, as a weight, or computed from weights or the sizes of a call."""
        if self.staged is not None:
            return self.staged()
        if self.weight is not None:
            type = TensorType(self.dtype, self.array.shape, device)
            return current("weight").stage_weight(self.weight, type, 1, user_place(), self.array)
        if not self.symbolic:
            return current("constant").stage_constant(np.asarray(self.array), device, user_place())
        flat = _sizes(dims_in(self.array))
        return ops.cast(ops.reshape(flat, self.array.shape), self.dtype)


def known(array: object, dtype: DType) -> KnownTensor:
    """A `KnownTensor` of this dtype; objects that are all numbers become numbers."""
    values = np.asarray(array)
    if values.dtype == object:
        if not all(isinstance(item, int | np.integer | StaticDim | float) for item in values.reshape(-1)):
            return KnownTensor(values, dtype)
        plain = [int(item) if isinstance(item, StaticDim) else item for item in values.reshape(-1)]
        values = np.array(plain, dtype.to_numpy()).reshape(values.shape)
    return KnownTensor(values.astype(dtype.to_numpy(), copy=False), dtype)


def without_subnormals(array: Array) -> Array:
    """float32 or float64 with 0 for subnormal numbers; the array itself where it has none, or one element, or many.

    Training leaves them in channels that have died out. A product with one takes a processor a hundred times as long.
    """
    if array.dtype not in (np.float32, np.float64) or not 1 < array.size <= MOST_SCANNED:
        return array
    are = (np.abs(array) < np.finfo(array.dtype).tiny) & (array != 0)
    return np.where(are, np.zeros((), array.dtype), array) if are.any() else array


def read_by_products(graph: GraphProto) -> set[str]:
    """The names of what products, convolutions and recurrent layers alone read, also behind ops that move elements.

    What a graph inside a node reads, or a function, is none of these.
    """
    factors, others = set[str](), set[str]()
    graphs = [graph]
    for each in graphs:
        others.update(output.name for output in each.output)
        graphs += [attribute.g for node in each.node for attribute in node.attribute if attribute.HasField("g")]
        for node in reversed(each.node):
            sums = node.op_type in _SUMMING and node.domain in _DOMAINS
            moves = node.op_type in _MOVING and node.domain in _DOMAINS and factors.issuperset(node.output)
            (factors if each is graph and (sums or (moves and others.isdisjoint(node.output))) else others).update(
                node.input
            )
    return factors - others


def initialiser(array: Array, dtype: DType, name: str) -> KnownTensor:
    """An initialiser of a model: a weight, but for single numbers and for what says sizes, axes and positions."""
    index = dtype in (DType.int64, DType.int32, DType.bool) and (array.ndim < 2 or array.size <= MAX_INDEX_ELEMENTS)
    return KnownTensor(array, dtype, None if array.size <= 1 or index or dtype.is_packed() else name)


def known_dims(dims: Iterable[Dim]) -> KnownTensor:
    """Sizes as a tensor of int64."""
    listed = list(dims)
    array = np.empty(len(listed), object)
    array[:] = listed
    return known(array, DType.int64)


def dims_in(array: Array) -> list[Dim]:
    """The elements of a shape as dims."""
    return [item if isinstance(item, Dim) else Dim(int(item)) for item in array.reshape(-1)]


def _sizes(dims: Sequence[Dim]) -> TensorValue:
    """Dims as an int64 tensor of one axis; some of them may be below 0, as positions from the end are."""
    if all(is_at_least(dim, Dim(0)) for dim in dims):
        return ops.shape_to_tensor(dims)
    graph, place = current("shape_to_tensor"), user_place()
    return ops.stack([stage_dim(graph, dim, DeviceRef.CPU(), place) for dim in dims])


def dims_from(value: TensorValue, name: str) -> list[Dim]:
    """New dims whose sizes are the elements of a tensor of one axis, known when the graph runs."""
    graph = current(name)
    names: list[str] = []
    word = "".join(c if c.isalnum() and c.isascii() else "_" for c in name).strip("_") or "size"
    number = 0
    while len(names) < int(value.shape[0]):
        candidate = f"{word}_{number}" if not word[0].isdigit() else f"d{word}_{number}"
        number += 1
        if not graph.has_dim(candidate):
            names.append(candidate)
    if not names:
        return []
    sizes = ops.add(ops.cast(value, DType.int64), 0)  # a value that the graph computes, which an input is not
    graph.define_dims(sizes, names, name, user_place())
    return [Dim(each) for each in names]


# *** arithmetic that takes dims ***


def elementwise(plain: Callable[..., Any], single: Callable[..., object]) -> Callable[..., Array]:
    """A function of arrays: `plain` of NumPy for numbers, `single` for each element where some are dims."""

    def apply(*arrays: Array) -> Array:
        if any(array.dtype == object for array in arrays):
            results: Array = np.asarray(np.frompyfunc(single, len(arrays), 1)(*arrays))
            return results
        return np.asarray(plain(*arrays))

    return apply


def same(left: Any, right: Any, axis_sizes: Set[Dim] = frozenset()) -> bool:
    """Whether two sizes are equal; raises where it depends on the call. Those in `axis_sizes` are not below 0."""
    difference = Dim(left) - Dim(right)
    if isinstance(difference, StaticDim):
        return int(difference) == 0
    for size, number in ((left, right), (right, left)):
        if size in axis_sizes and not isinstance(number, Dim) and number < 0:
            return False
    if difference >= 1 or difference <= -1:  # an order that depends on the sizes raises
        return False
    raise UnknownAtImport


def quotient(left: Any, right: Any) -> Dim | int:
    """ONNX's division of integers rounds towards zero, that of dims down: a negative part is divided on its own."""
    if not isinstance(left, Dim) and not isinstance(right, Dim):
        whole = abs(left) // abs(right)
        return int(whole if (left < 0) == (right < 0) else -whole)
    if not is_at_least(Dim(right), Dim(0)):  # of a divisor that is 0 a call says so
        raise UnknownAtImport
    if is_at_least(Dim(left), Dim(0)):
        return Dim(left) // Dim(right)
    result = dim_max(left, 0) // Dim(right)
    return result if is_at_least(left, 1 - Dim(right)) else result - dim_max(0 - Dim(left), 0) // Dim(right)


def is_at_least(dim: Dim, bound: Dim) -> bool:
    """Whether a dim is proven to be so large."""
    try:
        return dim >= bound
    except GraphError:
        return False


def divide(left: Array, right: Array) -> Array:
    """NumPy's division as ONNX has it: of integers rounded towards zero."""
    if left.dtype.kind in "iu":
        if not np.all(right):
            raise UnknownAtImport
        rounded: Array = np.asarray(np.sign(left) * np.sign(right) * (np.abs(left) // np.abs(right)))
        return rounded.astype(left.dtype)
    return np.asarray(left / right)


def choose(condition: Array, left: Array, right: Array) -> Array:
    """`np.where` on arrays that may hold dims."""
    if left.dtype == object or right.dtype == object:
        left, right = left.astype(object), right.astype(object)
    return np.where(condition.astype(np.bool_), left, right)
