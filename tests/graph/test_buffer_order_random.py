"""Random programs of loads, parts, stores and uses of buffers, in branches and loops, against NumPy bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from einkorn.graph import BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

HOST = DeviceRef.CPU()
SHAPES = ((4, 3, 5), (6, 4), (4, 4))
OWN = len(SHAPES)  # the number of a buffer of the graph's own, of the first shape
I32, I64 = DType.int32, DType.int64
Values = dict[int, Any]


@dataclass
class Program:
    """Steps by name and arguments; those of control flow hold programs. Values have numbers, buffers too."""

    steps: list[tuple[Any, ...]] = field(default_factory=list)


class Writer:
    """Draws a program. `shapes` are those of the values that there are."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.loaded: dict[int, int] = {}  # by value that is a whole buffer, the buffer
        self.count = 0

    def pick(self, items: Any) -> Any:
        items = list(items)
        return items[int(self.random.integers(len(items)))]

    def value(self, shape: tuple[int, ...]) -> int:
        self.count += 1
        self.shapes[self.count] = shape
        return self.count

    def program(self, size: int, depth: int = 0) -> Program:
        made = Program()
        before = dict(self.shapes)
        if depth and self.shapes:
            made.steps.append(("output", self.pick(self.shapes)))
        if depth and self.loaded:  # is read again in the next round of a loop
            value = self.pick(self.loaded)
            made.steps.append(("output", value))
            index, _ = self.index(self.shapes[value])
            made.steps.append(("store_part", self.loaded[value], index, self.source(made, ())))
        for _ in range(size):
            self.step(made, depth)
        if depth:
            self.shapes = before
            self.loaded = {value: buffer for value, buffer in self.loaded.items() if value in before}
        return made

    def step(self, made: Program, depth: int) -> None:
        kinds = ["part"] * 4 + ["store_part"] * 4 + ["load"] * 3 + ["store"] * 2 + ["use"] * 5
        kinds += ["cond", "loop"] if depth < 2 else []
        kind = self.pick(kinds)
        buffer = int(self.random.integers(len(SHAPES) + 1))
        shape = SHAPES[buffer % OWN]
        if kind == "load" or (kind == "use" and not self.shapes):
            self.loaded[self.value(shape)] = buffer
            made.steps.append(("load", self.count, buffer))
        elif kind == "part":
            index, part = self.index(shape)
            made.steps.append(("part", self.value(part), buffer, index))
        elif kind == "store":
            if shape == shape[::-1] and self.random.integers(2):
                loaded, turned = self.value(shape), self.value(shape)
                made.steps += [("load", loaded, buffer), ("turn", turned, loaded)]
            made.steps.append(("store", buffer, self.source(made, shape)))
        elif kind == "store_part":
            index, part = self.index(shape)
            made.steps.append(("store_part", buffer, index, self.source(made, part, buffer, index)))
        elif kind == "use":
            self.use(made)
        elif kind == "cond":
            bodies = self.program(3, depth + 1), self.program(3, depth + 1)
            made.steps.append(("cond", int(self.random.integers(2)), *bodies))
        else:
            made.steps.append(("loop", int(self.random.integers(4)), self.program(4, depth + 1)))

    def index(self, shape: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """An index and the shape of its part: "i" is the number that a graph takes."""
        index: list[Any] = []
        part: list[int] = []
        for size in shape[: int(self.random.integers(1, len(shape) + 1))]:
            kind = self.random.integers(5)
            if kind == 0:
                index.append(int(self.random.integers(-size, size)))
            elif kind == 1:
                index.append("i")
            else:
                first = int(self.random.integers(size))
                end = int(self.random.integers(first + 1, size + 1))
                turned = kind == 4
                index.append(slice(end - 1, first - 1 if first else None, -1) if turned else slice(first, end))
                part.append(end - first)
        return tuple(index), (*part, *shape[len(index) :])

    def source(self, made: Program, shape: tuple[int, ...], *there: Any) -> int:
        """A value of this shape, or of rank 0; mostly one that is made of what is stored to."""
        alike = [v for v, other in self.shapes.items() if other == shape]
        if there and self.random.integers(2):
            read = self.value(shape)
            made.steps.append(("part", read, there[0], self.moved(*there)))
            alike = [read]
            if self.random.integers(2):
                alike = [self.value(shape)]
                made.steps.append(("scale", alike[0], read))
        if not alike or not self.random.integers(4):
            step = ("sum", self.pick(self.shapes)) if self.shapes else ("number",)
            total = self.value(())
            made.steps.append((step[0], total, *step[1:]))
            return total
        return int(self.pick(alike))

    def moved(self, buffer: int, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """An index of a part of the same shape: mostly the same, or one place further."""
        axis = int(self.random.integers(2 * len(index)))
        if axis >= len(index) or isinstance(index[axis], str):
            return index
        item, size = index[axis], SHAPES[buffer % OWN][axis]
        if isinstance(item, int):
            return (*index[:axis], (item + 1) % size, *index[axis + 1 :])
        if item.step is None and item.stop < size:
            return (*index[:axis], slice(item.start + 1, item.stop + 1), *index[axis + 1 :])
        return index

    def use(self, made: Program) -> None:
        value = self.pick(self.shapes)
        shape = self.shapes[value]
        alike = [v for v, other in self.shapes.items() if other == shape]
        kind = self.pick(["scale", "add", "turn", "flat", "sum", "row", "product", "running", "output", "output"])
        if kind == "scale":
            made.steps.append((kind, self.value(shape), value))
        elif kind == "add":
            made.steps.append((kind, self.value(shape), value, self.pick(alike)))
        elif kind == "product" and len(shape) > 1:
            made.steps.append((kind, self.value((*shape[:-1], shape[-2])), value))
        elif kind == "running" and shape:
            made.steps.append((kind, self.value(shape), value))
        elif kind == "turn":
            made.steps.append((kind, self.value(shape[::-1]), value))
        elif kind == "flat":
            made.steps.append((kind, self.value((int(np.prod(shape)),)), value))
        elif kind == "row" and shape and shape[0]:
            made.steps.append((kind, self.value(shape[1:]), value, int(self.random.integers(shape[0]))))
        elif kind == "output":
            made.steps.append((kind, value))
        else:
            made.steps.append(("sum", self.value(()), value))


class Staging:
    """Runs a program while a graph is built."""

    def __init__(self, buffers: list[Any], i: Any, flags: list[Any]) -> None:
        self.buffers, self.i, self.flags = buffers, i, flags
        self.values: Values = {}
        self.outputs: list[Any] = []
        self.inside = 0

    def index(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self.i if isinstance(each, str) else each for each in index)

    def run(self, program: Program, total: Any = None) -> Any:
        """`total` goes through what a body uses, so that what is read there is seen."""
        for name, *args in program.steps:
            if name == "output":
                value = self.values[args[0]]
                if total is None:
                    self.outputs.append(value)
                else:
                    total = total * 3 + self.sum(value)
            elif name == "cond":
                total = self.cond(*args, total=total)
            elif name == "loop":
                total = self.loop(*args, total=total)
            elif name == "store":
                self.store(args[0], Ellipsis, self.values[args[1]])
            elif name == "store_part":
                self.store(args[0], self.index(args[1]), self.values[args[2]])
            else:
                self.values[args[0]] = self.made(name, *args[1:])
        return total

    def made(self, name: str, *args: Any) -> Any:
        if name == "load":
            return self.load(args[0])
        if name == "part":
            return self.buffers[args[0]][self.index(args[1])]
        if name == "number":
            return self.number()
        x = self.values[args[0]]
        if name == "scale":
            return x * 3 + 1
        if name == "add":
            return self.add(x, self.values[args[1]])
        if name == "turn":
            return self.turn(x)
        if name == "flat":
            return x.reshape([-1])
        if name == "product":
            return x @ self.swapped(x)
        if name == "running":
            return self.running(x)
        return x[args[1]] if name == "row" else self.sum(x)

    def load(self, buffer: int) -> Any:
        return ops.buffer_load(self.buffers[buffer]).rebind(SHAPES[buffer % OWN])

    def store(self, buffer: int, index: Any, value: Any) -> None:
        target = self.buffers[buffer]
        target[index] = value.rebind(target.shape) if index is Ellipsis and value.rank else value

    def number(self) -> Any:
        return ops.constant(7, I32, HOST)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def turn(self, x: Any) -> Any:
        return ops.permute(x, list(range(x.rank))[::-1])

    def swapped(self, x: Any) -> Any:
        return ops.transpose(x, -1, -2)

    def running(self, x: Any) -> Any:
        return ops.cumsum(x, 0).cast(I32)

    def sum(self, x: Any) -> Any:
        return ops.sum(x.reshape([-1]), 0).reshape([]).cast(I32) if x.rank else x

    def body(self, program: Program, total: Any) -> Any:
        kept = dict(self.values)
        result = self.run(program, total)
        self.values = kept
        return result

    def cond(self, flag: int, then: Program, other: Program, total: Any) -> Any:
        start = self.number() if total is None else total
        (result,) = ops.cond(
            self.flags[flag],
            [TensorType(I32, [], HOST)],
            lambda: self.body(then, start),
            lambda: self.body(other, start),
        )
        if total is None:
            self.outputs.append(result)
        return result if total is not None else None

    def loop(self, rounds: int, body: Program, total: Any) -> Any:
        start = self.number() if total is None else total
        _, result = ops.while_loop(
            (ops.constant(0, I64, HOST), start),
            lambda k, total: k < rounds,
            lambda k, total: (k + 1, self.body(body, total)),
        )
        if total is None:
            self.outputs.append(result)
        return result if total is not None else None


class Running(Staging):
    """Runs a program with NumPy."""

    def load(self, buffer: int) -> Any:
        return self.buffers[buffer].copy()

    def made(self, name: str, *args: Any) -> Any:
        with np.errstate(over="ignore"):
            return np.array(super().made(name, *args))

    def store(self, buffer: int, index: Any, value: Any) -> None:
        self.buffers[buffer][index] = value.copy()

    def number(self) -> Any:
        return np.int32(7)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def turn(self, x: Any) -> Any:
        return x.T

    def swapped(self, x: Any) -> Any:
        return x.swapaxes(-1, -2)

    def running(self, x: Any) -> Any:
        return np.cumsum(x, 0, dtype=np.int64).astype(np.int32)

    def sum(self, x: Any) -> Any:
        return np.sum(x, dtype=np.int64).astype(np.int32) if x.ndim else x

    def cond(self, flag: int, then: Program, other: Program, total: Any) -> Any:
        start = self.number() if total is None else total
        result = self.body(then if self.flags[flag] else other, start)
        if total is None:
            self.outputs.append(result)
        return result if total is not None else None

    def loop(self, rounds: int, body: Program, total: Any) -> Any:
        result = self.number() if total is None else total
        for _ in range(rounds):
            result = self.body(body, result)
        if total is None:
            self.outputs.append(result)
        return result if total is not None else None


def check(seed: int) -> None:
    """One program, called twice with other numbers."""
    writer = Writer(seed)
    program = writer.program(int(writer.random.integers(6, 16)))
    named = bool(seed % 2)
    types: list[Any] = [
        BufferType(I32, ["n", *shape[1:]] if named and not k else list(shape), HOST) for k, shape in enumerate(SHAPES)
    ]
    types += [TensorType(I64, [], HOST), TensorType(DType.bool, [], HOST), TensorType(DType.bool, [], HOST)]

    def forward(*inputs: Any) -> Any:
        own = ops.buffer_create(BufferType(I32, list(SHAPES[0]), HOST))
        own[...] = 5
        staging = Staging([*inputs[:OWN], own], inputs[OWN], list(inputs[OWN + 1 :]))
        staging.run(program)
        return [*staging.outputs, ops.buffer_load(own)]

    model = InferenceSession().load(Graph("random", forward=forward, input_types=types))
    for call in range(2):
        random = np.random.default_rng(call)
        memory = [random.integers(-99, 99, shape).astype(np.int32) for shape in SHAPES]
        if call:  # of a caller's larger arrays
            memory = [m.repeat(2, 0)[::2] if seed % 3 else m.T.copy().T for m in memory]
        i, flags = int(random.integers(3)), [bool(call), not call]
        running = Running([*(m.copy() for m in memory), np.full(SHAPES[0], 5, np.int32)], i, flags)
        with np.errstate(over="ignore"):
            running.run(program)
        results = [r.to_numpy() for r in model(*memory, i, *flags)]
        wanted = [*running.outputs, running.buffers[OWN]]
        assert len(results) == len(wanted)
        for k, (got, want) in enumerate(zip([*results, *memory], [*wanted, *running.buffers[:OWN]], strict=True)):
            np.testing.assert_array_equal(got, want, f"seed {seed}, call {call}, result {k} of {program}")


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int) -> None:
    check(seed)


def test_many_random_programs() -> None:
    for seed in range(100, 200):
        check(seed)
