"""Converts Fourier transforms, and the matrix that sums frequencies as ears do."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...staging.value import TensorValue
from ...types.dims import Dim, StaticDim
from ..call import NodeCall
from ..known import KnownTensor, known
from ..table import Array, Dims, Ints, onnx_op
from .indexing import along, steps

MAX_WEIGHTS = 1 << 26  # elements of a matrix of mel weights


@onnx_op("DFT", since=20)
def dft(
    call: NodeCall,
    input: TensorValue,
    dft_length: Dims | None = None,
    axis: Ints | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> TensorValue:
    """The Fourier transform along an axis, or its inverse; of one side, that of real numbers."""
    return _transform(call, input, dft_length, axis[0] if axis else -2, inverse, onesided)


@onnx_op("DFT")
def dft_along(
    call: NodeCall,
    input: TensorValue,
    dft_length: Dims | None = None,
    *,
    axis: int,
    inverse: int = 0,
    onesided: int = 0,
) -> TensorValue:
    """Before version 20 the axis is an attribute."""
    return _transform(call, input, dft_length, axis, inverse, onesided)


def _transform(
    call: NodeCall, x: TensorValue, length: Dims | None, axis: int, inverse: int, onesided: int
) -> TensorValue:
    pairs = _are_pairs(call, x)
    if not -x.rank <= axis < x.rank or axis % x.rank == x.rank - 1:
        call.fail(
            f"transforms along axis {axis}, which a tensor of {x.rank} axes has not before the last", argument="axis"
        )
    at, n = axis % x.rank, length[0] if length else None
    value = x if pairs else ops.squeeze(x, -1)
    if inverse and onesided:
        return ops.unsqueeze(ops.irfft(value, n, at, input_is_complex=pairs), -1)
    if inverse:
        return ops.ifft(value, n, at, input_is_complex=pairs)
    return _forward(value, n, at, pairs, bool(onesided))


def _forward(value: TensorValue, n: Dim | None, at: int, pairs: bool, onesided: bool) -> TensorValue:
    if onesided and not pairs:
        return ops.view_as_real(ops.rfft(value, n, at))
    whole = ops.fft(value, n, at, input_is_complex=pairs)
    if not onesided:
        return whole
    return ops.slice_tensor(whole, [*[slice(None)] * at, slice(0, whole.shape[at] // 2 + 1), ...])


def _are_pairs(call: NodeCall, x: TensorValue) -> bool:
    """Whether a tensor holds pairs of real and imaginary part, and not real numbers alone."""
    last = x.shape[-1] if x.rank else None
    if x.rank < 2 or not isinstance(last, StaticDim) or int(last) not in (1, 2):
        call.fail(f"takes numbers with a last axis of size 1 or 2, and gets the shape {x.shape}")
    return int(last) == 2


@onnx_op("STFT")
def stft(
    call: NodeCall,
    signal: TensorValue,
    frame_step: Ints,
    window: TensorValue | None = None,
    frame_length: Ints | None = None,
    *,
    onesided: int = 1,
) -> TensorValue:
    """The Fourier transforms of frames of a signal, each times a window."""
    pairs = signal.rank == 3 and _are_pairs(call, signal)
    if signal.rank not in (2, 3):
        call.fail(f"takes signals of three axes, (batch, length, 1 or 2), and gets {signal.rank}")
    if frame_step[0] < 1:
        call.fail(f"has frames that begin {frame_step[0]} elements apart", argument="frame_step")
    value = ops.squeeze(signal, -1) if signal.rank == 3 and not pairs else signal
    size = frame_length[0] if frame_length else window.shape[0] if window is not None else value.shape[1]
    frames = (value.shape[1] - size) // frame_step[0] + 1
    starts = steps(frames, signal.device) * frame_step[0]
    places = along(starts, 0, 2) + along(steps(size, signal.device), 1, 2)
    cut = ops.gather(value, places, 1)
    if window is not None:
        cut = cut * ops.cast(along(window, 2, cut.rank), cut.dtype)
    return _forward(cut, None, 2, pairs, bool(onesided))


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(
    call: NodeCall,
    num_mel_bins: Ints,
    dft_length: Ints,
    sample_rate: Ints,
    lower_edge_hertz: Array,
    upper_edge_hertz: Array,
    *,
    output_datatype: int,
) -> KnownTensor:
    """The matrix that makes the bins of a mel spectrogram of those of a transform: a triangle for each."""
    count, length, rate = num_mel_bins[0], dft_length[0], sample_rate[0]
    bins = length // 2 + 1
    if count < 1 or length < 1 or rate < 1 or count * bins > MAX_WEIGHTS:
        text = f"num_mel_bins is {count}, dft_length {length} and sample_rate {rate}"
        call.fail(f"{text}; they are above 0, and the matrix has up to {MAX_WEIGHTS} elements")
    edges = [float(np.asarray(each, np.float64).reshape(-1)[0]) for each in (lower_edge_hertz, upper_edge_hertz)]
    low, high = (2595 * np.log10(1 + edge / 700) for edge in edges)
    mels = np.arange(count + 2) * ((high - low) / (count + 2)) + low
    places = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    if not 0 <= places.min() <= places.max() <= bins:
        call.fail(f"its edges are {edges[0]} and {edges[1]} Hz, outside of the {bins} frequencies of the transform")
    result = np.zeros((bins, count))
    at = np.arange(bins)
    for k, (first, middle, last) in enumerate(zip(places, places[1:], places[2:], strict=False)):
        rising = (at >= first) & (at <= middle) if middle > first else at == middle
        result[rising, k] = (at[rising] - first) / (middle - first) if middle > first else 1
        falling = (at >= middle) & (at < last)
        result[falling, k] = (last - at[falling]) / max(last - middle, 1)
    dtype = call.dtype(output_datatype)
    return known(result.astype(dtype.to_numpy()), dtype)
