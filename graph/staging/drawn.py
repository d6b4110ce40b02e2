"""The methods of graphs that show them: as the text of a compilation, for Graphviz, as a page.

See also `graph.drawing`, which is loaded when a graph is shown first (how it is drawn).
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Protocol

from ...dsl.diagnostics.extension_points import ExtensionPoint


class Drawing(Protocol):
    """What draws graphs."""

    def code(self, graph: object, stage: str, target: str) -> str: ...
    def to_dot(self, graph: object) -> str: ...
    def to_html(
        self, graph: object, path: str | PathLike[str] | None, *, sizes: Mapping[str, int] | None, profile: object
    ) -> str: ...


DRAWING: ExtensionPoint[Drawing] = ExtensionPoint("graph.drawing")


class DrawnGraph:
    """A graph that can be shown."""

    __slots__ = ()

    def code(self, stage: str = "typed", target: str = "host") -> str:
        """The text of a stage of the graph's compilation: "typed", "mlir", "llvm", "asm" or "sass".

        The devices of the graph need not be here. Of a graph whose values lie on several devices each segment is shown;
        where the target is a GPU, those of the host are compiled for this machine.

        Raises:
            GraphError: EK0405 the graph is not finished.
            TargetError: an unknown target.
            CompileError: a mistake in a kernel, something that the target lacks, or an unknown stage.
        """
        return DRAWING.get().code(self, stage, target)

    def to_dot(self) -> str:
        """The graph in Graphviz's language: a box an op, an edge a value, a frame a body of control flow.

        Raises:
            GraphError: EK0405 the graph is not finished.
        """
        return DRAWING.get().to_dot(self)

    def to_html(
        self,
        path: str | PathLike[str] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        profile: object = None,
    ) -> str:
        """One page that shows the graph: its ops with types and places, what is fused into what, where temporaries lie.

        The page is one file without references to others. It is the same for equal graphs.

        Args:
            path: where to write it, if anywhere.
            sizes: of named dims, for the picture of the memory; 64 for those that are left out.
            profile: what `InferenceSession.profile` measured of models of this graph; adds the time of each group.

        Returns:
            The text of the page.

        Raises:
            GraphError: EK0405 the graph is not finished, EK0478 `sizes` names no dim of it.
        """
        return DRAWING.get().to_html(self, path, sizes=sizes, profile=profile)
