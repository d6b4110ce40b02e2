"""Random graphs: fused, unfused and NumPy agree on every output, at every size of the symbolic dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from einkorn.graph import DeviceRef, DType, Graph, TensorType, ops
from einkorn.graph.engine.model import Model
from einkorn.graph.loading.load import load_graph
from einkorn.graph.types.dims import StaticDim

pytestmark = pytest.mark.as_shipped

KERNELS = Path(__file__).parent / "fusion_kernels.py"
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EINKORN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


class Recorder:
    """Stages ops, and keeps next to each value the NumPy function that computes it from earlier ones.

    Which op is staged depends on the staged shapes alone, so that the record is right at every size.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.values = list(inputs)
        self.rules: list[tuple[Callable[..., Array], tuple[int, ...]] | None] = [None] * len(inputs)

    def add(self, value: Any, rule: Callable[..., Array], *operands: int) -> None:
        self.values.append(value)
        self.rules.append((rule, operands))

    def replay(self, arrays: Sequence[Array]) -> list[Array]:
        collected: list[Array] = []
        given = iter(arrays)
        with np.errstate(all="ignore"):
            for rule in self.rules:
                collected.append(next(given) if rule is None else np.asarray(rule[0](*(collected[k] for k in rule[1]))))
        return collected

    def partner(self, a: int, wanted: int) -> int:
        """A value that broadcasts with value `a`, `wanted` among those there are."""
        shape = list(self.values[a].shape)
        fitting = [k for k, v in enumerate(self.values) if self.broadcasts(list(v.shape), shape)]
        return fitting[wanted % len(fitting)]

    def broadcasts(self, a: list[Any], b: list[Any]) -> bool:
        pairs = zip(a[::-1], b[::-1], strict=False)
        return len(a) <= len(b) and all(x == y or x == 1 for x, y in pairs)

    def alike(self, a: int, wanted: int) -> int:
        shape = list(self.values[a].shape)
        fitting = [k for k, v in enumerate(self.values) if list(v.shape) == shape]
        return fitting[wanted % len(fitting)]


Step = tuple[int, int, int, int]


def stage(r: Recorder, step: Step) -> None:
    """One more value; `step` holds an op, a value and two numbers that choose the rest."""
    kind, which, p, q = step
    a = which % len(r.values)
    STEPS[kind % len(STEPS)](r, a, p, q)


def binary(r: Recorder, a: int, p: int, q: int) -> None:
    b = r.partner(a, p)
    graph, rule = [
        (ops.add, np.add),
        (ops.sub, np.subtract),
        (ops.mul, np.multiply),
        (ops.maximum, np.maximum),
        (ops.minimum, np.minimum),
    ][q % 5]
    r.add(graph(r.values[a], r.values[b]), rule, a, b)


def unary(r: Recorder, a: int, p: int, q: int) -> None:
    n = p % 5 + 2
    graph, rule = [
        (lambda x: x * n + 1, lambda x: x * np.int32(n) + np.int32(1)),
        (lambda x: -x, lambda x: -x),
        (abs, np.abs),
        (ops.relu, lambda x: np.maximum(x, np.int32(0))),
        (lambda x: x // n, lambda x: x // np.int32(n)),
        (lambda x: x % n, lambda x: x % np.int32(n)),
        (lambda x: ops.cast(ops.cast(x, DType.float32) * 0.5, DType.int32), halved),
    ][q % 7]
    r.add(graph(r.values[a]), rule, a)


def halved(x: Array) -> Array:
    wide = np.trunc(x.astype(np.float32) * np.float32(0.5)).astype(np.float64)
    return np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32)


def choose(r: Recorder, a: int, p: int, q: int) -> None:
    b, c = r.partner(a, p), r.partner(a, q)
    value = ops.where(r.values[a] > r.values[b], r.values[c], r.values[a] - 1)
    r.add(value, lambda x, y, z: np.where(x > y, z, x - np.int32(1)), a, b, c)


def permuted(r: Recorder, a: int, p: int, q: int) -> None:
    rank = r.values[a].rank
    order = np.random.default_rng(p).permutation(rank).tolist()
    r.add(ops.permute(r.values[a], order), lambda x: x.transpose(order), a)


def reshaped(r: Recorder, a: int, p: int, q: int) -> None:
    """Flat, with axes in the opposite order, or with two axes merged."""
    value = r.values[a]
    rank = value.rank
    if p % 3 == 0 or rank < 2:
        r.add(ops.reshape(value, [-1]), lambda x: x.reshape(-1), a)
    elif p % 3 == 1:
        r.add(ops.reshape(value, list(value.shape)[::-1]), lambda x: x.reshape(x.shape[::-1]), a)
    else:
        k = q % (rank - 1)
        merged = [*value.shape[:k], value.shape[k] * value.shape[k + 1], *value.shape[k + 2 :]]
        r.add(
            ops.reshape(value, merged),
            lambda x: x.reshape((*x.shape[:k], x.shape[k] * x.shape[k + 1], *x.shape[k + 2 :])),
            a,
        )


def sliced(r: Recorder, a: int, p: int, q: int) -> None:
    value = r.values[a]
    if not value.rank:
        return
    axis = p % value.rank
    size = value.shape[axis]
    choices = [slice(None, None, 2), slice(None, None, -1), slice(None, None, -3)]
    if isinstance(size, StaticDim) and int(size) > 1:
        n = int(size)
        choices += [slice(1, None), slice(0, n - 1), slice(n - 1, 0, -1), slice(q % n, q % n + 1)]
    index = (slice(None),) * axis + (choices[q % len(choices)],)
    r.add(value[index], lambda x: x[index], a)


def joined(r: Recorder, a: int, p: int, q: int) -> None:
    if not r.values[a].rank:
        return
    b = r.alike(a, p)
    axis = q % r.values[a].rank
    r.add(ops.concat([r.values[a], r.values[b]], axis), lambda x, y: np.concatenate([x, y], axis), a, b)


def repeated(r: Recorder, a: int, p: int, q: int) -> None:
    if r.values[a].rank > 3:
        return
    n = p % 3 + 1
    shape = [n, *r.values[a].shape]
    r.add(ops.broadcast_to(r.values[a], shape), lambda x: np.broadcast_to(x, (n, *x.shape)), a)


def reduced(r: Recorder, a: int, p: int, q: int) -> None:
    value = r.values[a]
    if not value.rank:
        return
    axis, keep = p % value.rank, bool(q % 2)
    if q % 5 >= 3 and isinstance(value.shape[axis], StaticDim) and int(value.shape[axis]) > 0:
        graph, rule = [(ops.max, np.max), (ops.min, np.min), (ops.argmax, np.argmax)][q // 5 % 3]
        result = graph(value, axis=axis, keepdims=keep)
        r.add(ops.cast(result, DType.int32), lambda x: rule(x, axis=axis, keepdims=keep).astype(np.int32), a)
    else:
        r.add(ops.sum(value, axis, keep), lambda x: np.sum(x, axis=axis, keepdims=keep, dtype=np.int32), a)


def customised(r: Recorder, a: int, p: int, q: int) -> None:
    value = r.values[a]

    def call(name: str, *values: Any, **parameters: Any) -> list[Any]:
        return ops.custom(name, DeviceRef.CPU(), list(values), parameters=parameters)

    if q % 4 == 0:
        b = r.alike(a, p)
        (result,) = call("scale_add", value, r.values[b], factor=p % 4)
        r.add(result, lambda x, y: x * np.int32(p % 4) + y, a, b)
    elif q % 4 == 1:
        up, down, high = call("both_ways", value)
        r.add(down, lambda x: x - np.int32(1), a)
        r.add(ops.where(high, up, down), lambda x: np.where(x > 3, x + np.int32(1), x - np.int32(1)), a)
    elif q % 4 == 2 and value.rank == 1:
        r.add(call("neighbours", value)[0], lambda x: np.roll(x, 1) + x * np.int32(2) + np.roll(x, -1), a)
    elif value.rank == 2:
        if p % 2:
            r.add(call("double_rows", value)[0], lambda x: x * np.int32(2), a)
        else:
            r.add(call("running_sum", value)[0], lambda x: np.cumsum(x, axis=1, dtype=np.int32), a)


STEPS = [binary, unary, binary, unary, choose, permuted, reshaped, sliced, joined, repeated, reduced, customised]

number = st.integers(0, 99)
steps = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), number, number, number), min_size=2, max_size=14)
shapes = st.sampled_from(
    [
        (["n"], ["n"]),
        (["m", "n"], ["n"]),
        ([3, "n"], [3, 1]),
        ([4, 6], [4, 6]),
        (["m", 5], []),
        ([2, 3, 4], [3, 1]),
        (["m", 2, "n"], ["n"]),
        ([], []),
    ]
)
SIZES = [{"m": 3, "n": 4}, {"m": 1, "n": 1}, {"m": 2, "n": 37}, {"m": 3, "n": 4}]


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(shapes=shapes, program=steps, chosen=st.lists(number, min_size=0, max_size=2))
def test_random_graphs(shapes: Any, program: list[Step], chosen: list[int]) -> None:
    types = [TensorType(DType.int32, shape, DeviceRef.CPU()) for shape in shapes]
    with Graph("random", input_types=types, custom_extensions=[KERNELS]) as graph:
        recorder = Recorder(graph.inputs)
        for step in program:
            stage(recorder, step)
        outputs = [len(recorder.values) - 1, *(k % len(recorder.values) for k in chosen)]
        graph.output(*(recorder.values[k] for k in outputs))
    models = [Model(graph.ir, partial(load_graph, fuse=fuse)) for fuse in (True, False)]
    rng = np.random.default_rng(len(program))
    for sizes in SIZES:
        arrays = [
            rng.integers(-9, 10, [sizes.get(d, d) for d in shape])
            .astype(np.int32)
            .reshape([sizes.get(d, d) for d in shape])
            for shape in shapes
        ]
        actual = recorder.replay(arrays)
        for name, model in zip(("fused", "unfused"), models, strict=True):
            for k, got in zip(outputs, model(*arrays), strict=True):
                np.testing.assert_array_equal(got.to_numpy(), actual[k], err_msg=f"{name}, value {k}, {sizes}\n{graph}")
