"""Refuses outputs that nothing stores into, and values that an op returns: mistakes that would pass silently.

See also `unwritten` (which are found at run time).
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import CompileError
from ...dsl.frontend import syntax as s
from ...dsl.frontend.program import PortableKernel
from ...dsl.signature.schema import TensorArgument
from ..ir.program import Region, Value, walk
from .evaluator import Evaluator, Point
from .values.describe import describe


def is_stored(region: Region, pointer: Value) -> bool:
    """Whether anything in a region may write through a pointer, or through one that is made of it."""
    known = {pointer.serial}
    for op in walk(region):
        reads_only = op.opcode.reads and not op.opcode.writes
        if not any(operand.serial in known for operand in op.operands) or reads_only or op.opcode.hints:
            continue
        if not op.opcode.is_pure:
            return True
        known |= {result.serial for result in op.results}
    return False


def never_stored(evaluator: Evaluator, argument: TensorArgument, kernel: PortableKernel) -> CompileError:
    """The mistake of an op that stores nothing into this output."""
    name = argument.group or argument.name
    function = kernel.functions[0].syntax
    mentioned = any(isinstance(node, s.Name) and node.id == name for node in s.walk(function))
    hint = f"write `foreach({name}, lambda i: ...)`, or `{name}[...] = ...`"
    if mentioned:
        hint += ", where these parameters and dtypes lead to it"
    return CompileError(
        f"op '{kernel.schema.name}' never stores into its output '{argument.name}'",
        code="EK0225",
        place=argument.place,
        op=kernel.schema.name,
        argument=argument.name,
        notes=[f"compiled for {evaluator.instance}"],
        hint=hint,
    )


def returned(here: Point, node: s.Return, value: object) -> CompileError:
    """The mistake of an op that returns a value."""
    name = here.frame.program.schema.outputs[0].name
    hint = f"store it: `{name}[...] = ...`, or `foreach({name}, lambda i: ...)`"
    text = f"an op returns its results in its outputs; {describe(value)} that it returns would be lost"
    return here.on(node.value or node).error("EK0226", text, hint=hint)
