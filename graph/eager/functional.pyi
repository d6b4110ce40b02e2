"""Functions over all ops, for tensors and for values of graphs. Written by `python tests/support/eager_stubs.py`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from ...dsl.types.dtype import DType
from ..driver.devices import Device, DeviceRef
from ..quantization.encodings import QuantizationConfig, QuantizationEncoding
from ..staging.graph import Graph
from ..types.dims import Dim
from ..types.layouts import ConvInputLayout, FilterLayout, InterpolationMode, Normalization
from ..types.tensor_type import BufferType, TensorType
from .tensor import Tensor

Axes = int | tuple[int, ...] | None
DimLike = int | str | Dim
Numbers = int | Iterable[int]
TensorLike = Any  # Tensor, a value of a graph, int, float, NumPy scalar or array, any DLPack array

CustomExtensionType = str | Path
F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "CustomExtensionType",
    "abs",
    "acos",
    "acosh",
    "add",
    "affine_grid",
    "all",
    "angle",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "as_interleaved_complex",
    "asin",
    "asinh",
    "assert_same_device",
    "atan",
    "atan2",
    "atanh",
    "attention",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "band_part",
    "batch_norm",
    "bitcast",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bottom_k",
    "broadcast_to",
    "buffer_create",
    "buffer_load",
    "buffer_store",
    "buffer_store_slice",
    "call",
    "cast",
    "cbrt",
    "ceil",
    "celu",
    "cholesky",
    "chunk",
    "clamp",
    "clip",
    "complex_mul",
    "complex_of",
    "concat",
    "cond",
    "conj",
    "constant",
    "constant_external",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "copysign",
    "cos",
    "cosh",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "custom",
    "dequantize",
    "det",
    "div",
    "eigh",
    "einsum",
    "elu",
    "equal",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fence",
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "flash_attention_ragged",
    "flatten",
    "flip",
    "floor",
    "floordiv",
    "fmod",
    "fold",
    "full",
    "full_like",
    "functional",
    "gather",
    "gather_nd",
    "gcd",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "greater",
    "greater_equal",
    "grid_sample",
    "group_norm",
    "grouped_matmul_ragged",
    "hann_window",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "hfft",
    "hypot",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "imag",
    "in_graph_context",
    "inplace_custom",
    "instance_norm",
    "irfft",
    "irfft2",
    "irfftn",
    "is_finite",
    "is_inf",
    "is_nan",
    "isclose",
    "kv_cache_store",
    "l1_norm",
    "l2_norm",
    "l2_normalize",
    "layer_norm",
    "lazy",
    "lcm",
    "leaky_relu",
    "left_shift",
    "less",
    "less_equal",
    "lgamma",
    "local_response_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_sigmoid",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsoftmax",
    "logsumexp",
    "lp_pool",
    "masked_scatter",
    "matmul",
    "max",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_pool_with_indices",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mish",
    "mod",
    "moe_create_indices",
    "mul",
    "negate",
    "nextafter",
    "non_maximum_suppression",
    "nonzero",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "outer",
    "pad",
    "penalize_tokens",
    "permute",
    "pow",
    "prelu",
    "print",
    "prod",
    "qmatmul",
    "qr",
    "quantize",
    "range",
    "real",
    "rebind",
    "reciprocal",
    "relu",
    "relu6",
    "repeat_interleave",
    "reshape",
    "resize",
    "resize_bicubic",
    "resize_linear",
    "resize_nearest",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
    "right_shift",
    "rms_norm",
    "roi_align",
    "roll",
    "round",
    "rsqrt",
    "sample_tokens",
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_mul",
    "searchsorted",
    "selu",
    "shape_to_tensor",
    "shard_and_stack",
    "shrink",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "slice_tensor",
    "slogdet",
    "softmax",
    "softplus",
    "softsign",
    "solve",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "stdev",
    "sub",
    "sum",
    "sum_of_squares",
    "svd",
    "take_along_axis",
    "tan",
    "tanh",
    "thresholded_relu",
    "tile",
    "top_k",
    "transfer_to",
    "transpose",
    "tril",
    "trilu",
    "triu",
    "trunc",
    "unfold",
    "unsqueeze",
    "var",
    "view_as_complex",
    "view_as_real",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]

def functional(op: F) -> F: ...
def lazy() -> AbstractContextManager[None]: ...
def in_graph_context() -> bool: ...
def abs(x: TensorLike) -> Tensor: ...
def acos(x: TensorLike) -> Tensor: ...
def acosh(x: TensorLike) -> Tensor: ...
def add(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def affine_grid(theta: TensorLike, size: Iterable[DimLike], align_corners: bool = False) -> Tensor: ...
def all(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def angle(x: TensorLike) -> Tensor: ...
def any(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def arange(
    start: Any,
    stop: Any,
    step: Any = 1,
    out_dim: Any = None,
    *,
    dtype: DType | None = None,
    device: DeviceRef | Device | None = None,
) -> Any: ...
def argmax(x: TensorLike, axis: int | None = -1, keepdims: bool = True) -> Tensor: ...
def argmin(x: TensorLike, axis: int | None = -1, keepdims: bool = True) -> Tensor: ...
def argsort(x: TensorLike, ascending: bool = True, axis: int = 0, *, descending: bool | None = None) -> Tensor: ...
def as_interleaved_complex(x: TensorLike) -> Tensor: ...
def asin(x: TensorLike) -> Tensor: ...
def asinh(x: TensorLike) -> Tensor: ...
def assert_same_device(*values: Any, **named_values: Any) -> None: ...
def atan(x: TensorLike) -> Tensor: ...
def atan2(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def atanh(x: TensorLike) -> Tensor: ...
def attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    *,
    mask: TensorLike | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    valid_length: TensorLike | None = None,
    offset: TensorLike | None = None,
) -> Tensor: ...
def avg_pool1d(
    input: TensorLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
    input_layout: ConvInputLayout = ...,
) -> Tensor: ...
def avg_pool2d(
    input: TensorLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
    input_layout: ConvInputLayout = ...,
) -> Tensor: ...
def avg_pool3d(
    input: TensorLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
    input_layout: ConvInputLayout = ...,
) -> Tensor: ...
def band_part(
    x: TensorLike, num_lower: int | None = None, num_upper: int | None = None, exclude: bool = False
) -> Tensor: ...
def batch_norm(
    input: TensorLike,
    gamma: TensorLike,
    beta: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    epsilon: float = 1e-05,
) -> Tensor: ...
def bitcast(x: TensorLike, dtype: DType) -> Tensor: ...
def bitwise_and(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def bitwise_not(x: TensorLike) -> Tensor: ...
def bitwise_or(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def bitwise_xor(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def bottom_k(input: TensorLike, k: int, axis: int = -1) -> tuple[Tensor, Tensor]: ...
def broadcast_to(
    x: TensorLike, shape: Iterable[DimLike] | Tensor, out_dims: Iterable[DimLike] | None = None
) -> Tensor: ...
def buffer_create(type: BufferType) -> Any: ...
def buffer_load(x: Any) -> Any: ...
def buffer_store(destination: Any, source: Any) -> None: ...
def buffer_store_slice(destination: Any, source: Any, indices: Any) -> None: ...
def call(graph: Graph, *args: Any, prefix: str = "") -> list[Any]: ...
def cast(x: TensorLike, dtype: DType) -> Tensor: ...
def cbrt(x: TensorLike) -> Tensor: ...
def ceil(x: TensorLike) -> Tensor: ...
def celu(x: TensorLike, alpha: float = 1.0) -> Tensor: ...
def cholesky(x: TensorLike, upper: bool = False) -> Tensor: ...
def chunk(x: TensorLike, chunks: int, axis: int = 0) -> list[Tensor]: ...
def clamp(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor: ...
def clip(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor: ...
def complex_mul(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def complex_of(real: TensorLike, imag: TensorLike) -> Tensor: ...
def concat(original_vals: Iterable[TensorLike], axis: int = 0) -> Tensor: ...
def cond(
    pred: Any, out_types: Iterable[TensorType] | None, then_fn: Callable[[], Any], else_fn: Callable[[], Any]
) -> list[Any]: ...
def conj(x: TensorLike) -> Tensor: ...
def constant(value: Any, dtype: DType | None = None, device: DeviceRef | Device | None = None) -> Any: ...
def constant_external(name: str, type: TensorType) -> Any: ...
def conv1d(
    x: TensorLike,
    filter: TensorLike,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = ...,
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ...,
    filter_layout: FilterLayout = ...,
) -> Tensor: ...
def conv1d_transpose(
    x: TensorLike,
    filter: TensorLike,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = ...,
    output_paddings: Numbers = 0,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ...,
    filter_layout: FilterLayout = ...,
    groups: int = 1,
) -> Tensor: ...
def conv2d(
    x: TensorLike,
    filter: TensorLike,
    stride: Numbers = ...,
    dilation: Numbers = ...,
    padding: Numbers = ...,
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ...,
    filter_layout: FilterLayout = ...,
) -> Tensor: ...
def conv2d_transpose(
    x: TensorLike,
    filter: TensorLike,
    stride: Numbers = ...,
    dilation: Numbers = ...,
    padding: Numbers = ...,
    output_paddings: Numbers = ...,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ...,
    filter_layout: FilterLayout = ...,
    groups: int = 1,
) -> Tensor: ...
def conv3d(
    x: TensorLike,
    filter: TensorLike,
    stride: Numbers = ...,
    dilation: Numbers = ...,
    padding: Numbers = ...,
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ...,
    filter_layout: FilterLayout = ...,
) -> Tensor: ...
def conv3d_transpose(
    x: TensorLike,
    filter: TensorLike,
    stride: Numbers = ...,
    dilation: Numbers = ...,
    padding: Numbers = ...,
    output_paddings: Numbers = ...,
    bias: TensorLike | None = None,
    input_layout: ConvInputLayout = ...,
    filter_layout: FilterLayout = ...,
    groups: int = 1,
) -> Tensor: ...
def copysign(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def cos(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def cosh(x: TensorLike) -> Tensor: ...
def count_nonzero(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def cumprod(x: TensorLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Tensor: ...
def cumsum(x: TensorLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Tensor: ...
def custom(
    name: Any,
    device: DeviceRef | Device,
    values: Iterable[Any],
    out_types: Iterable[TensorType] | None = None,
    parameters: Mapping[str, Any] | None = None,
    custom_extensions: Any | None = None,
) -> list[Any]: ...
def dequantize(
    encoding: QuantizationEncoding | str,
    quantized: TensorLike,
    *auxiliary: TensorLike,
    config: QuantizationConfig | None = None,
) -> Tensor: ...
def det(x: TensorLike) -> Tensor: ...
def div(lhs: TensorLike, rhs: TensorLike, *, fast: bool = False) -> Tensor: ...
def eigh(x: TensorLike) -> tuple[Tensor, Tensor]: ...
def einsum(equation: str, *operands: TensorLike) -> Tensor: ...
def elu(x: TensorLike, alpha: float = 1.0) -> Tensor: ...
def equal(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def erf(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def erfc(x: TensorLike) -> Tensor: ...
def exp(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def exp2(x: TensorLike) -> Tensor: ...
def expm1(x: TensorLike) -> Tensor: ...
def fence(x: TensorLike, *others: TensorLike) -> Tensor | list[Tensor]: ...
def fft(
    input_tensor: TensorLike,
    n: int | Dim | None = None,
    axis: int = -1,
    normalization: Normalization | str = ...,
    input_is_complex: bool = True,
) -> Tensor: ...
def fft2(
    x: TensorLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = ...,
    norm: Normalization | str = ...,
) -> Tensor: ...
def fftfreq(n: int, d: float = 1.0, dtype: DType = ..., device: DeviceRef | Device | None = None) -> Tensor: ...
def fftn(
    x: TensorLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: Normalization | str = ...,
) -> Tensor: ...
def fftshift(x: TensorLike, axes: int | Sequence[int] | None = None) -> Tensor: ...
def flash_attention_ragged(
    query: TensorLike,
    pages: Tensor | TensorLike,
    offsets: TensorLike,
    lengths: TensorLike,
    table: TensorLike,
    *,
    layer: int = 0,
    window: int | None = None,
    scale: float | None = None,
) -> Tensor: ...
def flatten(x: TensorLike, start_dim: int = 0, end_dim: int = -1) -> Tensor: ...
def flip(x: TensorLike, axis: Axes = None) -> Tensor: ...
def floor(x: TensorLike) -> Tensor: ...
def floordiv(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def fmod(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def fold(
    input: TensorLike,
    output_size: Iterable[DimLike],
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
) -> Tensor: ...
def full(
    shape: Iterable[DimLike], value: TensorLike, dtype: DType | None = None, device: DeviceRef | Device | None = None
) -> Tensor: ...
def full_like(x: TensorLike, value: TensorLike, dtype: DType | None = None) -> Tensor: ...
def gather(input: TensorLike, indices: TensorLike, axis: int) -> Tensor: ...
def gather_nd(input: TensorLike, indices: TensorLike, batch_dims: int = 0) -> Tensor: ...
def gcd(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def gelu(x: TensorLike, approximate: str = "none", *, fast: bool = False) -> Tensor: ...
def global_avg_pool(input: TensorLike, input_layout: ConvInputLayout = ...) -> Tensor: ...
def global_max_pool(input: TensorLike, input_layout: ConvInputLayout = ...) -> Tensor: ...
def greater(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def greater_equal(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def grid_sample(
    input: TensorLike,
    grid: TensorLike,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor: ...
def group_norm(
    input: TensorLike, gamma: TensorLike, beta: TensorLike, num_groups: int, epsilon: float = 1e-05
) -> Tensor: ...
def grouped_matmul_ragged(
    hidden_states: TensorLike, weight: TensorLike, expert_start_indices: TensorLike
) -> Tensor: ...
def hann_window(
    window_length: int, device: DeviceRef | Device, periodic: bool = True, dtype: DType = ...
) -> Tensor: ...
def hard_sigmoid(x: TensorLike, alpha: float = 0.16666666666666666, beta: float = 0.5) -> Tensor: ...
def hard_swish(x: TensorLike) -> Tensor: ...
def hard_tanh(x: TensorLike, min_val: float = -1.0, max_val: float = 1.0) -> Tensor: ...
def hfft(x: TensorLike, n: int | None = None, axis: int = -1, norm: Normalization | str = ...) -> Tensor: ...
def hypot(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def ifft(
    input_tensor: TensorLike,
    n: int | Dim | None = None,
    axis: int = -1,
    normalization: Normalization | str = ...,
    input_is_complex: bool = True,
) -> Tensor: ...
def ifft2(
    x: TensorLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = ...,
    norm: Normalization | str = ...,
) -> Tensor: ...
def ifftn(
    x: TensorLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: Normalization | str = ...,
) -> Tensor: ...
def ifftshift(x: TensorLike, axes: int | Sequence[int] | None = None) -> Tensor: ...
def ihfft(x: TensorLike, n: int | None = None, axis: int = -1, norm: Normalization | str = ...) -> Tensor: ...
def imag(x: TensorLike) -> Tensor: ...
def inplace_custom(
    name: Any,
    device: DeviceRef | Device,
    values: Iterable[Any],
    out_types: Iterable[TensorType] | None = None,
    parameters: Mapping[str, Any] | None = None,
    custom_extensions: Any | None = None,
) -> list[Any]: ...
def instance_norm(input: TensorLike, gamma: TensorLike, beta: TensorLike, epsilon: float = 1e-05) -> Tensor: ...
def irfft(
    input_tensor: TensorLike,
    n: int | Dim | None = None,
    axis: int = -1,
    normalization: Normalization | str = ...,
    input_is_complex: bool = False,
    buffer_size_mb: int = 512,
) -> Tensor: ...
def irfft2(
    x: TensorLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = ...,
    norm: Normalization | str = ...,
) -> Tensor: ...
def irfftn(
    x: TensorLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: Normalization | str = ...,
) -> Tensor: ...
def is_finite(x: TensorLike) -> Tensor: ...
def is_inf(x: TensorLike) -> Tensor: ...
def is_nan(x: TensorLike) -> Tensor: ...
def isclose(
    lhs: TensorLike, rhs: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor: ...
def kv_cache_store(
    pages: Any, key: Any, value: Any, offsets: Any, lengths: Any, table: Any, *, layer: int = 0
) -> None: ...
def l1_norm(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def l2_norm(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def l2_normalize(x: TensorLike, axis: int = -1, epsilon: float = 1e-12) -> Tensor: ...
def layer_norm(input: TensorLike, gamma: TensorLike, beta: TensorLike, epsilon: float) -> Tensor: ...
def lcm(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> Tensor: ...
def left_shift(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def less(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def less_equal(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def lgamma(x: TensorLike) -> Tensor: ...
def local_response_norm(
    x: TensorLike, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0, axis: int = 1
) -> Tensor: ...
def log(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def log10(x: TensorLike) -> Tensor: ...
def log1p(x: TensorLike) -> Tensor: ...
def log2(x: TensorLike) -> Tensor: ...
def log_sigmoid(x: TensorLike) -> Tensor: ...
def logical_and(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def logical_not(x: TensorLike) -> Tensor: ...
def logical_or(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def logical_xor(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def logsoftmax(value: TensorLike, axis: int = -1) -> Tensor: ...
def logsumexp(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def lp_pool(
    input: TensorLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    p: float = 2.0,
    input_layout: ConvInputLayout = ...,
) -> Tensor: ...
def masked_scatter(input: TensorLike, mask: TensorLike, updates: TensorLike, out_dim: DimLike) -> Tensor: ...
def matmul(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def max(x: TensorLike, y: TensorLike | None = None, /, axis: Axes = ..., keepdims: bool = True) -> Tensor: ...
def max_pool1d(
    input: TensorLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    input_layout: ConvInputLayout = ...,
) -> Tensor: ...
def max_pool2d(
    input: TensorLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    input_layout: ConvInputLayout = ...,
) -> Tensor: ...
def max_pool3d(
    input: TensorLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    input_layout: ConvInputLayout = ...,
) -> Tensor: ...
def max_pool_with_indices(
    input: TensorLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    input_layout: ConvInputLayout = ...,
) -> tuple[Tensor, Tensor]: ...
def maximum(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def mean(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def min(x: TensorLike, y: TensorLike | None = None, /, axis: Axes = ..., keepdims: bool = True) -> Tensor: ...
def minimum(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def mish(x: TensorLike) -> Tensor: ...
def mod(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def moe_create_indices(topk_ids: TensorLike, num_experts: int) -> tuple[Tensor, Tensor, Tensor]: ...
def mul(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def negate(x: TensorLike) -> Tensor: ...
def nextafter(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def non_maximum_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_boxes_per_class: int | TensorLike,
    iou_threshold: float | TensorLike = 0.0,
    score_threshold: float | TensorLike | None = None,
    center_point_box: bool = False,
) -> Tensor: ...
def nonzero(x: TensorLike, out_dim: DimLike) -> Tensor: ...
def not_equal(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def one_hot(
    indices: TensorLike,
    depth: DimLike,
    axis: int = -1,
    on_value: TensorLike = 1,
    off_value: TensorLike = 0,
    dtype: DType = ...,
) -> Tensor: ...
def ones(shape: Iterable[DimLike], dtype: DType = ..., device: DeviceRef | Device | None = None) -> Tensor: ...
def ones_like(x: TensorLike, dtype: DType | None = None) -> Tensor: ...
def outer(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def pad(input: TensorLike, paddings: Iterable[int], mode: str = "constant", value: TensorLike = 0) -> Tensor: ...
def penalize_tokens(
    logits: TensorLike,
    history: TensorLike,
    repetition: TensorLike = 1.0,
    frequency: TensorLike = 0.0,
    presence: TensorLike = 0.0,
) -> Tensor: ...
def permute(x: TensorLike, dims: Iterable[int]) -> Tensor: ...
def pow(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def prelu(x: TensorLike, slope: TensorLike) -> Tensor: ...
def print(value: str | TensorLike | Tensor, label: str = "debug_tensor") -> None: ...
def prod(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def qmatmul(
    encoding: QuantizationEncoding | str, config: QuantizationConfig | None, lhs: TensorLike, *rhs: TensorLike
) -> Tensor: ...
def qr(x: TensorLike, complete: bool = False) -> tuple[Tensor, Tensor]: ...
def quantize(encoding: QuantizationEncoding | str, x: TensorLike) -> Tensor | tuple[Tensor, ...]: ...
def range(
    start: Any,
    stop: Any,
    step: Any = 1,
    out_dim: Any = None,
    *,
    dtype: DType | None = None,
    device: DeviceRef | Device | None = None,
) -> Any: ...
def real(x: TensorLike) -> Tensor: ...
def rebind(x: TensorLike, shape: Iterable[DimLike], message: str = "", layout: Any = None) -> Tensor: ...
def reciprocal(x: TensorLike) -> Tensor: ...
def relu(x: TensorLike) -> Tensor: ...
def relu6(x: TensorLike) -> Tensor: ...
def repeat_interleave(
    x: TensorLike, repeats: int | Tensor, axis: int | None = None, out_dim: DimLike | None = None
) -> Tensor: ...
def reshape(x: TensorLike, shape: Iterable[DimLike]) -> Tensor: ...
def resize(input: TensorLike, shape: Iterable[DimLike], interpolation: InterpolationMode = ...) -> Tensor: ...
def resize_bicubic(
    input: TensorLike,
    size: Iterable[DimLike],
    coordinate_transform_mode: str | int = "half_pixel",
    antialias: bool = False,
    cubic_coeff_a: float = -0.75,
    scales: Sequence[float] | None = None,
    roi: Sequence[float] | None = None,
    extrapolation_value: float = 0.0,
    exclude_outside: bool = False,
) -> Tensor: ...
def resize_linear(
    input: TensorLike,
    size: Iterable[DimLike],
    coordinate_transform_mode: str | int = "half_pixel",
    antialias: bool = False,
    scales: Sequence[float] | None = None,
    roi: Sequence[float] | None = None,
    extrapolation_value: float = 0.0,
    exclude_outside: bool = False,
) -> Tensor: ...
def resize_nearest(
    input: TensorLike,
    size: Iterable[DimLike],
    coordinate_transform_mode: str | int = "half_pixel",
    round_mode: str | int = "round_prefer_floor",
    scales: Sequence[float] | None = None,
    roi: Sequence[float] | None = None,
    extrapolation_value: float = 0.0,
) -> Tensor: ...
def rfft(
    input_tensor: TensorLike, n: int | Dim | None = None, axis: int = -1, normalization: Normalization | str = ...
) -> Tensor: ...
def rfft2(
    x: TensorLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = ...,
    norm: Normalization | str = ...,
) -> Tensor: ...
def rfftfreq(n: int, d: float = 1.0, dtype: DType = ..., device: DeviceRef | Device | None = None) -> Tensor: ...
def rfftn(
    x: TensorLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: Normalization | str = ...,
) -> Tensor: ...
def right_shift(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def rms_norm(
    x: TensorLike,
    weight: TensorLike,
    epsilon: float | None = None,
    weight_offset: float = 0.0,
    multiply_before_cast: bool = False,
    *,
    eps: float | None = None,
) -> Tensor: ...
def roi_align(
    input: TensorLike,
    rois: TensorLike,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool = False,
    mode: str = "AVG",
    input_layout: ConvInputLayout = ...,
) -> Tensor: ...
def roll(x: TensorLike, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor: ...
def round(x: TensorLike) -> Tensor: ...
def rsqrt(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def sample_tokens(
    logits: TensorLike,
    temperature: TensorLike = 1.0,
    top_k: TensorLike = 0,
    top_p: TensorLike = 1.0,
    min_p: TensorLike = 0.0,
    seed: TensorLike = 0,
    step: TensorLike = 0,
) -> tuple[Tensor, Tensor]: ...
def scatter(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor: ...
def scatter_add(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor: ...
def scatter_max(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor: ...
def scatter_min(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor: ...
def scatter_mul(input: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor: ...
def scatter_nd(input: TensorLike, updates: TensorLike, indices: TensorLike) -> Tensor: ...
def scatter_nd_add(input: TensorLike, updates: TensorLike, indices: TensorLike) -> Tensor: ...
def scatter_nd_max(input: TensorLike, updates: TensorLike, indices: TensorLike) -> Tensor: ...
def scatter_nd_min(input: TensorLike, updates: TensorLike, indices: TensorLike) -> Tensor: ...
def scatter_nd_mul(input: TensorLike, updates: TensorLike, indices: TensorLike) -> Tensor: ...
def searchsorted(row: TensorLike, x: TensorLike, right: bool = False) -> Tensor: ...
def selu(x: TensorLike, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Tensor: ...
def shape_to_tensor(shape: Iterable[DimLike]) -> Tensor: ...
def shard_and_stack(
    inputs: Sequence[TensorLike], devices: Sequence[Device | DeviceRef], axis: int = 0
) -> list[Tensor]: ...
def shrink(x: TensorLike, lambd: float = 0.5, bias: float = 0.0) -> Tensor: ...
def sigmoid(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def sign(x: TensorLike) -> Tensor: ...
def silu(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def sin(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def sinh(x: TensorLike) -> Tensor: ...
def slice_tensor(x: Any, indices: Any) -> Any: ...
def slogdet(x: TensorLike) -> tuple[Tensor, Tensor]: ...
def softmax(value: TensorLike, axis: int = -1) -> Tensor: ...
def softplus(x: TensorLike, beta: float = 1.0) -> Tensor: ...
def softsign(x: TensorLike) -> Tensor: ...
def solve(a: TensorLike, b: TensorLike) -> Tensor: ...
def sort(x: TensorLike, axis: int = -1, descending: bool = False) -> Tensor: ...
def split(x: TensorLike, split_sizes: Sequence[DimLike] | int, axis: int = 0) -> list[Tensor]: ...
def sqrt(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def square(x: TensorLike) -> Tensor: ...
def squeeze(x: TensorLike, axis: int) -> Tensor: ...
def stack(values: Iterable[TensorLike], axis: int = 0) -> Tensor: ...
def stdev(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def sub(lhs: TensorLike, rhs: TensorLike) -> Tensor: ...
def sum(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def sum_of_squares(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def svd(x: TensorLike, complete: bool = False) -> tuple[Tensor, Tensor, Tensor]: ...
def take_along_axis(x: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor: ...
def tan(x: TensorLike) -> Tensor: ...
def tanh(x: TensorLike, *, fast: bool = False) -> Tensor: ...
def thresholded_relu(x: TensorLike, alpha: float = 1.0) -> Tensor: ...
def tile(x: TensorLike, repeats: Iterable[DimLike]) -> Tensor: ...
def top_k(input: TensorLike, k: int, axis: int = -1) -> tuple[Tensor, Tensor]: ...
def transfer_to(x: Any, device: DeviceRef | Device) -> Any: ...
def transpose(x: TensorLike, axis_1: int, axis_2: int) -> Tensor: ...
def tril(x: TensorLike, diagonal: int = 0) -> Tensor: ...
def trilu(x: TensorLike, k: int = 0, upper: bool = True) -> Tensor: ...
def triu(x: TensorLike, diagonal: int = 0) -> Tensor: ...
def trunc(x: TensorLike) -> Tensor: ...
def unfold(
    input: TensorLike, kernel_size: Numbers, stride: Numbers = 1, dilation: Numbers = 1, padding: Numbers = 0
) -> Tensor: ...
def unsqueeze(x: TensorLike, axis: int) -> Tensor: ...
def var(x: TensorLike, axis: Axes = -1, keepdims: bool = True) -> Tensor: ...
def view_as_complex(x: TensorLike) -> Tensor: ...
def view_as_real(x: TensorLike) -> Tensor: ...
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor: ...
def while_loop(initial_values: Any, predicate: Callable[..., Any], body: Callable[..., Any]) -> list[Any]: ...
def zeros(shape: Iterable[DimLike], dtype: DType = ..., device: DeviceRef | Device | None = None) -> Tensor: ...
def zeros_like(x: TensorLike, dtype: DType | None = None) -> Tensor: ...
