"""Makes functions of kernels that are called inside of code that numba compiles: `einkorn.numba.function`.

Dtypes and ranks are chosen when numba compiles the caller. What it then compiles is a few lines of Python, written
here: they read sizes, check what the signature says twice, allocate the outputs, and make one native call of the entry.
The addresses in it are those of this process, so numba keeps no such code in its cache. Where native code cannot call
the entry, the lines call the kernel by Python: sizes that are computed from elements, intermediate results in memory,
`checks="all"`, `EINKORN_DOORS=0`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numba
import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.places import user_place
from ...dsl.signature.dims import Computed, DimName, DimNumber, DimOperation, Expression, FunctionCall, Negate
from ...dsl.signature.parameters import bind_parameters
from ...dsl.signature.parse_dims import parse_dims
from ...dsl.signature.schema import Form, OpSchema
from ...dsl.types.dtype import DType
from ..staging.kernels import Extensions
from ..types.dims import Dim, StaticDim, SymbolicDim
from ..types.tensor_type import ShapedType
from .direct import run
from .foreign_calls import KeptError, keep_error
from .kernels import kernel_named
from .kinds import operand_of
from .numba_calls import is_native, native_call, overlap, refusal
from .specialise import AnyKernel, Specialisation, specialise
from .tuned import Bounds, choices

# A number of each is as weak as Python's.
_FAMILIES = ((types.Boolean, False), (types.Integer, 0), (types.Float, 0.0), (types.Complex, 0j))


def function(kernel: AnyKernel | str, *, extensions: Extensions = (), **parameters: Any) -> Callable[..., Any]:
    """A kernel as a function for `@numba.njit`, `nogil` and `prange` among it: it takes the inputs, and gives back the
    outputs: one array, a tuple of several, or None.

    Args:
        kernel: what `@register` gives, or the name of an op of `extensions`.
        extensions: folders of kernel files, single files, packages, or what `einkorn.load` gives.
        parameters: compile-time parameters of the kernel. Those of kind int, bool and str may be keywords of a call,
            too, where they are literals.

    Raises:
        PackageError: EK0440 there is no op of that name.
        GraphError: parameters do not fit.
    """
    result = kernel_named(kernel, extensions)
    schema = result.schema
    fixed = dict(parameters)
    open_parameters = [p for p in schema.parameters if p.name not in fixed]
    bind_parameters(
        schema, fixed | {p.name: _sample(p.kind) for p in open_parameters if p.required}, place=user_place()
    )
    stub = NumbaFunction(result, fixed)
    names = [*_arguments(schema), *(f"{p.name}=None" for p in open_parameters)]
    named = [p.name for p in open_parameters]
    typed = _defined(
        f"def {_identifier(schema)}({', '.join(names)}):\n"
        f"    return choose(({', '.join([*_arguments(schema), ''])}), {{{', '.join(f'{n!r}: {n}' for n in named)}}})\n",
        {"choose": lambda inputs, given: _chosen(result, fixed, named, inputs, given)},
    )
    overload(stub, prefer_literal=True, inline="never")(typed)
    return stub


def _sample(kind: str) -> Any:
    return {"bool": True, "int": 1, "float": 1.0, "str": "", "dtype": DType.float32, "ints": (1, 2)}[kind]


def _identifier(schema: OpSchema) -> str:
    return schema.name.replace("::", "_")


def _arguments(schema: OpSchema) -> list[str]:
    return [argument.name for argument in schema.inputs]


class NumbaFunction:
    """A kernel as a function for `@numba.njit`; called by Python it is a direct call.

    An object, and no function, so that it can be pickled: what reads it calls `function` again.
    """

    def __init__(self, kernel: AnyKernel, fixed: Mapping[str, object]) -> None:
        self.kernel, self.fixed = kernel, dict(fixed)
        self.__name__ = self.__qualname__ = _identifier(kernel.schema)
        self.__doc__ = kernel.schema.doc

    def __call__(self, *args: Any, **parameters: Any) -> Any:
        return self.kernel(*args, **{**self.fixed, **parameters})

    def __reduce__(self) -> tuple[Any, ...]:
        return _function_again, (self.kernel, self.fixed)

    def __copy__(self) -> NumbaFunction:
        return self

    def __deepcopy__(self, memo: object) -> NumbaFunction:
        return self

    def __repr__(self) -> str:
        return f"<einkorn.numba.function {self.__name__}>"


def _function_again(kernel: AnyKernel, parameters: Mapping[str, Any]) -> Callable[..., Any]:
    return function(kernel, **parameters)


def _defined(text: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function that a text defines."""
    exec(compile(text, "<einkorn.numba>", "exec"), names)
    made: Callable[..., Any] = names[text.split("(")[0].removeprefix("def ")]
    return made


# *** callbacks of numba's compilation ***


def _chosen(
    kernel: AnyKernel, fixed: Mapping[str, Any], named: Sequence[str], inputs: tuple[Any, ...], given: Any
) -> Callable[..., Any]:
    """The implementation for arguments of these types."""
    schema = kernel.schema
    try:
        parameters = dict(fixed) | {n: v for n, v in ((n, _literal(schema, n, t)) for n, t in given.items()) if v != ()}
        kinds = [_kind(schema, number, type) for number, type in enumerate(inputs)]
        made = specialise(kernel, kinds, parameters)
        _check_mutable(made, inputs)
        return _by_sizes(choices(made, parameters), named, inputs)
    except EinkornError as error:  # numba tries its types, and shows the texts of TypingErrors
        raise TypingError(str(error)) from error


def _literal(schema: OpSchema, name: str, type: object) -> Any:
    """The value of a parameter; () where it is left out."""
    if type is None or isinstance(type, types.NoneType):
        return ()
    if isinstance(type, types.Omitted):
        return () if type.value is None else type.value
    if isinstance(type, types.Literal):
        return type.literal_value
    raise TypingError(
        f"op '{schema.name}': parameter '{name}' is not known when numba compiles the call, it is {type}; say it where"
        f" the function is made: einkorn.numba.function({_identifier(schema)}, {name}=...)"
    )


def _kind(schema: OpSchema, number: int, type: object) -> Any:
    """Dtype and rank of an argument, or a number where it is one."""
    argument = schema.inputs[number]
    type = types.unliteral(type)
    if argument.form is Form.VARIADIC:
        if not isinstance(type, types.BaseTuple):
            raise TypingError(_wrong(schema, argument.name, "takes a tuple of arrays", type))
        return [_kind_of_array(schema, f"{argument.name}[{k}]", each) for k, each in enumerate(type)]
    for family, weak in _FAMILIES:
        if isinstance(type, family):
            return weak
    return _kind_of_array(schema, argument.name, type)


def _kind_of_array(schema: OpSchema, name: str, type: object) -> tuple[DType, int]:
    if not isinstance(type, types.Array):
        raise TypingError(_wrong(schema, name, "takes an array or a number", type))
    if type.layout != "C" and type.ndim:
        text = _wrong(schema, name, "takes a C-contiguous array", type)
        raise TypingError(f"{text}: copy it with np.ascontiguousarray({name})")
    if not type.aligned:
        raise TypingError(_wrong(schema, name, "takes an aligned array", type))
    try:
        return DType.from_numpy(numba.np.numpy_support.as_dtype(type.dtype)), type.ndim
    except (EinkornError, NotImplementedError):
        raise TypingError(_wrong(schema, name, "takes an array of a dtype that kernels support", type)) from None


def _wrong(schema: OpSchema, name: str, takes: str, type: object) -> str:
    return f"op '{schema.name}': '{name}' {takes}, not {type}"


def _check_mutable(made: Specialisation, inputs: Sequence[Any]) -> None:
    flat = [each for type in inputs for each in (type if isinstance(type, types.BaseTuple) else (type,))]
    for number in made.mutable:
        if isinstance(flat[number], types.Array) and not flat[number].mutable:
            name = made.schema.inputs[number].name
            raise TypingError(
                _wrong(made.schema, name, "is changed in place, and takes a writable array", flat[number])
            )


# *** the lines that numba compiles ***


def _by_sizes(
    choices: Sequence[tuple[Specialisation, Bounds]], named: Sequence[str], inputs: Sequence[object]
) -> Callable[..., Any]:
    """The implementation: of a tuned kernel, the one that is chosen for the sizes of a call."""
    if len(choices) == 1:
        return _implementation(choices[0][0], named, inputs)
    made = choices[-1][0]
    arguments = _arguments_of(inputs, made)
    text = functools.partial(_python, {name: str(value) for name, value in made.names.integers.items()})
    lines = list(_symbols(made, [name for name, _ in arguments]))
    chosen: dict[Specialisation, str] = {}
    given = ", ".join(_arguments(made.kernel.schema))
    for each, bounds in choices:
        name = chosen.setdefault(each, f"ek_choice{len(chosen)}")
        conditions = " and ".join(f"{low} <= {text(_expression(size))} <= {high}" for size, low, high in bounds)
        lines.append(f"{f'if {conditions}: ' if conditions else ''}return {name}({given})")
    functions = {name: numba.njit(_implementation(each, (), inputs)) for each, name in chosen.items()}
    return _written(made, named, lines, functions)


def _implementation(made: Specialisation, named: Sequence[str], inputs: Sequence[object]) -> Callable[..., Any]:
    """A function in Python that numba compiles for the call."""
    arguments = _arguments_of(inputs, made)
    if not is_native(made):
        return _by_python(made, named, arguments)
    arrays = [name for name, is_array in arguments if is_array]
    text = functools.partial(_python, {name: str(value) for name, value in made.names.integers.items()})
    lines = list(_checks(made, arguments, text))
    for number, sizes in enumerate(made.output_sizes):
        shape = ", ".join([*(text(size) for size in sizes), ""])
        shape = f"({shape})" if sizes else "()"
        lines.append(f"ek_out{number} = ek_empty({shape}, ek_dtype{number})")
    outputs = [f"ek_out{number}" for number in range(len(made.outputs))]
    count = " + ".join(f"{name}.size" for name in outputs or arrays) or "1"
    slots = [text(_expression(slot)) for slot in made.plan.slots]
    given = ", ".join([count, *(name for name, _ in arguments), *outputs, *slots])
    lines += [f"if ek_call({given}):", "    raise ek_KeptError()"]
    names: dict[str, Any] = {
        "ek_call": native_call(made, len(arguments), len(outputs), len(slots)),
        "ek_refuse": refusal(made, sum(type.rank for type in made.inputs)),
        "ek_overlap": overlap,
        "ek_KeptError": KeptError,
        "ek_empty": np.empty,
        **{f"ek_dtype{k}": type.dtype.to_numpy() for k, type in enumerate(made.outputs)},
    }
    return _written(made, named, [*lines, f"return {_listed(outputs)}"], names)


def _by_python(made: Specialisation, named: Sequence[str], arguments: Sequence[tuple[str, bool]]) -> Callable[..., Any]:
    """The same for an entry that native code cannot call as it is: the call is a direct one, made by Python."""
    outputs = [f"ek_out{k}" for k in range(len(made.outputs))]
    kinds = {f"ek_type{k}": _array_type(type) for k, type in enumerate(made.outputs)}
    schema = made.schema

    def call(*values: object) -> Any:
        names = [argument.name for argument in schema.inputs]
        try:
            results = run(made, [operand_of(v, schema.name, n) for v, n in zip(values, names, strict=True)])
        except BaseException as error:  # a `try` in the code around this catches exceptions of numba's alone
            keep_error(error)
            return (True, *(np.empty((0,) * type.rank, type.dtype.to_numpy()) for type in made.outputs))
        flat = results if isinstance(results, tuple | list) else (results,) if outputs else ()
        arrays = (np.asarray(each) for part in flat for each in (part if isinstance(part, list) else (part,)))
        return (False, *arrays)

    results = ", ".join(
        f"{name}={kind}" for name, kind in zip(("ek_failed", *outputs), ("ek_bool", *kinds), strict=True)
    )
    called = f"ek_python({', '.join(name for name, _ in arguments)})"
    lines = [f"with objmode({results}):", f"    {', '.join(['ek_failed', *outputs])}, = {called}"]
    lines += ["if ek_failed:", "    raise ek_KeptError()", f"return {_listed(outputs)}"]
    names = {"objmode": numba.objmode, "ek_python": call, "ek_KeptError": KeptError, "ek_bool": types.boolean}
    return _written(made, named, lines, {**names, **kinds})


def _array_type(type: ShapedType) -> Any:
    return types.Array(numba.np.numpy_support.from_dtype(type.dtype.to_numpy()), type.rank, "C")


def _listed(outputs: Sequence[str]) -> str:
    """What is given back."""
    return outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})" if outputs else "None"


def _written(
    made: Specialisation, named: Sequence[str], lines: Sequence[str], names: dict[str, Any]
) -> Callable[..., Any]:
    """The function of these lines."""
    head = ", ".join([*_arguments(made.kernel.schema), *(f"{name}=None" for name in named)])
    code = f"def {_identifier(made.schema)}({head}):\n" + "".join(f"    {line}\n" for line in lines)
    return _defined(code, names)


def _arguments_of(inputs: Sequence[object], made: Specialisation) -> list[tuple[str, bool]]:
    """How each tensor is written in the function, and whether it is an array."""
    results = []
    for argument, type in zip(made.kernel.schema.inputs, inputs, strict=True):
        type = types.unliteral(type)
        if isinstance(type, types.BaseTuple):
            results += [(f"{argument.name}[{k}]", True) for k in range(len(type))]
        else:
            results.append((argument.name, isinstance(type, types.Array)))
    return results


def _checks(
    made: Specialisation, arguments: Sequence[tuple[str, bool]], text: Callable[[Expression], str]
) -> Iterator[str]:
    """Lines that read the sizes, and refuse those that contradict the signature, and memory that is shared."""
    names = [name for name, _ in arguments]
    sizes = ", ".join(f"{name}.shape[{k}]" for name, t in zip(names, made.inputs, strict=True) for k in range(t.rank))
    yield from _symbols(made, names)
    conditions = list(_countable(made, text))
    for number, axes in enumerate(made.names.inputs):
        for axis, size in enumerate(axes):
            if made.symbols.get(str(size)) != (number, axis):
                known = size if isinstance(size, int) else _PREFIX + size
                conditions.append(f"{names[number]}.shape[{axis}] == {known}")
    for (number, axis), expression in made.names.computed.items():
        conditions.append(f"{names[number]}.shape[{axis}] == {text(expression)}")
    for rule in made.constraints:
        sign = ">=" if rule.kind == "at_least" else "=="
        conditions.append(f"{text(_expression(rule.left))} {sign} {text(_expression(rule.right))}")
    computed = [size for output in made.output_sizes for size in output if not isinstance(size, DimName | DimNumber)]
    conditions += [f"{text(size)} >= 0" for size in computed]
    if conditions:
        yield f"if not ({' and '.join(dict.fromkeys(conditions))}):"
        yield f"    ek_refuse(-1, -1, {sizes})"
        yield "    raise ek_KeptError()"
    for changed in made.mutable:
        for other, (_, is_array) in enumerate(arguments):
            if other != changed and is_array:
                yield f"if ek_overlap({names[changed]}, {names[other]}):"
                yield f"    ek_refuse({changed}, {other}, {sizes})"
                yield "    raise ek_KeptError()"


def _symbols(made: Specialisation, names: Sequence[str]) -> Iterator[str]:
    """Lines that read the sizes of symbolic dims; `names` are those of the tensors."""
    for symbol, (number, axis) in made.symbols.items():
        yield f"{_PREFIX}{symbol} = {names[number]}.shape[{axis}]"


MAX_SIZE: Final = 9.2e18  # a product of sizes in floats: below 2**63 by more than they may be wrong


def _countable(made: Specialisation, text: Callable[[Expression], str]) -> Iterator[str]:
    """Conditions under which no size that is computed by a product needs more than 64 bits: the same in floats."""
    rules = [side for rule in made.constraints for side in (rule.left, rule.right)]
    sizes = [size for output in made.output_sizes for size in output]
    for size in (*sizes, *map(_expression, (*rules, *made.plan.slots))):
        parts = list(_parts(size))
        if any(isinstance(part, DimOperation) and part.operator == "*" for part in parts):
            yield from (
                f"abs({_in_floats(text, part)}) < {MAX_SIZE}" for part in parts if isinstance(part, DimOperation)
            )


def _parts(expression: Expression) -> Iterator[Expression]:
    """An expression, and all that it is made of; operands come first."""
    match expression:
        case Negate(operand):
            yield from _parts(operand)
        case DimOperation(_, left, right):
            yield from (*_parts(left), *_parts(right))
        case FunctionCall(_, arguments):
            for argument in arguments:
                yield from _parts(argument)
    yield expression


def _in_floats(text: Callable[[Expression], str], expression: Expression) -> str:
    """An operation, of its operands as floats: these have been looked at before."""
    assert isinstance(expression, DimOperation)
    return f"float({text(expression.left)}) {expression.operator} float({text(expression.right)})"


_PREFIX = "ek_size_"


def _expression(dim: Dim) -> Expression:
    """A dim of a graph as an expression of the dims language, in which it prints."""
    if isinstance(dim, SymbolicDim):
        return DimName(dim.name)
    if isinstance(dim, StaticDim):
        return DimNumber(int(dim))
    (item,) = parse_dims(f"({dim})")
    return item.expression if isinstance(item, Computed) else DimName(str(item))


def _python(integers: Mapping[str, str], expression: Expression) -> str:
    """An expression of the dims language in Python, whose sign rules it has."""
    text = functools.partial(_python, integers)
    match expression:
        case DimNumber(value):
            return str(value)
        case DimName(name):
            return integers.get(name) or _PREFIX + name
        case Negate(operand):
            return f"(-{text(operand)})"
        case DimOperation(operator, left, right):
            return f"({text(left)} {operator} {text(right)})"
        case FunctionCall("ceildiv", (left, right)):
            return f"(-(-{text(left)} // {text(right)}))"
        case FunctionCall(name, arguments):
            return text(arguments[0]) if len(arguments) == 1 else f"{name}({', '.join(map(text, arguments))})"
