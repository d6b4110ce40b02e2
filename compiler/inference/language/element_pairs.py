"""Builds `foreach` over tensors whose elements share bytes: two elements a round.

Of outputs, a byte has one writer then. Of inputs that are read element by element, a byte is read once, and LLVM makes
vector code of the loop. Where components of the index are wanted, outputs take the position apart (`divisible`); for
the sake of inputs alone there would be too much to compute, and the loop becomes a nest.

See also `lowering.packed_memory` (which leave the neighbour alone).
"""

from __future__ import annotations

from collections.abc import Callable

from ....dsl.types.dtype import SIMDType
from ...ir.program import Region, Value
from ..evaluator import Evaluator
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor, Stored

Values = tuple[Value, ...]


def shares_bytes(outputs: tuple[object, ...]) -> bool:
    """Whether some output lies in memory with two elements to a byte."""
    return any(isinstance(tensor, Stored) and tensor.dtype.is_packed() for tensor in outputs)


class Pairs:
    """The loop over pairs of elements of these outputs; `values_at` computes what is stored at an index."""

    def __init__(
        self,
        evaluator: Evaluator,
        outputs: tuple[KernelTensor, ...],
        values_at: Callable[[BodyIndex], Values],
        *,
        divisible: bool,
    ) -> None:
        self.evaluator = evaluator
        self.divisible = divisible
        self.outputs = outputs
        self.values_at = values_at
        self.count = evaluator.builder.product(outputs[0].dims)
        one, two = evaluator.builder.int_(1), evaluator.builder.int_(2)
        self.pairs = evaluator.builder.idiv(evaluator.builder.iadd(self.count, one), two)

    def chunk(self, low: Value, high: Value) -> None:
        """The pairs of a range; of an odd number of elements the last one is alone."""
        builder = self.evaluator.builder
        whole = builder.idiv(self.count, builder.int_(2))
        odd = self.count.const is None or self.count.const % 2 == 1
        loop = builder.for_loop(low, self._least(high, whole) if odd else high)
        with builder.inside(loop):
            self._both(loop.args[0])
            builder.end()
        if odd:
            self._when(builder.compare("gt", high, whole), lambda: self._last(whole))

    def thread(self, pair: Value) -> None:
        """One pair."""
        builder = self.evaluator.builder
        whole = builder.idiv(self.count, builder.int_(2))
        self._when(builder.compare("lt", pair, whole), lambda: self._both(pair))
        if self.count.const is None or self.count.const % 2 == 1:
            self._when(builder.compare("ge", pair, whole), lambda: self._last(whole))

    def _least(self, a: Value, b: Value) -> Value:
        return self.evaluator.builder.one("min", [a, b], a.type)

    def _when(self, condition: Value, build: Callable[[], None]) -> None:
        builder = self.evaluator.builder
        inside, nothing = Region(), Region()
        with builder.inside(inside):
            build()
            builder.end()
        with builder.inside(nothing):
            builder.end()
        builder.add("if", [condition], regions=[inside, nothing])

    def _index(self, position: Value) -> BodyIndex:
        return BodyIndex(self.outputs[0].dims, linear=position, divisible=self.divisible)

    def _both(self, pair: Value) -> None:
        builder = self.evaluator.builder
        even = self._index(builder.imul(builder.int_(2), pair))
        odd = self._index(builder.iadd(even.position(builder), builder.int_(1)))
        pairs = zip(self.outputs, self.values_at(even), self.values_at(odd), strict=True)
        for tensor, first, second in pairs:
            if shares_bytes((tensor,)):
                assert isinstance(tensor, Stored)
                builder.add("store_pair", [first, second, tensor.pointer, pair])
            else:
                tensor.store(builder, even, first)
                tensor.store(builder, odd, second)

    def _last(self, pair: Value) -> None:
        """The element without a neighbour; the other half of its byte becomes zero."""
        builder = self.evaluator.builder
        index = self._index(builder.imul(builder.int_(2), pair))
        for tensor, value in zip(self.outputs, self.values_at(index), strict=True):
            if shares_bytes((tensor,)):
                assert isinstance(tensor, Stored)
                nothing = builder.const(0, SIMDType(tensor.dtype))
                builder.add("store_pair", [value, nothing, tensor.pointer, pair])
            else:
                tensor.store(builder, index, value)
