"""Writes the API reference as pages of Markdown: each public name with its signature and its docstring.

Docstrings are Markdown with sections (`Args:`, `Raises:` …), so they are set as Markdown, under Sphinx's directives for
Python, which give each name an anchor and a place in the index and the search.

Modules that need an extra are read from their text (see `read_static`), the others are imported.

See also `build`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

from read_static import Read, module_doc, read_module

from einkorn import dsl
from einkorn.dsl.language.stubs import Namespace, Stub

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ROOT / "graph" / "public"
SECTIONS = {
    "Args": "Arguments",
    "Attributes": "Attributes",
    "Returns": "Returns",
    "Raises": "Raises",
    "Yields": "Yields",
}
INHERITED = {name for kind in (object, Exception, dict, list, Enum) for name in dir(kind)}


def modules() -> list[str]:
    """The modules that people import, the two large ones first."""
    public = sorted(f"einkorn.{file.parent.name}" for file in PUBLIC.glob("*/__init__.py"))
    own = ["einkorn.dsl", "einkorn.stdlib", "einkorn.graph", "einkorn.graph.ops", "einkorn.testing", "einkorn.errors"]
    return [*own, *public]


def needs_extra(name: str) -> bool:
    """Whether a module needs what may not be there: an extra of its own name."""
    with open(ROOT / "pyproject.toml", "rb") as settings:
        extras = tomllib.load(settings)["project"]["optional-dependencies"]
    return name.rpartition(".")[2] in extras and name.count(".") == 1


def page(name: str) -> str:
    """The page of a module."""
    head = [f"# {name}", "", f":::{{py:module}} {name}\n:::", ""]
    file = PUBLIC / name.rpartition(".")[2] / "__init__.py"
    if needs_extra(name):
        parts = [
            markdown(module_doc(file)),
            *(line for read in read_module(file) for line in ["", *_directive(read, 5)]),
        ]
    else:
        module = importlib.import_module(name)
        parts = [markdown(inspect.getdoc(module) or "")]
        parts += [line for own, value in members(module) for line in ["", *described(own, value, 4)]]
    return "\n".join([*head, *parts]) + "\n"


def _directive(read: Read, colons: int) -> list[str]:
    fence = ":" * colons
    inner = [line for member in read.members for line in [*_directive(member, colons - 1), ""]]
    return [f"{fence}{{py:{read.kind}}} {read.name}{read.signature}", "", markdown(read.doc), "", *inner, fence]


def members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The names of a module that belong to it, those in namespaces with their path; the language's stand with it."""
    listed = getattr(module, "__all__", None)
    if listed is not None and module.__name__ == "einkorn.graph":
        listed = [name for name in listed if name not in dsl.__all__]
    names = listed if listed is not None else [n for n in vars(module) if not n.startswith("_")]
    for name in sorted(set(names)):
        value = getattr(module, name)
        if listed is None and not str(getattr(value, "__module__", "")).startswith(module.__name__):
            continue
        yield from _members(name, value)


def _members(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Namespace):
        for own, member in sorted(vars(value).items()):
            yield from _members(f"{name}.{own}", member)
    elif isinstance(value, Stub):
        yield name, value.function
    elif inspect.isclass(value) or inspect.isfunction(value):
        yield name, value


def described(name: str, value: Any, colons: int) -> list[str]:
    """The directive of a class or a function."""
    fence = ":" * colons
    if not inspect.isclass(value):
        return [f"{fence}{{py:function}} {name}{signature(value)}", "", markdown(_doc(value)), "", fence]
    outer = ":" * (colons + 1)
    lines = [f"{outer}{{py:class}} {name}{'' if issubclass(value, Enum) else signature(value)}", ""]
    lines += [markdown(_doc(value)), ""]
    if issubclass(value, Enum):
        lines += [", ".join(f"`{member.name}`" for member in value), ""]
    for own, member in sorted(vars(value).items()):
        if own.startswith("_") or own in INHERITED:
            continue
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(plain, property):
            lines += [f"{fence}{{py:property}} {name}.{own}", "", markdown(_doc(plain)), "", fence, ""]
        elif inspect.isfunction(plain):
            kind = {classmethod: "classmethod", staticmethod: "staticmethod"}.get(type(member), "method")
            head = f"{fence}{{py:{kind}}} {name}.{own}{signature(plain, bound=kind != 'staticmethod')}"
            lines += [head, "", markdown(_doc(plain)), "", fence, ""]
    return [*lines, outer]


def _doc(value: Any) -> str:
    doc = inspect.getdoc(value) or ""
    generated = inspect.isclass(value) and doc.startswith(f"{value.__name__}(")  # of a dataclass
    return "" if generated else doc


class _Shown(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature(value: Callable[..., Any], bound: bool = False) -> str:
    """How something is called, on one line."""
    try:
        signature_of_value = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    result = inspect.Signature.empty if inspect.isclass(value) else _annotation(signature_of_value.return_annotation)
    parameters = list(signature_of_value.parameters.values())[1 if bound else 0 :]
    shown = []
    for parameter in parameters:
        default = parameter.default
        if default is not parameter.empty and re.match(r"<", repr(default)):
            default = _Shown("...")
        annotation = parameter.annotation
        shown.append(parameter.replace(annotation=_annotation(annotation), default=default))
    text = str(inspect.Signature(shown, return_annotation=result))
    return text.replace("\n", " ")


def _annotation(annotation: Any) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _Shown(text.replace("builtins.", ""))


def markdown(doc: str) -> str:
    """A docstring as Markdown: sections with their items as lists, indented text as code."""
    lines, out = doc.split("\n"), []
    at = 0
    while at < len(lines):
        head = lines[at].rstrip(":")
        if lines[at].endswith(":") and head in SECTIONS:
            block, at = _block(lines, at + 1)
            out += ["", f"**{SECTIONS[head]}**", "", *_items(block)]
        elif lines[at].startswith("    ") and not (out and out[-1].startswith("- ")):
            block, at = _block(lines, at)
            out += ["", f"```{_language(block)}", *block, "```", ""]
        else:
            out.append(escaped(lines[at]))
            at += 1
    return "\n".join(out)


def _language(block: list[str]) -> str:
    try:
        ast.parse("\n".join(block))
    except SyntaxError:
        return "text"
    return "python"


def _block(lines: list[str], at: int) -> tuple[list[str], int]:
    """Lines that are indented, without that."""
    block = []
    while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
        block.append(lines[at][4:])
        at += 1
    while block and not block[-1].strip():
        block.pop()
    return block, at


def _items(block: list[str]) -> list[str]:
    out: list[str] = []
    for line in block:
        item = re.match(r"([\w*, .]+): (.*)", line)
        if item and not line.startswith(" "):
            out.append(f"- `{item[1]}`: {escaped(item[2])}")
        elif line.strip():
            out.append(f"  {escaped(line.strip())}" if out else escaped(line.strip()))
    return out


def escaped(line: str) -> str:
    """A line of prose: backticks, emphasis and the mark of a list at its begin count; pages of docs become links."""
    parts = re.split(r"(`+[^`]*`+|\*\w[\w -]*\*|\bdocs/[\w/-]+\.md\b)", line)
    return "".join(_marked(part) if k % 2 else _plain(part) for k, part in enumerate(parts))


def _plain(text: str) -> str:
    return re.sub(r"([\\*_<>\[\]|$#])", r"\\\1", text)


def _marked(text: str) -> str:
    """A piece of prose that is more than its letters; the pages of the reference lie in a folder next to the others."""
    page = re.fullmatch(r"`?docs/([\w/-]+\.md)`?", text)
    return f"[{page[1]}](../{page[1]})" if page and (ROOT / "docs" / page[1]).is_file() else text
