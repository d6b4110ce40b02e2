"""Says what is wrong with a direct call in the words of its kernel: arguments by their names, no word of graphs.

Models speak of `input0` and of graphs, since that is what they are given. Code that calls a kernel has neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...dsl.diagnostics.errors import CompileError, EinkornError, each_of
from ...dsl.diagnostics.places import user_place
from ...dsl.signature.bind import bind
from ...dsl.signature.schema import Form, OpSchema
from ...dsl.signature.variadic import expand
from ...dsl.types.dtype import DType
from ..calling.inputs import WRONG_INPUT
from .binding import BoundCall
from .kinds import Operand
from .specialise import Specialisation
from .spread import common_shape, is_one_axis

_SHAPES = ("EK0311", "EK0312")  # errors of shapes that broadcasting might have avoided
IN_GRAPHS = "pass out_types"  # the hint of `dsl.signature`


def explained_mismatch(schema: OpSchema, given: BoundCall, operands: Sequence[Operand]) -> EinkornError | None:
    """What contradicts the signature, with the sizes of the call; None where nothing does."""
    if schema.variadic:
        known = {a.name: given.counts.get(a.name, 0) for a in schema.variadic}
        schema = expand(schema, known)
    kinds = {a.dtype: o.dtype for a, o in zip(schema.inputs, operands, strict=False) if o.dtype is not None}
    return _mismatch(schema, given.parameters, [(_dtype(schema, k, o, kinds), o.shape) for k, o in enumerate(operands)])


def _dtype(schema: OpSchema, number: int, operand: Operand, known: dict[DType | str, DType]) -> DType:
    """The dtype of an operand; that of a number is the one of the other operands."""
    if operand.dtype is not None or number >= len(schema.inputs):
        return operand.dtype or DType.float32
    declared = schema.inputs[number].dtype
    return declared if isinstance(declared, DType) else known.get(declared, schema.allowed(declared)[0])


def _mismatch(
    schema: OpSchema, parameters: dict[str, object], specs: Sequence[tuple[DType, tuple[int, ...]]]
) -> EinkornError | None:
    try:
        bind(schema, specs, parameters, late=dict.fromkeys(schema.late, 0), place=user_place())
    except EinkornError as error:
        for each in each_of(error):
            if each.hint is not None and each.hint.startswith(IN_GRAPHS):
                each.hint = f"give memory for the output: {_with_out(schema)}{each.hint.removeprefix(IN_GRAPHS)}"
        return error
    return None


def _with_out(schema: OpSchema) -> str:
    """The call with memory for its outputs."""
    names = [argument.name for argument in schema.outputs]
    memory = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return f"{schema.name.rpartition('::')[2]}({', '.join([*(a.name for a in schema.inputs), f'out={memory}'])})"


def explained(error: EinkornError, made: Specialisation, operands: Sequence[Operand]) -> EinkornError:
    """The error of a model, as one of the call."""
    schema = made.schema
    if isinstance(error, CompileError):
        for each in each_of(error):
            each.notes.append(f"op '{schema.name}' is called at {user_place()}")
        return error
    if error.code in WRONG_INPUT:
        types = [operand.dtype or type.dtype for operand, type in zip(operands, made.inputs, strict=True)]
        specs = [(dtype, operand.shape) for dtype, operand in zip(types, operands, strict=True)]
        result = _mismatch(schema, made.parameters, specs)
        if result is not None:
            return advised(result, schema, operands, "")
    return named(error, schema)


def advised(error: EinkornError, schema: OpSchema, operands: Sequence[Operand], trouble: str) -> EinkornError:
    """An error of shapes with the reason why the call does not broadcast, and with the way to write it.

    Args:
        error: what the signature says of the shapes.
        trouble: why the kernel is not elementwise; "" where it is, or where its signature does not broadcast.
    """
    places = [k for k, a in enumerate(schema.inputs) if a.form is not Form.SCALAR and k < len(operands)]
    shapes = [operands[k].shape for k in places]
    if len({schema.inputs[k].dims for k in places}) != 1 or schema.variadic:
        return error
    target, dims = common_shape(shapes), schema.inputs[places[0]].dims
    for each in each_of(error):
        if each.code not in _SHAPES or each.hint:
            continue
        if target is None:
            listed = " and ".join(map(str, dict.fromkeys(shapes)))
            each.notes.append(f"shapes {listed} do not broadcast: sizes of an axis have to be equal, or 1")
        elif is_one_axis(schema):
            call = f"{schema.name.rpartition('::')[2]}.ufunc({', '.join(a.name for a in schema.inputs)})"
            each.notes.append(f'"{dims}" is one axis; the dims "*s" stand for any number of axes')
            each.hint = f'call {call}, or declare all tensors with the dims "*s"'
        elif shapes.count(target) < len(shapes):
            only = f'its dims are "{dims}", and only "*s" and "n" broadcast'
            names = [schema.inputs[k].name for k, shape in zip(places, shapes, strict=True) if shape != target]
            name = each.argument if each.argument in names else names[0]
            each.notes.append(f"op '{schema.name}' does not broadcast its arguments: {trouble or only}")
            each.hint = f"pass np.broadcast_to({name}, {target})"
    return error


def named(error: EinkornError, schema: OpSchema) -> EinkornError:
    """The error of a model of one op, in the words of its kernel."""
    if not isinstance(error, CompileError):
        for each in each_of(error):
            _renamed(each, schema)
    return error


def _renamed(error: EinkornError, schema: OpSchema) -> None:
    """Arguments and outputs by their names, and an op in the place of its graph."""
    inputs, outputs = [a.name for a in schema.inputs], [a.name for a in schema.outputs]

    def in_words(text: str) -> str:
        text = re.sub(r"\binput(\d+)\b", lambda m: _nth(inputs, m), text)
        text = re.sub(r"\bout\[(\d+)\]", lambda m: f"output '{_nth(outputs, m)}'", text)
        text = text.replace(f"graph '{schema.name}'", f"op '{schema.name}'")
        return re.sub(r"\bthe graph (takes|gives)", r"the op \1", text)

    error.message = in_words(error.message).removeprefix(f"{schema.name}: ")
    error.notes = [in_words(note) for note in error.notes]
    error.op = error.op or schema.name
    if error.argument is not None:
        error.argument = re.sub(r"^input(\d+)$", lambda m: _nth(inputs, m), error.argument)
    if f"'{schema.name}'" not in error.message:
        error.message = f"op '{schema.name}': {error.message}"


def _nth(names: Sequence[str], match: re.Match[str]) -> str:
    number = int(match[1])
    return names[number] if number < len(names) else match[0]
