"""A class name has one meaning: no two modules of the product and the benchmarks define classes of one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from .test_architecture import ROOT

FOLDERS = ("dsl", "compiler", "stdlib", "graph", "cli", "testing", "benchmarks")
# Names that two modules may have, and why.
SHARED_NAMES = {
    "AnyDType": "an annotation of kernels, which type checkers read as the protocol of its members",
    "AnyTensor": "an annotation of kernels, which type checkers read as the protocol of its members",
    "Generator": "an expression of Python's syntax tree, which packages store by name; public in `graph.nn`",
    "Target": "kernels see as `target` what the compiler's record of a target says",
    "Value": "LLVM's and MLIR's word for a result of an operation; public in `graph`",
}


def classes(source: str) -> Iterator[str]:
    """The names of the classes that a module defines, within functions and other classes, too."""
    return (node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))


def test_a_class_name_has_one_meaning() -> None:
    modules = defaultdict(set)
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for name in classes(file.read_text(encoding="utf-8")):
                modules[name].add(str(file.relative_to(ROOT)))
    several = {name: sorted(files) for name, files in modules.items() if len(files) > 1}
    doubled = {name: files for name, files in several.items() if name not in SHARED_NAMES}
    assert not doubled, f"rename all but one, by what they are: {doubled}"
    assert several.keys() == SHARED_NAMES.keys(), "SHARED_NAMES lists names that no longer have two meanings"


def test_nested_classes_count() -> None:
    assert list(classes("class A:\n    class B: ...\ndef f():\n    class C: ...\n")) == ["A", "B", "C"]
