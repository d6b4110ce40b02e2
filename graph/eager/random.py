"""Makes tensors of random numbers: `from einkorn import random`.

    random.set_seed(7)
    weight = random.normal([3, 3], std=0.1)

Numbers are those of `ops.random`: a function of the seed, of how many calls came after it was set, and of the place of
the element. Seed, count, bounds and spreads come with each call: nothing is compiled again for them. Numbers are the
same on all devices. Without a seed a process draws one.
"""

from __future__ import annotations

import functools
import itertools
import math
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DTypeError, EinkornError
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from .. import ops
from ..arguments import int_of, list_of, number_of, wrong
from ..driver.arrays import rounded
from ..driver.devices import Device, DeviceRef
from ..ops.random import streaming
from ..staging.active import ACTIVE
from ..types.dims import Dim, Shape
from .arguments import OPERAND, OTHER, SIZES, Operator
from .contexts import defaults
from .nodes import FUNCTIONS, add_functions
from .record import is_staged, record
from .tensor import Tensor

Sizes = Iterable[int | str | Dim]


class _Source:
    """The seed of the process, and how many calls have drawn since it was set."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.streams: Iterator[int] = itertools.count()


_source: list[_Source] = []


def _begun() -> _Source:
    """The seed that is set; drawn where none was."""
    if not _source:
        _source.append(_Source(secrets.randbits(63)))
    return _source[0]


def _drawn() -> tuple[int, int]:
    """The seed, and a number that no other call has."""
    source = _begun()
    return source.seed, next(source.streams)


@placed
def seed() -> Tensor:
    """The seed of the process, as a tensor of `ops.random.SeedType`."""
    return Tensor.constant(_begun().seed, dtype=DType.int64, device=DeviceRef.CPU())


@placed
def set_seed(value: int) -> None:
    """Sets the seed of the process: the same one begins the same numbers again."""
    number = int_of("value", value.item() if isinstance(value, Tensor) else value)
    if not -(1 << 63) <= number < 1 << 64:
        wrong("value", value, "an int of 64 bits")
    _source[:] = [_Source(number if number < 1 << 63 else number - (1 << 64))]


@contextmanager
def seed_of_block() -> Iterator[None]:
    """A seed that is set within this block holds to its end, as in the bodies of control flow in graphs."""
    kept = _begun()
    try:
        yield
    finally:
        _source[:] = [kept]


# *** operators ***


def _operator(name: str) -> Operator:
    """A random op, whose seed and stream are numbers that come with a call."""

    def stage(seed: Any, stream: Any, *args: Any, **kwargs: Any) -> Any:
        with streaming(seed, stream):
            return getattr(ops.random, name)(*args, **kwargs)

    made = Operator(f"random.{name}", stage, numbers=True, rest=OTHER)
    made.places = (OPERAND, OPERAND, SIZES, OTHER, OTHER)
    made.number_dtype = DType.int64
    return made


_UNIFORM, _NORMAL, _BERNOULLI, _DROPOUT = map(_operator, ("uniform", "normal", "bernoulli", "dropout"))


def _filled(operator: Operator, shape: Any, parameters: Any, dtype: DType, device: Device) -> Tensor:
    sizes = [int(dim) for dim in Shape(list_of("shape", shape, "sizes"))]
    return record(operator, (*_drawn(), sizes, *parameters), {"dtype": dtype, "device": device})  # type: ignore[no-any-return]


def _kinds(dtype: DType | None, device: Device | DeviceRef | None) -> tuple[DType, DType, Device]:
    """The dtype of a result, the one in which it is computed, and where it lies."""
    chosen, place = defaults(dtype, device)
    if not chosen.is_float() or chosen.is_storage():
        wrong("dtype", chosen, "a floating-point dtype that computes", code="EK0413", kind=DTypeError)
    return chosen, DType.float64 if chosen is DType.float64 else DType.float32, place


@placed
def uniform(
    shape: Sizes = (),
    range: tuple[float, float] = (0, 1),
    *,
    dtype: DType | None = None,
    device: Device | DeviceRef | None = None,
) -> Tensor:
    """Numbers from range[0] on and below range[1], each as likely as the others.

    Args:
        shape: of the result.
        range: the first number and the end.
        dtype, device: the defaults when left out.

    Raises:
        ValueError: `range` is not a pair of numbers in ascending order.
    """
    pair = [number_of(f"range[{k}]", each) for k, each in enumerate(list_of("range", range, "two numbers"))]
    if len(pair) != 2 or pair[0] >= pair[1]:
        wrong("range", range, "two numbers, of which the first is the smaller one", kind=ValueOfRandom, code="EK0844")
    low, high = pair
    chosen, wide, place = _kinds(dtype, device)
    drawn = _filled(_UNIFORM, shape, ((0, 1),), chosen, place)
    if (low, high) == (0, 1):
        return drawn
    # as the kernel computes it, with bounds that come with the call
    result = (drawn.cast(wide) * (high - low) + low).cast(chosen)
    ends = rounded(np.array([low, high]), chosen)
    return FUNCTIONS["minimum"](result, float(np.nextafter(ends[1], ends[0])))  # type: ignore[no-any-return]


@placed
def gaussian(
    shape: Sizes = (),
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: DType | None = None,
    device: Device | DeviceRef | None = None,
) -> Tensor:
    """Numbers of the normal distribution with this mean and standard deviation.

    Raises:
        ValueError: `std` is not above 0.
    """
    spread = number_of("std", std)
    if spread <= 0:
        wrong("std", std, "a number above 0", kind=ValueOfRandom, code="EK0844")
    chosen, wide, place = _kinds(dtype, device)
    drawn = _filled(_NORMAL, shape, (0.0, 1.0), wide, place)
    centre = number_of("mean", mean)
    return (drawn if (centre, spread) == (0, 1) else drawn * spread + centre).cast(chosen)


class ValueOfRandom(EinkornError, ValueError):
    """A distribution that cannot be."""


def _fans(shape: object) -> tuple[list[int], int, int]:
    """A shape, and how many numbers go into one of a result and come from one: of (out, in, taps…)."""
    sizes = [int(dim) for dim in Shape(list_of("shape", shape, "sizes"))]
    if len(sizes) < 2:
        wrong("shape", shape, "at least two sizes, (out, in)", kind=ValueOfRandom, code="EK0844")
    taps = math.prod(sizes[2:])
    return sizes, sizes[1] * taps, sizes[0] * taps


@placed
def xavier_uniform(
    shape: Sizes, gain: float = 1.0, *, dtype: DType | None = None, device: Device | DeviceRef | None = None
) -> Tensor:
    """Weights of (out, in, …) within ±gain·sqrt(6 / (in + out)), each as likely (Glorot and Bengio 2010)."""
    sizes, taken, given = _fans(shape)
    bound = gain * math.sqrt(6 / max(1, taken + given))
    return uniform(sizes, (-bound, bound), dtype=dtype, device=device)


@placed
def xavier_normal(
    shape: Sizes, gain: float = 1.0, *, dtype: DType | None = None, device: Device | DeviceRef | None = None
) -> Tensor:
    """Weights of (out, in, …) with the standard deviation gain·sqrt(2 / (in + out)) (Glorot and Bengio 2010)."""
    sizes, taken, given = _fans(shape)
    return gaussian(sizes, 0.0, gain * math.sqrt(2 / max(1, taken + given)), dtype=dtype, device=device)


@placed
def kaiming_uniform(
    shape: Sizes, gain: float = math.sqrt(2), *, dtype: DType | None = None, device: Device | DeviceRef | None = None
) -> Tensor:
    """Weights of (out, in, …) within ±gain·sqrt(3 / in), each as likely (He and others 2015)."""
    sizes, taken, _ = _fans(shape)
    bound = gain * math.sqrt(3 / max(1, taken))
    return uniform(sizes, (-bound, bound), dtype=dtype, device=device)


@placed
def kaiming_normal(
    shape: Sizes, gain: float = math.sqrt(2), *, dtype: DType | None = None, device: Device | DeviceRef | None = None
) -> Tensor:
    """Weights of (out, in, …) with the standard deviation gain / sqrt(in) (He and others 2015)."""
    sizes, taken, _ = _fans(shape)
    return gaussian(sizes, 0.0, gain / math.sqrt(max(1, taken)), dtype=dtype, device=device)


@placed
def bernoulli(probability: Any) -> Any:
    """True with the probability that each element says; as `ops.random.bernoulli`."""
    if ACTIVE.get() or is_staged(probability):
        return ops.random.bernoulli(probability)
    return record(_BERNOULLI, (*_drawn(), probability), {})


@placed
def dropout(x: Any, p: float = 0.5) -> Any:
    """x with each element made 0 with probability p, and the others divided by 1 - p; as `ops.random.dropout`."""
    if ACTIVE.get() or is_staged(x):
        return ops.random.dropout(x, p)
    return record(_DROPOUT, (*_drawn(), x, p), {})


def _in_graphs(function: Any) -> Any:
    """The function, which in a graph that is being built stages the op of its name."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if ACTIVE.get():
            return getattr(ops.random, function.__name__)(*args, **kwargs)
        return function(*args, **kwargs)

    return call


uniform, gaussian, seed, set_seed = map(_in_graphs, (uniform, gaussian, seed, set_seed))
normal = gaussian
add_functions(
    {  # of `ops.random`, with tensors and without a graph
        "random.bernoulli": bernoulli,
        "random.dropout": dropout,
    }
)
