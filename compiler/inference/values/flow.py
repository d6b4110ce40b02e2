"""Describes how blocks of statements end.

A block may run off its end (`next`), or leave by `break`, `continue` or `return`. Where a run-time condition decides, a
`Flow` has several of these kinds, and for each way of leaving a flag: the Bool that says whether it was taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.frontend import syntax
from ...ir.opcodes import NOTE
from ...ir.program import Region


class Abandoned(Exception):
    """Enough mistakes for one go, or one that ends everything."""


class NeverReturns(Exception):
    """Raised by the call of a function that always raises: what would have been done with its value is never done."""


class Absent:
    """A placeholder on unreachable paths: what a way that did not return has returned."""


ABSENT = Absent()


@dataclass(frozen=True)
class Flow:
    """The ways in which a block may have ended; none at all after `raise`.

    Attributes:
        kinds: some of `next`, `break`, `continue` and `return`.
        value: what it returned, if it did.
        flags: for each kind but `next`, where there are several: whether it ended so.
    """

    kinds: frozenset[str]
    value: Any = ABSENT
    flags: dict[str, Any] = field(default_factory=dict)

    def flag(self, kind: str) -> Any:
        """Whether the block left in this way: a Bool of the running program, or known."""
        if kind not in self.kinds:
            return False
        return True if len(self.kinds) == 1 else self.flags[kind]

    def goes_on(self) -> bool:
        """Whether the statement after the block may be reached."""
        return "next" in self.kinds

    def leaving(self) -> list[str]:
        """The ways of leaving, in a fixed order."""
        return sorted(self.kinds - {"next"})

    def catch(self, kind: str) -> Flow:
        """The flow behind a loop that catches a `break` or a `continue`: they continue there."""
        if kind not in self.kinds:
            return self
        flags = {name: flag for name, flag in self.flags.items() if name != kind}
        return Flow(self.kinds - {kind} | {"next"}, self.value, flags)


def ended(kind: str, value: object = ABSENT) -> Flow:
    """A block that surely ended in this way."""
    return Flow(frozenset({kind}), value)


NEXT = ended("next")
NEVER = Flow(frozenset())


class Rest(syntax.Stmt):
    """The statements after one that may have left; made here only, never by an author."""

    flow: Any
    statements: tuple[syntax.Stmt, ...]


def with_rest(stmt: syntax.Stmt, rest: tuple[syntax.Stmt, ...]) -> syntax.If | None:
    """An `if` with the statements after it in the one arm that reaches them; None where that is not a single arm.

    So `if c: return a` and what follows become the two arms of one branch, without a flag.
    """
    if not rest or not isinstance(stmt, syntax.If):
        return None
    then, otherwise = reaches_end(stmt.then), reaches_end(stmt.otherwise)
    if then and otherwise:
        return None
    return syntax.If(
        stmt.test,
        stmt.then + rest if then else stmt.then,
        stmt.otherwise + rest if otherwise else stmt.otherwise,
        span=stmt.span,
    )


def reaches_end(statements: tuple[syntax.Stmt, ...]) -> bool:
    """Whether a block may run off its end, as far as its text shows."""
    for stmt in statements:
        if isinstance(stmt, syntax.Return | syntax.Break | syntax.Continue):
            return False
        if isinstance(stmt, syntax.If) and not reaches_end(stmt.then) and not reaches_end(stmt.otherwise):
            return False
    return True


def gives_value(statements: Iterable[syntax.Stmt]) -> bool:
    """Whether a function that stops at these statements would have given a value."""
    for stmt in statements:
        match stmt:
            case syntax.Return(value=value) if value is not None:
                return True
            case syntax.If():
                if gives_value(stmt.then + stmt.otherwise):
                    return True
            case syntax.For() | syntax.While():
                if gives_value(stmt.body):
                    return True
            case Rest():
                if gives_value(stmt.statements):
                    return True
            case _:
                pass
    return False


def is_pure(region: Region) -> bool:
    """Whether the operations of a region may be done although their results are not wanted, and are few."""
    ops = [op for op in region.ops if op.opcode is not NOTE]
    return len(ops) <= 8 and all(op.opcode.is_safe or op.opcode.ends for op in ops)
