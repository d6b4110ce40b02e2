"""Writes the reference of a kernel library, as Markdown or as one HTML page, from schemas and docstrings alone.

Each op has its call, its docstring, its tensors and parameters, which dtypes it takes, what it promises, an example of
its use in a graph, and for a package what it was compiled for.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from markdown_it import MarkdownIt

from ..signature.description import call_text, kind_text, value_text
from ..signature.schema import ContextArgument, Form, OpSchema
from .library import LoadedKernel, LoadedLibrary

ROLES = {"input": "input", "output": "output", "mutable": "input, changed in place"}
_FORMS = {Form.TENSOR: "{}", Form.SCALAR: "{}, one number", Form.VARIADIC: "{}, any number of tensors"}


def manual(library: LoadedLibrary, title: str = "") -> str:
    """The reference in Markdown. `title` is the package's name, or the path's, when left out."""
    kernels = [library.kernels[name] for name in sorted(library.kernels)]
    package = next((kernel.package for kernel in kernels if kernel.package is not None), None)
    head = title or (package.manifest.name if package is not None else _name_of(library.path))
    parts = [f"# {head}"]
    if package is not None:
        about = [f"Version {package.manifest.version}", package.manifest.licence or ""]
        parts.append(", ".join(filter(None, about)) + ".")
    rows = [[f"[`{k.schema.name}`](#{anchor(k.schema.name)})", plain_stars(_first_line(k.schema.doc))] for k in kernels]
    parts.append(_table(["op", "what it does"], rows))
    parts += [_op(kernel) for kernel in kernels]
    return "\n\n".join(parts) + "\n"


def _name_of(path: str) -> str:
    """What a library at a path is called: its file's name, or that of its folder, `.` too."""
    where = Path(path)
    return where.stem or where.resolve().name or "kernels"


def manual_page(library: LoadedLibrary, title: str = "") -> str:
    """The reference as one HTML page without references to others."""
    text = manual(library, title)
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = renderer.parse(text)
    for token, content in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            token.attrs["id"] = anchor(content.content.strip("`"))
    body = renderer.renderer.render(tokens, renderer.options, {})
    name = text.partition("\n")[0].removeprefix("# ")
    return Template(files(__package__).joinpath("manual.html").read_text("utf-8")).substitute(
        title=html.escape(name), body=body
    )


def anchor(op: str) -> str:
    """What a link to an op's section names."""
    return op.replace("::", "-").lower()


def _op(kernel: LoadedKernel) -> str:
    schema = kernel.schema
    parts = [f"## `{schema.name}`", f"```text\n{call_text(schema)}\n```"]
    if schema.doc:
        parts.append(plain_stars(schema.doc))
    arguments = [
        [f"`{a.name}`", _FORMS[a.form].format(ROLES[a.role.value]), f"`{a.dtype}`", f"`{a.dims}`" if a.dims else ""]
        for a in schema.tensors
    ]
    parts.append(_table(["tensor", "role", "dtype", "dims"], arguments))
    for name, dtypes in schema.typevars:
        parts.append(f"`{name}` is one of {', '.join(f'`{dtype}`' for dtype in dtypes)}.")
    if schema.parameters:
        rows = [
            [f"`{p.name}`", f"`{kind_text(p)}`", "required" if p.required else f"`{value_text(p)}`"]
            for p in schema.parameters
        ]
        parts.append(_table(["parameter", "type", "default"], rows))
    if promises := list(_promises(schema)):
        parts.append("\n".join(f"- {promise}" for promise in promises))
    parts.append(f"```python\n{_usage(schema)}\n```")
    if kernel.variants:
        rows = [[v.target, f"{v.instance}" or "any", f"{v.code.size:,} bytes"] for v in kernel.variants]
        parts.append(_table(["compiled for", "instance", "code"], sorted(rows)))
    return "\n\n".join(parts)


def _promises(schema: OpSchema) -> Iterable[str]:
    if not schema.fuse:
        yield "It is not fused with adjacent ops."
    if schema.writes_once:
        yield "Every element of its outputs is stored once: what follows can be done in its stores."
    if schema.batch:
        yield f"The members of the batch `*{schema.batch}` are computed independently."
    if schema.fastmath:
        yield f"It takes liberties with floating point: {', '.join(sorted(schema.fastmath))}."
    if any(isinstance(argument, ContextArgument) for argument in schema.arguments):
        yield "It may have a way of its own for each kind of device."


def _usage(schema: OpSchema) -> str:
    values = ", ".join(f"*{a.name}" if a.form is Form.VARIADIC else a.name for a in schema.inputs)
    required = ", ".join(f'"{p.name}": ...' for p in schema.parameters if p.required)
    parameters = f", parameters={{{required}}}" if required else ""
    call = f'ops.custom("{schema.name}", device=DeviceRef.CPU(), values=[{values}]{parameters})'
    outputs = ", ".join(a.name for a in schema.outputs)
    return f"{outputs} = {call}[0]" if len(schema.outputs) == 1 else f"{outputs} = {call}"


def plain_stars(doc: str) -> str:
    """A docstring whose stars are those of formulas, `2**16`, and not Markdown's; in code and at bullets they stay."""
    parts = _CODE.split(doc)
    return "".join(part if number % 2 else _STAR.sub(r"\\*", part) for number, part in enumerate(parts))


_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
_STAR = re.compile(r"(?<![\n\\])(?<!\n )(?<!\n  )(?<!^)\*")


def _first_line(doc: str) -> str:
    return doc.strip().partition("\n")[0]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
