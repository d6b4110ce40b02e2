"""Writes the parts of numba's code that call an entry: pointers and sizes on the stack, the call, and what failed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import default_manager
from numba.extending import intrinsic

from ...dsl.contract.foreign_doors import PLAIN_DOOR
from ...dsl.environment.knobs import knobs
from ...dsl.types.dtype import DType
from ..loading.compile import plain_door
from .foreign_calls import ForeignCalls, call_table, foreign_calls
from .specialise import Specialisation

_POINTER = ir.IntType(8).as_pointer()
_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


def is_native(made: Specialisation) -> bool:
    """Whether native code can call the entry of a specialisation as it is."""
    return knobs.doors and foreign_calls(made).spec is not None


def native_call(made: Specialisation, inputs: int, outputs: int, slots: int) -> Any:
    """An intrinsic `(elements, *inputs, *outputs, *dim slots) -> bool` that calls the entry of a specialisation.

    It says whether the call failed. Code of numba's then raises a `KeptError`, so that a `try` there works.
    """
    names = ["elements", *(f"t{k}" for k in range(inputs + outputs)), *(f"d{k}" for k in range(slots))]
    calls = foreign_calls(made)

    def typed(_: object, *arguments: object) -> Any:
        def written(context: Any, builder: Any, signature: Any, values: Sequence[Any]) -> Any:
            return _write_call(calls, context, builder, signature.args, values)

        return types.boolean(
            *(types.intp if k == 0 or k > inputs + outputs else a for k, a in enumerate(arguments))
        ), written

    return intrinsic(_with_names(typed, names))


def refusal(made: Specialisation, sizes: int) -> Any:
    """An intrinsic `(changed, other, *sizes) -> None` that keeps what is wrong with sizes, or with an argument that is
    changed and shares memory with another, for a `KeptError`."""
    calls = foreign_calls(made)

    def typed(_: object, *arguments: object) -> Any:
        def written(context: Any, builder: Any, signature: Any, values: Sequence[object]) -> Any:
            _write_refusal(calls, context, builder, values)
            return context.get_dummy_value()

        return types.none(*(types.intp for _ in arguments)), written

    return intrinsic(_with_names(typed, ["changed", "other", *(f"s{k}" for k in range(sizes))]))


@intrinsic  # type: ignore[untyped-decorator]
def overlap(_: object, first: object, second: object) -> Any:
    """Whether two contiguous arrays share memory."""

    def written(context: Any, builder: Any, signature: Any, values: Sequence[Any]) -> Any:
        ranges = []
        for type, value in zip(signature.args, values, strict=True):
            array = context.make_array(type)(context, builder, value)
            start = builder.ptrtoint(array.data, _INT64)
            size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(type.dtype)))
            ranges.append((start, builder.add(start, builder.mul(array.nitems, size))))
        (start, end), (other, last) = ranges
        return builder.and_(builder.icmp_unsigned("<", start, last), builder.icmp_unsigned("<", other, end))

    return types.boolean(first, second), written


def _with_names(typed: Callable[..., Any], names: Sequence[str]) -> Any:
    """The same with named arguments: numba requests their number."""
    scope: dict[str, Any] = {"typed": typed}
    listed = ", ".join(names)
    exec(f"def made(context, {listed}):\n    return typed(context, {listed})\n", scope)
    return scope["made"]


def _write_call(calls: ForeignCalls, context: Any, builder: Any, kinds: Sequence[Any], values: Sequence[Any]) -> Any:
    made, plan = calls.made, calls.made.plan
    assert calls.spec is not None  # see `is_native`
    inputs, outputs = len(made.inputs), len(made.outputs)
    dtypes = [*(type.dtype for type in made.inputs), *(type.dtype for type in made.outputs)]
    pointers = cgutils.alloca_once(builder, ir.ArrayType(_POINTER, max(1, len(plan.buffers))))
    for number, buffer in enumerate(plan.buffers):
        kind, which = buffer.source
        if kind == "constant":
            pointer = context.add_dynamic_addr(builder, made.model.first_caller.memory.pointers[number], "constant")
        else:
            at = which if kind == "input" else inputs + which
            pointer = _pointer(context, builder, kinds[1 + at], values[1 + at], dtypes[at])
        builder.store(pointer, cgutils.gep_inbounds(builder, pointers, 0, number))
    slots = values[1 + inputs + outputs :]
    dims = cgutils.alloca_once(builder, ir.ArrayType(_INT64, max(1, len(slots))))
    for number, value in enumerate(slots):
        builder.store(value, cgutils.gep_inbounds(builder, dims, 0, number))

    def address(value: int, what: str) -> Any:
        return context.add_dynamic_addr(builder, value, what)

    text = plain_door()
    context.active_code_library.add_linking_library(_library(context, text))
    form = ir.FunctionType(_INT32, [_POINTER, _POINTER, _INT64, _POINTER, _POINTER, _POINTER, _INT32])
    door = cgutils.get_or_insert_function(builder.module, form, PLAIN_DOOR)
    arguments = [
        address(call_table(), "table"),
        address(calls.keep_at, "keep"),
        ir.Constant(_INT64, calls.number),
        address(calls.words["entry"], "entry"),
        builder.bitcast(pointers, _POINTER),
        builder.bitcast(dims, _POINTER),
        builder.zext(builder.icmp_signed(">", values[0], ir.Constant(_INT64, calls.spec.small)), _INT32),
    ]
    return builder.icmp_signed("!=", builder.call(door, arguments), ir.Constant(_INT32, 0))


def _library(context: Any, text: str) -> Any:
    """The plain door as a library of numba's, which compiles it into its callers."""
    entry = _libraries.get(context)
    if entry is None:
        entry = context.codegen().create_library("einkorn.plain")
        entry.add_llvm_module(binding.parse_assembly(text))
        entry.finalize()
        _libraries[context] = entry
    return entry


_libraries: weakref.WeakKeyDictionary[object, object] = weakref.WeakKeyDictionary()


def _pointer(context: Any, builder: Any, kind: Any, value: Any, dtype: DType) -> Any:
    """The address of an array's elements, or of a number that is put on the stack with the dtype that is wanted."""
    if isinstance(kind, types.Array):
        return builder.bitcast(context.make_array(kind)(context, builder, value).data, _POINTER)
    wanted = types.boolean if dtype is DType.bool else getattr(types, dtype.name)
    number = context.cast(builder, value, types.unliteral(kind), wanted)
    stored = default_manager.lookup(wanted).as_data(builder, number)
    return builder.bitcast(cgutils.alloca_once_value(builder, stored), _POINTER)


def _write_refusal(calls: ForeignCalls, context: Any, builder: Any, values: Sequence[Any]) -> None:
    python = context.get_python_api(builder)
    lock = python.gil_ensure()
    with cgutils.if_likely(builder, cgutils.is_null(builder, python.err_occurred())):
        numbers = [python.long_from_longlong(value) for value in values]
        python.call_function_objargs(context.add_dynamic_addr(builder, calls.refuse_at, "refuse"), numbers)
        for number in numbers:
            python.decref(number)
        python.err_clear()
    python.gil_release(lock)
