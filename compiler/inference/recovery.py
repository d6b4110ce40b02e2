"""Goes on next to a mistake, so that all independent ones are found in one go.

An expression with a mistake in it gives a poisoned value, and so does what is computed from it, without a message.
But the other operands are evaluated, and the other arguments of a call. Where a poisoned condition decides,
both arms are evaluated if it is one of the running program; if it may be known at compile time, the author may have
meant only one of them for this instance, and neither is.
"""

from __future__ import annotations

from ...dsl.frontend import syntax as s
from ..ir.program import Value
from .values.compile_time import Frame, Poisoned


class Cascade(Exception):
    """Raised on the use of a poisoned value where nothing more can be found; nothing is said."""


class Undecided(Exception):
    """Raised by an `if` whose poisoned condition may be known at compile time: the arm that was meant is unknown."""


def poison(frame: Frame, *statements: s.Stmt) -> Frame:
    """The frame, with all variables poisoned that these statements might have assigned."""
    for name in s.assigned_names(statements):
        frame.env[name] = Poisoned()
    return frame


def is_runtime_expression(node: s.SyntaxNode, frame: Frame) -> bool:
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
    return any(is_runtime_expression(part, frame) for part in s.children(node))


def _is_object(node: s.Expr, frame: Frame) -> bool:
    if isinstance(node, s.Constant):
        return node.value is None or isinstance(node.value, str)
    if isinstance(node, s.Global):
        return frame.program.globals[node.index].kind in ("dtype", "type", "typevar")
    return False
