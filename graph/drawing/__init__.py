"""Draws graphs: as text for Graphviz, as a page of its own, and as the stages of their compilation.

    print(graph.to_dot())
    graph.to_html("graph.html")

See also `page`.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.files import replace_file
from ...dsl.environment.tracebacks import placed
from ..engine.profile import Profile
from ..staging.graph import Graph
from .inspected import code


@placed
def to_dot(graph: Graph) -> str:
    """The graph in Graphviz's language: a box an op, an edge a value, a frame a body of control flow.

    Raises:
        GraphError: EK0405 the graph is not finished.
    """
    with shielded():
        from .dot import dot_text  # most programs draw nothing

    return dot_text(graph.ir)


@placed
def to_html(
    graph: Graph,
    path: str | PathLike[str] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    profile: Profile | None = None,
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
    with shielded():
        from .page import graph_page

    text = graph_page(graph.ir, sizes or {}, profile)
    if path is not None:
        replace_file(Path(path), [text.encode()])
    return text


setattr(Graph, "code", code)  # noqa: B010  # declared there for type checkers: this room stands above it
setattr(Graph, "to_dot", to_dot)  # noqa: B010
setattr(Graph, "to_html", to_html)  # noqa: B010
