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
from ..arguments import wrong
from ..profiling.profile import Profile
from ..staging.graph import Graph
from .inspected import code as code


@placed
def to_dot(graph: Graph) -> str:
    """What `Graph.to_dot` gives."""
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
    """What `Graph.to_html` gives."""
    if path is not None and not isinstance(path, str | PathLike):
        wrong("path", path, "a path")
    if sizes is not None and not isinstance(sizes, Mapping):
        wrong("sizes", sizes, "a dict of sizes by the names of dims")
    if profile is not None and not isinstance(profile, Profile):
        wrong("profile", profile, "what InferenceSession.profile measured")
    with shielded():
        from .page import graph_page

    text = graph_page(graph.ir, sizes or {}, profile)
    if path is not None:
        replace_file(Path(path), [text.encode()])
    return text
