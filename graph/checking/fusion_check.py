"""Compares fused kernels with their ops one by one, at each call: what `EINKORN_VERIFY_FUSION=1` switches on.

A call is made twice. In the first, the same kernels give back everything that they store. Then the ops of each kernel
run one by one, each with a buffer of its own, on the very values that the kernel has read: no difference adds up on the
way, and the first kernel that differs is where it begins. Then comes the call that was requested.

How much may differ follows from the data: 64 units in the last place of the coarsest float type of the kernel's values,
and 16 times what the ops themselves differ by when their float inputs change in the last place, up or down by chance
(the most of three draws, and the mean over the tensor). Numbers that are not floats may differ where such a change
makes them differ, and in no other place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import KernelError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..calling.call import Caller
from ..calling.call_plan import plan_calls
from ..calling.inputs import InputCheck
from ..driver.buffer import Buffer
from ..driver.device import Array
from ..ir import ConstantTensor, External, GraphIR, Item, Node
from ..loading.code import LoadedCode
from ..passes.fusion import Group, Partition
from ..types.dims import Dim, Shape
from ..types.tensor_type import BufferType, ShapedType

UNITS = 64  # in the last place, for the rounding of the ops themselves
SPREAD = 16  # times what a change of the inputs in the last place makes
DRAWS = 3
_finfo: Any = ml_dtypes.finfo  # it has no types of its own

Load = Callable[[GraphIR, Partition | None], LoadedCode]  # with these groups, or with every op by itself


class FusionCheck:
    """Runs the calls of a model, and compares its fused kernels with their ops before each."""

    def __init__(self, call: Caller, load: Load) -> None:
        self.call = call
        self.load = load
        self.ir = call.ir
        self.parts = call.code.plan.parts or Partition((), ())
        self.makers = {value: n for n, node in enumerate(self.ir.nodes) for value in node.results}
        self.groups = [group for group in self.parts.groups if self._is_compared(group)]
        self.reads = [self._reads(group) for group in self.groups]
        stored = [
            value
            for group, reads in zip(self.groups, self.reads, strict=True)
            for value in (*reads, *self._last(group))
        ]
        origins = dict.fromkeys(self._origin(value) for value in stored)
        self.stored = tuple(
            value for value in origins if isinstance(self._maker(value), Node) or self._is_control(value)
        )
        self.fused: Caller | None = None
        self.alone: dict[object, Caller] = {}
        self.lock = fork_lock()

    def run(self, call: Caller, inputs: Sequence[object]) -> list[Buffer]:
        """A call, after its kernels were compared.

        Raises:
            KernelError: EK0520, a fused kernel gives something else than its ops.
        """
        with self.lock:
            if self.groups:
                self._compare(inputs)
        return call.run(inputs)

    # what is compared

    def _is_compared(self, group: Group) -> bool:
        nodes = [self.ir.nodes[n] for n in group.nodes]
        return (
            len(nodes) > 1
            and not any(self.ir.regions.of[n] for n in group.nodes)
            and not any(isinstance(node, Node) and self.ir.ordered(node) for node in nodes)
            and not any(isinstance(self.ir.types[self._origin(value)], BufferType) for value in self._reads(group))
        )

    def _maker(self, value: int) -> Item | None:
        number = self.makers.get(value)
        return None if number is None else self.ir.nodes[number]

    def _is_control(self, value: int) -> bool:
        return value >= len(self.ir.inputs) and not isinstance(self._maker(value), Node | ConstantTensor | External)

    def _origin(self, value: int) -> int:
        """The value whose memory this one is."""
        while self.makers.get(value) in self.parts.aliases:
            maker = self._maker(value)
            assert isinstance(maker, Node)
            value = maker.operands[0]
        return value

    def _reads(self, group: Group) -> list[int]:
        """What a group takes from memory, constants aside."""
        made = {value for n in group.nodes for value in self.ir.nodes[n].results}
        read = [value for n in group.nodes for value in self._node(n).operands if value not in made]
        return [value for value in dict.fromkeys(read) if not isinstance(self._maker(value), ConstantTensor)]

    def _node(self, number: int) -> Node:
        node = self.ir.nodes[number]
        assert isinstance(node, Node)
        return node

    def _last(self, group: Group) -> tuple[int, ...]:
        return self._node(group.root if group.epilogue is None else group.epilogue).results

    # the comparison

    def _compare(self, inputs: Sequence[object]) -> None:
        given = [_copied(check, value) for check, value in zip(self.call.checks, inputs, strict=True)]
        if self.fused is None:
            ir = replace(self.ir, outputs=self.stored)
            load = lambda requested: self.load(requested, self.parts)  # noqa: E731
            self.fused = Caller(plan_calls(ir, load, self.call.checks, self.call.plan.weights))
        results = self.fused.run(given)
        values: dict[int, Any] = dict(enumerate(given)) | dict(zip(self.stored, results, strict=True))
        sizes = self.fused.memory.sizes | self.fused.late_sizes
        for group, reads in zip(self.groups, self.reads, strict=True):
            small = _Alone(self.ir, group, reads, sizes)
            key = (group.root, *(tuple(map(int, type.shape)) for type in small.ir.inputs))
            if key not in self.alone:
                checks = [
                    InputCheck(name, type) for name, type in zip(small.ir.argument_names, small.ir.inputs, strict=True)
                ]
                self.alone[key] = Caller(plan_calls(small.ir, lambda requested: self.load(requested, None), checks))
            self._compare_group(
                group, small, self.alone[key], [self._value(value, values, sizes) for value in reads], values
            )

    def _value(self, value: int, values: Mapping[int, object], sizes: Mapping[str, int]) -> Array:
        """What a value holds, in its own shape."""
        origin = self._origin(value)
        maker = self._maker(origin)
        result = self.call.plan.weights[self.makers[origin]] if isinstance(maker, External) else values[origin]
        array = result.to_numpy() if isinstance(result, Buffer) else np.asarray(result)
        # (NumPy makes rank 1 of what has no axes when it is made contiguous.)
        return np.ascontiguousarray(array).reshape(_sizes(self.ir.types[value].shape, sizes))

    def _compare_group(
        self, group: Group, small: _Alone, caller: Caller, given: Sequence[Array], values: Mapping[int, Any]
    ) -> None:
        wanted = _arrays(caller.run(given))
        random = np.random.default_rng(0)
        draws = [_arrays(caller.run([_nudged(array, random) for array in given])) for _ in range(DRAWS)]
        types = [type for n in group.nodes for type in self._node(n).out_types]
        types += [self.ir.types[value] for value in self._reads(group)]
        unit = max((_unit(type.dtype) for type in types), default=0.0)
        for position, value in enumerate(self._last(group)):
            at = small.last + position
            difference = _Difference.between(values[value].to_numpy(), wanted[at], [draw[at] for draw in draws], unit)
            if difference is not None:
                raise self._error(group, value, difference)

    def _error(self, group: Group, value: int, difference: _Difference) -> KernelError:
        last = self._node(group.root if group.epilogue is None else group.epilogue)
        ops = [self._node(n) for n in group.nodes]
        index = list(difference.index)
        held = ", ".join(f"'{op.name}'{f' of line {op.place.line}' if op.place else ''}" for op in ops)
        return KernelError(
            f"element {index} of the result of op '{last.name}' is {difference.got!r} in the fused kernel of graph "
            f"'{self.ir.name}', and {difference.wanted!r} when its ops run one by one",
            code="EK0520",
            place=last.place,
            op=last.name,
            expected=f"{difference.wanted!r}, at most {difference.allowed:.3g} away",
            got=f"{difference.got!r} (and {difference.count - 1:,} more of {difference.total:,} elements differ)",
            notes=[
                f"the kernel holds {held}",
                f"graph '{self.ir.name}' was called at {user_place()}",
            ],
            hint="a custom kernel may promise what it does not keep (writes_once=, reads=); else please report it",
            index=difference.index,
        )


class _Alone:
    """A graph of one group, for given sizes: it takes what the group reads and gives all that its ops give.

    `last` is the first output of the group's last op.
    """

    def __init__(self, ir: GraphIR, group: Group, reads: Sequence[int], sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        names: dict[int, int] = {value: number for number, value in enumerate(reads)}
        nodes: list[Item] = []
        makers = {value: node for node in ir.nodes for value in node.results}
        for n in group.nodes:
            node = ir.nodes[n]
            assert isinstance(node, Node)
            for value in node.operands:
                if value not in names:
                    constant = makers[value]
                    assert isinstance(constant, ConstantTensor)
                    names[value] = len(names)
                    nodes.append(replace(constant, result=names[value]))
            names |= {value: len(names) + k for k, value in enumerate(node.results)}
            nodes.append(
                replace(
                    node,
                    operands=tuple(names[value] for value in node.operands),
                    out_types=tuple(self._type(type) for type in node.out_types),
                    results=tuple(names[value] for value in node.results),
                )
            )
        outputs = [value for node in nodes if isinstance(node, Node) for value in node.results]
        last = ir.nodes[group.root if group.epilogue is None else group.epilogue].results[0]
        self.last = outputs.index(names[last])
        inputs = tuple(self._type(ir.types[value]) for value in reads)
        self.ir = GraphIR(f"{ir.name}, one kernel", inputs, tuple(nodes), tuple(outputs))

    def _type(self, type: ShapedType) -> ShapedType:

        return type.__class__(type.dtype, _sizes(type.shape, self.sizes), type.device)


def _sizes(shape: Shape | Sequence[Dim], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dim.evaluate(sizes) for dim in shape)


def _copied(check: InputCheck, value: object) -> Any:
    """An input that a call may change, and that is contiguous."""
    if check.special:
        return value if not check.is_buffer else np.array(check.storage(value)[0], order="C")
    return np.array(check.array(value), order="C")


def _arrays(results: Sequence[Buffer]) -> list[Array]:
    return [result.to_numpy() for result in results]


# *** numbers ***


def _unit(dtype: DType) -> float:
    """The distance from 1 to the next number of a float type."""
    return float(_finfo(dtype.to_numpy()).eps) if dtype.is_float() else 0.0


def _nudged(array: Array, random: np.random.Generator) -> Array:
    """The array with each float changed by -1, 0 or 1 unit in its last place; zeros and what is not finite stay."""
    if not DType.from_numpy(array.dtype).is_float():
        return array
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
        most = float(_finfo(array.dtype).max)
        fixed = (wide == 0) | ~np.isfinite(wide) | (np.abs(wide) == most)
    codes = array.copy().view(f"i{array.itemsize}")
    codes += np.where(fixed, 0, random.integers(-1, 2, array.shape)).astype(codes.dtype)
    return codes.view(array.dtype)


@dataclass(frozen=True)
class _Difference:
    """The first element that differs by more than it may, and how many do."""

    index: tuple[int, ...]
    got: Any
    wanted: Any
    allowed: float
    count: int
    total: int

    @staticmethod
    def between(got: Array, wanted: Array, draws: Sequence[Array], unit: float) -> _Difference | None:
        with np.errstate(all="ignore"):
            fused, plain, others = (
                got.astype(np.float64),
                wanted.astype(np.float64),
                [d.astype(np.float64) for d in draws],
            )
            if wanted.dtype.kind in "biu":
                allowed = np.where(np.logical_or.reduce([d != wanted for d in draws]), np.inf, 0.0)
            else:
                spread = np.maximum.reduce([_distance(other, plain) for other in others])
                finite = spread[np.isfinite(spread)]
                mean = float(finite.mean()) if finite.size else 0.0
                allowed = UNITS * unit * np.where(np.isfinite(plain), np.abs(plain), 0) + SPREAD * (spread + mean)
            wrong = ~(_distance(fused, plain) <= allowed)
        if not wrong.any():
            return None
        index = tuple(int(n) for n in np.argwhere(wrong)[0])
        count = int(np.count_nonzero(wrong))
        return _Difference(index, got[index], wanted[index], float(allowed[index]), count, math.prod(got.shape))


def _distance(one: Array, other: Array) -> Array:
    """How far numbers are apart; two that are not numbers are the same, and so are equal infinities."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    apart: Array = np.where(same, 0.0, np.abs(one - other))
    return np.where(np.isnan(apart), np.inf, apart)
