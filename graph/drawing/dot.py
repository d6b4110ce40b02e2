"""Writes a graph in Graphviz's language."""

from __future__ import annotations

import json

from ..ir import GraphIR
from .outline import OutlineLine, outline

_SHAPES = {"input": "ellipse", "output": "ellipse", "constant": "note", "weight": "cylinder"}
_HEAD = '  node [shape=box, fontname="sans-serif", fontsize=10]\n  edge [fontname="sans-serif", fontsize=9]\n'


def dot_text(ir: GraphIR) -> str:
    """The whole graph."""
    lines = outline(ir)
    makers = {value: k for k, line in enumerate(lines) for value in line.gives}
    heads = {line.node: k for k, line in enumerate(lines) if line.kind == "open"}
    parts = [f"digraph {_quoted(ir.name)} {{\n{_HEAD}"]
    for k, line in enumerate(lines):
        indent = "  " * (line.depth + 1)
        if line.kind == "open":
            parts += [_node(k, line, ir, indent), _cluster(k, "while" if line.name == "while_loop" else "then", indent)]
        elif line.kind == "else":
            parts += [f"{indent}}}\n", _cluster(k, line.name, indent)]
        elif line.kind == "close":
            parts.append(f"{indent}}}\n")
        else:
            parts.append(_node(k, line, ir, indent))
    for k, line in enumerate(lines):
        for value in line.takes:
            label = str(ir.types[value].shape).replace("[", "(").replace("]", ")")
            parts.append(f"  n{makers[value]} -> n{k} [label={_quoted(label)}]\n")
        if line.kind == "yield":
            parts.append(f"  n{k} -> n{heads[line.node]} [style=dashed, constraint=false]\n")
    return "".join([*parts, "}\n"])


def _node(k: int, line: OutlineLine, ir: GraphIR, indent: str) -> str:
    types = [str(ir.types[value]) for value in line.results]
    return f"{indent}n{k} [label={_quoted(chr(10).join([line.name, *types]))}, shape={_SHAPES.get(line.kind, 'box')}]\n"


def _cluster(k: int, label: str, indent: str) -> str:
    return f"{indent}subgraph cluster_{k} {{\n{indent}  label={_quoted(label)}\n"


def _quoted(text: str) -> str:
    """A text in quotes; DOT has escapes for quotes, backslashes and line ends."""
    return json.dumps(text, ensure_ascii=False)
