"""Takes tensors of any number of axes as matrices, whose columns are the last axis."""

from __future__ import annotations

from ...ir.builder import Builder
from ...ir.program import Value
from ..evaluator import Point
from ..members.table import method
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor, Stored


class Merged(KernelTensor):
    """A tensor without addresses of its own, whose axes but the last one are its rows."""

    def __init__(self, base: KernelTensor, rows: Value) -> None:
        dims, fixed = (rows, base.dims[-1]), (None, base.fixed[-1])
        super().__init__(
            base.name, base.dtype, dims, base.role, fixed=fixed, declared=base.declared, annotation=base.annotation
        )
        self.base = base

    def _mapped(self, builder: Builder, index: BodyIndex) -> BodyIndex:
        row, column = index.components(builder)
        parts = [column]
        for size in reversed(self.base.dims[1:-1]):
            parts.append(builder.irem(row, size))
            row = builder.idiv(row, size)
        return BodyIndex(self.base.dims, components=(row, *reversed(parts)))

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        return self.base.load(builder, self._mapped(builder, index), width)

    def store(self, builder: Builder, index: BodyIndex, value: Value) -> None:
        self.base.store(builder, self._mapped(builder, index), value)


@method(KernelTensor, "as_matrix")
def as_matrix(call: Point, owner: KernelTensor) -> KernelTensor:
    """The elements as a matrix: all axes but the last one are its rows. Nothing is copied.

    Raises:
        CompileError: EK0653, the tensor has less than two axes.
    """
    if owner.rank < 2:
        text = f"as_matrix() takes a tensor of two axes or more; '{owner.name}' has {owner.rank}"
        raise call.error("EK0653", text)
    if owner.rank == 2:
        return owner
    rows = call.builder.product(owner.dims[:-1])
    if type(owner) is not Stored:
        return Merged(owner, rows)
    return Stored(
        owner.pointer,
        owner.name,
        owner.dtype,
        (rows, owner.dims[-1]),
        owner.role,
        fixed=(None, owner.fixed[-1]),
        declared=owner.declared,
        annotation=owner.annotation,
    )
