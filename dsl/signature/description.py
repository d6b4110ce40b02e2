"""Describes an op to people and their tools: its call in one line, Python's own signature, what `help` shows."""

from __future__ import annotations

import inspect
from typing import Any

from ..types.dtype import DType
from .parameters import kind_name
from .schema import Form, OpSchema, Parameter, TensorArgument


def call_text(schema: OpSchema) -> str:
    """`matmul(a: T["m k"], b: T["k n"], *, block: int = 64) -> out: T["m n"]`."""
    inputs = [f"{a.name}: {tensor_text(a)}" for a in schema.inputs]
    parameters = [f"{p.name}: {kind_text(p)}{'' if p.required else f' = {value_text(p)}'}" for p in schema.parameters]
    if parameters:
        inputs += ["*", *parameters]
    outputs = [f"{a.name}: {tensor_text(a)}" for a in schema.outputs]
    result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
    return f"{schema.name}({', '.join(inputs)}) -> {result}"


def tensor_text(argument: TensorArgument) -> str:
    """A scalar is written by its type, one of several tensors with an ellipsis behind it."""
    annotation = str(argument).partition(": ")[2]
    if argument.form is Form.SCALAR:
        return annotation
    return f'{argument.dtype}["{argument.dims}"]{"..." if argument.form is Form.VARIADIC else ""}'


def kind_text(parameter: Parameter) -> str:
    return "DType" if parameter.kind == "dtype" else kind_name(parameter.kind)


def value_text(parameter: Parameter) -> str:
    value = parameter.default
    return value.name if isinstance(value, DType) else repr(value)


class _Text(str):
    """An annotation or a default that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def python_signature(schema: OpSchema) -> inspect.Signature:
    """How a kernel is called from Python: inputs by position, parameters and `out` by keyword, outputs returned."""
    kind = inspect.Parameter
    parameters = [kind(a.name, kind.POSITIONAL_ONLY, annotation=_Text(tensor_text(a))) for a in schema.inputs]
    for p in schema.parameters:
        default: Any = kind.empty if p.required else _Text(value_text(p))
        parameters.append(kind(p.name, kind.KEYWORD_ONLY, default=default, annotation=_Text(kind_text(p))))
    outputs = [tensor_text(a) for a in schema.outputs]
    result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})" if outputs else "None"
    if outputs and not any(p.name == "out" for p in schema.parameters):
        parameters.append(kind("out", kind.KEYWORD_ONLY, default=None, annotation=_Text(f"{result} | None")))
    return inspect.Signature(parameters, return_annotation=_Text(result))


def help_text(schema: OpSchema) -> str:
    """The call of a kernel, its docstring, and what stands for what in the call."""
    lines = [f"{schema.name.rpartition('::')[2]}{python_signature(schema)}", "", *schema.doc.strip().splitlines()]
    facts = [f"{name} is one of {', '.join(map(str, dtypes))}." for name, dtypes in schema.typevars]
    facts += [f"{a.name} is changed in place." for a in schema.mutable]
    if facts:
        lines += [*([""] if schema.doc else []), *facts]
    return "\n".join(lines).rstrip()
