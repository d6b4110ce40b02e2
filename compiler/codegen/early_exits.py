"""Turns calls that mark an early exit into returns, once structured control flow is gone.

See also `lowering` (which code exits early).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ...dsl.diagnostics.errors import InternalError
from ..ir.schedule import EXIT
from .locations import place_of
from .walking import walk


def exit_early(mlir: object, module: object) -> None:
    """Turns every call of `@ek.exit` into a return.

    Generated code calls it as the last operation of a structured block. After the structure is gone it stands near the
    end of its block, before a branch and perhaps the step of a loop, and all of that becomes a return: of 1 where the
    function returns i32, of nothing where it returns void.

        llvm.call @ek.exit() : () -> ()          %1 = llvm.mlir.constant(1 : i32) : i32
        %i1 = arith.addi %i, %c1 : i64     =>    llvm.return %1 : i32
        cf.br ^bb1(%i1 : i64)

    Blocks that only the branch reached are left without a way in, and the next step removes them.
    """
    operations = _operations(mlir, module)
    marks = [o for o in operations if o.name == "llvm.func" and _named(o, "sym_name") == EXIT]
    calls = [k for k, o in enumerate(operations) if o.name == "llvm.call" and _named(o, "callee") == EXIT]
    exits = [(operations[k], _behind(operations, k)) for k in calls]
    for call, following in exits:
        _return_instead(mlir, call, following)
    for mark in marks:
        mark.erase()


def _behind(operations: Sequence[Any], number: int) -> list[Any]:
    """What comes after an operation in its block."""
    block = operations[number].block
    return list(itertools.takewhile(lambda other: other.block == block, operations[number + 1 :]))


def _operations(mlir: Any, module: Any) -> list[Any]:
    """All operations, those of a block in their order: without structured control flow it is one piece of the list."""
    operations: list[object] = []

    def visit(operation: object) -> bool:
        operations.append(operation)
        return True

    walk(mlir, module.operation, visit)
    return operations


def _named(operation: Any, attribute: str) -> str | None:
    result: str | None = operation.attributes[attribute].value if attribute in operation.attributes else None
    return result


def _return_instead(mlir: Any, call: Any, following: list[Any]) -> None:
    place = place_of(str(call.location))
    function = call.parent
    while function.name != "llvm.func":
        function = function.parent.operation
    result = str(function.attributes["function_type"])
    with mlir.ir.InsertionPoint(call), call.location:
        if result.startswith("!llvm.func<void "):
            mlir.ir.Operation.create("llvm.return")
        elif result.startswith("!llvm.func<i32 "):
            i32 = mlir.ir.IntegerType.get_signless(32)
            one = mlir.ir.Operation.create(
                "llvm.mlir.constant", results=[i32], attributes={"value": mlir.ir.IntegerAttr.get(i32, 1)}
            )
            mlir.ir.Operation.create("llvm.return", operands=[one.result])
        else:
            raise InternalError(f"an early exit from a function of type {result}", place=place, code="EK0902")
    for operation in (*reversed(following), call):
        if any(True for value in operation.results for _ in value.uses):
            raise InternalError("values from after an early exit are used elsewhere", place=place, code="EK0902")
        operation.erase()
