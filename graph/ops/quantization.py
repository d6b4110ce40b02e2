"""Stages encoding, decoding and products of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import brief
from ...dsl.types.dtype import DType
from ..quantization.encodings import (
    CODE,
    ENCODINGS,
    Encoding,
    QuantizationConfig,
    QuantizationEncoding,
    encoding_of,
)
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import StaticDim
from ..types.tensor_type import TensorType, shown
from .movement import broadcast_to
from .operands import as_shape, cast_to, check_kind, same_device, tensor
from .stage import builtin, current, fail, op

HIGHEST = {DType.int8: 127, DType.float8_e4m3fn: 448}


@op(dtypes={"x": "float"}, example="ops.quantize('q8_0', x)")
def quantize(encoding: QuantizationEncoding | str, x: TensorValueLike) -> TensorValue | tuple[TensorValue, ...]:
    """Encodes a float tensor; along its last axis, in whole blocks.

    Args:
        encoding: an encoding, or its name.
        x: of any rank; of rank 2 for int8 and float8.

    Returns:
        For encodings of GGUF an uint8 tensor, whose last axis is the bytes of blocks. For int8 and float8 the numbers
        and their scales.

    Raises:
        GraphError: EK0470 nothing encodes in this encoding, or the last axis is not a whole number of blocks.
        DTypeError: EK0413 elements that are not floats.
    """
    row, encoding = _row("quantize", encoding)
    value = tensor("quantize", "x", x)
    check_kind("quantize", "x", value, "float")
    if row.encode is None:
        known = ", ".join(each.name for each, other in ENCODINGS.items() if other.encode is not None)
        fail("quantize", f"nothing encodes in {encoding.name}", code=CODE, argument="encoding", expected=known)
    if row.block is None:
        return _quantized_with_scales(row, value)
    last = value.shape[-1] if value.rank else None
    if not isinstance(last, StaticDim) or int(last) % row.block.elements_per_block:
        text = f"{encoding.name} has blocks of {row.block.elements_per_block} elements, and x is {shown(value.shape)}"
        wanted = f"a last axis of a multiple of {row.block.elements_per_block}"
        fail("quantize", text, code=CODE, argument="x", expected=wanted, got=shown(value.shape))
    return builtin(*row.encode, [value])[0]


def _quantized_with_scales(row: Encoding, x: TensorValue) -> tuple[TensorValue, ...]:
    assert row.encode is not None and row.scaled is not None
    if x.rank != 2:
        text = f"a matrix is quantised, and x has rank {x.rank}"
        fail("quantize", text, code="EK0421", argument="x", expected="rank 2", got=str(x.rank))
    dtype = DType.int8 if row.encode[1].endswith("int8") else DType.float8_e4m3fn
    how = {"rows": row.scaled[0], "columns": row.scaled[1]}
    scales = builtin(row.encode[0], "scales_of", [x], {**how, "highest": HIGHEST[dtype]})[0]
    return builtin(*row.encode, [x, scales], how)[0], scales


@op(dtypes={}, example="ops.dequantize('q8_0', quantized)")
def dequantize(
    encoding: QuantizationEncoding | str,
    quantized: TensorValueLike,
    *auxiliary: TensorValueLike,
    config: QuantizationConfig | None = None,
) -> TensorValue:
    """The elements of a quantised tensor in float32.

    Args:
        encoding: an encoding, or its name.
        quantized: of encodings of GGUF an uint8 tensor of any rank, whose last axis is whole blocks.
        auxiliary: the other tensors of int8, float8, GPTQ and AWQ, as `qmatmul` takes them.
        config: the settings of GPTQ and AWQ.

    Returns:
        A float32 tensor; of GPTQ and AWQ with the input channels first.

    Raises:
        GraphError: EK0470 the tensors do not fit the encoding: their number, dtypes or shapes.
    """
    row, encoding = _row("dequantize", encoding)
    values = _tensors("dequantize", encoding, row, config, "quantized", (quantized, *auxiliary))
    return builtin(*row.decode, values, _parameters(row, encoding, config, values))[0]


@op(dtypes={"lhs": "float"}, example="ops.qmatmul('q8_0', None, lhs, rhs)")
def qmatmul(
    encoding: QuantizationEncoding | str,
    config: QuantizationConfig | None,
    lhs: TensorValueLike,
    *rhs: TensorValueLike,
) -> TensorValue:
    """Products of the rows of `lhs` with the rows of a quantised matrix: `lhs @ transpose(dequantize(rhs))`.

    For encodings of GGUF the left operand is rounded, too: to 8 bits in blocks of 32, each with a scale of its own. So
    it is for int8_row_dynamic, with a scale for each row.

    Args:
        encoding: an encoding, or its name.
        config: the settings of GPTQ and AWQ; None for other encodings.
        lhs: floats of the shape (..., k).
        rhs: the matrix. Of encodings of GGUF an uint8 tensor of rank 2, a row for each output. Of int8 and float8 the
            numbers (n, k) and their scales: (n) or (n, 1) by row, () by tensor, one for each
            128 by 128 by block.
            Of GPTQ the int32 weight (k / 8, n), the scales (k / group, n), the zeros (k / group, n / 8) unless
            `config.sym`, and the groups (k) if `config.desc_act`. Of AWQ the int32 weight (k, n / 8), the scales
            (k / group, n) and the zeros (k / group, n / 8) unless `config.sym`.

    Returns:
        A tensor (..., n) of the dtype of `lhs`.

    Raises:
        GraphError: EK0470 the tensors do not fit the encoding; EK0427 inner sizes differ; EK0421 `lhs` has rank 0.
        DTypeError: EK0413 `lhs` is not of floats.
    """
    row, encoding = _row("qmatmul", encoding)
    left = tensor("qmatmul", "lhs", lhs)
    check_kind("qmatmul", "lhs", left, "float")
    if left.rank == 0:
        fail("qmatmul", "argument 'lhs' has rank 0", code="EK0421", argument="lhs", expected="rank >= 1")
    values = _tensors("qmatmul", encoding, row, config, "rhs", rhs)
    same_device("qmatmul", {"lhs": left, **{f"rhs[{k}]": value for k, value in enumerate(values)}})
    inner = _inner(row, encoding, values)
    if left.shape[-1] != inner:
        text = f"{shown(left.shape)} by {inner} input channels: the inner sizes are {left.shape[-1]} and {inner}"
        fail("qmatmul", text, code="EK0427", argument="lhs", expected=str(inner), got=str(left.shape[-1]))
    if row.activation == "int8_row":
        return cast_to(_of_rounded_rows(row, left, *values), left.dtype)
    if row.activation:
        rounded = builtin("quantized", "round_to_8_bits", [left], {"bias": row.bias, "halves": row.halves})
        return cast_to(builtin(*row.product, [*rounded, *values])[0], left.dtype)
    return builtin(*row.product, [left, *values], _parameters(row, encoding, config, values))[0]


def _of_rounded_rows(row: Encoding, left: TensorValue, numbers: TensorValue, scales: TensorValue) -> TensorValue:
    """Products of integers, exact, times the scales of both."""
    n, device = numbers.shape[0], left.device
    rounded, factors = builtin("quantized", "round_rows_to_8_bits", [left])
    graph = current("qmatmul")
    zero = graph.stage_constant(np.zeros((), np.int32), device, None)
    zeros = broadcast_to(zero, [n])
    sums = builtin(*row.product, [rounded, numbers, zero, zeros])[0]
    return cast_to(sums, DType.float32) * factors * as_shape(scales, [n])


def _row(name: str, encoding: object) -> tuple[Encoding, QuantizationEncoding]:
    kind = encoding_of("encoding", encoding)
    return ENCODINGS[kind], kind


def _inner(row: Encoding, encoding: QuantizationEncoding, values: Sequence[TensorValue]) -> Any:
    """How many input channels a matrix has."""
    first = values[0].shape
    if row.block is not None:
        return first[-1] // row.block.block_size * row.block.elements_per_block
    if encoding is QuantizationEncoding.GPTQ:
        return first[0] * 8
    return first[0] if encoding is QuantizationEncoding.AWQ else first[1]


def _parameters(
    row: Encoding, encoding: QuantizationEncoding, config: QuantizationConfig | None, values: Sequence[TensorValue]
) -> dict[str, Any]:
    if row.scaled is not None:
        return {"rows": row.scaled[0], "columns": row.scaled[1]}
    if encoding is QuantizationEncoding.AWQ:
        assert config is not None
        return {"size": int(values[0].shape[0]) if config.group_size == -1 else config.group_size}
    return {}


def _tensors(
    name: str,
    encoding: QuantizationEncoding,
    row: Encoding,
    config: QuantizationConfig | None,
    argument: str,
    given: Sequence[TensorValueLike],
) -> list[TensorValue]:
    """The tensors of a quantised matrix as the kernels take them."""
    count = 1 if row.block is not None else 2
    if row.tensors[1] > 2:
        if not isinstance(config, QuantizationConfig):
            text = f"encoding {encoding.name} has settings: pass a QuantizationConfig"
            hint = f"config=QuantizationConfig({encoding.name!r}, bits=4, group_size=128)"
            fail(
                name, text, code=CODE, argument="config", expected="a QuantizationConfig", got=brief(config), hint=hint
            )
        count += (not config.sym) + (config.desc_act and encoding is QuantizationEncoding.GPTQ)
    if len(given) != count:
        text = f"encoding {encoding.name} has {count} tensors here, and {len(given)} are given"
        fail(name, text, code=CODE, argument=argument, expected=str(count), got=str(len(given)))
    values = [tensor(name, argument if k == 0 else f"{argument}[{k}]", value) for k, value in enumerate(given)]
    if row.block is not None:
        return [_bytes(name, argument, encoding, row, values[0])]
    if row.scaled is not None:
        return _with_scales(name, argument, row.scaled, row, values)
    assert config is not None
    return _grouped(name, argument, encoding is QuantizationEncoding.GPTQ, config, values)


def _bytes(name: str, argument: str, encoding: QuantizationEncoding, row: Encoding, value: TensorValue) -> TensorValue:
    assert row.block is not None
    _check_dtype(name, argument, value, (DType.uint8,))
    last = value.shape[-1] if value.rank else None
    if not isinstance(last, StaticDim) or int(last) % row.block.block_size:
        text = f"{encoding.name} has blocks of {row.block.block_size} bytes, and {argument} is {shown(value.shape)}"
        wanted = f"a last axis of a multiple of {row.block.block_size}"
        fail(name, text, code=CODE, argument=argument, expected=wanted, got=shown(value.shape))
    if name == "qmatmul":
        _check_rank(name, argument, value)
    return value


def _with_scales(
    name: str, argument: str, blocks: tuple[int, int], row: Encoding, values: Sequence[TensorValue]
) -> list[TensorValue]:
    numbers, scales = values
    wanted = (DType.int8,) if row.encode is not None and row.encode[1].endswith("int8") else _FLOAT8
    _check_dtype(name, argument, numbers, wanted)
    _check_dtype(name, f"{argument}[1]", scales, _FLOATS)
    _check_rank(name, argument, numbers)
    sizes = [
        1 if block == 0 else -(-int(dim) // block) if isinstance(dim, StaticDim) else dim
        for dim, block in zip(numbers.shape, blocks, strict=True)
    ]
    allowed = [(*sizes,)] + ([(sizes[0],)] if blocks[1] == 0 else []) + ([()] if blocks == (0, 0) else [])
    if tuple(scales.shape) not in [tuple(TensorType(DType.int8, s, scales.device).shape) for s in allowed]:
        text = f"the scales of {shown(numbers.shape)} are {shown(scales.shape)}"
        fail(name, text, code=CODE, argument=f"{argument}[1]", expected=str(list(sizes)), got=shown(scales.shape))
    return [numbers, as_shape(cast_to(scales, DType.float32), sizes)]


_FLOATS = (DType.float32, DType.float16, DType.bfloat16)
_FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz)


def _grouped(
    name: str, argument: str, is_gptq: bool, config: QuantizationConfig, values: Sequence[TensorValue]
) -> list[TensorValue]:
    weight, scales = values[:2]
    _check_dtype(name, argument, weight, (DType.int32,))
    _check_dtype(name, f"{argument}[1]", scales, _FLOATS)
    _check_rank(name, argument, weight)
    rows, columns = (int(dim) for dim in _static(name, argument, weight))
    channels, outputs = (rows * 8, columns) if is_gptq else (rows, columns * 8)
    size = channels if config.group_size == -1 else config.group_size
    groups = -(-channels // size) if size else 0
    _check_shape(name, f"{argument}[1]", scales, (groups, outputs))
    rest = list(values[2:])
    device = weight.device
    if config.sym:
        # GPTQ stores zeros less one; half of the range of digits is 8.
        digits = np.uint32(0x77777777 if is_gptq else 0x88888888).view(np.int32)
        zeros = current(name).stage_constant(np.full((groups, -(-outputs // 8)), digits), device, None)
    else:
        zeros = rest.pop(0)
        _check_dtype(name, f"{argument}[2]", zeros, (DType.int32,))
        _check_shape(name, f"{argument}[2]", zeros, (groups, -(-outputs // 8)))
    if not is_gptq:
        return [weight, zeros, scales]
    if config.desc_act:
        _check_dtype(name, f"{argument}[{2 + (not config.sym)}]", rest[0], (DType.int32,))
        _check_shape(name, f"{argument}[{2 + (not config.sym)}]", rest[0], (channels,))
        numbers = rest[0]
    else:
        numbers = current(name).stage_constant((np.arange(channels) // max(size, 1)).astype(np.int32), device, None)
    return [weight, zeros, scales, numbers]


def _static(name: str, argument: str, value: TensorValue) -> Sequence[StaticDim]:
    if not value.shape.is_static:
        text = f"the sizes of a quantised matrix have to be known, and {argument} is {shown(value.shape)}"
        fail(name, text, code=CODE, argument=argument, expected="known sizes", got=shown(value.shape))
    return list(value.shape)  # type: ignore[arg-type]


def _check_dtype(name: str, argument: str, value: TensorValue, dtypes: Sequence[DType]) -> None:
    if value.dtype not in dtypes:
        wanted = " or ".join(map(str, dtypes))
        text = f"argument '{argument}' has to be {wanted} here, and is {value.dtype}"
        fail(name, text, code=CODE, argument=argument, expected=wanted, got=str(value.dtype))


def _check_rank(name: str, argument: str, value: TensorValue) -> None:
    if value.rank != 2:
        text = f"a quantised matrix has rank 2, and argument '{argument}' is {shown(value.shape)}"
        fail(name, text, code=CODE, argument=argument, expected="rank 2", got=shown(value.shape))


def _check_shape(name: str, argument: str, value: TensorValue, shape: tuple[int, ...]) -> None:
    if tuple(value.shape) != shape:
        text = f"argument '{argument}' has to be {list(shape)}, and is {shown(value.shape)}"
        fail(name, text, code=CODE, argument=argument, expected=str(list(shape)), got=shown(value.shape))
