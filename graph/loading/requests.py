"""Adds to errors of the compiler the author's lines that requested the ops."""

from __future__ import annotations

from ...dsl.diagnostics.errors import CompileError
from ...dsl.diagnostics.places import InnerPlace, shown_path
from ..ir import GraphIR, Node


def add_requests(error: CompileError, ir: GraphIR) -> None:
    """Adds the user's own line that requested the op."""
    for each in getattr(error, "errors", [error]):
        for node in ir.nodes:
            if isinstance(node, Node) and node.name == each.op and node.place is not None:
                requested = f"requested at {shown_path(node.place.file)}:{node.place.line}"
                requested += f", called at {node.place.caller}" if isinstance(node.place, InnerPlace) else ""
                about = [n for n, note in enumerate(each.notes) if note.startswith(f"compiled for op '{each.op}'")]
                for number in about:
                    each.notes[number] += f", {requested}"
                if not about:
                    each.notes.append(f"op '{each.op}' is {requested}")
                break
