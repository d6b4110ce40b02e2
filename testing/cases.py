"""Cases for `testing.check_op`, derived from an op's signature: which dtypes, shapes and elements to try."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..dsl.signature import dims
from ..dsl.signature.parse_dims import parse_dims
from ..dsl.signature.schema import OpSchema, TensorArgument
from ..dsl.types.dtype import DType

Array = np.ndarray[Any, Any]
Maker = Callable[[np.random.Generator, np.dtype[Any], tuple[int, ...]], Any]

SIZES = (1, 2, 3, 17, 33, 7, 8, 9, 31, 32, 63, 64, 65, 15, 16)  # odd ones, powers of two and their neighbours
MAX_POSITIONS = 1 << 14  # positions over all dims of a case
RANKS = (1, 3, 0)  # of a pack of axes
WAYS = ("ordinary", "special", "same", "strided")


@dataclass(frozen=True)
class CaseInstance:
    """What is compiled: the dtype of each type variable, the rank of each pack, the parameters."""

    dtypes: tuple[tuple[str, DType], ...]
    ranks: tuple[tuple[str, int], ...]
    parameters: tuple[tuple[str, object], ...]

    def __str__(self) -> str:
        parts = [f"{name}={dtype}" for name, dtype in self.dtypes]
        parts += [f"*{name}: {rank} axes" for name, rank in self.ranks]
        parts += [f"{name}={value!r}" for name, value in self.parameters]
        return ", ".join(parts)


@dataclass(frozen=True)
class Case:
    """One call: the size of each dim, and how the elements are chosen (one of `WAYS`)."""

    sizes: tuple[tuple[str, int], ...]
    way: str
    seed: int


def instances(
    schema: OpSchema,
    dtypes: Mapping[str, Sequence[DType]],
    ranks: Mapping[str, Sequence[int]],
    parameters: Sequence[Mapping[str, object]],
) -> Iterator[CaseInstance]:
    """Every dtype of every type variable next to the preferred one of the others, every rank, all parameters."""
    options = {name: tuple(dtypes.get(name, allowed)) for name, allowed in schema.typevars}
    if not all(options.values()):
        return
    preferred = {name: allowed[0] for name, allowed in options.items()}
    bindings = [preferred]
    bindings += [preferred | {name: d} for name, allowed in options.items() for d in allowed[1:]]
    packs = {name: tuple(ranks.get(name, RANKS)) for name in pack_names(schema)}
    for number, values in enumerate(parameters):
        for position, binding in enumerate(bindings):
            # Ranks are tried on the preferred dtypes; the others get the first.
            combinations = itertools.product(*packs.values()) if position == 0 else [[r[0] for r in packs.values()]]
            for chosen in combinations:
                results = tuple(zip(packs, chosen, strict=True))
                yield CaseInstance(tuple(binding.items()), results, tuple(values.items()))
        if number == 0:
            bindings = bindings[:1]  # further parameters on the preferred dtypes


def pack_names(schema: OpSchema) -> list[str]:
    """The packs of axes of the inputs."""
    results: dict[str, None] = {}
    for argument in schema.inputs:
        for item in parse_dims(argument.dims):
            if isinstance(item, dims.Pack) and item.count is None:
                results.setdefault(item.name)
    return list(results)


def layout(schema: OpSchema, instance: CaseInstance) -> list[tuple[Any, ...]]:
    """One item for each axis of each input: a name, a size, or an expression over names and parameters."""
    whole = {name: value for name, value in instance.parameters if type(value) is int}
    ranks = dict(instance.ranks)
    shapes = []
    for number, argument in enumerate(schema.inputs):
        shape: list[Any] = []
        for item in parse_dims(argument.dims):
            match item:
                case dims.FixedAxis():
                    shape.append(item.size)
                case dims.Axis():
                    shape.append(item.name)
                case dims.Computed():
                    shape.append(item.expression)
                case dims.Pack():
                    count = ranks[item.name] if item.count is None else int(dims.evaluate(item.count, whole))
                    shape += [f"{item.name}{k}" for k in range(count)]
                case _:
                    shape.append(f"any{number}_{len(shape)}")
        shapes.append(tuple(shape))
    return shapes


def is_computed(shapes: Sequence[tuple[Any, ...]]) -> bool:
    """Whether the size of an axis is given by an expression."""
    return any(not isinstance(axis, str | int) for shape in shapes for axis in shape)


def cases(
    shapes: Sequence[tuple[Any, ...]], instance: CaseInstance, sizes: Sequence[int], seed: int, *, empty: bool
) -> Iterator[Case]:
    """Sizes in different combinations, small ones first, then with a zero; elements of every kind on some of them."""
    fixed = {name for name, _ in instance.parameters}
    names = list(dict.fromkeys(axis for shape in shapes for axis in shape if isinstance(axis, str)))
    for shape in shapes:
        for axis in shape:
            if not isinstance(axis, str | int):
                names += [n for n in map(str, dims.names_in(axis)) if n not in names and n not in fixed]
    if not names:
        for way in WAYS:
            yield Case((), way, seed)
        return
    for number, first in enumerate(sizes):
        chosen = {}
        room = MAX_POSITIONS
        for position, name in enumerate(names):
            wanted = first if position == 0 else sizes[(number + position) % len(sizes)]
            chosen[name] = max(1, min(wanted, room))
            room //= chosen[name]
        for way in WAYS if number in (1, 3, 6) else WAYS[number % 2 :][:1]:
            yield Case(tuple(chosen.items()), way, seed + number)
    for none in names if empty else ():
        yield Case(tuple((name, 0 if name == none else 3) for name in names), "ordinary", seed)


def shape_of(shape: tuple[Any, ...], case: Case, instance: CaseInstance) -> tuple[int, ...]:
    """The sizes of an input's axes in a case."""
    known: dict[str, Any] = {**dict(instance.parameters), **dict(case.sizes)}
    return tuple(
        axis if isinstance(axis, int) else known[axis] if isinstance(axis, str) else int(dims.evaluate(axis, known))
        for axis in shape
    )


def elements(
    arguments: Sequence[TensorArgument],
    shapes: Sequence[tuple[Any, ...]],
    instance: CaseInstance,
    case: Case,
    makers: Mapping[str, Maker],
    *,
    mixed: bool,
) -> list[Array]:
    """The inputs of a case.

    Args:
        makers: the user's own way to make the elements of an argument.
        mixed: whether special values may stand together: else an array gets one of them, so that every order of a sum
            agrees.
    """
    rng = np.random.default_rng(case.seed)
    arrays: list[Array] = []
    for argument, shape in zip(arguments, shapes, strict=True):
        sizes = shape_of(shape, case, instance)
        dtype = argument.dtype if isinstance(argument.dtype, DType) else dict(instance.dtypes)[argument.dtype]
        kind = dtype.to_numpy()
        maker = makers.get(argument.name) or makers.get(argument.group)
        if maker is not None:
            arrays.append(np.asarray(maker(rng, kind, sizes), kind).reshape(sizes))
            continue
        array = ordinary(rng, dtype, sizes)
        if case.way == "special":
            array = sprinkle(rng, dtype, array, mixed=mixed)
        alike = [a for a in arrays if a.shape == array.shape and a.dtype == array.dtype]
        arrays.append(alike[0] if case.way == "same" and alike else array)
    return arrays


def ordinary(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Numbers of moderate size."""
    kind = dtype.to_numpy()
    if dtype is DType.bool:
        return rng.integers(0, 2, shape).astype(kind)
    if dtype.is_complex():
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    if dtype.is_float():
        return (rng.standard_normal(shape) * 2).astype(kind)
    low, high = dtype.range
    return rng.integers(max(low, -9), min(high, 9), shape, endpoint=True).astype(kind)


def special_values(dtype: DType) -> Array:
    """The elements where operations go wrong."""
    kind = dtype.to_numpy()
    if dtype is DType.bool:
        return np.array([False, True])
    if dtype.is_complex():
        parts = special_values(dtype.part)
        result = np.zeros(parts.shape, kind)
        result.real, result.imag = parts, parts[::-1]
        return result
    if dtype.is_float():
        info = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
        values = [math.nan, math.inf, -math.inf, -0.0, 0.0, float(info.smallest_subnormal), float(info.tiny)]
        values += [float(info.max), -float(info.max), 1 + float(info.eps), 0.5, -2.5]
        with np.errstate(all="ignore"):
            return np.array(values).astype(kind)
    low, high = dtype.range
    return np.array([low, high, 0, 1, low + 1, high - 1], object).astype(kind)


def sprinkle(rng: np.random.Generator, dtype: DType, array: Array, *, mixed: bool) -> Array:
    """Special values in some places: all kinds, or one element of one kind that no order of summing changes."""
    special = special_values(dtype)
    flat = array.reshape(-1).copy()
    if flat.size == 0:
        return array
    if mixed:
        places = rng.random(flat.size) < 0.5
        flat[places] = rng.choice(special, int(places.sum()))
    else:
        flat[rng.integers(flat.size)] = special[rng.integers(min(len(special), 7))]
    return flat.reshape(array.shape)


def strided(array: Array) -> Array:
    """The same elements, two apart in memory."""
    if array.ndim == 0:
        return array
    wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]
