"""Stages Fourier transforms along several axes, of symmetric numbers, their frequencies and their order.

The results of transforms are complex, except those of `irfftn` and similar ones. Real numbers may stand where complex
ones do. Arguments have the names and meanings of NumPy's.

See also `signal` (the transform along an axis).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.types.dtype import DType
from ..arguments import axis_of, dtype_of, int_of, list_of, number_of, wrong
from ..driver.devices import Device, DeviceRef
from ..staging.value import TensorValue, TensorValueLike
from ..types.layouts import Normalization
from ..types.tensor_type import TensorType
from .indexing import slice_tensor
from .movement import concat
from .operands import as_real, as_shape, check_kind, joined_parts, tensor
from .parts import conj
from .signal import halved_transform, length_of, scaling_of, transform_along
from .stage import current, fail, op, stage

__all__ = [
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft2",
    "irfftn",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

_BACKWARD = Normalization.BACKWARD
_TURNED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


@op(dtypes={"x": "inexact"}, example="ops.fftn(x)")
def fftn(
    x: TensorValueLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: Normalization | str = _BACKWARD,
) -> TensorValue:
    """The Fourier transform along several axes, one after the other; the result is complex.

    Args:
        x: complex numbers, or floats, which are real numbers.
        s: how many elements are transformed along each axis, cut off or filled with zeros; all when left out.
        axes: which; the last ones that `s` has a number for when left out, or all.
        norm: "backward" scales the inverse by 1 / n, "forward" this one, "ortho" both by the root of it.

    Raises:
        GraphError: EK0422 an axis does not exist, or is given twice; EK0421 a length below 1, another count in `s`.
    """
    return _transformed("fftn", x, s, axes, norm, inverse=False)


@op(dtypes={"x": "inexact"}, example="ops.ifftn(x)")
def ifftn(
    x: TensorValueLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: Normalization | str = _BACKWARD,
) -> TensorValue:
    """The inverse of `fftn`, with its arguments and errors."""
    return _transformed("ifftn", x, s, axes, norm, inverse=True)


@op(dtypes={"x": "inexact"}, example="ops.fft2(x)")
def fft2(
    x: TensorValueLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = (-2, -1),
    norm: Normalization | str = _BACKWARD,
) -> TensorValue:
    """The Fourier transform along the last two axes: `fftn` with another default of `axes`."""
    return _transformed("fft2", x, s, axes, norm, inverse=False)


@op(dtypes={"x": "inexact"}, example="ops.ifft2(x)")
def ifft2(
    x: TensorValueLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = (-2, -1),
    norm: Normalization | str = _BACKWARD,
) -> TensorValue:
    """The inverse of `fft2`."""
    return _transformed("ifft2", x, s, axes, norm, inverse=True)


@op(dtypes={"x": "float"}, example="ops.rfftn(x)")
def rfftn(
    x: TensorValueLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: Normalization | str = _BACKWARD,
) -> TensorValue:
    """The Fourier transform of real numbers along several axes, of which the last keeps n // 2 + 1 elements.

    The elements left out are conjugates of others. Arguments and errors are those of `fftn`.
    """
    return _of_reals("rfftn", x, s, axes, norm)


@op(dtypes={"x": "inexact"}, example="ops.irfftn(x)")
def irfftn(
    x: TensorValueLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: Normalization | str = _BACKWARD,
) -> TensorValue:
    """The real numbers of which `rfftn` gives these; the last axis gets s[-1] elements, or twice its own less 2."""
    return _to_reals("irfftn", x, s, axes, norm)


@op(dtypes={"x": "float"}, example="ops.rfft2(x)")
def rfft2(
    x: TensorValueLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = (-2, -1),
    norm: Normalization | str = _BACKWARD,
) -> TensorValue:
    """`rfftn` along the last two axes."""
    return _of_reals("rfft2", x, s, axes, norm)


@op(dtypes={"x": "inexact"}, example="ops.irfft2(x)")
def irfft2(
    x: TensorValueLike,
    s: Sequence[int] | None = None,
    axes: int | Sequence[int] | None = (-2, -1),
    norm: Normalization | str = _BACKWARD,
) -> TensorValue:
    """`irfftn` along the last two axes."""
    return _to_reals("irfft2", x, s, axes, norm)


@op(dtypes={"x": "inexact"}, example="ops.hfft(x)")
def hfft(
    x: TensorValueLike, n: int | None = None, axis: int = -1, norm: Normalization | str = _BACKWARD
) -> TensorValue:
    """The real transform of numbers whose second half, left out here, is the conjugate of the first.

    Args:
        x: the first n // 2 + 1 elements.
        n: how many numbers come out; twice the elements less 2 when left out.
        axis: negative ones count from the end.
        norm: as of `fftn`.
    """
    value = tensor("hfft", "x", x)
    check_kind("hfft", "x", value, "inexact")
    turned = conj(value) if value.dtype.is_complex() else value
    return halved_transform("hfft", turned, n, axis, _TURNED[scaling_of(norm)], inverse=True)


@op(dtypes={"x": "float"}, example="ops.ihfft(x)")
def ihfft(
    x: TensorValueLike, n: int | None = None, axis: int = -1, norm: Normalization | str = _BACKWARD
) -> TensorValue:
    """The inverse of `hfft`: the first n // 2 + 1 elements of the inverse transform of real numbers."""
    value = tensor("ihfft", "x", x)
    check_kind("ihfft", "x", value, "float")
    return conj(halved_transform("ihfft", value, n, axis, _TURNED[scaling_of(norm)], inverse=False))


@op(dtypes={"x": "storable"}, example="ops.fftshift(x)")
def fftshift(x: TensorValueLike, axes: int | Sequence[int] | None = None) -> TensorValue:
    """x with the frequency 0 moved from the first place to the middle of each axis, all if `axes` is left out."""
    return _shifted("fftshift", x, axes, to_middle=True)


@op(dtypes={"x": "storable"}, example="ops.ifftshift(x)")
def ifftshift(x: TensorValueLike, axes: int | Sequence[int] | None = None) -> TensorValue:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, to_middle=False)


@op(dtypes={}, example="ops.fftfreq(8, 0.5)")
def fftfreq(
    n: int, d: float = 1.0, dtype: DType = DType.float32, device: DeviceRef | Device | None = None
) -> TensorValue:
    """The frequencies of the elements of `fft`, of samples `d` apart: k / (n d), and negative ones in the second half.

    Raises:
        GraphError: EK0421, n is below 1 or d is 0.
        DTypeError: EK0413, a dtype that is not a float.
    """
    return _frequencies("fftfreq", n, d, dtype, device, half=False)


@op(dtypes={}, example="ops.rfftfreq(8, 0.5)")
def rfftfreq(
    n: int, d: float = 1.0, dtype: DType = DType.float32, device: DeviceRef | Device | None = None
) -> TensorValue:
    """The frequencies of the n // 2 + 1 elements of `rfft`; arguments and errors as of `fftfreq`."""
    return _frequencies("rfftfreq", n, d, dtype, device, half=True)


# *** parts ***


def _transformed(
    name: str,
    x: TensorValueLike,
    s: Sequence[int] | None,
    axes: int | Sequence[int] | None,
    norm: Normalization | str,
    *,
    inverse: bool,
) -> TensorValue:
    value = tensor(name, "x", x)
    check_kind(name, "x", value, "inexact")
    chosen, sizes = _along(name, value, s, axes)
    return joined_parts(_all_axes(name, _in_pairs(value), chosen, sizes, norm, inverse))


def _of_reals(
    name: str, x: TensorValueLike, s: Sequence[int] | None, axes: int | Sequence[int] | None, norm: Normalization | str
) -> TensorValue:
    value = tensor(name, "x", x)
    check_kind(name, "x", value, "float")
    chosen, sizes = _along(name, value, s, axes)
    half = as_real(halved_transform(name, value, sizes[-1], chosen[-1], norm, inverse=False))
    return joined_parts(_all_axes(name, half, chosen[:-1], sizes[:-1], norm, False))


def _to_reals(
    name: str, x: TensorValueLike, s: Sequence[int] | None, axes: int | Sequence[int] | None, norm: Normalization | str
) -> TensorValue:
    value = tensor(name, "x", x)
    check_kind(name, "x", value, "inexact")
    chosen, sizes = _along(name, value, s, axes)
    whole = joined_parts(_all_axes(name, _in_pairs(value), chosen[:-1], sizes[:-1], norm, True))
    return halved_transform(name, whole, sizes[-1], chosen[-1], norm, inverse=True)


def _all_axes(
    name: str, pairs: TensorValue, axes: list[int], sizes: list[int | None], norm: Normalization | str, inverse: bool
) -> TensorValue:
    """Pairs of floats, transformed along axes; the last one first, as its rows lie together."""
    for axis, n in reversed([*zip(axes, sizes, strict=True)]):
        pairs = transform_along(name, pairs, n, axis, norm, True, inverse=inverse)
    return pairs


def _in_pairs(value: TensorValue) -> TensorValue:
    """Complex numbers as pairs of floats; real numbers get imaginary parts of 0."""
    if value.dtype.is_complex():
        return as_real(value)
    flat = as_shape(value, [*value.shape, 1])
    wide = flat if value.dtype in (DType.float32, DType.float64) else flat.cast(DType.float32)
    return concat([wide, wide * 0], -1)


def _along(
    name: str, value: TensorValue, s: Sequence[int] | None, axes: int | Sequence[int] | None
) -> tuple[list[int], list[int | None]]:
    """The axes that are transformed, and the length along each."""
    sizes = None if s is None else [length_of("s", each) for each in list_of("s", s, "lengths")]
    chosen = _axes_of(name, value, axes, None if sizes is None else len(sizes))
    if not chosen:
        fail(name, "there is no axis to transform along", code="EK0421", argument="axes", expected="an axis at least")
    if sizes is not None and len(sizes) != len(chosen):
        wrong("s", s, f"{len(chosen)} lengths, one for each axis", code="EK0421")
    return chosen, [*sizes] if sizes is not None else [None] * len(chosen)


def _axes_of(name: str, value: TensorValue, axes: int | Sequence[int] | None, count: int | None = None) -> list[int]:
    if axes is None:
        if count is not None and count > value.rank:
            text = f"s has {count} lengths, and x {value.rank} axes"
            fail(name, text, code="EK0421", argument="s", expected=f"at most {value.rank}", got=str(count))
        return [*range(value.rank - (value.rank if count is None else count), value.rank)]
    given = [axes] if isinstance(axes, int) else list_of("axes", axes, "axes")
    chosen = [axis_of(each, value.rank, "axes") for each in given]
    if len(set(chosen)) < len(chosen):
        wrong("axes", axes, "each axis once", code="EK0422")
    return chosen


def _shifted(name: str, x: TensorValueLike, axes: int | Sequence[int] | None, *, to_middle: bool) -> TensorValue:
    value = tensor(name, "x", x)
    for axis in _axes_of(name, value, axes):
        size = value.shape[axis]
        cut = (size + 1) // 2 if to_middle else size // 2
        before = [slice(None)] * axis
        parts = [slice_tensor(value, [*before, each, ...]) for each in (slice(cut, None), slice(0, cut))]
        value = concat(parts, axis)
    return value


def _frequencies(
    name: str, n: int, d: float, dtype: DType, device: DeviceRef | Device | None, *, half: bool
) -> TensorValue:
    count, chosen = length_of("n", n), dtype_of("dtype", dtype)
    apart = number_of("d", d, "EK0421", "a number other than 0")
    if apart == 0:
        wrong("d", d, "a number other than 0", code="EK0421")
    if not chosen.is_float() or chosen.is_storage():
        wrong("dtype", chosen, "a floating-point dtype that computes", code="EK0413", kind=DTypeError)
    place = DeviceRef.from_device(device) if device is not None else DeviceRef.CPU()
    out = TensorType(chosen, [count // 2 + 1 if half else count], place)
    loaded = current(name).kernels.builtin("signal", "frequencies")
    parameters = {"half": half, "n": int_of("n", n), "d": apart}
    return stage(loaded, [], parameters, place, [out])[0]
