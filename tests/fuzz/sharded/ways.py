"""How random networks over several ranks are made.

A step is staged as it is chosen, on one rank of a mesh whose other ranks are not there, and what it gives is computed.
Before a result could have more bits than its dtype has for numbers, its operand is clamped: so no step rounds, and
the order of sums does not matter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from einkorn.distributed import Mesh

from einkorn.graph import DType, Graph, TensorType
from einkorn.graph.distributed.communicator import Alone

from .network import HOST, LIMIT, STEPS, Input, Parameters, ShardedNetwork, Step, arrays_of
from .oracle import RULES, ByRank

MESHES: Final[tuple[dict[str, int], ...]] = (
    {"m": 1},
    {"m": 2},
    {"m": 4},
    {"d": 2, "m": 2},
    {"d": 2, "m": 2},
    {"d": 1, "m": 2},
    {"d": 4, "m": 1},
    {"a": 2, "b": 1, "c": 2},
)
BITS: Final = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53, "int8": 7, "int32": 31, "int64": 53}
DTYPES: Final = tuple(BITS)
SIZES: Final = ({"m": 4, "n": 8}, {"m": 8, "n": 4}, {"m": 4, "n": 0}, {"m": 136, "n": 8})
CALLS: Final = 2
MAX_ELEMENTS: Final = 2000
HOWS: Final = ("sum", "max", "min")


class AbsentRanks(Alone):
    """The communicator of a rank whose neighbours are not there: it stages, and calls nothing."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self.rank, self.size = rank, size  # type: ignore[misc]

    def split(self, ranks: Sequence[int]) -> AbsentRanks:
        return AbsentRanks(list(ranks).index(self.rank), len(ranks))


@dataclass
class Value:
    """A value of the network that is made.

    Attributes:
        staged: it on one rank.
        dtype: its name.
        calls: its elements, of each call and rank.
        places: how many binary places its fractions have.
        same: whether all ranks have the same elements.
    """

    staged: Any
    dtype: str
    calls: list[ByRank]
    places: int
    same: bool

    @property
    def bound(self) -> float:
        return max((float(abs(a).max()) for call in self.calls for a in call if a.size), default=0.0)

    @property
    def is_float(self) -> bool:
        return DType[self.dtype].is_float()

    def shares(self, axis: int, by: int) -> bool:
        """Whether so many ranks can share an axis equally."""
        return all(a.shape[axis] % by == 0 for call in self.calls for a in call)

    def most(self, axis: int) -> int:
        return max(a.shape[axis] for call in self.calls for a in call)


class Writer:
    """A network in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.axes = rng.choice(MESHES)
        self.mesh = Mesh(self.axes, AbsentRanks(0, math.prod(self.axes.values())))
        self.sizes = tuple(rng.sample(SIZES, CALLS))
        self.seed = rng.randrange(10**6)
        self.inputs: list[Input] = [("int32", (1,), "same")]  # the flag of branches
        self.steps: list[Step] = []
        self.values: list[Value] = []
        shapes: tuple[tuple[int | str, ...], ...] = (
            *(("m", 4), (4, "n"), ("n",), (4, 8)),
            *(("m", "n"), (2, "m", 4), (8, 4), (4, 4)),
        )
        dtype = rng.choice(DTYPES)
        for _ in range(rng.randint(2, 4)):
            kind = rng.choice(("own", "own", "same"))
            self.inputs.append((dtype if rng.random() < 0.8 else rng.choice(DTYPES), rng.choice(shapes), kind))
        if rng.random() < 0.3:
            wide = rng.choice(("float16", "float32", "float64"))
            self.inputs += [(wide, shape, "same") for shape in (("m", 4), (4, 8), (8, 4))]

    def network(self, count: int) -> ShardedNetwork:
        """A network of so many steps, and those that clamp."""
        types = [TensorType(DType[dtype], shape, HOST) for dtype, shape, _ in self.inputs]
        data = [
            [arrays_of(self._made(()), call, rank) for rank in range(self.mesh.size)] for call in range(len(self.sizes))
        ]
        with Graph("sharded", input_types=types) as graph:
            for number, (dtype, _, kind) in enumerate(self.inputs):
                calls = [[arrays[number] for arrays in call] for call in data]
                self.values.append(Value(graph.inputs[number], dtype, calls, 0, kind == "same"))
            while len(self.steps) < count:
                self.rng.choice(WAYS)(self)
            outputs = self._outputs()
            graph.output(*(self.values[k].staged for k in outputs))
        return self._made(outputs)

    def _made(self, outputs: tuple[int, ...]) -> ShardedNetwork:
        return ShardedNetwork(self.axes, tuple(self.inputs), tuple(self.steps), outputs, self.sizes, self.seed)

    def _outputs(self) -> tuple[int, ...]:
        read = {k for _, operands, _ in self.steps for k in operands}
        ends = [k for k in range(len(self.inputs), len(self.values)) if k not in read]
        more = self.rng.sample(range(len(self.values)), 1) if self.rng.random() < 0.3 else []
        return tuple(ends + more)

    def group(self) -> str:
        return self.rng.choice([*self.axes, "*"])

    def count_of(self, group: str) -> int:
        return self.mesh[group].size

    def any(self, fits: Callable[[Value], bool] = lambda value: True) -> int | None:
        """A value that fits, the newest more often than others."""
        found = [k for k, value in enumerate(self.values) if k and fits(value)]
        if not found:
            return None
        return found[-1] if self.rng.random() < 0.4 else self.rng.choice(found)

    def add(self, name: str, *operands: int, places: int = 0, growth: float = 1.0, **p: Any) -> int | None:
        """Adds a step whose result has at most so many more places, and is at most so many times as large."""
        values = [self.values[k] for k in operands]
        bits = max(0.0, math.log2(max(growth, 1))) + sum(math.log2(max(v.bound, 1)) for v in values)
        if name == "cast":
            bits = math.log2(max(values[0].bound, 1))
        all_places = sum(v.places for v in values) + places
        dtype = p["dtype"] if name == "cast" else values[0].dtype
        if name == "sum" and not values[0].is_float:
            dtype = "int64"
        if bits + all_places >= BITS[dtype] or (all_places and not DType[dtype].is_float()):
            loose = next((k for k in operands if self.values[k].bound > LIMIT or self.values[k].places), None)
            return None if loose is None else self.add("clamp", loose)
        staged = STEPS[name](self.mesh, [v.staged for v in values], p)
        calls = [RULES[name](self.axes, [v.calls[k] for v in values], p) for k in range(len(self.sizes))]
        if any(a.size > MAX_ELEMENTS for call in calls for a in call):
            return None
        same = all(v.same for v in values) and name not in ("shard", "permute", "alltoall", "reducescatter", "loop")
        same = (same and name != "branch") or (name in ("allreduce", "allgather", "broadcast") and p["group"] == "*")
        self.steps.append((name, operands, p))
        self.values.append(Value(staged, dtype, calls, 0 if name in ("clamp", "loop", "branch") else all_places, same))
        return len(self.values) - 1


# *** ways ***


def local(w: Writer) -> None:
    if (x := w.any()) is not None:
        w.add(w.rng.choice(("negate", "abs", "relu", "clamp", "turn")), x)


def pairs(w: Writer) -> None:
    if (x := w.any()) is None:
        return
    value = w.values[x]
    fits = lambda v: v.dtype == value.dtype and list(v.staged.shape) == list(value.staged.shape)  # noqa: E731
    y = w.any(fits)
    assert y is not None
    w.add(w.rng.choice(("add", "sub", "mul", "maximum", "minimum", "where")), x, y, growth=2)


def cast(w: Writer) -> None:
    if (x := w.any(lambda v: v.places == 0)) is not None:
        w.add("cast", x, dtype=w.rng.choice(DTYPES))


def reduction(w: Writer) -> None:
    x = w.any(lambda v: v.staged.rank > 0)
    if x is None:
        return
    value = w.values[x]
    axis, name = w.rng.randrange(value.staged.rank), w.rng.choice(("sum", "max", "min"))
    if name == "sum" or all(a.shape[axis] for call in value.calls for a in call):
        w.add(name, x, axis=axis, growth=value.most(axis) if name == "sum" else 1)


def views(w: Writer) -> None:
    if (x := w.any(lambda v: v.staged.rank > 0)) is None:
        return
    axis = w.rng.randrange(w.values[x].staged.rank)
    if w.rng.random() < 0.4:
        w.add("flip", x, axis=axis)
    elif w.values[x].shares(axis, 2):
        has_elements = all(a.shape[axis] for call in w.values[x].calls for a in call)
        w.add("slice", x, axis=axis, start=w.rng.randint(0, 1) if has_elements else 0, step=2)


def joined(w: Writer) -> None:
    if (x := w.any(lambda v: v.staged.rank > 0)) is not None:
        w.add("concat", x, x, axis=w.rng.randrange(w.values[x].staged.rank))


def product(w: Writer) -> None:
    if (found := _factors(w)) is not None:
        w.add("matmul", *found, growth=w.values[found[0]].most(1))


def product_sum(w: Writer) -> None:
    """A product whose results ranks reduce."""
    if (found := _factors(w)) is not None:
        group, how = w.group(), w.rng.choice(HOWS)
        size = w.count_of(group) if how == "sum" else 1
        w.add("product_sum", *found, group=group, how=how, growth=w.values[found[0]].most(1) * size)


def _factors(w: Writer) -> tuple[int, int] | None:
    """Two values that can be multiplied."""
    x = w.any(lambda v: v.is_float and v.staged.rank == 2)
    if x is None:
        return None
    value = w.values[x]
    y = w.any(lambda v: v.dtype == value.dtype and v.staged.rank == 2 and v.staged.shape[0] == value.staged.shape[1])
    return None if y is None else (x, y)


def tensor_parallel(w: Writer) -> None:
    """Of tensors that all ranks have."""
    group = w.group()
    if group == "*":
        return
    fits = lambda v: v.same and v.is_float and v.staged.rank == 2 and not v.places  # noqa: E731
    x = w.any(fits)
    if x is None:
        return
    one = w.values[x]
    first = w.any(lambda v: fits(v) and v.dtype == one.dtype and v.staged.shape[0] == one.staged.shape[1])
    if first is None or not w.values[first].shares(1, w.count_of(group)):
        return
    two = w.values[first]
    second = w.any(lambda v: fits(v) and v.dtype == one.dtype and v.staged.shape[0] == two.staged.shape[1])
    if second is not None:
        w.add("tensor_parallel", x, first, second, group=group, growth=one.most(1) * LIMIT * two.most(1))


def shard(w: Writer) -> None:
    if (x := w.any(lambda v: v.staged.rank > 0)) is None:
        return
    value = w.values[x]
    axes: dict[str, int] = {}
    for name in w.rng.sample(list(w.axes), w.rng.randint(1, len(w.axes))):
        free = [k for k in range(value.staged.rank) if k not in axes.values() and value.shares(k, w.axes[name])]
        if free:
            axes[name] = w.rng.choice(free)
    if axes:
        w.add("shard", x, axes=axes)


def allreduce(w: Writer) -> None:
    if (x := w.any()) is None:
        return
    group, how = w.group(), w.rng.choice((*HOWS, "mean"))
    if how == "mean" and not w.values[x].is_float:
        return
    size = w.count_of(group)
    places = size.bit_length() - 1 if how == "mean" else 0
    w.add("allreduce", x, how=how, group=group, growth=size if how == "sum" else 1, places=places)


def gather_and_scatter(w: Writer) -> None:
    if (x := w.any(lambda v: v.staged.rank > 0)) is None:
        return
    group, axis = w.group(), w.rng.randrange(w.values[x].staged.rank)
    size = w.count_of(group)
    name = w.rng.choice(("allgather", "reducescatter", "alltoall"))
    if name == "allgather":
        w.add(name, x, group=group, axis=axis - w.values[x].staged.rank if w.rng.random() < 0.3 else axis)
    elif w.values[x].shares(axis, size):
        how: Parameters = {"how": w.rng.choice(HOWS)} if name == "reducescatter" else {}
        w.add(name, x, group=group, axis=axis, growth=size if how.get("how") == "sum" else 1, **how)


def movement(w: Writer) -> None:
    if (x := w.any()) is not None:
        name, p = _moving(w)
        w.add(name, x, **p)


def _moving(w: Writer) -> tuple[str, Parameters]:
    group = w.group()
    size = w.count_of(group)
    which = w.rng.randrange(5)
    if which < 2:
        return "broadcast", {"group": group, "root": w.rng.randrange(size)}
    if which < 4:
        count = w.rng.randint(1, size)
        ends = zip(w.rng.sample(range(size), count), w.rng.sample(range(size), count), strict=True)
        return "permute", {"group": group, "pairs": [list(pair) for pair in ends]}
    return "barrier", {"group": group}


def _chain(w: Writer, value: Value) -> list[list[Any]]:
    """Steps that keep the type of what is clamped before each."""
    made: list[list[Any]] = []
    for _ in range(w.rng.randint(1, 3)):
        group, which = w.group(), w.rng.randrange(4)
        axis = w.rng.randrange(value.staged.rank) if value.staged.rank else 0
        if which == 0:
            made.append([w.rng.choice(("negate", "abs", "relu")), {}])
        elif which == 1:
            made.append(["allreduce", {"how": w.rng.choice(HOWS), "group": group}])
        elif which == 2 and value.staged.rank and value.shares(axis, w.count_of(group)):
            made.append(["alltoall", {"group": group, "axis": axis}])
        else:
            made.append(list(_moving(w)))
    return made


def control(w: Writer) -> None:
    """A loop or a branch with collectives in it; now and then a branch in a loop would need a flag of its own."""
    if (x := w.any(lambda v: v.bound <= LIMIT and not v.places)) is None:
        return
    value = w.values[x]
    if w.rng.random() < 0.5:
        steps = _chain(w, value)
        if w.rng.random() < 0.2:
            steps.append(["loop", {"count": 2, "steps": _chain(w, value)}])
        w.add("loop", x, count=w.rng.randint(0, 3), steps=steps)
    else:
        w.add("branch", x, 0, then=_chain(w, value), other=_chain(w, value))


WAYS: Final[tuple[Callable[[Writer], None], ...]] = (
    *(local, pairs, pairs, cast, reduction, views, joined, product, product_sum, product_sum, tensor_parallel),
    *(shard, shard, allreduce, allreduce, allreduce, gather_and_scatter, gather_and_scatter, gather_and_scatter),
    *(movement, movement, control, control),
)


def random_network(rng: random.Random) -> ShardedNetwork:
    """A network of 3 to 12 steps."""
    return Writer(rng).network(rng.randint(3, 12))
