"""Linear layers and embeddings, of plain or of quantised weights."""

from __future__ import annotations

import math
from typing import Any, Literal

from ...dsl.types.dtype import DType
from ..arguments import flag_of, int_of
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from ..eager import random
from ..eager.tensor import Tensor
from ..quantization.encodings import QuantizationEncoding, bytes_of, decoded_type, encoding_of
from ..types.dims import Dim
from ..types.tensor_type import shown
from .module import Module
from .state import mismatch, misused

CODE = "EK0472"


def size_of(argument: str, value: Any) -> int:
    """A size of a layer.

    Raises:
        GraphError: EK0472, it is not a whole number of 1 or more.
    """
    size = int_of(argument, int(value) if isinstance(value, Dim) else value, CODE)
    if size < 1:
        raise misused(f"argument '{argument}' is {size}, and a layer has at least one", argument, "1 or more", size)
    return size


def drawn(shape: list[int], inputs: int, dtype: DType | None, device: Device | DeviceRef | None) -> Tensor:
    """Numbers to begin with: uniform, within 1 / sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    return random.uniform(shape, (-bound, bound), dtype=dtype, device=device)


class Encoded(Module[..., Any]):
    """A layer whose `weight` has an encoding: a matrix of floats, or rows of blocks of bytes."""

    weight: Any
    encoding: QuantizationEncoding | None

    def _begin(
        self,
        rows: int,
        columns: int,
        inputs: int,
        encoding: QuantizationEncoding | str | None,
        dtype: DType | None,
        device: Device | DeviceRef | None,
    ) -> None:
        self.encoding = None if encoding is None else encoding_of("encoding", encoding, CODE)
        if self.encoding is None:
            self.weight = drawn([rows, columns], inputs, dtype, device)
            return
        size = bytes_of(self.encoding, columns)
        if size is None:
            block = self.encoding.elements_per_block
            text = f"rows of {columns} elements are no whole blocks of {self.encoding.name}"
            raise misused(text, "encoding", f"a multiple of {block}", columns)
        self.weight = Tensor.zeros([rows, size], dtype=DType.uint8, device=device)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix, in elements."""
        sizes = tuple(int(dim) for dim in self.weight.shape)
        rows, columns = sizes if self.encoding is None else decoded_type(self.encoding, sizes)[1]
        return rows, columns

    def misfit(self, name: str, value: Tensor, encoding: QuantizationEncoding | None) -> str | None:
        """Quantised weights fit where their elements have the shape of the matrix."""
        if name != "weight" or encoding is None:
            return mismatch(name, getattr(self, name), value)
        result = decoded_type(encoding, tuple(int(dim) for dim in value.shape))[1]
        if result == self.shape:
            return None
        return f"'{name}' is {encoding.name} {shown(result)}, and the module has {shown(self.shape)}"

    def take(self, name: str, value: Tensor, encoding: QuantizationEncoding | None) -> None:
        """A quantised weight changes the encoding of the layer."""
        if name == "weight" and encoding is not None:
            self.encoding = encoding
        super().take(name, value, encoding)


class Linear(Encoded):
    """`x @ transpose(weight) + bias`, for x of the shape (..., in_dim).

    Args:
        in_dim, out_dim: the sizes of the last axis before and after.
        bias: whether something is added; `bias` is 0 if not.
        encoding: of a quantised weight, which begins with zeros; other weights begin with random numbers.
        dtype, device: of the weights; the defaults when left out.
    """

    bias: Any

    def __init__(
        self,
        in_dim: int | Dim,
        out_dim: int | Dim,
        *,
        bias: bool = True,
        encoding: QuantizationEncoding | str | None = None,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        columns, rows = size_of("in_dim", in_dim), size_of("out_dim", out_dim)
        self._begin(rows, columns, columns, encoding, dtype, device)
        self.bias: Any | Literal[0] = drawn([rows], columns, dtype, device) if flag_of("bias", bias) else 0

    @property
    def in_dim(self) -> Dim:
        """The size of the last axis before."""
        return Dim(self.shape[1])

    @property
    def out_dim(self) -> Dim:
        """The size of the last axis after."""
        return Dim(self.shape[0])

    def forward(self, x: Any) -> Any:
        """The transformed tensor (..., out_dim)."""
        if self.encoding is None:
            y = F.matmul(x, F.transpose(self.weight, 0, 1))
        else:
            y = F.qmatmul(self.encoding, None, x, self.weight)
        return y if isinstance(self.bias, int) else y + self.bias


class Embedding(Encoded):
    """Rows of a table, for integers of any shape.

    Args:
        vocab_size: how many rows there are.
        dim: their length.
        encoding, dtype, device: as of `Linear`.
    """

    def __init__(
        self,
        vocab_size: int | Dim,
        dim: int | Dim,
        *,
        encoding: QuantizationEncoding | str | None = None,
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        columns = size_of("dim", dim)
        self._begin(size_of("vocab_size", vocab_size), columns, columns, encoding, dtype, device)

    @property
    def vocab_size(self) -> Dim:
        """How many rows there are."""
        return Dim(self.shape[0])

    @property
    def dim(self) -> Dim:
        """The length of a row."""
        return Dim(self.shape[1])

    def forward(self, indices: Any) -> Any:
        """The rows (..., dim)."""
        rows = F.gather(self.weight, indices, 0)
        return rows if self.encoding is None else F.dequantize(self.encoding, rows)
