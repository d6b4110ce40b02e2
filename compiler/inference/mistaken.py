"""How far the evaluation goes on beside a mistake, so that all independent ones are found in one go.

What is computed from a poisoned value says nothing more. But the other operands are evaluated, the other arguments of a
call, and functions of the author's that take part in it. Where a poisoned condition decides, both arms are evaluated
if it is one of the running program; if it may be known at compile time, the author may have meant only one of them for
this instance, and neither is.

Input: expressions and calls with something poisoned in them. Output: mistakes, noted in the evaluator. Non-goals: no
messages of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...dsl.diagnostics.places import is_shipped
from ...dsl.frontend import syntax as s
from ...dsl.types.dtype import INT
from ..ir.program import Value
from .recovery import Cascade, Poisoned
from .values.compile_time import ClassValue, Closure, Frame, LoopRange, StubRef

if TYPE_CHECKING:
    from .evaluator import Evaluator

GPU_IDS = [f"{what}.{axis}" for what in ("thread_idx", "block_idx", "block_dim", "grid_dim") for axis in "xyz"]


def poisoned(frame: Frame, *statements: s.Stmt) -> Frame:
    """The frame, with all variables poisoned that these statements might have assigned."""
    for name in s.assigned_names(statements):
        frame.env[name] = Poisoned()
    return frame


def call_poisoned(
    evaluator: Evaluator, callee: Any, args: list[Any], keywords: dict[str, Any], node: s.Call, frame: Frame
) -> Any:
    """A call of which something is poisoned: functions of the author's are still looked into."""
    if is_own(callee) and not any(isinstance(argument, s.Starred) for argument in node.arguments):
        if evaluator.runs(callee, frame):
            raise Cascade
        return evaluator.inline(callee, args, keywords, node, frame)
    look_into(evaluator, [callee, *args, *keywords.values()], node, frame)
    if callee == StubRef("range") and not evaluator.folding:
        return LoopRange(0, Value(INT), 1)
    raise Cascade


def is_own(value: Any) -> bool:
    """Whether a value is a function of the author's."""
    return isinstance(value, Closure) and not is_shipped(value.frame.file)


def look_into(evaluator: Evaluator, values: Iterable[Any], node: s.Node, frame: Frame) -> None:
    """Evaluates those functions of the author's among these values that nobody will call, for mistakes in them.

    Whether they would run in a launch is not known, so that they may do what only launched functions do.
    """
    saved = (evaluator.level, evaluator.gpu_ids)
    if evaluator.level == "host":
        evaluator.level, evaluator.gpu_ids = "device", {name: Value(INT) for name in GPU_IDS}
    functions = [f for value in values for f in (value.members.values() if isinstance(value, ClassValue) else [value])]
    for value in functions:
        if is_own(value) and not evaluator.runs(value, frame):
            unknown = {p.name: Poisoned(runtime=True) for p in value.function.params}
            evaluator.caught(partial(evaluator.inline, value, [], unknown, node, frame), node, frame)
    evaluator.level, evaluator.gpu_ids = saved


def of_run_time(node: s.Node, frame: Frame) -> bool:
    """Whether an expression computes with values of the running program, and so gives one.

    Elements of tensors count, tensors themselves do not: their rank and dtype are known. A comparison with a dtype, a
    string or None is decided at compile time.
    """
    if isinstance(node, s.Compare) and any(_is_object(operand, frame) for operand in node.operands):
        return False
    if isinstance(node, s.Name):
        value = frame.env.get(node.id)
        return value.runtime if isinstance(value, Poisoned) else isinstance(value, Value) and value.const is None
    if (
        isinstance(node, s.Subscript)
        and isinstance(node.value, s.Name)
        and hasattr(frame.env.get(node.value.id), "dims")
    ):
        return True
    if isinstance(node, s.Lambda):
        return False
    return any(of_run_time(part, frame) for part in s.children(node))


def _is_object(node: s.Expr, frame: Frame) -> bool:
    if isinstance(node, s.Constant):
        return node.value is None or isinstance(node.value, str)
    if isinstance(node, s.Global):
        return frame.program.globals[node.index].kind in ("dtype", "type", "typevar")
    return False
