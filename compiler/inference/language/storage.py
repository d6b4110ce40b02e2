"""Makes storage: `stack[T](m, n)` and `scratch[T](m, n)` of a thread, `gpu.shared[T](m, n)` and
`gpu.dynamic_shared[T](n)` of a block, `gpu.scratch[T](n)` of a call.

All of it is a tensor in memory that may be read and written, and has the members of one.

See also `passes.limit_stacks`, `passes.limit_launches` (how much of it there may be together).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....dsl.frontend import syntax as s
from ....dsl.signature.schema import Role
from ....dsl.types.dtype import BOOL, INT, DType, SIMDType
from ...ir.program import PointerType, Type, Value
from ..conversion import coerce
from ..evaluator import RULES, Point, callable_, rule
from ..runtime_checks import add_check
from ..values.compile_time import StorageType
from ..values.describe import describe
from ..values.tensors import KernelTensor, Stored
from ..values.tiles import TileValue
from . import shared_layouts as swizzles
from .grids import kernel_of

MAX_STACK_BYTES = 1 << 20  # threads have stacks of some megabytes
MAX_TABLE_BYTES = 1 << 20
ALIGNMENT = 16  # bytes, of shared memory
MAX_ALIGNMENT = 1024

Maker = Callable[[Point, DType, list[Any], dict[str, Any]], KernelTensor | TileValue]


def _stack(call: Point, dtype: DType, args: list[Any], keywords: dict[str, Any]) -> KernelTensor:
    """`stack[T](m, n)`: storage of a fixed size; zeroed, unless `zeroed=False` says that it is written before read."""
    zeroed = keywords.pop("zeroed", True)
    if keywords or not isinstance(zeroed, bool) or not _are_sizes(args):
        text = "stack[T](...) takes whole sizes >= 1 that are known at compile time"
        hint = "a size is a number, or an int parameter of the op: `*, n: int = 64`"
        if any(isinstance(size, Value) for size in args) and not call.evaluator.target.has_grid:
            hint += "; scratch[T](n) takes run-time sizes"
        raise call.error("EK0208", text, hint=hint)
    count = math.prod(args)
    if count * dtype.bits > MAX_STACK_BYTES * 8:
        text = f"{count} elements of {dtype} are too much for stack[...]: it holds {MAX_STACK_BYTES >> 10} KiB"
        raise call.error("EK0217", text, hint="scratch[T](n) is memory of any size for CPU kernels")
    tracked = _tracking(call, dtype, zeroed)
    type = PointerType(dtype, "stack")
    pointer = call.builder.one("alloca", [], type, count=count, zeroed=zeroed, **tracked)
    return _tensor(call, pointer, "stack", args)


def _run_time_storage(call: Point, dtype: DType, args: list[Any], keywords: dict[str, Any]) -> KernelTensor:
    """`scratch[T](m, n)`: memory of run-time sizes; undefined until it is written, unless `zeroed=True` is given."""
    evaluator, builder = call.evaluator, call.builder
    hint = "use stack[T](n) with a compile-time size, gpu.dynamic_shared[T](n), or gpu.scratch[T](n) in host code"
    if evaluator.gpu_ids is not None:
        raise call.error("EK0228", "scratch[T](...) has no meaning in a launched kernel", hint=hint)
    if evaluator.target.has_grid:
        raise call.error(
            "EK0227", f"scratch[T](...) is memory of CPU kernels; {evaluator.target.name} has none", hint=hint
        )
    zeroed = keywords.pop("zeroed", False)
    if keywords or not isinstance(zeroed, bool) or not args:
        hint = "scratch[float32](n), scratch[float32](m, n), scratch[float32](n, zeroed=True)"
        raise call.error("EK0208", "scratch[T](...) takes sizes, and zeroed=True or False", hint=hint)
    dims = []
    for k, given in enumerate(args):
        at = call.on(_given(call, k))
        dim = coerce(at, given, INT, "a size is an Int")
        if not evaluator.ranges.is_at_least(dim, 0):
            holds = builder.compare("ge", dim, builder.int_(0))
            add_check(at, "scratch_size", holds, [f"size {k} of scratch[{dtype}](...) is ", dim], {}, [])
            evaluator.ranges.assume(holds)
        dims.append(dim)
    types: list[Type] = [PointerType(dtype, "stack"), BOOL]
    pointer, enough = builder.add("allocate", dims, types, zeroed=zeroed, **_tracking(call, dtype, zeroed))
    message: list[object] = [f"there is not enough memory for scratch[{dtype}](", *_between(dims), ")"]
    add_check(call, "scratch_memory", enough, message, {}, [])
    return Stored(pointer, "scratch", dtype, tuple(dims), Role.MUTABLE, fixed=tuple(dim.const for dim in dims))


def _tracking(call: Point, dtype: DType, zeroed: bool) -> dict[str, Any]:
    """The attribute of storage whose reads are checked; see `passes.find_unwritten_storage`."""
    evaluator = call.evaluator
    checked = evaluator.checks.level == "all" and not evaluator.target.has_grid
    return {"tracked": True} if checked and not zeroed and not dtype.is_packed() else {}


def _between(dims: list[Value]) -> list[Any]:
    """The dims with commas between them."""
    return [part for dim in dims for part in (", ", dim)][1:]


def _shared(call: Point, dtype: DType, args: list[Any], keywords: dict[str, Any]) -> KernelTensor:
    """`gpu.shared[T](m, n)`: what the threads of a block share, of a fixed size."""
    kernel_of(call, "shared")
    align, layout = keywords.pop("align", ALIGNMENT), keywords.pop("layout", None)
    if keywords:
        raise call.error("EK0208", f"gpu.shared[T](...) takes sizes, align= and layout=, not {next(iter(keywords))}=")
    if type(align) is not int or align < 1 or align & (align - 1) or align > MAX_ALIGNMENT:
        text = f"align= is a power of two of bytes up to {MAX_ALIGNMENT}, known at compile time, not {describe(align)}"
        raise call.error("EK0208", text, "align")
    if not _are_sizes(args):
        late = next((k for k, size in enumerate(args) if isinstance(size, Value)), None)
        if late is None:
            text = "gpu.shared[T](...) takes whole sizes >= 1"
            raise call.error("EK0208", text, hint="a size is a number, or an int parameter of the op: `*, n: int = 64`")
        hint = "gpu.dynamic_shared[T](n) takes run-time sizes; the launch passes shared=n * T.bits // 8"
        text = "a size of gpu.shared[T](...) is known at compile time; this one is not"
        raise call.on(_given(call, late)).error("EK0623", text, hint=hint)
    count = math.prod(args) if layout is None else swizzles.extent(call, layout, dtype, tuple(args))
    pattern = swizzles.pattern_of(call.evaluator.target)
    align = max(align, ALIGNMENT) if layout is None else max(align, pattern)
    pointer = call.builder.one("alloca", [], PointerType(dtype, "shared"), count=count, zeroed=False, align=align)
    if layout is not None:
        return swizzles.laid_out(call, layout, pointer, tuple(args))
    return _tensor(call, pointer, "shared", args)


def _dynamic_shared(call: Point, dtype: DType, args: list[Any], keywords: dict[str, Any]) -> KernelTensor:
    """`gpu.dynamic_shared[T](n)`: a part of the memory that `shared=` of the launch requests."""
    launched, builder = kernel_of(call, "dynamic_shared"), call.builder
    if keywords or not args:
        raise call.error("EK0208", "gpu.dynamic_shared[T](...) takes sizes: whole numbers")
    if launched.region is not None and builder.region is not launched.region:
        text = "gpu.dynamic_shared is in a branch or a loop: the offset of later allocations would be unknown"
        raise call.error("EK0640", text, hint="take all shared memory at the top of the kernel")
    dims = [coerce(call.on(_given(call, k)), n, INT, "a size is an Int") for k, n in enumerate(args)]
    first = launched.used or builder.int_(0)
    count = builder.product(dims)
    if not dtype.is_packed():
        size = builder.imul(count, builder.int_(dtype.size_in_bytes))
    else:
        size = builder.idiv(
            builder.iadd(builder.imul(count, builder.int_(dtype.bits)), builder.int_(7)), builder.int_(8)
        )
    end = builder.iadd(first, size)
    if end.const is not None and launched.shared.const is not None and end.const > launched.shared.const:
        raise call.error(
            "EK0641",
            "gpu.dynamic_shared takes more than the launch has",
            expected=f"at most {launched.shared.const} bytes, the value of shared=",
            got=end.const,
            hint=f"ctx.launch(..., shared={end.const})",
        )
    units = builder.idiv(builder.iadd(end, builder.int_(ALIGNMENT - 1)), builder.int_(ALIGNMENT))
    launched.used = builder.imul(units, builder.int_(ALIGNMENT))
    pointer = builder.one("dynamic_shared", [first, count], PointerType(dtype, "shared"))
    known = [dim.const for dim in dims]
    return Stored(pointer, "shared", dtype, tuple(dims), Role.MUTABLE, fixed=tuple(known))


def _scratch(call: Point, dtype: DType, args: list[Any], keywords: dict[str, Any]) -> KernelTensor:
    """`gpu.scratch[T](n)`: memory of the device for this call of the op, of any sizes."""
    if call.evaluator.level != "host":
        text = "gpu.scratch is memory of a whole call: it is made in host code"
        raise call.error("EK0221", text, hint="create it before the launch, and pass it to the kernel as an argument")
    if keywords or not args:
        raise call.error("EK0208", "gpu.scratch[T](...) takes sizes: whole numbers")
    dims = [coerce(call.on(_given(call, k)), n, INT, "a size is an Int") for k, n in enumerate(args)]
    pointer = call.builder.one("scratch", [call.builder.product(dims)], PointerType(dtype, "global"))
    return Stored(pointer, "scratch", dtype, tuple(dims), Role.MUTABLE, fixed=tuple(dim.const for dim in dims))


def _tile(call: Point, dtype: DType, args: list[Any], keywords: dict[str, Any]) -> TileValue:
    """`gpu.tile[T](M, N)`: a value, which lies in no memory."""
    tile = RULES["gpu.tile"](call, dtype, args, keywords)
    assert isinstance(tile, TileValue)
    return tile


STORAGE: dict[str, Maker] = {
    "stack": _stack,
    "scratch": _run_time_storage,
    "gpu.shared": _shared,
    "gpu.dynamic_shared": _dynamic_shared,
    "gpu.scratch": _scratch,
    "gpu.tile": _tile,
}


@callable_(StorageType)
def make_storage(call: Point, type: StorageType, args: list[Any], keywords: dict[str, Any]) -> KernelTensor | TileValue:
    """Storage of a name, for elements of a dtype."""
    return STORAGE[type.name](call, type.dtype, args, dict(keywords))


@rule("constant_table")
def constant_table(call: Point, values: object, dtype: object) -> KernelTensor:
    """A tensor of constants in the code."""
    kind = dtype.dtype if isinstance(dtype, SIMDType) and dtype.is_scalar else dtype
    if not isinstance(kind, DType) or kind.is_packed():
        text = f"constant_table takes a dtype whose elements are whole bytes, not {describe(dtype)}"
        raise call.error("EK0208", text, "dtype")
    sizes, numbers = _table_of(call, values, kind)
    data = np.array(numbers, kind.to_numpy()).tobytes()
    if not numbers or len(data) > MAX_TABLE_BYTES:
        text = f"a constant_table has 1 to {MAX_TABLE_BYTES >> 10} KiB, and this one has {len(data)} bytes"
        raise call.error("EK0217", text, "values")
    pointer = call.builder.one("constant_table", [], PointerType(kind, "global"), data=data)
    dims = tuple(call.builder.int_(n) for n in sizes)
    return Stored(pointer, "constant_table", kind, dims, Role.INPUT, fixed=sizes)


def _table_of(call: Point, values: object, dtype: DType) -> tuple[tuple[int, ...], list[Any]]:
    """The sizes and the numbers of nested tuples."""
    if isinstance(values, tuple):
        parts = [_table_of(call, each, dtype) for each in values]
        if len({sizes for sizes, _ in parts}) > 1:
            raise call.error("EK0208", "the rows of a constant_table are equally long", "values")
        return (len(parts), *(parts[0][0] if parts else ())), [number for _, numbers in parts for number in numbers]
    number = values.const if isinstance(values, Value) else values
    if isinstance(number, bool | int | float) and fits(number, dtype):
        return (), [number]
    text = f"constant_table takes compile-time numbers that {SIMDType(dtype)} holds, not {describe(values)}"
    raise call.error("EK0208", text, "values", hint="a tuple of numbers: constant_table((1, 2, 3), int32)")


def fits(number: float, dtype: DType) -> bool:
    """Whether a dtype holds a number, rounded where it has fractions."""
    if dtype.is_float():
        return True
    low, high = dtype.range
    return number == int(number) and low <= number <= high if math.isfinite(number) else False


def _are_sizes(args: Sequence[object]) -> bool:
    return bool(args) and all(type(n) is int and n >= 1 for n in args)


def _given(call: Point, number: int) -> s.SyntaxNode:
    """Where a size stands."""
    given = call.node.arguments if isinstance(call.node, s.Call) else ()
    return given[number] if number < len(given) and not any(isinstance(a, s.Starred) for a in given) else call.node


def _tensor(call: Point, pointer: Value, name: str, sizes: list[int]) -> KernelTensor:
    dims = tuple(call.builder.int_(n) for n in sizes)
    return Stored(pointer, name, pointer.dtype, dims, Role.MUTABLE, fixed=tuple(sizes))
