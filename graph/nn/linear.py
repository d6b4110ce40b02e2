"""Linear layers and embeddings, of plain or of quantised weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...dsl.types.dtype import DType
from ..arguments import flag_of, int_of
from ..driver.devices import Device, DeviceRef
from ..eager import functional as F
from ..eager import random
from ..eager.tensor import Tensor
from ..quantization.encodings import (
    ENCODINGS,
    QuantizationConfig,
    QuantizationEncoding,
    bytes_of,
    decoded_type,
    encoding_of,
)
from ..types.dims import Dim
from ..types.tensor_type import shown
from .module import Module
from .splitting import ParameterSplit, ranks_of, share, summed
from .state import mismatch, misused

if TYPE_CHECKING:
    from ..distributed.mesh import Mesh, RankGroup

CODE = "EK0472"


def size_of(argument: str, value: object) -> int:
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
    _sizes: tuple[int, int] | None = None  # of a matrix that is not blocks of bytes

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
        if self.encoding is not None and not self.encoding.is_gguf:
            text = f"rows in the encoding {self.encoding.name} cannot be looked up"
            raise misused(text, "encoding", "an encoding of GGUF", self.encoding.name)
        if self.encoding is None:
            self.weight = drawn([rows, columns], inputs, dtype, device)
            return
        size = bytes_of(self.encoding, columns)
        if size is None:
            block = self.encoding.elements_per_block
            text = f"rows of {columns} elements are not whole blocks of {self.encoding.name}"
            raise misused(text, "encoding", f"a multiple of {block}", columns)
        self.weight = Tensor.zeros([rows, size], dtype=DType.uint8, device=device)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix, in elements."""
        if self._sizes is not None:
            return self._sizes
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


def _parts(
    encoding: QuantizationEncoding, config: QuantizationConfig | None, rows: int, columns: int
) -> dict[str, tuple[DType, list[int]]]:
    """The tensors of a weight that is not blocks of bytes, in the order of `ops.qmatmul`, as checkpoints name them."""
    blocks = ENCODINGS[encoding].scaled
    if blocks is not None:
        sizes = [1 if block == 0 else -(-size // block) for size, block in zip((rows, columns), blocks, strict=True)]
        dtype = DType.int8 if encoding.name.startswith("int8") else DType.float8_e4m3fn
        return {"weight": (dtype, [rows, columns]), "weight_scale": (DType.float32, sizes)}
    if not isinstance(config, QuantizationConfig):
        text = f"encoding {encoding.name} has settings: pass a QuantizationConfig"
        raise misused(text, "config", "a QuantizationConfig", config)
    size = columns if config.group_size == -1 else config.group_size
    if rows % 8 or columns % 8 or columns % size:
        text = f"{rows} rows of {columns} elements are not whole words and groups of {encoding.name}"
        raise misused(text, "encoding", f"multiples of 8 and of {size}", [rows, columns])
    gptq = encoding is QuantizationEncoding.GPTQ
    words = [columns // 8, rows] if gptq else [columns, rows // 8]
    parts = {"qweight": (DType.int32, words), "scales": (DType.float16, [columns // size, rows])}
    if not config.sym:
        parts["qzeros"] = (DType.int32, [columns // size, rows // 8])
    if gptq and config.desc_act:
        parts["g_idx"] = (DType.int32, [columns])
    return parts


class Linear(Encoded):
    """`x @ transpose(weight) + bias`, for x of the shape (..., in_dim).

    A weight of int8 or float8 has its scales as `weight_scale`. Weights of GPTQ and AWQ are `qweight`, `scales`,
    `qzeros` (unless `config.sym`) and `g_idx` (if `config.desc_act`), as checkpoints have them.

    Args:
        in_dim, out_dim: the sizes of the last axis before and after.
        bias: whether something is added; `bias` is 0 if not.
        encoding: of a quantised weight, which begins with zeros; other weights begin with random numbers.
        config: the settings of GPTQ and AWQ.
        split_out: ranks that share the outputs: each has its rows of `weight`, and computes its part of the last axis.
        split_in: ranks that share the inputs: each has its columns of `weight` and takes its part of the last axis;
            their results are added up.
        sections: with `split_out`, sizes of sections of the outputs, of each of which a rank has its part.
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
        config: QuantizationConfig | None = None,
        split_out: RankGroup | Mesh | None = None,
        split_in: RankGroup | Mesh | None = None,
        sections: Sequence[int] = (),
        dtype: DType | None = None,
        device: Device | DeviceRef | None = None,
    ) -> None:
        columns, rows = size_of("in_dim", in_dim), size_of("out_dim", out_dim)
        outputs, self._inputs = ranks_of("split_out", split_out), ranks_of("split_in", split_in)
        if outputs is not None and self._inputs is not None:
            text = "a layer is split along its outputs or along its inputs"
            raise misused(text, "split_in", "one of split_out and split_in", "both")
        for size in sections:
            share("sections", size, outputs)
        columns, rows = share("in_dim", columns, self._inputs), share("out_dim", rows, outputs)
        if outputs is not None:
            self.splits = {name: ParameterSplit(outputs, 0, tuple(sections)) for name in ("weight", "bias")}
        elif self._inputs is not None:
            self.splits = {"weight": ParameterSplit(self._inputs, 1)}
        self.config = config
        self._parts: tuple[str, ...] = ("weight",)
        row = None if encoding is None else encoding_of("encoding", encoding, CODE)
        if row is None or row.is_gguf:
            self._begin(rows, columns, columns, row, dtype, device)
        else:
            if self.splits:
                text = f"weights in the encoding {row.name} cannot be split"
                raise misused(text, "encoding", "floats, or an encoding of GGUF", row.name)
            self.encoding, self._sizes = row, (rows, columns)
            parts = _parts(row, config, rows, columns)
            self._parts = tuple(parts)
            for name, (kind, shape) in parts.items():
                setattr(self, name, Tensor.zeros(shape, dtype=kind, device=device))
        self.bias: Any | Literal[0] = drawn([rows], columns, dtype, device) if flag_of("bias", bias) else 0

    @property
    def in_dim(self) -> Dim:
        """The size of the last axis before; of a layer that is split, on this rank."""
        return Dim(self.shape[1])

    @property
    def out_dim(self) -> Dim:
        """The size of the last axis after; of a layer that is split, on this rank."""
        return Dim(self.shape[0])

    def forward(self, x: object) -> Any:
        """The transformed tensor (..., out_dim)."""
        if self.encoding is None:
            y = F.matmul(x, F.transpose(self.weight, 0, 1))
        else:
            y = F.qmatmul(self.encoding, self.config, x, *(getattr(self, name) for name in self._parts))
        y = summed(y, self._inputs)
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

    def forward(self, indices: object) -> Any:
        """The rows (..., dim)."""
        rows = F.gather(self.weight, indices, 0)
        return rows if self.encoding is None else F.dequantize(self.encoding, rows)
