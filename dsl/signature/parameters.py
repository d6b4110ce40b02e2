"""Binds the compile-time parameters of a call: checks the given ones, and takes defaults for the rest."""

from __future__ import annotations

import numbers
import operator
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ..diagnostics.errors import GraphError, did_you_mean, nearest, of_call
from ..diagnostics.places import Place
from ..types.dtype import DType
from .schema import OpSchema, Parameter


def bind_parameters(schema: OpSchema, given: Mapping[str, object], *, place: Place | None = None) -> dict[str, Any]:
    """The value of every parameter, in the schema's order: the given ones checked, defaults for the rest.

    An int is taken for a float that holds it exactly; a bool is not an int. NumPy's scalars count as the Python values
    that they hold.

    Raises:
        GraphError: EK0320 unknown, EK0321 missing, EK0322 ill-typed parameter.
    """
    known = {p.name: p for p in schema.parameters}
    errors: list[GraphError] = []
    for name in given:
        if name not in known:
            has = f"its parameters are {', '.join(known)}" if known else "it has no parameters"
            text = f"there is no parameter {name!r}; {has}"
            errors.append(_wrong_parameter(schema, text, name, place, "EK0320", list(known)))
    # A misspelt name may be that of a missing one.
    missing = [p for p in schema.parameters if p.required and p.name not in given] if not errors else []
    if missing:
        names = ", ".join(f"{p.name}: {kind_name(p.kind)}" for p in missing)
        noun = "parameter" if len(missing) == 1 else "parameters"
        error = _wrong_parameter(schema, f"missing {noun} {names}", missing[0].name, place, "EK0321")
        written = ", ".join(f'"{p.name}": {_SAMPLES[p.kind][0]}' for p in missing)
        options = " ".join(f"--param {p.name}={_SAMPLES[p.kind][1]}" for p in missing)
        error.hint = f"in a graph for example parameters={{{written}}}, on the command line {options}"
        errors.append(error)
    values = {p.name: p.default for p in schema.parameters}
    for name in (name for name in values if name in given):
        try:
            values[name] = _checked(schema, known[name], given[name], place)
        except GraphError as error:
            errors.append(error)
    if errors:
        raise of_call(errors)
    return values


def identity(value: object) -> tuple[str, str]:
    """What distinguishes values of parameters: 1, 1.0 and True are three of them, and 0.0 is not -0.0.

    A dtype and its name, which stands for it in packages, are one.
    """
    if isinstance(value, DType):
        return "str", value.name
    if isinstance(value, float):
        return "float", struct.pack("<d", value).hex()
    return type(value).__name__, str(value)


def kind_name(kind: str) -> str:
    """A kind of parameters as signatures write it."""
    return {"ints": "tuple[int, ...]"}.get(kind, kind)


_SAMPLES = {  # by the kind of a parameter: in Python, and on the command line
    "int": ("8", "8"),
    "float": ("0.5", "0.5"),
    "bool": ("True", "true"),
    "str": ('"..."', "..."),
    "dtype": ("DType.float32", "float32"),
    "ints": ("(1, 2)", "1,2"),
}


def _checked(schema: OpSchema, parameter: Parameter, value: object, place: Place | None) -> Any:
    converted = _convert(parameter.kind, value)
    if converted is not None:
        return converted
    hint = None
    if parameter.kind == "dtype":
        hint = f"write DType.{value}" if isinstance(value, str) and value in DType.__members__ else None
    elif parameter.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        hint = "no float holds this integer exactly"
    raise GraphError(
        f"op {schema.name!r}: parameter {parameter.name!r} is {kind_name(parameter.kind)}, but got {value!r}"
        f" ({type(value).__name__})",
        code="EK0322",
        place=place,
        op=schema.name,
        argument=parameter.name,
        expected=kind_name(parameter.kind),
        got=type(value).__name__,
        hint=hint,
    )


def _convert(kind: str, value: object) -> Any:
    """The value as a plain Python one of the kind, or None when it is of another kind."""
    is_bool = isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    if kind == "bool":
        return bool(value) if is_bool else None
    if kind == "str":
        return str(value) if isinstance(value, str) else None
    if kind == "dtype":
        return value if isinstance(value, DType) else None
    if is_bool:
        return None
    if kind == "ints":
        listed = isinstance(value, tuple | list)
        numbers_in = [_convert("int", each) for each in value] if listed else [None]  # type: ignore[attr-defined]
        return None if None in numbers_in else tuple(numbers_in)
    if kind == "float" and isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return float(value)
    try:
        integer = operator.index(value)  # type: ignore[arg-type]  # the TypeError is the answer
        if kind == "int":
            return integer
        return float(integer) if float(integer) == integer else None
    except (TypeError, OverflowError):
        return None


def _wrong_parameter(
    schema: OpSchema, message: str, name: str, place: Place | None, code: str, known: Sequence[str] = ()
) -> GraphError:
    return GraphError(
        f"op {schema.name!r}: {message}",
        code=code,
        place=place,
        op=schema.name,
        argument=name,
        hint=did_you_mean(name, known),
        expected=nearest(name, known) or None,
    )
