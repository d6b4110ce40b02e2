"""Checks the auxiliary functions of a kernel: `@op.reference`, in NumPy, and `@op.shape`, in the language.

A shape function computes output dims that the inputs' types do not determine: it takes the op's inputs (and parameters,
as keywords), runs before the op, and returns one Int for each dim that it computes. It becomes a kernel of its own,
with an output that holds these numbers.

See also `signature.late_dims` (the schema of the kernel that computes them).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...diagnostics.errors import CompileError
from ...signature.late_dims import late_names
from ...signature.schema import Form, OpSchema
from ..base import Reference, place_of


def make_reference(schema: OpSchema, function: Callable[..., Any], kernel: str) -> Reference:
    """The reference that `function` is; `kernel` is the name of the kernel's own function.

    Raises:
        CompileError: EK0340 it cannot be called with the op's inputs and parameters.
    """
    parameters = check_auxiliary(schema, function, kernel, "reference")
    keywords = {p.name for p in schema.parameters}
    named = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    everything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return Reference(schema, function, frozenset(keywords if everything else keywords & named))


def late_dims(schema: OpSchema, function: Callable[..., Any], kernel: str) -> tuple[str, ...]:
    """The output dims that the shape function of an op computes: the named ones that no input and no parameter
    determines.

    Raises:
        CompileError: EK0340 the function cannot be called with the op's inputs, EK0342 there is nothing to compute.
    """
    check_auxiliary(schema, function, kernel, "shape")
    late = late_names(schema)
    if not late or any(a.form is Form.VARIADIC for a in schema.outputs):
        why = "every size of the outputs follows from the inputs" if not late else "one of its outputs is variadic"
        raise CompileError(
            f"op '{schema.name}' needs no shape function: {why}" if not late else f"op '{schema.name}': {why}",
            code="EK0342",
            place=place_of(function),
            op=schema.name,
            hint='a shape function computes axes with a name of their own, as k in OutputTensor[T, "k"]',
        )
    return late


def check_auxiliary(
    schema: OpSchema, function: Callable[..., Any], kernel: str, what: str
) -> tuple[inspect.Parameter, ...]:
    """The parameters of a function that stands next to a kernel and takes its inputs.

    Raises:
        CompileError: EK0340 it is not a function, hides the kernel, or takes other arguments.
    """

    def fail(message: str, hint: str) -> CompileError:
        place = place_of(function) or schema.place
        notes = [f"the op is defined at {schema.place}"]
        text = f"the {what} of op '{schema.name}' {message}"
        return CompileError(text, code="EK0340", place=place, op=schema.name, notes=notes, hint=hint)

    if not inspect.isfunction(function):
        raise fail("is not a function", f"put @{kernel}.{what} over a function defined with `def`")
    if function.__name__ == kernel:
        raise fail("has the name of the kernel, and would hide it", f"call it {kernel}_{what}")
    names = [a.name for a in schema.inputs]
    parameters = tuple(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    star = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [p for p in positional if p.default is p.empty]
    if len(needed) > len(names) or (len(positional) < len(names) and not star):
        listed = f"{', '.join(names)}" if names else "none"
        raise fail(
            f"takes other inputs than the op, whose inputs are {listed}",
            f"write def {function.__name__}({', '.join(names)}), and the parameters that it needs after a `*`",
        )
    known = {p.name for p in schema.parameters}
    for parameter in parameters:
        required = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if required and parameter.name not in known:
            hint = f"the op has {', '.join(sorted(known))}" if known else "the op has no parameters"
            raise fail(f"takes '{parameter.name}', which is not a parameter of the op", hint)
    return parameters
