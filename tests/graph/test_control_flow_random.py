"""Random programs of nested branches, loops, calls and buffers: fused, unfused, interpreted and plain Python agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import BufferType, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.model import Model
from einkorn.graph.loading.load import load_graph

pytestmark = pytest.mark.as_shipped

Array = np.ndarray[Any, Any]
VECTOR = TensorType(DType.int64, ["n"], graphs.HOST)
MODULUS = 9973


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def sum_where(a: Any, b: Any) -> Any:
    """The sum of those of `b` that are more than those of `a`: picked, which has a size that is computed on the way,
    wherever this may stand."""
    graph = Graph.current
    try:
        picked = ops.gather(b, ops.squeeze(ops.nonzero(b > a, graph.unused_dim("k")), 1), 0)
    except GraphError as error:
        assert error.code == "EK0448" and graph.bodies.open
        picked = ops.where(b > a, b, 0)
    return ops.sum(picked, 0)


# An operation on vectors, staged and in NumPy. Numbers stay small, so that all is exact.
OPERATIONS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda a, b: (a + b) % MODULUS, lambda a, b: (a + b) % MODULUS),
    (lambda a, b: ops.maximum(a * 3, b) % MODULUS, lambda a, b: np.maximum(a * 3, b) % MODULUS),
    (lambda a, b: ops.where(a > b, a, b + 1), lambda a, b: np.where(a > b, a, b + 1)),
    (lambda a, b: (a - ops.sum(b, 0)) % MODULUS, lambda a, b: (a - b.sum(keepdims=True)) % MODULUS),
    (lambda a, b: (a * ops.sum(a * b, 0)) % MODULUS, lambda a, b: (a * (a * b).sum(keepdims=True)) % MODULUS),
    (lambda a, b: a[::-1] + b % 2, lambda a, b: a[::-1] + b % 2),
    (lambda a, b: (a + sum_where(a, b)) % MODULUS, lambda a, b: (a + b[b > a].sum(keepdims=True)) % MODULUS),
]


def parity(x: Any) -> Any:
    return ops.sum(x, 0, keepdims=False) % 2 == 0


@dataclass
class Block:
    """Statements, each of which adds values to those there are, and which values it gives back, by number."""

    statements: list[tuple[Any, ...]] = field(default_factory=list)
    results: list[int] = field(default_factory=list)


class Author:
    """Writes random programs."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def block(self, known: int, results: int, depth: int, buffers: bool = True) -> Block:
        made = Block()
        for _ in range(self.random.integers(1, 5)):
            kinds = ["op", "op", "op", "load", "store"] if buffers else ["op", "op", "op"]
            kinds += ["cond", "while", "call", "change"] if depth and buffers else ["cond", "while"] if depth else []
            kind = str(self.random.choice(kinds))
            statement = getattr(self, kind)(known, depth, buffers)
            made.statements.append((kind, *statement))
            known += {"store": 0, "change": 0, "cond": 2}.get(kind, 1) if kind != "while" else len(statement[0])
        recent = [int(known - 1 - k) if k < known else 0 for k in self.random.integers(0, 6, results)]
        made.results = [max(0, k) for k in recent]
        return made

    def pick(self, known: int) -> int:
        return int(self.random.integers(max(0, known - 6), known))

    def op(self, known: int, depth: int, buffers: bool) -> tuple[Any, ...]:
        return int(self.random.integers(len(OPERATIONS))), self.pick(known), self.pick(known)

    def load(self, known: int, depth: int, buffers: bool) -> tuple[Any, ...]:
        return ()

    def store(self, known: int, depth: int, buffers: bool) -> tuple[Any, ...]:
        return (self.pick(known),)

    def cond(self, known: int, depth: int, buffers: bool) -> tuple[Any, ...]:
        return self.pick(known), self.block(known, 2, depth - 1, buffers), self.block(known, 2, depth - 1, buffers)

    def change(self, known: int, depth: int, buffers: bool) -> tuple[Any, ...]:
        return self.pick(known), self.block(known, 0, depth - 1), self.block(known, 0, depth - 1)

    def call(self, known: int, depth: int, buffers: bool) -> tuple[Any, ...]:
        return [self.pick(known), self.pick(known)], self.block(2, 1, depth - 1, False)

    def __getattr__(self, name: str) -> Any:
        return {"while": self.loop}[name]

    def loop(self, known: int, depth: int, buffers: bool) -> tuple[Any, ...]:
        start = [self.pick(known) for _ in range(self.random.integers(1, 4))]
        return start, self.pick(known), self.block(known + len(start), len(start), depth - 1, buffers)


class Staged:
    """Stages a program."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def run(self, block: Block, values: Sequence[Any]) -> list[Any]:
        values = list(values)
        for kind, *what in block.statements:
            values += getattr(self, f"_{kind}")(values, *what)
        return [values[k] for k in block.results]

    def _op(self, values: list[Any], number: int, a: int, b: int) -> list[Any]:
        return [OPERATIONS[number][0](values[a], values[b])]

    def _load(self, values: list[Any]) -> list[Any]:
        return [self.buffer[...]]

    def _store(self, values: list[Any], a: int) -> list[Any]:
        self.buffer[...] = values[a]
        return []

    def _cond(self, values: list[Any], pred: int, then: Block, other: Block) -> list[Any]:
        return ops.cond(
            parity(values[pred]), [VECTOR] * 2, lambda: self.run(then, values), lambda: self.run(other, values)
        )

    def _change(self, values: list[Any], pred: int, then: Block, other: Block) -> list[Any]:
        return ops.cond(parity(values[pred]), None, lambda: self.run(then, values), lambda: self.run(other, values))

    def _call(self, values: list[Any], arguments: list[int], block: Block) -> list[Any]:
        types = [TensorType(DType.int64, ["m"], graphs.HOST)] * 2
        inner = Renamed(None)
        called = Graph("called", lambda *given: inner.run(block, given), types)
        given = [values[k] for k in arguments]
        try:
            return ops.call(called, *given)
        except GraphError as error:  # sizes of the subgraph depend on the loop that calls it
            assert error.code == "EK0448"
            return self.run(block, given)

    def _while(self, values: list[Any], start: list[int], count: int, block: Block) -> list[Any]:
        rounds = ops.sum(values[count], 0, keepdims=False) % 4

        def body(n: Any, *carried: Any) -> list[Any]:
            return [n + 1, *self.run(block, [*values, *carried])]

        return ops.while_loop([0, *(values[k] for k in start)], lambda n, *_: n < rounds, body)[1:]


class Renamed(Staged):
    """Stages the program of a subgraph, whose dim has another name."""

    def _cond(self, values: list[Any], pred: int, then: Block, other: Block) -> list[Any]:
        types = [values[0].type] * 2
        return ops.cond(parity(values[pred]), types, lambda: self.run(then, values), lambda: self.run(other, values))


class Computed(Staged):
    """Runs a program in Python."""

    def _op(self, values: list[Any], number: int, a: int, b: int) -> list[Any]:
        return [OPERATIONS[number][1](values[a], values[b])]

    def _load(self, values: list[Any]) -> list[Any]:
        return [self.buffer.copy()]

    def _cond(self, values: list[Any], pred: int, then: Block, other: Block) -> list[Any]:
        return self.run(then if values[pred].sum() % 2 == 0 else other, values)

    _change = _cond

    def _call(self, values: list[Any], arguments: list[int], block: Block) -> list[Any]:
        return self.run(block, [values[k] for k in arguments])

    def _while(self, values: list[Any], start: list[int], count: int, block: Block) -> list[Any]:
        carried = [values[k] for k in start]
        for _ in range(values[count].sum() % 4):
            carried = self.run(block, [*values, *carried])
        return carried


def check(seed: int, interpret: bool = True) -> None:
    program = Author(seed).block(2, 4, 3)
    types = [VECTOR, VECTOR, BufferType(DType.int64, ["n"], graphs.HOST)]
    graph = Graph("test", lambda x, y, buffer: Staged(buffer).run(program, [x, y]), types)
    models = [InferenceSession().load(graph), Model(graph.ir, lambda ir: load_graph(ir, fuse=False))]
    models += [InferenceSession(interpret=True).load(graph)] if interpret else []
    for n in (5, 1, 0, 33):
        x, y, start = (np.random.default_rng([seed, n, k]).integers(0, 50, n) for k in range(3))
        wanted = start.copy()
        expected = Computed(wanted).run(program, [x, y])
        for model in models[: 3 if n < 33 else 2]:
            buffer = start.copy()
            for got, right in zip(graphs.results(model, x, y, buffer), expected, strict=True):
                np.testing.assert_array_equal(got, right, err_msg=f"seed {seed}, n = {n}\n{graph}")
            np.testing.assert_array_equal(buffer, wanted, err_msg=f"seed {seed}, n = {n}, the buffer\n{graph}")


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int) -> None:
    check(seed)
