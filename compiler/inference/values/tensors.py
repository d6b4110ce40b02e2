"""Reads and writes tensors, which look alike to a kernel wherever their elements are.

`Stored` lies in memory. `Fused` is the element of another kernel, computed where it is read. `Demand` catches what a
kernel stores when only one element of it is wanted. `Epilogue` hands each stored element on to the kernel that follows.
`View` maps indices onto another tensor. A kernel cannot distinguish them: this is how neighbours are fused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ....dsl.diagnostics.errors import InternalError
from ....dsl.diagnostics.places import Place
from ....dsl.signature.schema import Role
from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.builder import Builder
from ...ir.program import PointerType, Value
from .index import BodyIndex, NeedPairs, ravel, same_dims, value_key

_serials = itertools.count()


class KernelTensor:
    """A tensor argument. `dims` are Ints; `fixed` holds the sizes that the signature itself states."""

    def __init__(
        self,
        name: str,
        dtype: DType,
        dims: tuple[Value, ...],
        role: Role,
        *,
        fixed: tuple[int | None, ...] | None = None,
        declared: Place | None = None,
        annotation: str = "",
    ) -> None:
        self.serial = next(_serials)
        self.name = name
        self.dtype = dtype
        self.dims = dims
        self.role = role
        self.fixed = fixed or (None,) * len(dims)
        self.declared = declared
        self.annotation = annotation

    @property
    def rank(self) -> int:
        return len(self.dims)

    def declaration(self) -> list[tuple[str, Place]]:
        """The note that says where a tensor of the signature is declared."""
        return [(f"'{self.annotation}' declared at", self.declared)] if self.declared is not None else []

    def strides(self, builder: Builder) -> tuple[Value, ...]:
        """How many elements lie between neighbours along each axis; row-major where no memory says otherwise."""
        out = [builder.int_(1)]
        for dim in reversed(self.dims[1:]):
            out.append(builder.imul(out[-1], dim))
        return tuple(reversed(out[: len(self.dims)]))

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        """The element at `index`, or `width` elements from there on along the last axis."""
        raise NotImplementedError

    def store(self, builder: Builder, index: BodyIndex, value: Value) -> None:
        """Stores a scalar, or a vector along the last axis."""
        raise NotImplementedError


class Stored(KernelTensor):
    """Row-major elements behind a pointer."""

    def __init__(self, pointer: Value, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pointer = pointer

    @property
    def in_stack(self) -> bool:
        """Whether it is storage of one thread, and no argument of a kernel."""
        assert isinstance(self.pointer.type, PointerType)
        return self.pointer.type.space != "global"

    def offset(self, builder: Builder, index: BodyIndex) -> Value:
        """The element's position behind the pointer."""
        if same_dims(index.dims, self.dims):
            return index.position(builder)
        return ravel(builder, index.components(builder), self.dims)

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        if self.dtype.is_packed() and index.flat and same_dims(index.dims, self.dims):
            raise NeedPairs
        offset = self.offset(builder, index)
        key = ("load", self.pointer.serial, value_key(offset), width)
        result = builder.remembered(key) if self.role is Role.INPUT else None
        if result is None:
            result = builder.one("load", [self.pointer, offset], SIMDType(self.dtype, width))
            if self.role is Role.INPUT:
                builder.remember(key, result)
        assert isinstance(result, Value)
        return result

    def store(self, builder: Builder, index: BodyIndex, value: Value) -> None:
        builder.add("store", [value, self.pointer, self.offset(builder, index)])


class Strided(Stored):
    """Elements behind a pointer with a step of its own for each axis: 0, negative, any.

    A position of a flat loop says nothing here, so that loops over such tensors are nests.
    """

    def __init__(self, steps: tuple[Value, ...], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.steps = steps

    def strides(self, builder: Builder) -> tuple[Value, ...]:
        return self.steps

    def offset(self, builder: Builder, index: BodyIndex) -> Value:
        total = builder.int_(0)
        for component, step in zip(index.components(builder), self.steps, strict=True):
            total = builder.iadd(total, builder.imul(component, step))
        return total

    def _in_a_row(self, index: BodyIndex) -> bool:
        """Whether elements from here on along the last axis are neighbours in memory."""
        return self.steps[-1].const == 1 and index.linear is None

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        if width > 1 and not self._in_a_row(index):
            return side_by_side(self, builder, index, width)
        return super().load(builder, index, width)

    def store(self, builder: Builder, index: BodyIndex, value: Value) -> None:
        if width_of(value) > 1 and not self._in_a_row(index):
            store_apart(self, builder, index, value)
        else:
            super().store(builder, index, value)


class Fused(KernelTensor):
    """Elements of a producer, each computed where it is read."""

    def __init__(self, element: Callable[[BodyIndex], Value], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.element = element

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        if not same_dims(index.dims, self.dims):
            index = BodyIndex(self.dims, components=index.components(builder))
        if width != 1:
            return side_by_side(self, builder, index, width)
        key = ("element", self.serial, index.key())
        result = builder.remembered(key)
        if result is None:
            result = self.element(index)
            builder.remember(key, result)
        assert isinstance(result, Value)
        return result


def side_by_side(tensor: KernelTensor, builder: Builder, index: BodyIndex, width: int) -> Value:
    """`width` elements from `index` on, computed one by one into storage; LLVM makes vectors of it."""
    storage = builder.one("alloca", [], PointerType(tensor.dtype, "stack"), count=width, zeroed=False)
    loop = builder.for_loop(builder.int_(0), builder.int_(width))
    with builder.inside(loop):
        count = loop.args[0]
        builder.add("store", [tensor.load(builder, index.ahead(builder, count)), storage, count])
        builder.end()
    return builder.one("load", [storage, builder.int_(0)], SIMDType(tensor.dtype, width))


def store_apart(tensor: KernelTensor, builder: Builder, index: BodyIndex, value: Value) -> None:
    """Stores the lanes of a vector one by one."""
    for lane in range(width_of(value)):
        one = builder.one("extract", [value], SIMDType(tensor.dtype), lane=lane)
        tensor.store(builder, index.ahead(builder, builder.int_(lane)), one)


def width_of(value: Value) -> int:
    return value.type.width if isinstance(value.type, SIMDType) else 1


class Filled(KernelTensor):
    """One number in every element."""

    def __init__(self, value: bool | int | float | complex, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.value = value

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        return builder.const(self.value, SIMDType(self.dtype, width))


class Uniform(KernelTensor):
    """One number in every element, which the call passes."""

    def __init__(self, value: Value, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.value = value

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        return self.value if width == 1 else builder.one("splat", [self.value], SIMDType(self.dtype, width))


class Demand(KernelTensor):
    """The output of a kernel of which one element is wanted: `foreach` requests `index` and leaves the value here."""

    def __init__(self, index: BodyIndex, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.index = index
        self.value: Value | None = None

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        raise NotElementwise

    def store(self, builder: Builder, index: BodyIndex, value: Value) -> None:
        raise NotElementwise


class NotElementwise(Exception):
    """The kernel does more than one `foreach` over its outputs, so that no single element can be computed alone."""


class Epilogue(KernelTensor):
    """An output whose elements go to the kernel that follows as they are stored."""

    def __init__(self, consume: Callable[[BodyIndex, Value], None], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.consume = consume

    def store(self, builder: Builder, index: BodyIndex, value: Value) -> None:
        if not same_dims(index.dims, self.dims):
            index = BodyIndex(self.dims, components=index.components(builder))
        if value.type == SIMDType(self.dtype):
            self.consume(index, value)
            return
        assert isinstance(value.type, SIMDType)
        storage = builder.one("alloca", [], PointerType(self.dtype, "stack"), count=value.type.width, zeroed=False)
        builder.add("store", [value, storage, builder.int_(0)])
        loop = builder.for_loop(builder.int_(0), builder.int_(value.type.width))
        with builder.inside(loop):
            count = loop.args[0]
            self.consume(index.ahead(builder, count), builder.one("load", [storage, count], SIMDType(self.dtype)))
            builder.end()


class EpilogueOperand(KernelTensor):
    """The operand of an epilogue: the one element that is just being stored."""

    def __init__(self, index: BodyIndex, value: Value, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.index = index
        self.value = value

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        if width != 1 or not (same_dims(index.dims, self.index.dims) and index.key() == self.index.key()):
            raise InternalError(f"the epilogue reads '{self.name}' elsewhere than where it is stored")
        return self.value


class Probe(KernelTensor):
    """Records where an input is read, to find out what fuses."""

    def __init__(self, index: BodyIndex, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.at = index
        self.other_elements = False
        self.loads = 0

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        self.loads += 1
        if width != 1 or not (same_dims(index.dims, self.at.dims) and index.key() == self.at.key()):
            self.other_elements = True
        return builder.one("load", [Value(PointerType(self.dtype)), Value(INT)], SIMDType(self.dtype, width))


class View(KernelTensor):
    """A slice of another tensor: `mapping` turns this view's components into the base's.

    In an `unbroken` one neighbours along the last axis are neighbours of the base. `steps` says of each axis which axis
    of the base it is, and by how many elements of that it steps. `requested` is the number of elements that its bounds
    request along the last axis, where that is known at compile time, wherever the base ends.
    """

    def __init__(
        self,
        base: KernelTensor,
        dims: tuple[Value, ...],
        mapping: Callable[[Builder, tuple[Value, ...]], tuple[Value, ...]],
        unbroken: bool,
        guard: Callable[[Any], None],
        steps: tuple[tuple[int, Value], ...] = (),
        requested: int | None = None,
    ) -> None:
        super().__init__(base.name, base.dtype, dims, base.role, declared=base.declared, annotation=base.annotation)
        self.base = base
        self.mapping = mapping
        self.unbroken = unbroken
        self.guard = guard  # checks, where a call reads or stores, that the slice itself lies in the base
        self.steps = steps
        self.requested = requested

    def strides(self, builder: Builder) -> tuple[Value, ...]:
        base = self.base.strides(builder)
        return tuple(builder.imul(base[axis], step) for axis, step in self.steps)

    def mapped(self, builder: Builder, index: BodyIndex) -> BodyIndex:
        """The index of the base that an index of the view stands for."""
        return BodyIndex(self.base.dims, components=self.mapping(builder, index.components(builder)))

    def _in_a_row(self, index: BodyIndex) -> bool:
        """Whether elements from here on are neighbours of the base, and not the end of a row and the next one."""
        return self.unbroken and (index.linear is None or self.rank == 1)

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        if width > 1 and not self._in_a_row(index):
            return side_by_side(self, builder, index, width)
        return self.base.load(builder, self.mapped(builder, index), width)

    def store(self, builder: Builder, index: BodyIndex, value: Value) -> None:
        if width_of(value) > 1 and not self._in_a_row(index):
            store_apart(self, builder, index, value)
        else:
            self.base.store(builder, self.mapped(builder, index), value)
