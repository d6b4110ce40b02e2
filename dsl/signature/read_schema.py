"""Reads the contract of an op from JSON: what `OpSchema.to_json` wrote, and only what a signature can say.

Two things read schemas: the manifest of a package, and the portable program of an op. `read_schema` looks at the form:
fields, types, kinds, dtypes. `declared` looks at what a signature under `@register` is held to as well: names, dims,
outputs; the manifest wants both, a program has the manifest's schema or one that was made of it.

Raises: `Misread`, with the place.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ..diagnostics.errors import EinkornError
from ..diagnostics.json_reading import Misread, expected, identifier, switch, text
from .check import schema_mistakes
from .dims import DimNumber, Pack
from .late_dims import late_names
from .parse_dims import parse_dims
from .schema import PARAMETER_KINDS, Form, OpSchema, Role, TensorArgument

FASTMATH = ("contract", "reassoc")
MAX_RANK = 64  # axes of a tensor; NumPy has as many
MAX_TENSORS = 1024  # of a variadic argument whose number the signature says
MAX_DIMS = 10_000  # characters of a dims text


def read_schema(data: object, strict: bool = True) -> OpSchema:
    """The schema in a JSON value; where not `strict`, what is not known in it is passed over."""
    if type(data) is not dict:
        expected("an object", data)
    if "name" not in data:
        raise Misread("lacks 'name'")
    called = _at(".name", text, data["name"])
    try:
        schema = OpSchema.from_json(data)
        again = json.loads(json.dumps(schema.to_json()))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"of op {called!r} has a missing or an unsupported member: {error}"
        raise Misread(what) from None
    _typed(schema, "")
    for number, argument in enumerate(schema.arguments):
        _typed(argument, f".arguments[{number}]")
    for number, parameter in enumerate(schema.parameters):
        at = f".parameters[{number}]"
        _typed(parameter, at)
        if parameter.kind not in PARAMETER_KINDS:
            raise Misread(f"should be one of {', '.join(PARAMETER_KINDS)}").below(f"{at}.kind")
        if not parameter.required and type(parameter.default) is not PARAMETER_KINDS[parameter.kind]:
            _wrong(f"{at}.default", f"a value of kind {parameter.kind}", parameter.default)
    for called, dtypes in schema.typevars:
        if not dtypes or len(set(dtypes)) != len(dtypes):
            raise Misread("should be dtypes, each of them once").below(f".typevars.{called}")
    for called, reads in (*schema.reads, *schema.counts):
        if type(reads) is not int or reads < 0:
            _wrong(f".reads.{called}", "an integer from 0", reads)
    if strict and (where := difference(data, again, "")):
        raise Misread("is not a member of a schema").below(where)
    return schema


def _at(at: str, read: Any, data: Any) -> Any:
    """Reads a value that stands at `.name` or `[3].name`."""
    try:
        return read(data)
    except Misread as wrong:
        raise wrong.below(at) from None


def _wrong(at: str, what: str, got: object) -> None:
    _at(at, lambda data: expected(what, data), got)


def _typed(value: Any, at: str) -> None:
    """The fields of a dataclass that are text or switches must hold such."""
    for item in dataclasses.fields(value):
        read = {"str": text, "bool": switch}.get(str(item.type))
        if read:
            _at(f"{at}.{item.name}", read, getattr(value, item.name))


def declared(schema: OpSchema) -> None:
    """Holds a schema to what a signature is held to when its op is registered."""
    for part in (*schema.arguments, *schema.parameters):
        _at(".arguments", identifier, part.name)
    for called, _ in schema.typevars:
        _at(".typevars", identifier, called)
    if schema.counts or any(argument.group for argument in schema.tensors):
        raise Misread("is of a call, not of an op: its variadic arguments are spelled out")
    if all(argument.role is Role.INPUT for argument in schema.tensors):
        raise Misread("has no output")
    if wrong := [flag for flag in schema.fastmath if flag not in FASTMATH]:
        raise Misread(f"has an unknown flag, {wrong[0]!r}").below(".fastmath")
    if wrong := [called for called, _ in schema.reads if called not in {a.name for a in schema.tensors}]:
        raise Misread(f"names {wrong[0]!r}, which is not an argument").below(".reads")
    try:
        if any(len(argument.dims) > MAX_DIMS for argument in schema.tensors):
            raise Misread("has a dims text that is too long")
        mistakes = schema_mistakes(schema)
    except RecursionError:
        raise Misread("has dims that are nested too deeply") from None
    except EinkornError as error:
        mistakes = [error]  # type: ignore[list-item]
    if mistakes:
        raise Misread(f"is wrong: {mistakes[0].message}")
    for argument in schema.tensors:
        _bounded(argument)
    if schema.late and tuple(schema.late) != late_names(schema):
        raise Misread("are not the dims that only a shape function can compute").below(".late")


def _bounded(argument: TensorArgument) -> None:
    """What an argument says of numbers of axes and of tensors must be of this world."""
    if argument.form is Form.SCALAR and argument.dims:
        raise Misread(f"has a scalar with axes, {argument.name!r}")
    items = parse_dims(argument.dims)
    counts = [item.count.value for item in items if isinstance(item, Pack) and isinstance(item.count, DimNumber)]
    if len(items) > MAX_RANK or any(number > MAX_RANK for number in counts):
        raise Misread(f"has an argument of more than {MAX_RANK} axes, {argument.name!r}")
    if argument.count.isdecimal() and (len(argument.count) > 4 or int(argument.count) > MAX_TENSORS):
        raise Misread(f"has an argument of more than {MAX_TENSORS} tensors, {argument.name!r}")


def difference(left: object, right: object, at: str) -> str | None:
    """The path of the first place where two JSON values differ, or None; 1, 1.0 and true are three values."""
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = [(left.get(key, ...), right.get(key, ...), f"{at}.{key}") for key in sorted({*left, *right})]
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = [(a, b, f"{at}[{i}]") for i, (a, b) in enumerate(zip(left, right, strict=True))]
    else:
        return None if type(left) is type(right) and (left == right or left != left) else at
    return next(filter(None, (difference(*pair) for pair in pairs)), None)
