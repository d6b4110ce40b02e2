"""Random programs: typed kernels, at times several in one graph, and arrays for their inputs.

A program is valid by construction, and its results are determined to the bit but for the sign and payload of NaN, which
the language leaves open: they are never looked at (no bit cast of a NaN, no sign taken from one). Where a program may
fail, all that is compiled of it may, with the same error.

See also `writing` (what their text looks like), `shrinking` (how a failing one is made small).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from writing.graphs import Step, Writer

from einkorn.dsl.types.dtype import DType
from einkorn.graph.driver.buffer import Buffer

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Program:
    """A kernel file, what it takes, and how it runs.

    Attributes:
        text: the file, with an op `k` and perhaps more.
        inputs: dtype, shape and (where it is not contiguous) layout of each.
        seed: of the elements of the inputs.
        graph: calls of ops in order. An operand is the number of an input, or -1 - n for result n of the calls before;
            several in a tuple for a variadic argument. Without calls `k` takes all inputs.
        checks: what is checked as it runs.
        symbolic: whether sizes are known at the call only.
        features: what it has in it.
    """

    text: str
    inputs: tuple[tuple[Any, ...], ...]
    seed: int
    graph: tuple[Step, ...] = ()
    checks: str = "safe"
    symbolic: bool = False
    features: tuple[str, ...] = field(default=(), compare=False)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "features"}

    def data(self) -> str:
        """All but the text, as assignments in a file."""
        names = {"inputs": (), "seed": None, "graph": (), "checks": "safe", "symbolic": False}
        values = {name: getattr(self, name) for name in names}
        return "".join(
            f"{name.upper()} = {v!r}\n" for name, v in values.items() if v != names[name] or name == "inputs"
        )


def program_of(module: ModuleType, text: str) -> Program:
    """The program in a file that has been imported."""
    names = ("inputs", "seed", "graph", "checks", "symbolic")
    return Program(text, **{name: getattr(module, name.upper()) for name in names if hasattr(module, name.upper())})


def arrays_of(inputs: Sequence[Sequence[Any]], seed: int) -> list[Array]:
    """Elements for these types: special values, random bits, and numbers of ordinary size."""
    rng = np.random.default_rng(seed)
    return [_laid(rng, DType[dtype], tuple(shape), *layout) for dtype, shape, *layout in inputs]


def _laid(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], layout: str = "") -> Array:
    """An array that lies in memory like this."""
    if layout == "transposed":
        return _elements(rng, dtype, shape[::-1]).T
    if layout == "steps":
        return _elements(rng, dtype, (*shape[:-1], 2 * shape[-1]))[..., ::2]
    if layout == "backwards":
        return _elements(rng, dtype, shape)[::-1]
    if layout == "broadcast":
        return np.broadcast_to(_elements(rng, dtype, shape[1:]), shape)
    made = _elements(rng, dtype, shape)
    if dtype.is_packed():
        return made
    array = Buffer(dtype, shape)._array  # at a multiple of 64 bytes, which kernels may promise
    np.copyto(array, made)
    return array


def _elements(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    kind, n = dtype.to_numpy(), int(np.prod(shape))
    if dtype is DType.bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    bits = rng.integers(0, 256, n * kind.itemsize, dtype=np.uint8)
    if dtype.bits < 8:
        bits &= (1 << dtype.bits) - 1
    if dtype.is_float():
        info = ml_dtypes.finfo(kind)
        special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, np.inf, -np.inf, np.nan, float(info.max), float(info.tiny)]
        special += [float(info.smallest_subnormal), -float(info.max), 1.0 + float(info.eps), 127.5, 3e9]
        with np.errstate(over="ignore", invalid="ignore"):
            ordinary = (rng.standard_normal(n) * 10).astype(kind)
            chosen = rng.choice(np.array(special), n).astype(kind)
    else:
        low, high = dtype.range
        ordinary = rng.integers(max(low, -20), min(high, 20), n, endpoint=True).astype(kind)
        values = [0, 1, 2, high, high - 1, low, low + 1]
        values += [dtype.bits, dtype.bits - 1] if dtype.bits >= 8 else []
        chosen = rng.choice(np.array(values, np.uint64 if high >= 1 << 63 else np.int64), n).astype(kind)
        if dtype.bits < 8:
            bits = rng.integers(low, high, n, endpoint=True).astype(kind).view(np.uint8)
    which = rng.integers(0, 3, n)
    result = [part.view(f"u{kind.itemsize}") for part in (bits, ordinary, chosen)]
    return np.choose(which, result).view(kind).reshape(shape)


def program_by(number: Callable[[int, int], int]) -> Program:
    """A program by choices from ranges, both ends included; smaller numbers make simpler programs."""
    writer = Writer(number)
    parts = writer.program()
    features = tuple(sorted(writer.used))
    return Program(parts.text, parts.inputs, number(0, 1000), parts.graph, parts.checks, parts.symbolic, features)
