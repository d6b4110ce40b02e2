"""Writes the signature of an op as PyTorch's schemas are written.

scale(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, factor: float = 1.0)
scale(Tensor x, *, float factor=1.) -> Tensor                 as a function of its inputs
scale__into(Tensor(a0!) out, Tensor x, *, float factor=1.) -> ()    with its outputs given
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from ....dsl.diagnostics.errors import GraphError
from ....dsl.diagnostics.places import user_place
from ....dsl.signature.check import undetermined_sizes
from ....dsl.signature.dims import Axis, Computed, Expression, Pack, names_in
from ....dsl.signature.parse_dims import parse_dims
from ....dsl.signature.schema import Form, OpSchema, Parameter, Role, TensorArgument
from ....dsl.types.dtype import DType

# The numbers of PyTorch's dtypes in schemas and in its C interface; they are in files of theirs and do not change.
SCALAR_TYPES: dict[DType, int] = {
    DType.uint8: 0,
    DType.int8: 1,
    DType.int16: 2,
    DType.int32: 3,
    DType.int64: 4,
    DType.float16: 5,
    DType.float32: 6,
    DType.float64: 7,
    DType.complex64: 9,
    DType.complex128: 10,
    DType.bool: 11,
    DType.bfloat16: 15,
    DType.float8_e5m2: 23,
    DType.float8_e4m3fn: 24,
    DType.float8_e5m2fnuz: 25,
    DType.float8_e4m3fnuz: 26,
    DType.uint16: 27,
    DType.uint32: 28,
    DType.uint64: 29,
    DType.float8_e8m0fnu: 44,
}

INTO = "__into"  # ends the name of the op that is given its outputs


def function_schema(schema: OpSchema, name: str, numbers: Mapping[str, str] | None = None) -> str:
    """The op as a function of its inputs. `numbers` says what inputs by their names are: "bool", "int" or "float".

    Raises:
        GraphError: EK0880, PyTorch has no such functions: it lacks a dtype, or an output cannot be derived.
    """
    unknown = undetermined_outputs(schema)
    if unknown:
        _refuse(
            schema,
            unknown[0],
            "has a size or dtype that no input and no parameter determines",
            "pass its outputs, by CustomOpLibrary",
        )
    kinds = numbers or {}
    arguments = [
        f"{kinds[a.name]} {a.name}" if a.name in kinds else _input(schema, a, k) for k, a in enumerate(schema.inputs)
    ]
    results = ["Tensor[]" if a.form is Form.VARIADIC else "Tensor" for a in schema.outputs]
    gives = results[0] if len(results) == 1 else f"({', '.join(results)})"
    return f"{name}({_joined(arguments, schema)}) -> {gives}"


def into_schema(schema: OpSchema, name: str) -> str:
    """The op as a procedure that takes all of its tensors in the order of the signature, and writes its outputs.

    Raises:
        GraphError: EK0880, PyTorch lacks a dtype.
    """
    arguments = [_input(schema, argument, number) for number, argument in enumerate(schema.tensors)]
    return f"{name}({_joined(arguments, schema)}) -> ()"


def undetermined_outputs(schema: OpSchema) -> list[TensorArgument]:
    """The outputs whose sizes and dtype neither inputs nor parameters determine."""
    known = {a.dtype for a in schema.inputs}
    known |= {
        name
        for name, _ in schema.typevars
        if any(p.kind == "dtype" and p.name == name.lower() for p in schema.parameters)
    }
    names = {remark.argument for remark in undetermined_sizes(schema)}
    outputs = schema.outputs
    return [a for a in outputs if a.name in names or not (isinstance(a.dtype, DType) or a.dtype in known)]


def _joined(arguments: list[str], schema: OpSchema) -> str:
    parameters = [_parameter(schema, parameter) for parameter in schema.parameters]
    return ", ".join([*arguments, *(["*", *parameters] if parameters else [])])


def _input(schema: OpSchema, argument: TensorArgument, number: int) -> str:
    if isinstance(argument.dtype, DType) and argument.dtype not in SCALAR_TYPES:
        _refuse(schema, argument, f"has elements of {argument.dtype}, which PyTorch does not have", None)
    if argument.form is Form.SCALAR:
        kind = number_type(schema, argument)
        return f"{'SymInt' if kind == 'int' else kind} {argument.name}"
    changed = f"(a{number}!)" if argument.role is not Role.INPUT else ""
    return f"Tensor{changed}{'[]' if argument.form is Form.VARIADIC else ''} {argument.name}"


def number_type(schema: OpSchema, argument: TensorArgument) -> str:
    """What an argument that is a number is in schemas: float, int or bool; Scalar where it may be one or the other."""
    dtypes = schema.allowed(argument.dtype)
    if all(dtype.is_float() for dtype in dtypes):
        return "float"
    if all(dtype is DType.bool for dtype in dtypes):
        return "bool"
    return "int" if all(dtype.is_integral() and dtype is not DType.bool for dtype in dtypes) else "Scalar"


def has_symbols(schema: OpSchema) -> bool:
    """Whether a number of a call may be symbolic in traced programs: a size, or an integer that is passed."""
    sizes = any(parameter.name in _in_dims(schema) for parameter in schema.parameters)
    return sizes or any(a.form is Form.SCALAR and number_type(schema, a) == "int" for a in schema.inputs)


def _refuse(schema: OpSchema, argument: TensorArgument, what: str, hint: str | None) -> None:
    raise GraphError(
        f"op {schema.name!r} cannot be an op of PyTorch: argument {argument.name!r} {what}",
        code="EK0880",
        place=user_place(),
        op=schema.name,
        argument=argument.name,
        notes=[f"'{argument}' is declared at {argument.place}"] if argument.place else [],
        hint=hint,
    )


# *** parameters ***


def _parameter(schema: OpSchema, parameter: Parameter) -> str:
    kind = {"dtype": "ScalarType", "ints": "int[]"}.get(parameter.kind, parameter.kind)
    if parameter.name in _in_dims(schema):
        kind = "SymInt"
    if parameter.required:
        return f"{kind} {parameter.name}"
    default = _default(parameter.default)
    return f"{kind}? {parameter.name}=None" if default is None else f"{kind} {parameter.name}={default}"


def _default(value: object) -> str | None:
    """A default as schemas write it; None where they have no words for it."""
    if isinstance(value, tuple):
        return str(list(value))
    if isinstance(value, DType):
        return None if value not in SCALAR_TYPES else str(SCALAR_TYPES[value])
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _in_dims(schema: OpSchema) -> set[str]:
    """The names that stand in the dims of the signature: an int parameter among them is a size."""
    expressions: list[Expression] = []
    results: set[str] = set()
    for argument in schema.tensors:
        for item in parse_dims(argument.dims, argument.place):
            if isinstance(item, Axis):
                results.add(item.name)
            elif isinstance(item, Computed):
                expressions.append(item.expression)
            elif isinstance(item, Pack) and item.count is not None:
                continue  # a number of axes, which is never symbolic
    return results | {name.name for expression in expressions for name in names_in(expression)}
