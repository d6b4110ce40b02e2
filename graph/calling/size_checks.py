"""Checks the sizes of a call: none below zero, no tensor beyond 64 bits, and what ops rely on.

Sizes that are known while a graph is built are checked where a type is made (see `types.tensor_type`). The others are
checked once for each new set of sizes, before memory is touched, for every value of the graph: also for those that
fusion never stores. Kernels rely on that, with all run-time checks and with none.

See also `inputs` (the shapes of inputs), `outputs` (whether there is enough memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ..arguments import LIMIT, MOST_BYTES, in_short, too_many_bytes
from ..ir import RELATIONS, Constraint, GraphIR, Node
from ..types.dims import Dim, StaticDim
from ..types.tensor_type import bytes_of_static, shown

Sizes = Mapping[str, int]


class SizeChecks:
    """The checks of the sizes that one stage of a call is the first to know.

    Each dim and each shape is looked at once, for the first value that has it.

    Args:
        ir: the graph.
        values: the numbers of values that kernels make, in the order of staging.
        constraints: what staging relied on.
    """

    def __init__(self, ir: GraphIR, values: Iterable[int], constraints: Iterable[Constraint]) -> None:
        self.ir = ir
        self.constraints = list(constraints)
        self.rows: list[tuple[int, list[Dim], list[Dim], int]] = []  # value, new dims, all its dims, its fixed bytes
        seen: set[object] = set()
        for value in values:
            type = ir.types[value]
            dims = [dim for dim in type.shape if not isinstance(dim, StaticDim)]
            fixed = bytes_of_static(type.dtype, type.shape)
            if dims and (*dims, fixed) not in seen:
                self.rows.append((value, [dim for dim in dict.fromkeys(dims) if dim not in seen], dims, fixed))
                seen.update(dims, [(*dims, fixed)])

    def check(self, sizes: Sizes) -> None:
        """Raises the error of the first condition that does not hold.

        Raises:
            GraphError: EK0475 a size below zero, EK0476 more bytes than 64 bits count, EK0332 a division by zero, or
                what a constraint says.
        """
        for constraint in self.constraints:
            self._hold(constraint, sizes)
        results: dict[Dim, int] = {}
        for value, fresh, dims, total in self.rows:
            for dim in fresh:
                results[dim] = size = self._size(value, dim, sizes)
                if size < 0:
                    axis = self.ir.types[value].shape.index(dim)
                    text = f"axis {axis} would have size {in_short(size)}"
                    raise self._wrong(value, text, "EK0475", [dim], sizes, f"{dim} >= 0", f"{dim} = {in_short(size)}")
            for dim in dims:
                total *= results[dim] or 1
            if total > LIMIT:
                got = shown(in_short(dim.evaluate(sizes)) for dim in self.ir.types[value].shape)
                text = f"it would take {too_many_bytes(total)}"
                raise self._wrong(value, text, "EK0476", dims, sizes, MOST_BYTES, got)

    def _hold(self, constraint: Constraint, sizes: Sizes) -> None:
        wanted = constraint.condition
        left, right = (_evaluated(dim, sizes, constraint.op) for dim in (constraint.left, constraint.right))
        if not RELATIONS[constraint.kind].holds(left, right):
            names = {*constraint.left.parameters, *constraint.right.parameters}
            raise GraphError(
                constraint.message or f"{wanted} does not hold",
                code=constraint.code,
                place=user_place(),
                op=constraint.op,
                expected=wanted,
                got=f"{in_short(left)} and {in_short(right)}",
                notes=[
                    *self._origins(names, sizes),
                    *([f"required at {constraint.place}"] if constraint.place else []),
                ],
            )

    def _size(self, value: int, dim: Dim, sizes: Sizes) -> int:
        try:
            return dim.evaluate(sizes)
        except GraphError as error:  # a division by zero
            raise self._wrong(value, error.message, error.code, [dim], sizes, "a size", str(dim)) from None

    def _wrong(
        self, value: int, text: str, code: str, dims: Iterable[Dim], sizes: Sizes, expected: str, got: str
    ) -> GraphError:
        node = next(node for node in self.ir.nodes if value in node.results)
        assert isinstance(node, Node)
        names = {name for dim in dims for name in dim.parameters}
        return GraphError(
            f"{node.name}: its result has the shape {shown(self.ir.types[value].shape)}, and {text}",
            code=code,
            place=user_place(),
            op=node.name,
            argument=node.kernel.schema.outputs[node.results.index(value)].name,
            expected=expected,
            got=got,
            notes=[
                *self._origins(names, sizes),
                *([f"op '{node.name}' is staged at {node.place}"] if node.place else []),
            ],
        )

    def _origins(self, names: Iterable[str], sizes: Sizes) -> Iterator[str]:
        """Where each of these dims has its size from, as sentences."""
        for name in sorted(names):
            axes = (
                f"axis {axis} of '{argument}'"
                for argument, type in zip(self.ir.argument_names, self.ir.inputs, strict=True)
                for axis, dim in enumerate(type.shape)
                if dim == name
            )
            steps = (f"from the shape function of op '{step.op}'" for step in self.ir.steps if name in step.names)
            where = next(axes, None) or next(steps, None)  # a part of a graph may have it from another part
            yield f"{name} is {sizes[name]}" + (f", {where}" if where else "")


def _evaluated(dim: Dim, sizes: Sizes, op: str | None) -> int:
    try:
        return dim.evaluate(sizes)
    except GraphError as error:
        error.op, error.message = op, f"{op}: {error.message}"
        raise
