"""Sorts what stands between the parentheses of a call: inputs by their places, `out=`, parameters by their names.

See also `kinds` (what the values are), `dsl.signature.parameters` (what values parameters take).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, did_you_mean, plural
from ...dsl.diagnostics.places import user_place
from ...dsl.signature.parameters import bind_parameters
from ...dsl.signature.schema import OpSchema
from ...dsl.signature.variadic import counted_inputs

OUT = "out"  # the keyword for the memory of outputs


@dataclass(frozen=True)
class BoundCall:
    """A call in order.

    Attributes:
        values: one for each tensor that goes in, those of variadic arguments one by one.
        counts: how many tensors each variadic input got.
        parameters: the value of every compile-time parameter.
        out: what was given as `out=`; None where nothing was.
        named: the names of the parameters that the call passes.
    """

    values: list[Any]
    counts: dict[str, int]
    parameters: dict[str, Any]
    out: Any
    named: frozenset[str] = frozenset()


def bind_call(schema: OpSchema, args: tuple[object, ...], kwargs: Mapping[str, object]) -> BoundCall:
    """What each part of a call is meant as.

    Raises:
        GraphError: EK0851 too many or too few arguments, or one by its name; EK0320 and further for parameters.
    """
    named = dict(kwargs)
    known = {p.name for p in schema.parameters}
    out = named.pop(OUT, None) if OUT not in known else None
    for name in named:
        if name not in known:
            _refuse_keyword(schema, name, known)
    _check_count(schema, args)
    place = user_place()
    try:
        parameters = bind_parameters(schema, named, place=place)
    except GraphError as error:
        if error.code == "EK0321":  # which has hints for graphs
            error.hint = f"write {_written(schema, [f'{error.argument}=...'])}"
        raise
    counts, values = counted_inputs(schema, args, parameters, place)
    return BoundCall(values, counts, parameters, out, frozenset(named))


def _check_count(schema: OpSchema, args: tuple[object, ...]) -> None:
    """Refuses too many arguments and too few; how many a variadic one takes is another question."""
    inputs = schema.inputs
    least = sum(1 for argument in inputs if argument not in schema.variadic)
    if len(args) < least:
        missing = [argument.name for argument in inputs if argument not in schema.variadic][len(args) :]
        listed = " and ".join(f"'{name}'" for name in missing)
        raise _wrong(schema, f"is called without {listed}", missing[0], len(inputs), len(args), None)
    if len(args) > len(inputs) and not schema.variadic:
        takes = (
            f"takes {plural(len(inputs), 'argument')} ({', '.join(a.name for a in inputs)}), and {len(args)} are given"
        )
        parameters = [f"{p.name}={value!r}" for p, value in zip(schema.parameters, args[len(inputs) :], strict=False)]
        plain = all(isinstance(value, bool | int | float | complex | str) for value in args[len(inputs) :])
        hint = None
        if parameters and plain:
            hint = f"compile-time parameters are given by their names: {_written(schema, parameters)}"
        elif len(args) <= len(inputs) + len(schema.outputs):
            hint = f"outputs are returned, or written to out=: {_written(schema, ['out=...'])}"
        raise _wrong(schema, takes, None, len(inputs), len(args), hint)


def _refuse_keyword(schema: OpSchema, name: str, parameters: set[str]) -> None:
    inputs, outputs = [a.name for a in schema.inputs], [a.name for a in schema.outputs]
    if name in inputs:
        text, hint = f"takes '{name}' by its place, not by its name", f"write {_written(schema, [])}"
    elif name in outputs:
        text = f"has no parameter '{name}', which is an output"
        hint = f"pass the memory for outputs as out=: {_written(schema, ['out=...'])}"
    else:
        listed = f"its parameters are {', '.join(sorted(parameters))}" if parameters else "it has no parameters"
        text, hint = f"has no parameter '{name}': {listed}", did_you_mean(name, [*sorted(parameters), OUT]) or ""
    raise _wrong(schema, text, name, sorted(parameters), name, hint)


def _written(schema: OpSchema, rest: list[str]) -> str:
    """A call as it could be written."""
    short = schema.name.rpartition("::")[2]
    return f"{short}({', '.join([*(a.name for a in schema.inputs), *rest])})"


def _wrong(
    schema: OpSchema, text: str, argument: str | None, expected: object, got: int | str, hint: str | None
) -> GraphError:
    return GraphError(
        f"op '{schema.name}' {text}",
        code="EK0851",
        place=user_place(),
        op=schema.name,
        argument=argument,
        expected=expected,
        got=got,
        hint=hint or None,
    )
