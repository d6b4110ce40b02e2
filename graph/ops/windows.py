"""Reads what ops say of windows: sizes, strides, dilations, padding, layouts; counts windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, TypeVar

from ...dsl.diagnostics.dataclass import dataclass
from ..arguments import int_of, list_of, wrong
from ..staging.value import TensorValue
from ..types.dims import Dim, Shape, ceildiv
from ..types.layouts import ConvInputLayout
from ..types.tensor_type import shown
from .stage import fail

CODE = "EK0490"
MAX_WINDOW = (1 << 31) - 1
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True)
class Windows:
    """Windows over one axis or several: a number for each.

    Attributes:
        kernel: their sizes; of filters that are known when the graph runs, dims.
        stride, dilation: how far windows and their elements lie apart.
        before, after: how much the axes are padded.
    """

    kernel: tuple[Dim, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def count(self, sizes: Iterable[Dim], *, up: bool = False) -> list[Dim]:
        """How many windows there are along axes of these sizes; `up` counts one that ends outside, too."""
        result = []
        for k, size in enumerate(sizes):
            room = size + self.before[k] + self.after[k] - self.dilation[k] * (self.kernel[k] - 1) - 1
            if up:  # but none that begins behind all elements
                most = ceildiv(size + self.before[k], self.stride[k])
                result.append((ceildiv(room, self.stride[k]) + 1).minimum(most))
            else:
                result.append(room // self.stride[k] + 1)
        return result

    def parameters(self, *names: str) -> dict[str, tuple[int, ...]]:
        """Parameters of kernels."""
        return {name: tuple(getattr(self, name)) for name in names}


def windows_of(kernel: Sequence[Any], stride: Any, dilation: Any, padding: Any, *, sizes: bool = False) -> Windows:
    """Windows as a user describes them; `kernel` are the sizes, and numbers only when `sizes` says so.

    Raises:
        GraphError: EK0490, an invalid or too small number, or a list of the wrong length.
    """
    axes = len(kernel)
    known = numbers_of("kernel_size", kernel, axes, 1) if sizes else kernel
    before, after = padding_of("padding", padding, axes)
    return Windows(
        tuple(map(Dim, known)),
        numbers_of("stride", stride, axes, 1),
        numbers_of("dilation", dilation, axes, 1),
        before,
        after,
    )


def numbers_of(argument: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """A number for each of `count` axes; a single one is that of all.

    Raises:
        GraphError: EK0490, no whole numbers, too few or many, or one below `least`.
    """
    wanted = f"{count} whole numbers >= {least}" if count > 1 else f"a whole number >= {least}"
    single = hasattr(type(value), "__index__")
    given = [value] * count if single else list_of(argument, value, "whole numbers", CODE)
    if len(given) != count:
        wrong(argument, given, wanted, code=CODE)
    numbers = tuple(int_of(argument, each, CODE, wanted) for each in given)
    for each in numbers:
        if not least <= each <= MAX_WINDOW:
            wrong(argument, int(value) if single else numbers, wanted, code=CODE)
    return numbers


def padding_of(argument: str, value: object, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is added before and after each axis: one number, one for each axis, or two for each.

    Raises:
        GraphError: EK0490, see `numbers_of`.
    """
    if not hasattr(type(value), "__index__"):
        listed = list_of(argument, value, "whole numbers", CODE)
        if len(listed) == 2 * axes and len(listed) > 1:
            both = numbers_of(argument, listed, 2 * axes, 0)
            return both[::2], both[1::2]
        value = listed
        if len(listed) != axes:
            wrong(argument, listed, f"{axes} or {2 * axes} whole numbers >= 0", code=CODE)
    numbers = numbers_of(argument, value, axes, 0)
    return numbers, numbers


def member_of(argument: str, value: object, kind: type[E], allowed: Iterable[E] | None = None) -> E:
    """A member of an enumeration; its value serves, too.

    Raises:
        GraphError: EK0414, something else.
    """
    known = list(kind) if allowed is None else list(allowed)
    for each in known:
        if value is each or (isinstance(value, str) and value == each.value):
            return each
    listed = ", ".join(f"{kind.__name__}.{each.name}" for each in known)
    wrong(argument, value, f"one of {listed}", code="EK0414", hint=f"possible: {listed}")


def is_first(layout: object) -> bool:
    """Whether the channels come first in this `input_layout`."""
    return member_of("input_layout", layout, ConvInputLayout) is ConvInputLayout.NCHW


def places_of(name: str, argument: str, value: TensorValue, axes: int, first: bool) -> tuple[Dim, Shape, Dim]:
    """The batch, the places and the channels of images.

    Raises:
        GraphError: EK0421, another rank than two more than there are axes of places.
    """
    if value.rank != axes + 2:
        order = ["batch", "channels", *["..."] * axes] if first else ["batch", *["..."] * axes, "channels"]
        fail(
            name,
            f"argument '{argument}' has rank {value.rank}, {shown(value.shape)}, and not {axes + 2}",
            code="EK0421",
            argument=argument,
            expected=f"rank {axes + 2}: ({', '.join(order)})",
            got=shown(value.shape),
        )
    shape = value.shape
    return (shape[0], shape[2:], shape[1]) if first else (shape[0], shape[1:-1], shape[-1])


def image_shape(batch: Dim, places: Iterable[Dim], channels: Dim, first: bool) -> list[Dim]:
    """The shape of images."""
    return [batch, channels, *places] if first else [batch, *places, channels]
