"""How tensors are quantised: encodings, the sizes of their blocks, and settings of checkpoints.

    weight = Weight("linear.weight", DType.uint8, [4096, 2304], quantization_encoding=QuantizationEncoding.Q4_K)
    y = ops.qmatmul(QuantizationEncoding.Q4_K, None, x, weight)

See `ops.quantize`, `ops.dequantize` and `ops.qmatmul`.
"""

from .encodings import BlockParameters, QuantizationConfig, QuantizationEncoding

__all__ = ["BlockParameters", "QuantizationConfig", "QuantizationEncoding"]
