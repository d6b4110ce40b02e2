"""A network while it is written: what there is, and one more step.

A network is staged while it is written, so that the graph itself says which shapes there are. What is written is right:
a refusal is a find. Sizes of the calls are chosen first; an op that needs elements is requested where there are some.

See also `ways` (which steps there are).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from einkorn.graph import BufferValue, DType, Graph
from einkorn.graph.types.dims import Dim

from .network import KERNELS, STEPS, Network, Step, input_type

FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
WHOLE = ("int32", "int32", "int64", "int8", "uint8")
LARGEST = 2500  # elements of a value
SIZES = (0, 1, 2, 3, 5, 8, 17)
MOVES = ("permute", "reshape", "slice", "concat", "stack", "split", "repeat", "spread", "constant", "buffer_load")
MOVES += ("flip", "roll", "tile", "pad", "tril", "triu", "gather")


class Refused(Exception):
    """Staging failed; `network` ends with the step that it failed at."""

    def __init__(self, network: Network) -> None:
        super().__init__("refused")
        self.network = network


class Writer:
    """Writes one network."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sizes = tuple({"m": rng.choice(SIZES), "n": rng.choice(SIZES)} for _ in range(3))
        self.dtype = rng.choice(FLOATS if rng.random() < 0.7 else WHOLE)
        self.inputs = tuple(self._input() for _ in range(rng.randint(1, 4)))
        self.graph = Graph("network", input_types=[input_type(*i) for i in self.inputs], custom_extensions=[KERNELS])
        self.values: list[Any] = list(self.graph.inputs)
        self.exact = [True] * len(self.values)  # not made of floats that were rounded
        self.steps: list[Step] = []
        self.read: set[int] = set()
        self.late: dict[str, Dim] = {}  # the largest size of a dim that a shape function computes

    def _input(self) -> tuple[str, tuple[int | str, ...], str]:
        rng = self.rng
        shape = tuple(rng.choice(("m", "n", "n", 1, 2, 3, 4, 6)) for _ in range(rng.choice((0, 1, 2, 2, 2, 3, 3, 4))))
        dtype = self.dtype if rng.random() < 0.85 else rng.choice((*FLOATS, *WHOLE, "bool"))
        kind = "buffer" if rng.random() < 0.2 else "turned" if rng.random() < 0.05 else ""
        return dtype, shape, kind

    def network(self, ways: Sequence[tuple[Callable[[Writer], None], int]]) -> Network:
        """A whole network; `ways` are functions that add steps, with their weights."""
        rng = self.rng
        wanted = rng.choice((4, 6, 8, 10, 12, 16, 20))
        with self.graph:
            for _ in range(200):
                if len(self.steps) >= wanted:
                    break
                rng.choices([way for way, _ in ways], [weight for _, weight in ways])[0](self)
        return self.finished()

    def finished(self) -> Network:
        tensors = [k for k, value in enumerate(self.values) if not isinstance(value, BufferValue)]
        unread = [k for k in tensors if k not in self.read and k >= len(self.inputs)]
        outputs = unread or tensors[-1:]
        while len(outputs) < 3 and self.rng.random() < 0.3 and tensors:
            outputs.append(self.rng.choice(tensors))  # also an input, or one of them again
        return Network(self.inputs, tuple(self.steps), tuple(outputs), self.sizes, self.rng.randint(0, 99))

    # what there is

    def extents(self, dim: Dim) -> list[int]:
        """The sizes that a dim may have in the calls."""
        result = []
        for sizes in self.sizes:
            most = {name: bound.evaluate(sizes) for name, bound in self.late.items()}
            result += [dim.evaluate(sizes | dict.fromkeys(self.late, 0)), dim.evaluate(sizes | most)]
        return result

    def filled(self, dim: Dim) -> bool:
        """Whether a dim is never 0."""
        return min(self.extents(dim)) > 0

    def fits(self, dims: list[Any]) -> bool:
        total = Dim(1)
        for dim in dims:
            total = total * dim
        return max(self.extents(total)) <= LARGEST

    def pick(self, test: Callable[[Any], bool] = lambda value: True) -> int | None:
        """A tensor; a late one more often than an early one."""
        fitting = [k for k, v in enumerate(self.values) if not isinstance(v, BufferValue) and test(v)]
        if not fitting:
            return None
        return (
            fitting[-1 - min(int(self.rng.expovariate(0.5)), len(fitting) - 1)]
            if self.rng.random() < 0.8
            else (self.rng.choice(fitting))
        )

    def alike(self, k: int) -> int:
        """A tensor of the same type, maybe the same."""
        value = self.values[k]
        result = self.pick(lambda v: v.dtype == value.dtype and tuple(v.shape) == tuple(value.shape))
        assert result is not None
        return result

    def partner(self, k: int) -> int:
        """A tensor that broadcasts to this one's shape."""
        value = self.values[k]

        def test(other: Any) -> bool:
            pairs = list(zip(list(other.shape)[::-1], list(value.shape)[::-1], strict=False))
            return other.dtype == value.dtype and other.rank <= value.rank and all(a == b or a == 1 for a, b in pairs)

        result = self.pick(test)
        assert result is not None
        return result

    # steps

    def add(self, name: str, /, *operands: int, **parameters: Any) -> int:
        """One more step; gives the number of its first result."""
        step = (name, operands, parameters)
        self.steps.append(step)
        try:
            made = STEPS[name]([self.values[k] for k in operands], parameters)
        except Exception as error:
            outputs = tuple(k for k in operands if not isinstance(self.values[k], BufferValue)) or (0,)
            raise Refused(Network(self.inputs, tuple(self.steps), outputs, self.sizes)) from error
        first = len(self.values)
        self.values += made
        known = all(self.exact[k] for k in operands)
        self.exact += [known and (not value.dtype.is_float() or name in MOVES) for value in made]
        if operands and isinstance(self.values[operands[0]], BufferValue):  # what it holds from now on
            rounds = name == "custom" and self.values[operands[0]].dtype.is_float()
            self.exact[operands[0]] = known and not rounds
        self.read.update(operands)
        return first

    def floats(self) -> int | None:
        return self.pick(lambda v: v.dtype.is_float())

    def numeric(self, test: Callable[[Any], bool] = lambda value: True) -> int | None:
        return self.pick(lambda v: v.dtype != DType.bool and test(v))

    def number(self, k: int) -> Any:
        small = self.rng.choice((1, 2, 3, 5))
        return small if not self.values[k].dtype.is_float() else small * self.rng.choice((0.25, 0.5, 1.0))
