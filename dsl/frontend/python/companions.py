"""What may stand beside a kernel: `@op.reference`, a NumPy function, and `@op.shape`, a function of the language.

A shape function computes output dims that the inputs' types do not tell: it takes the op's inputs (and parameters, as
keywords), runs before the op, and returns one Int for each dim that it computes. It becomes a kernel of its own, with
an output that holds these numbers.

A reference is for tests. It is called with the op's inputs as NumPy arrays, in the order of the signature (a tensor
that the kernel changes in place among them: the reference changes it in place too; a list for a variadic argument, a
NumPy scalar for a scalar), and with parameters as keywords. It returns an array for one output, a tuple for several,
nothing for none, and a list for a variadic one. Tuning parameters, on which no result depends, it may leave out.

Input: a schema and a function. Output: `Reference`; the names of late dims, and the schema of the kernel that computes
them. Non-goals: no comparison (that is `testing`), and a reference goes into no package's program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...diagnostics.errors import CompileError, EinkornError
from ...diagnostics.places import Place
from ...signature.late_dims import late_names
from ...signature.schema import Form, OpSchema


@dataclass(frozen=True, eq=False)
class Reference:
    """The reference of an op. `takes` are the parameters that it wants."""

    schema: OpSchema
    function: Callable[..., Any]
    takes: frozenset[str]

    def __call__(self, *inputs: Any, **parameters: Any) -> tuple[Any, ...]:
        """One array for each output of the op.

        Args:
            inputs: NumPy arrays in the order of `schema.inputs`; those that the op changes in place are changed.
            parameters: the op's parameters by name; those that the reference does not take are left out.

        Raises:
            EinkornError: EK0341 it does not return one array for each output. What it raises itself passes through.
        """
        given = {name: value for name, value in parameters.items() if name in self.takes}
        result = self.function(*inputs, **given)
        outputs = result if isinstance(result, tuple) else () if result is None else (result,)
        if len(outputs) != len(self.schema.outputs):
            raise EinkornError(
                f"the reference of op '{self.schema.name}' returns {_counted(len(outputs))}, "
                f"the op has {len(self.schema.outputs)}",
                code="EK0341",
                place=place_of(self.function),
                op=self.schema.name,
                expected=[a.name for a in self.schema.outputs],
                got=len(outputs),
                hint="return one array for each output, several as a tuple",
            )
        return outputs


def make_reference(schema: OpSchema, function: Callable[..., Any], kernel: str) -> Reference:
    """The reference that `function` is; `kernel` is the name of the kernel's own function.

    Raises:
        CompileError: EK0340 it cannot be called with the op's inputs and parameters.
    """
    parameters = check_companion(schema, function, kernel, "reference")
    keywords = {p.name for p in schema.parameters}
    named = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    everything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return Reference(schema, function, frozenset(keywords if everything else keywords & named))


def late_dims(schema: OpSchema, function: Callable[..., Any], kernel: str) -> tuple[str, ...]:
    """The output dims that the shape function of an op computes: the named ones that no input and no parameter tells.

    Raises:
        CompileError: EK0340 the function cannot be called with the op's inputs, EK0342 there is nothing to compute.
    """
    check_companion(schema, function, kernel, "shape")
    late = late_names(schema)
    if not late or any(a.form is Form.VARIADIC for a in schema.outputs):
        why = "the inputs tell every size of the outputs" if not late else "one of its outputs is variadic"
        raise CompileError(
            f"op '{schema.name}' needs no shape function: {why}" if not late else f"op '{schema.name}': {why}",
            code="EK0342",
            place=place_of(function),
            op=schema.name,
            hint='a shape function computes axes with a name of their own, as k in OutputTensor[T, "k"]',
        )
    return late


def check_companion(
    schema: OpSchema, function: Callable[..., Any], kernel: str, what: str
) -> tuple[inspect.Parameter, ...]:
    """The parameters of a function that stands beside a kernel and takes its inputs.

    Raises:
        CompileError: EK0340 it is no function, hides the kernel, or takes other arguments.
    """

    def fail(message: str, hint: str) -> CompileError:
        place = place_of(function) or schema.place
        notes = [f"the op is defined at {schema.place}"]
        text = f"the {what} of op '{schema.name}' {message}"
        return CompileError(text, code="EK0340", place=place, op=schema.name, notes=notes, hint=hint)

    if not inspect.isfunction(function):
        raise fail("is no function", f"put @{kernel}.{what} over a function defined with `def`")
    if function.__name__ == kernel:
        raise fail("has the name of the kernel, and would hide it", f"call it {kernel}_{what}")
    names = [a.name for a in schema.inputs]
    parameters = tuple(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    star = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [p for p in positional if p.default is p.empty]
    if len(needed) > len(names) or (len(positional) < len(names) and not star):
        shown = f"{', '.join(names)}" if names else "none"
        raise fail(
            f"takes other inputs than the op, whose inputs are {shown}",
            f"write def {function.__name__}({', '.join(names)}), and the parameters that it needs after a `*`",
        )
    known = {p.name for p in schema.parameters}
    for parameter in parameters:
        required = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if required and parameter.name not in known:
            hint = f"the op has {', '.join(sorted(known))}" if known else "the op has no parameters"
            raise fail(f"takes '{parameter.name}', which is no parameter of the op", hint)
    return parameters


def place_of(function: Callable[..., Any]) -> Place | None:
    """The line of a function's `def` (or of its first decorator)."""
    code = getattr(function, "__code__", None)
    return None if code is None else Place(code.co_filename, code.co_firstlineno)


def _counted(count: int) -> str:
    return {0: "nothing", 1: "one array"}.get(count, f"{count} arrays")
