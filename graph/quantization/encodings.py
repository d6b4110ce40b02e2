"""The encodings of quantised tensors: a record each.

A record says how many elements a block has and how many bytes it takes, which number GGUF files give it, and which
kernels of `stdlib/kernels` decode it, multiply by it and encode it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NoReturn

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import flag_of, in_short, int_of, text_of

CODE: Final = "EK0470"


@dataclass(frozen=True)
class BlockParameters:
    """The structure of a block.

    Attributes:
        elements_per_block: how many elements are encoded together.
        block_size: how many bytes they take.
    """

    elements_per_block: int
    block_size: int


@dataclass(frozen=True)
class QuantizationConfig:
    """Settings with which a checkpoint was quantised.

    Attributes:
        quant_method: "gptq", "awq" or another name.
        bits: of an element; 4.
        group_size: how many input channels share a scale; -1 for all of them.
        desc_act: whether groups are of channels that are not neighbours: their numbers are passed as a tensor.
        sym: whether no zeros are stored, so that each is half of the range of digits.

    Raises:
        GraphError: EK0470, the bits or the size of a group are not supported.
    """

    quant_method: str
    bits: int
    group_size: int
    desc_act: bool = False
    sym: bool = False

    def __post_init__(self) -> None:
        text_of("quant_method", self.quant_method)
        flag_of("desc_act", self.desc_act)
        flag_of("sym", self.sym)
        if int_of("bits", self.bits, CODE) != 4:
            _refuse(f"elements of {in_short(self.bits)} bits are not supported", "bits", "4", self.bits)
        if int_of("group_size", self.group_size, CODE) != -1 and self.group_size < 1:
            _refuse(
                f"a group cannot have {in_short(self.group_size)} channels",
                "group_size",
                "-1 or 1 and more",
                self.group_size,
            )


@dataclass(frozen=True)
class Encoding:
    """What is known of an encoding.

    Attributes:
        block: the structure of its blocks, which lie along the last axis as bytes; None if it has other tensors.
        gguf: its number in GGUF files, if it has one.
        decode, product, encode: kernels, as family and name; None where there is none.
        activation: how a product rounds its left operand: "int8" in blocks of 32, "int8_row" by row, or "" not at all.
        tensors: how many tensors make a matrix, at least and at most.
        bias: what digits are larger by than the integers that they mean.
        halves: how many scales 32 elements have.
        scaled: rows and columns that share a scale, where scales are a tensor of their own; 0 for all.
    """

    block: BlockParameters | None
    gguf: int | None
    decode: tuple[str, str]
    product: tuple[str, str]
    encode: tuple[str, str] | None = None
    activation: str = ""
    tensors: tuple[int, int] = (1, 1)
    bias: int = 0
    halves: int = 1
    scaled: tuple[int, int] | None = None


def _blocks(
    name: str, number: int, elements: int, size: int, bias: int, halves: int = 1, encoded: bool = True
) -> Encoding:
    """An encoding of GGUF."""
    return Encoding(
        BlockParameters(elements, size),
        number,
        ("quantized", f"dequantize_{name}"),
        ("quantized", f"qmatmul_{name}"),
        ("quantizing", f"quantize_{name}") if encoded else None,
        "int8",
        bias=bias,
        halves=halves,
    )


def _scaled(dtype: str, rows: int, columns: int, activation: str = "") -> Encoding:
    """8-bit numbers with a scale for each `rows` rows and `columns` columns; 0 for all."""
    family = "scaled_products"
    product = ("byte_products", "matmul_8_bits_transposed") if activation else (family, "matmul_scaled")
    return Encoding(
        None,
        None,
        (family, "dequantize_scaled"),
        product,
        (family, f"quantize_scaled_{dtype}"),
        activation,
        tensors=(2, 2),
        scaled=(rows, columns),
    )


def _groups(name: str, most: int) -> Encoding:
    family = "grouped_products"
    return Encoding(None, None, (family, f"dequantize_{name}"), (family, f"qmatmul_{name}"), tensors=(2, most))


class QuantizationEncoding(enum.Enum):
    """How the elements of a quantised tensor are encoded.

    The encodings of GGUF files are blocks of bytes along the last axis of an uint8 tensor. Those of other checkpoints
    are several tensors, which `ops.qmatmul` takes one after the other.
    """

    Q4_0 = "q4_0"
    Q4_1 = "q4_1"
    Q5_0 = "q5_0"
    Q5_1 = "q5_1"
    Q8_0 = "q8_0"
    Q4_K = "q4_k"
    Q5_K = "q5_k"
    Q6_K = "q6_k"
    IQ4_NL = "iq4_nl"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"
    GPTQ = "gptq"
    AWQ = "awq"
    INT8_ROW = "int8_row"
    INT8_ROW_DYNAMIC = "int8_row_dynamic"
    FLOAT8_TENSOR = "float8_tensor"
    FLOAT8_ROW = "float8_row"
    FLOAT8_BLOCK = "float8_block"

    @enum.property
    def name(self) -> str:
        """The name in lowercase."""
        return str(self.value)

    @property
    def block_parameters(self) -> BlockParameters:
        """How elements are grouped and how many bytes a group takes.

        Raises:
            GraphError: EK0470, the encoding is not of blocks of bytes.
        """
        block = ENCODINGS[self].block
        if block is None:
            _refuse(f"encoding {self.name} has no blocks of bytes", "encoding", "an encoding of GGUF", self.name)
        return block

    @property
    def elements_per_block(self) -> int:
        """How many elements a block has."""
        return self.block_parameters.elements_per_block

    @property
    def block_size(self) -> int:
        """How many bytes a block takes."""
        return self.block_parameters.block_size

    @property
    def is_gguf(self) -> bool:
        """Whether GGUF files have tensors of this encoding."""
        return ENCODINGS[self].gguf is not None


ENCODINGS: Final[Mapping[QuantizationEncoding, Encoding]] = {
    QuantizationEncoding.Q4_0: _blocks("q4_0", 2, 32, 18, 8),
    QuantizationEncoding.Q4_1: _blocks("q4_1", 3, 32, 20, 0),
    QuantizationEncoding.Q5_0: _blocks("q5_0", 6, 32, 22, 16),
    QuantizationEncoding.Q5_1: _blocks("q5_1", 7, 32, 24, 0),
    QuantizationEncoding.Q8_0: _blocks("q8_0", 8, 32, 34, 128),
    QuantizationEncoding.Q4_K: _blocks("q4_k", 12, 256, 144, 0),
    QuantizationEncoding.Q5_K: _blocks("q5_k", 13, 256, 176, 0),
    QuantizationEncoding.Q6_K: _blocks("q6_k", 14, 256, 210, 32, 2),
    QuantizationEncoding.IQ4_NL: _blocks("iq4_nl", 20, 32, 18, 128, encoded=False),
    QuantizationEncoding.MXFP4: _blocks("mxfp4", 39, 32, 17, 12),
    QuantizationEncoding.NVFP4: _blocks("nvfp4", 40, 64, 36, 12, 2, encoded=False),
    QuantizationEncoding.GPTQ: _groups("gptq", 4),
    QuantizationEncoding.AWQ: _groups("awq", 3),
    QuantizationEncoding.INT8_ROW: _scaled("int8", 1, 0),
    QuantizationEncoding.INT8_ROW_DYNAMIC: _scaled("int8", 1, 0, "int8_row"),
    QuantizationEncoding.FLOAT8_TENSOR: _scaled("float8", 0, 0),
    QuantizationEncoding.FLOAT8_ROW: _scaled("float8", 1, 0),
    QuantizationEncoding.FLOAT8_BLOCK: _scaled("float8", 128, 128),
}
GGUF_ENCODINGS: Final = {row.gguf: encoding for encoding, row in ENCODINGS.items() if row.gguf is not None}


def encoding_of(argument: str, value: object, code: str = CODE) -> QuantizationEncoding:
    """An encoding, also by its name.

    Raises:
        GraphError: EK0470 or the code given, there is none like it.
    """
    if isinstance(value, QuantizationEncoding):
        return value
    for encoding in QuantizationEncoding:
        if isinstance(value, str) and encoding.name == value.lower():
            return encoding
    names = ", ".join(encoding.name for encoding in QuantizationEncoding)
    _refuse(f"argument '{argument}' is not an encoding", argument, names, value, code)


def bytes_of(encoding: QuantizationEncoding, elements: int) -> int | None:
    """How many bytes a row of so many elements takes; None if they are not whole blocks."""
    block = encoding.block_parameters
    return elements // block.elements_per_block * block.block_size if elements % block.elements_per_block == 0 else None


def decoded_type(encoding: QuantizationEncoding, shape: tuple[int, ...]) -> tuple[DType, tuple[int, ...]]:
    """dtype and shape of what bytes of a shape stand for."""
    block = encoding.block_parameters
    return DType.float32, (*shape[:-1], shape[-1] // block.block_size * block.elements_per_block)


def _refuse(message: str, argument: str, expected: str, got: object, code: str = CODE) -> NoReturn:
    raise GraphError(message, code=code, place=user_place(), argument=argument, expected=expected, got=shown_value(got))
