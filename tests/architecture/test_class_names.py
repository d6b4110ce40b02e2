"""A class name has one meaning: no two modules of the product and the benchmarks define classes of one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from support.syntax_nodes import nodes

from .test_architecture import ROOT, modules, tree

FOLDERS = ("dsl", "compiler", "stdlib", "graph", "cli", "testing", "benchmarks")
# Names that two modules may have, and why.
SHARED_NAMES = {
    "AnyDType": "an annotation of kernels, which type checkers read as the protocol of its members",
    "AnyTensor": "an annotation of kernels, which type checkers read as the protocol of its members",
    "Generator": "an expression of Python's syntax tree, which packages store by name; public in `graph.nn`",
    "Target": "kernels see as `target` what the compiler's record of a target says",
    "Value": "LLVM's and MLIR's word for a result of an operation; public in `graph`",
}


def classes(module: ast.Module) -> Iterator[str]:
    """The names of the classes that a module defines, within functions and other classes, too."""
    return (node.name for node in nodes(module, ast.ClassDef))


def parsed() -> Iterator[tuple[str, ast.Module]]:
    """Each file of `FOLDERS`, with its tree."""
    known = {file: name for name, file in modules().items()}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            module = tree(known[file]) if file in known else ast.parse(file.read_text(encoding="utf-8"))
            yield str(file.relative_to(ROOT)), module


def test_a_class_name_has_one_meaning() -> None:
    defined = defaultdict(set)
    for file, module in parsed():
        for name in classes(module):
            defined[name].add(file)
    several = {name: sorted(files) for name, files in defined.items() if len(files) > 1}
    doubled = {name: files for name, files in several.items() if name not in SHARED_NAMES}
    assert not doubled, f"rename all but one, by what they are: {doubled}"
    assert several.keys() == SHARED_NAMES.keys(), "SHARED_NAMES lists names that no longer have two meanings"


def test_nested_classes_count() -> None:
    assert list(classes(ast.parse("class A:\n    class B: ...\ndef f():\n    class C: ...\n"))) == ["A", "B", "C"]
