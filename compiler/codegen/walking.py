"""Walks the operations of a module of MLIR: the bindings lose exceptions of a function that they call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl.diagnostics.errors import InternalError


def walk(mlir: Any, operation: Any, visit: Callable[[Any], bool]) -> None:
    """Calls `visit` with each operation within one, those of a block in their order, for as long as it gives True.

    Iterating over blocks instead would load the bindings' Python classes for all of LLVM: 50 ms of a cold start.

    Raises:
        Exception: what `visit` raises.
        InternalError: an exception was lost all the same, at the edge of the function that MLIR calls.
    """
    raised: list[BaseException] = []
    goes_on, last = True, None

    def safely(each: Any) -> Any:
        nonlocal goes_on, last
        try:
            last, goes_on = each, visit(each)
        except BaseException as error:
            raised.append(error)
            goes_on = False
        return mlir.ir.WalkResult.ADVANCE if goes_on else mlir.ir.WalkResult.INTERRUPT

    operation.walk(safely)
    if raised:
        raise raised[0]
    if goes_on and last != operation:  # which comes last
        raise InternalError("MLIR has not walked a module to its end", code="EK0902")
