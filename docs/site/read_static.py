"""Reads what a module offers from its text, without importing it: those of extras need what may not be there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Read:
    """A function or a class as its text has it; `kind` is a directive of Sphinx's for Python."""

    name: str
    kind: str
    signature: str
    doc: str
    members: list[Read] = field(default_factory=list)


def module_doc(file: Path) -> str:
    """The docstring of a module."""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def read_module(file: Path) -> list[Read]:
    """The functions and classes that a module defines, or imports from the package."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    definitions: dict[str, Read] = {}
    for node in tree.body:
        if isinstance(node, Definition):
            definitions[node.name] = _read(node, node.name)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("einkorn."):
            for alias in node.names:
                definition = _definition(node.module, alias.name)
                if definition is not None:
                    definitions[alias.asname or alias.name] = _read(definition, alias.asname or alias.name)
    return [value for name, value in sorted(definitions.items()) if not name.startswith("_")]


def _definition(module: str, name: str, depth: int = 3) -> Definition | None:
    """The definition of a name in a module of the package, or where that imports it from."""
    path = ROOT.joinpath(*module.split(".")[1:])
    file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    if not file.is_file() or not depth:
        return None
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, Definition) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            own = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
            base = own[: len(own) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            return _definition(target, original, depth - 1)
    return None


def _read(node: Definition, name: str) -> Read:
    doc = ast.get_docstring(node) or ""
    if not isinstance(node, ast.ClassDef):
        return Read(name, "function", _signature(node), doc)
    makers = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    return Read(name, "class", _signature(makers[0], 1) if makers else "", doc, list(_members(node, name)))


def _members(owner: ast.ClassDef, name: str) -> Iterator[Read]:
    for node in owner.body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
        kind = next((k for k in ("classmethod", "staticmethod") if k in decorators), "method")
        kind = "property" if {"property", "cached_property"} & decorators else kind
        signature = "" if kind == "property" else _signature(node, 0 if kind == "staticmethod" else 1)
        yield Read(f"{name}.{node.name}", kind, signature, ast.get_docstring(node) or "")


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, skipped: int = 0) -> str:
    arguments = node.args
    first = arguments.posonlyargs if arguments.posonlyargs else arguments.args
    del first[:skipped]
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None and not skipped else ""
    return f"({ast.unparse(arguments)}){result}"
