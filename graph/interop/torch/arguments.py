"""Says what is wrong with the arguments of an op, where PyTorch's dispatcher has refused them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ....dsl.diagnostics.errors import DTypeError, GraphError, plural, shown_value
from ....dsl.diagnostics.places import user_place
from ....dsl.signature.parameters import bind_parameters
from ....dsl.signature.schema import Form, OpSchema, TensorArgument


def explained(
    schema: OpSchema,
    arguments: Sequence[TensorArgument],
    error: Exception,
    given: Sequence[object],
    named: Mapping[str, object],
) -> Exception:
    """The error to raise."""
    places = {argument.name: argument for argument in arguments}
    values = dict(zip(places, given, strict=False)) | {n: v for n, v in named.items() if n in places}
    parameters = {name: value for name, value in named.items() if name not in places}
    if len(given) > len(arguments) or len(values) < len(arguments):
        return _wrong_number(schema, arguments, len(values) if len(given) <= len(arguments) else len(given))
    try:
        bind_parameters(schema, parameters, place=user_place())
    except GraphError as wrong:
        return wrong
    for name, value in values.items():
        wanted = _misfit(schema, places[name], value)
        if wanted is not None:
            return DTypeError(
                f"op {schema.name!r}: argument {name!r} takes {wanted}, not {_shown(value)}",
                code="EK0452",
                place=user_place(),
                op=schema.name,
                argument=name,
                expected=wanted,
                got=type(value).__name__,
                notes=[f"'{places[name]}' is declared at {places[name].place}"] if places[name].place else [],
                hint=_way(value, wanted),
            )
    return error


def _shown(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return shown_value(value)
    return "a nested one" if value.is_nested else f"one of layout {value.layout}"


def _way(value: object, wanted: str) -> str | None:
    if isinstance(value, torch.Tensor):
        return "nested tensors have parts: call the op on each" if value.is_nested else "write it out: x.to_dense()"
    return "make one of it: torch.as_tensor(x)" if "torch.Tensor" in wanted else None


def _wrong_number(schema: OpSchema, arguments: Sequence[TensorArgument], got: int) -> GraphError:
    names = f" ({', '.join(argument.name for argument in arguments)})" if arguments else ""
    parameters = [parameter.name for parameter in schema.parameters]
    return GraphError(
        f"op {schema.name!r} takes {plural(len(arguments), 'argument')}{names}, but got {got}",
        code="EK0310",
        place=user_place(),
        op=schema.name,
        expected=len(arguments),
        got=got,
        hint=f"parameters are named: {parameters[0]}=..." if parameters and got > len(arguments) else None,
    )


def _misfit(schema: OpSchema, argument: TensorArgument, value: object) -> str | None:
    """What an argument takes, where that is not what it gets."""
    if argument.form is Form.SCALAR:
        if type(value) is complex and not any(dtype.is_complex() for dtype in schema.allowed(argument.dtype)):
            return "a real number"
        return None if isinstance(value, bool | int | float) or type(value) is complex else "a number"
    if argument.form is Form.VARIADIC:
        fits = isinstance(value, list | tuple) and all(isinstance(each, torch.Tensor) for each in value)
        return None if fits else "a list of torch.Tensors"
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested
    return None if plain else "a dense torch.Tensor" if isinstance(value, torch.Tensor) else "a torch.Tensor"
