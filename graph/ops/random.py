"""Stages random numbers: `ops.random.uniform`, `normal`, `bernoulli`, `dropout`, and the seed of a graph.

    ops.random.set_seed(7)
    noise = ops.random.normal(["batch", 64], std=0.02)

Numbers are a function of the graph's seed, of how many random ops ran since it was set, and of the place of the
element: they depend neither on threads nor on the target. Each round of a loop counts (see `draws`). A seed that is a
tensor of `SeedType` comes with each call; with a plain number, and without any, each call gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...dsl.types.dtype import DType
from ..arguments import dtype_of, int_of, list_of, number_of, wrong
from ..driver.devices import Device, DeviceRef
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, Shape
from ..types.tensor_type import TensorType
from . import draws
from .draws import Draws, number
from .elementwise import less, mul, where
from .movement import transfer_to
from .operands import as_shape, check_kind, tensor
from .stage import builtin, op

__all__ = ["SeedType", "bernoulli", "dropout", "gaussian", "normal", "seed", "set_seed", "uniform"]

_FAMILY = "random"


class _SeedType(TensorType):
    """The type of seeds on the host; called with a device, the type of seeds there."""

    def __call__(self, device: DeviceRef | Device) -> TensorType:
        return TensorType(self.dtype, self.shape, device)

    def __eq__(self, other: object) -> bool:
        return other is self or self(self.device) == other

    def __hash__(self) -> int:
        return hash(self(self.device))

    def __str__(self) -> str:
        return str(self(self.device))


SeedType = _SeedType(DType.int64, [], DeviceRef.CPU())
DimLike = int | str | Dim


@op(namespace="random", dtypes={}, example="ops.random.set_seed(7)")
def set_seed(value: TensorValueLike) -> None:
    """Sets the seed of all random ops of this graph that come after: a number, or a tensor of `SeedType`.

    The same seed again begins the same numbers again. What is set in a body of `cond` or `while_loop` holds to the end
    of the body.

    Raises:
        GraphError: neither an int nor a tensor of rank 0.
        DTypeError: a tensor of another dtype than int64.
    """
    name = "random.set_seed"
    if hasattr(value, "__tensorvalue__"):
        value = value.__tensorvalue__()
    if not isinstance(value, TensorValue):
        draws.set_seed(_seed_of(value))
        return
    given = tensor(name, "value", value)
    if given.dtype is not DType.int64 or given.rank != 0:
        wrong("value", str(given.type), f"an int, or a tensor of {SeedType}")
    draws.set_seed(given)


@op(namespace="random", dtypes={}, example="ops.random.seed()")
def seed() -> TensorValue:
    """The seed of this graph as a tensor of `SeedType`; 0 unless it is set."""
    held = draws.draws().seed
    return held if isinstance(held, TensorValue) else number(held, DeviceRef.CPU())


@op(namespace="random", dtypes={}, example="ops.random.uniform([2, 3], range=(0, 1))")
def uniform(
    shape: Iterable[DimLike] | TensorType = (),
    range: tuple[float, float] = (0, 1),
    *,
    dtype: DType | None = None,
    device: DeviceRef | Device | None = None,
) -> TensorValue:
    """Numbers from range[0] on and below range[1], each as likely as the others.

    Args:
        shape: of the result; or a `TensorType`, which has dtype and device, too.
        range: the first number and the end.
        dtype: a float type; float32 when left out, on accelerators bfloat16.
        device: where the result lies; the host when left out.

    Raises:
        GraphError: `range` is not a pair of numbers in ascending order.
        DTypeError: no float type.
    """
    pair = list_of("range", range, "two numbers")
    if len(pair) != 2:
        wrong("range", range, "two numbers")
    low, high = (number_of(f"range[{k}]", number) for k, number in enumerate(pair))
    if low >= high:
        wrong("range", range, "two numbers, of which the first is the smaller one")
    return _filled("random.uniform", "random_uniform", shape, dtype, device, {"low": low, "high": high})


@op(namespace="random", dtypes={}, example="ops.random.gaussian([2, 3], mean=0.0, std=1.0)")
def gaussian(
    shape: Iterable[DimLike] | TensorType = (),
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: DType | None = None,
    device: DeviceRef | Device | None = None,
) -> TensorValue:
    """Numbers of the normal distribution with this mean and standard deviation.

    Args:
        shape: of the result; or a `TensorType`, which has dtype and device, too.
        mean: the centre.
        std: the spread, above 0.
        dtype: a float type; float32 when left out, on accelerators bfloat16.
        device: where the result lies; the host when left out.

    Raises:
        GraphError: `std` is not above 0.
        DTypeError: no float type.
    """
    return _normal("random.gaussian", shape, mean, std, dtype, device)


@op(namespace="random", dtypes={}, example="ops.random.normal([2, 3], mean=0.0, std=1.0)")
def normal(
    shape: Iterable[DimLike] | TensorType = (),
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: DType | None = None,
    device: DeviceRef | Device | None = None,
) -> TensorValue:
    """Another name of `random.gaussian`."""
    return _normal("random.normal", shape, mean, std, dtype, device)


@op(namespace="random", dtypes={"probability": "float"}, example="ops.random.bernoulli(probability)")
def bernoulli(probability: TensorValueLike) -> TensorValue:
    """True with the probability that each element says, as bool; never at 0, always from 1 on."""
    value = tensor("random.bernoulli", "probability", probability)
    check_kind("random.bernoulli", "probability", value, "float")
    return less(_drawn("random.bernoulli", value), value)


@op(namespace="random", dtypes={"x": "float"}, example="ops.random.dropout(x, p=0.5)")
def dropout(x: TensorValueLike, p: float = 0.5) -> TensorValue:
    """x with each element made 0 with probability p, and the others divided by 1 - p.

    Raises:
        GraphError: p is not from 0 on and below 1.
    """
    value = tensor("random.dropout", "x", x)
    check_kind("random.dropout", "x", value, "float")
    share = number_of("p", p)
    if not 0 <= share < 1:
        wrong("p", p, "a number from 0 on and below 1")
    return where(less(_drawn("random.dropout", value), share), 0.0, mul(value, 1 / (1 - share)))


@contextmanager
def streaming(seed: int | TensorValue, stream: int | TensorValue) -> Iterator[None]:
    """Within this block the graph's seed and the stream of the next op are these, numbers or tensors of `SeedType`."""
    with draws.counting(Draws(seed, stream) if isinstance(stream, TensorValue) else Draws(seed, None, stream)):
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within this block random ops have another seed; they count on."""
    with draws.counting(replace(draws.draws(), seed=_seed_of(seed))) as end:
        yield
    draws.go_on(end[0])


# *** parts ***


def _seed_of(value: object) -> int:
    number = int_of("value", value)
    if not -(1 << 63) <= number < 1 << 64:
        wrong("value", value, "an int of 64 bits")
    return number if number < 1 << 63 else number - (1 << 64)


def _normal(
    name: str,
    shape: Iterable[int | str | Dim] | TensorType,
    mean: object,
    std: object,
    dtype: DType | None,
    device: DeviceRef | Device | None,
) -> TensorValue:
    spread = number_of("std", std, wanted="a number above 0")
    if spread <= 0:
        wrong("std", std, "a number above 0")
    return _filled(name, "random_normal", shape, dtype, device, {"mean": number_of("mean", mean), "std": spread})


def _drawn(name: str, like: TensorValue) -> TensorValue:
    """Numbers in [0, 1) for the elements of a tensor of floats: float64 for float64, else float32."""
    wide = DType.float64 if like.dtype is DType.float64 else DType.float32
    return _filled(name, "random_uniform", like.type.with_dtype(wide), None, None, {"low": 0.0, "high": 1.0})


def _filled(
    name: str, kernel: str, shape: Any, dtype: DType | None, device: Any, parameters: dict[str, float]
) -> TensorValue:
    """Stages a kernel over all elements in one row, with the seed of the graph and the next stream."""
    if isinstance(shape, TensorType):
        dtype, device, shape = dtype or shape.dtype, device or shape.device, shape.shape
    place = DeviceRef.CPU() if device is None else DeviceRef.from_device(device)
    chosen = dtype_of("dtype", dtype) if dtype is not None else place.default_dtype
    if not chosen.is_float() or chosen.is_storage():
        wrong("dtype", chosen, "a floating-point dtype that computes", code="EK0413")
    dims = Shape(list_of("shape", shape, "dims"))
    now = draws.draws()
    seed = transfer_to(now.seed, place) if isinstance(now.seed, TensorValue) else number(now.seed, place)
    row = TensorType(chosen, [dims.num_elements], place)
    drawn = builtin(_FAMILY, kernel, [seed, now.count(place)], parameters, [row])[0]
    draws.draw()
    return as_shape(drawn, dims)
