"""Tracks the bodies of control flow while they are staged: which one is open, and which values lie in closed ones.

A body is a stretch of the graph's nodes and of its values. What was made in a body that is closed belongs to it: it may
never have been computed, or many times. Code that wants it gives it back from the body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import Place


@dataclass(eq=False)
class OpenBody:
    """A body that is being staged, or was.

    Attributes:
        name: what it is called in messages: "then_fn of cond".
        place: the line that stages the control flow.
        first_node, first_value: what was staged since belongs to it.
        may_not_run: whether it is an arm of a branch.
        end_node, end_value: where it ends; not known while it is open.
    """

    name: str
    place: Place | None
    first_node: int
    first_value: int
    may_not_run: bool = False
    end_node: int = -1
    end_value: int = -1


class Bodies:
    """The bodies of a graph. `nodes` and `types` are the lists of the graph, one type a value.

    Attributes:
        open: the bodies that are being staged, the innermost last.
        closed: those that no other closed one is around.
    """

    def __init__(self, nodes: Sequence[Any], types: Sequence[Any]) -> None:
        self._nodes = nodes
        self._types = types
        self.open: list[OpenBody] = []
        self.closed: list[OpenBody] = []

    @contextmanager
    def body(self, name: str, place: Place | None, may_not_run: bool = False) -> Iterator[OpenBody]:
        """What is staged inside is a body."""
        made = OpenBody(name, place, len(self._nodes), len(self._types), may_not_run)
        self.open.append(made)
        try:
            yield made
        finally:
            self.open.remove(made)
            made.end_node, made.end_value = len(self._nodes), len(self._types)
            while self.closed and self.closed[-1].first_value >= made.first_value:
                self.closed.pop()
            self.closed.append(made)

    def lost_in(self, value: int) -> OpenBody | None:
        """The closed body that a value was made in, if it was made in one."""
        for body in reversed(self.closed):
            if body.first_value <= value < body.end_value:
                return body
            if body.end_value <= value:
                break
        return None

    def refuse(self, op: str, what: str, place: Place | None, hint: str | None = None) -> None:
        """Raises when a body is open.

        Raises:
            GraphError: EK0448.
        """
        if self.open:
            raise GraphError(
                f"{op}: {what} in a body of control flow, here {self.open[-1].name}",
                code="EK0448",
                place=place,
                op=op,
                notes=[f"the body is staged at {self.open[-1].place}"] if self.open[-1].place else [],
                hint=hint,
            )


def lost_value(op: str, argument: str, body: OpenBody, place: Place | None) -> GraphError:
    """The error of using what was made in a body behind it."""
    return GraphError(
        f"{op}: argument '{argument}' was made in {body.name}, and that body has ended",
        code="EK0446",
        place=place,
        op=op,
        argument=argument,
        expected="a value of the graph, or of a body that is being staged",
        got=f"a value of {body.name}",
        notes=[f"the body is staged at {body.place}"] if body.place else [],
        hint="return it from the body: the results of cond and while_loop can be used after them",
    )
