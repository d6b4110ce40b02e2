"""Stages Fourier transforms, windows and pairs that stand for complex numbers.

Complex numbers give complex ones. Floats may hold pairs of real and imaginary part in a last axis of size 2, and give
such pairs. Half types are transformed in float32. All errors of a transform together are below 4e-7 of the whole in
float32, 2e-15 in float64, for any length.

See also `transforms` (several axes at once).
"""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.types.dtype import DType
from ..arguments import axis_of, choice_of, dtype_of, flag_of, int_of, wrong
from ..driver.devices import Device, DeviceRef
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, Shape, StaticDim
from ..types.layouts import Normalization
from ..types.tensor_type import TensorType, shown
from .operands import as_real, as_shape, cast_to, check_at_least, check_kind, joined_parts, permuted, tensor
from .stage import builtin, current, fail, op, require, stage

__all__ = ["as_interleaved_complex", "fft", "hann_window", "ifft", "irfft", "rfft"]

_FAMILY = "signal"
_CHIRP = "chirp"
MIN_CHIRP_FACTORS = 40  # the sum of prime factors above 5 from which on `stdlib.kernels.chirp` is cheaper
_NEARBY = 4096  # elements of a row that the kernel transforms without memory of its own
# What the transform there and the inverse are scaled with.
_SCALINGS = {
    "backward": ("none", "n"),
    "ortho": ("root", "root"),
    "forward": ("n", "none"),
}


@op(dtypes={"input_tensor": "inexact"}, example="ops.fft(input_tensor)")
def fft(
    input_tensor: TensorValueLike,
    n: int | Dim | None = None,
    axis: int = -1,
    normalization: Normalization | str = Normalization.BACKWARD,
    input_is_complex: bool = True,
) -> TensorValue:
    """The Fourier transform along `axis`: pairs of real and imaginary part, in a last axis of size 2.

    Args:
        input_tensor: complex numbers, which give complex numbers; or floats: pairs in its last axis, which `axis` does
            not count, or real numbers if `input_is_complex` is False.
        n: how many elements are transformed, cut off or filled with zeros; as many as there are when left out. A number
            or a dim.
        axis: negative ones count from the end.
        normalization: "backward" scales the inverse by 1 / n, "forward" this one, "ortho" both by the root of it.
        input_is_complex: see `input_tensor`.

    Raises:
        GraphError: axis is out of range, n is below 1, the last axis of pairs has not size 2.
    """
    return transform_along("fft", input_tensor, n, axis, normalization, input_is_complex, inverse=False)


@op(dtypes={"input_tensor": "inexact"}, example="ops.ifft(input_tensor)")
def ifft(
    input_tensor: TensorValueLike,
    n: int | Dim | None = None,
    axis: int = -1,
    normalization: Normalization | str = Normalization.BACKWARD,
    input_is_complex: bool = True,
) -> TensorValue:
    """The inverse Fourier transform along `axis`; arguments and errors as of `fft`."""
    return transform_along("ifft", input_tensor, n, axis, normalization, input_is_complex, inverse=True)


@op(dtypes={"input_tensor": "float"}, example="ops.rfft(input_tensor)")
def rfft(
    input_tensor: TensorValueLike,
    n: int | Dim | None = None,
    axis: int = -1,
    normalization: Normalization | str = Normalization.BACKWARD,
) -> TensorValue:
    """The first n // 2 + 1 elements of the Fourier transform of real numbers; the others are their conjugates.

    Arguments and errors are those of `fft`; the result is complex: complex128 of float64, else complex64.
    """
    return halved_transform("rfft", input_tensor, n, axis, normalization, inverse=False)


@op(dtypes={"input_tensor": "inexact"}, example="ops.irfft(input_tensor, n=6, input_is_complex=True)")
def irfft(
    input_tensor: TensorValueLike,
    n: int | Dim | None = None,
    axis: int = -1,
    normalization: Normalization | str = Normalization.BACKWARD,
    input_is_complex: bool = False,
    buffer_size_mb: int = 512,
) -> TensorValue:
    """The real numbers of which `rfft` gives these first n // 2 + 1 elements.

    Args:
        input_tensor: complex numbers; or floats: pairs in its last axis, which `axis` does not count, or real parts if
            `input_is_complex` is False.
        n: how many numbers come out; twice the elements less 2 when left out. The input is cut off at n // 2 + 1, or
            filled with zeros.
        axis: negative ones count from the end.
        normalization: "backward" scales by 1 / n, "ortho" by the root of it, "forward" not at all.
        input_is_complex: see `input_tensor`.
        buffer_size_mb: without meaning here: memory is planned with that of all other ops.

    Raises:
        GraphError: axis is out of range, n is below 1, the last axis of pairs has not size 2.
    """
    int_of("buffer_size_mb", buffer_size_mb)
    return transform_along("irfft", input_tensor, n, axis, normalization, input_is_complex, inverse=True, half=True)


@op(dtypes={}, example="ops.hann_window(8, DeviceRef.CPU())")
def hann_window(
    window_length: int, device: DeviceRef | Device, periodic: bool = True, dtype: DType = DType.float32
) -> TensorValue:
    """The window (1 - cos(2 pi k / n)) / 2 of n = `window_length` numbers; n - 1 stands for n unless `periodic`.

    A periodic window is the symmetric one of one number more, without the last.

    Raises:
        GraphError: the length is below 0.
        DTypeError: the length is not an int, or dtype is not a float type.
    """
    if isinstance(window_length, bool) or not hasattr(type(window_length), "__index__"):
        wrong("window_length", window_length, "an int", kind=DTypeError)
    length = int_of("window_length", window_length)
    if length < 0:
        wrong("window_length", window_length, "an int from 0 on")
    chosen = dtype_of("dtype", dtype)
    if not chosen.is_float() or chosen.is_storage():
        wrong("dtype", chosen, "a floating-point dtype that computes", code="EK0413", kind=DTypeError)
    place = DeviceRef.from_device(device)
    loaded = current("hann_window").kernels.builtin(_FAMILY, "hann_window")
    out = TensorType(chosen, [length], place)
    return stage(loaded, [], {"periodic": flag_of("periodic", periodic)}, place, [out])[0]


@op(dtypes={"x": "storable"}, example="ops.as_interleaved_complex(x)")
def as_interleaved_complex(x: TensorValueLike) -> TensorValue:
    """x, whose last axis has real and imaginary parts in turn, with an axis of size 2 for them.

    Raises:
        GraphError: the size of the last axis is odd, also at the call where it comes with it; x has rank 0.
    """
    value = tensor("as_interleaved_complex", "x", x)
    _check_rank("as_interleaved_complex", "x", value, 1)
    last = value.shape[-1]
    pairs = last // 2
    text = f"axis {value.rank - 1} of {shown(value.shape)} has an odd size"
    if isinstance(last, StaticDim):
        if int(last) % 2:
            fail("as_interleaved_complex", text, code="EK0421", argument="x", expected="an even size", got=str(last))
    else:
        require("as_interleaved_complex", "equal", last, pairs * 2, f"as_interleaved_complex: {text}")
    return as_shape(value, [*value.shape[:-1], pairs, 2])


# *** parts ***


def _check_rank(name: str, argument: str, value: TensorValue, rank: int) -> None:
    if value.rank < rank:
        text = f"argument '{argument}' has rank {value.rank}"
        fail(name, text, code="EK0421", argument=argument, expected=f"rank >= {rank}", got=str(value.rank))


def check_pairs(name: str, argument: str, value: TensorValue) -> None:
    """Raises GraphError EK0421 unless the last axis has size 2."""
    _check_rank(name, argument, value, 1)
    if value.shape[-1] != 2:
        text = f"the last axis of argument '{argument}', of shape {shown(value.shape)}, has to hold pairs"
        fail(name, text, code="EK0421", argument=argument, expected="2", got=str(value.shape[-1]))


def halved_transform(
    name: str,
    x: TensorValueLike,
    n: int | Dim | None,
    axis: int,
    normalization: Normalization | str,
    *,
    inverse: bool,
) -> TensorValue:
    """The transform of real numbers, which is complex, or with `inverse` real numbers of complex or real ones."""
    transformed = transform_along(name, x, n, axis, normalization, False, inverse=inverse, half=True)
    if inverse:
        return transformed
    return joined_parts(transformed if transformed.dtype is DType.float64 else cast_to(transformed, DType.float32))


def transform_along(
    name: str,
    x: TensorValueLike,
    n: int | Dim | None,
    axis: int,
    normalization: Normalization | str,
    pairs: bool,
    *,
    inverse: bool,
    half: bool = False,
) -> TensorValue:
    """Rows along an axis go through the kernel: a row of pairs, or of numbers with an axis of size 1 behind them."""
    value = tensor(name, "input_tensor", x)
    check_kind(name, "input_tensor", value, "float" if half and not inverse else "inexact")
    if value.dtype.is_complex():
        transformed = transform_along(name, as_real(value), n, axis, normalization, True, inverse=inverse, half=half)
        return transformed if half else joined_parts(transformed)
    scaling = _SCALINGS[scaling_of(normalization)][inverse]
    if flag_of("input_is_complex", pairs):
        check_pairs(name, "input_tensor", value)
        full = value
    else:
        full = as_shape(value, [*value.shape, 1])
    at = axis_of(axis, full.rank - 1)
    size = full.shape[at]
    if n is None:
        length = (size - 1) * 2 if half and inverse else size
    else:
        length = n if isinstance(n, Dim) else Dim(length_of("n", n))
    if isinstance(length, StaticDim) and int(length) < 1:
        wrong("n", int(length), "a length from 1 on", code="EK0421")
    check_at_least(name, "n", length, 1, f"there is nothing to transform along axis {at}", "EK0421")
    order = [*(k for k in range(full.rank - 1) if k != at), at, full.rank - 1]
    moved = permuted(full, order)
    kept = length // 2 + 1 if half and not inverse else length
    depth = 1 if half and inverse else 2
    halved = (
        half
        and isinstance(length, StaticDim)
        and int(length) % 2 == 0
        and _sum_of_primes(int(length)) < MIN_CHIRP_FACTORS
    )
    flags = {"inverse": inverse, "hermitian": half and inverse, "halved": halved}
    rows = _rows_through(moved, length, [kept, depth], flags, scaling)
    back = permuted(rows, [order.index(k) for k in range(full.rank)])
    return as_shape(back, back.shape[:-1]) if depth == 1 else back


def _rows_through(
    moved: TensorValue, length: Dim, last: list[Any], flags: dict[str, bool], scaling: str
) -> TensorValue:
    wide = cast_to(moved, DType.float64 if moved.dtype is DType.float64 else DType.float32)
    outer = wide.shape[:-2]
    count = Shape(outer).num_elements
    rows = as_shape(wide, [count, *wide.shape[-2:]])
    out = TensorType(wide.dtype, [count, *last], wide.device)
    through = (
        _small_factors
        if isinstance(length, StaticDim) and _sum_of_primes(int(length)) < MIN_CHIRP_FACTORS
        else _any_length
    )
    transformed = through(rows, length, out, {**flags, "scaling": scaling})
    return cast_to(as_shape(transformed, [*outer, *last]), moved.dtype)


def _small_factors(rows: TensorValue, length: Dim, out: TensorType, parameters: dict[str, object]) -> TensorValue:
    """Transforms rows of a length that is known, and a product of small primes."""
    place, number = rows.device, int(length)
    roots = _made(_FAMILY, "fft_roots", [], TensorType(rows.dtype, [2, length], place))
    small = number <= _NEARBY
    work = TensorType(rows.dtype, [0 if small else rows.shape[0] * length * 4], place)
    factors = _factors(number // 2 if parameters["halved"] else number)
    return builtin(_FAMILY, "fft", [rows, roots], {**parameters, "nearby": small, "factors": factors}, [out, work])[0]


def _any_length(rows: TensorValue, length: Dim, out: TensorType, parameters: dict[str, object]) -> TensorValue:
    """Transforms rows of any other length: see `stdlib.kernels.chirp`."""
    place = rows.device
    known = isinstance(length, StaticDim)
    space = Dim(1 << (2 * int(length) - 2).bit_length()) if isinstance(length, StaticDim) else length * 4
    wave = _made(_CHIRP, "chirp", [], TensorType(rows.dtype, [2, length], place))
    table = TensorType(rows.dtype, [2, space], place)
    roots = builtin(_CHIRP, "chirp_roots", [wave], {}, [table])[0]
    spectrum = builtin(_CHIRP, "chirp_spectrum", [wave, roots], {}, [table, table])[0]
    small = known and int(space) <= _NEARBY
    work = TensorType(rows.dtype, [0 if small else rows.shape[0] * space * 4], place)
    given = {name: value for name, value in parameters.items() if name != "halved"} | {"nearby": small, "known": known}
    return builtin(_CHIRP, "fft_of_any_length", [rows, wave, roots, spectrum], given, [out, work])[0]


def _made(family: str, kernel: str, operands: list[TensorValue], type: TensorType) -> TensorValue:
    """The result of a kernel of this library that may have no operands."""
    return stage(current("fft").kernels.builtin(family, kernel), operands, {}, type.device, [type])[0]


def _sum_of_primes(n: int) -> int:
    """The sum of the prime factors of a number that are above 5, as often as they occur."""
    for small in (2, 3, 5):
        while n % small == 0:
            n //= small
    total, factor = 0, 7
    while factor * factor <= n:
        while n % factor == 0:
            n, total = n // factor, total + factor
        factor += 2
    return total + (n if n > 1 else 0)


def _factors(length: int) -> int:
    """Which of 4, 2, 3, 5 and other factors the kernel takes from a length, a bit each."""
    rest, bits = length, 0
    for bit, factor in enumerate((4, 2, 3, 5)):
        while rest > 1 and rest % factor == 0:
            rest, bits = rest // factor, bits | 1 << bit
    return bits | 16 if rest > 1 else bits


def scaling_of(normalization: Normalization | str) -> str:
    """The name of a scaling.

    Raises:
        GraphError: EK0414, another name.
    """
    text = normalization.value if isinstance(normalization, Normalization) else normalization
    return choice_of("normalization", text, _SCALINGS, "EK0414")


def length_of(argument: str, n: object) -> int:
    """A length from 1 on.

    Raises:
        GraphError: EK0421, another one.
    """
    number = int_of(argument, n, wanted="an int from 1 on")
    return number if number > 0 else wrong(argument, n, "an int from 1 on", code="EK0421")
