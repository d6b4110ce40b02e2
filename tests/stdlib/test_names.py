"""What `einkorn.stdlib` exports: three lists of one set of names, for Python, for type checkers, and to find files."""

from __future__ import annotations

import ast
import inspect

from einkorn import stdlib


def test_every_name_comes_from_its_file() -> None:
    tree = ast.parse(inspect.getsource(stdlib))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: f"einkorn.stdlib.{node.module}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(seen) == sorted(stdlib.__all__) == sorted(stdlib._HOMES)
    for name, file in seen.items():
        assert file == f"einkorn.stdlib.{stdlib._HOMES[name]}"
        value = getattr(stdlib, name)
        function = getattr(value, "function", value)
        assert getattr(function, "__module__", file) == file, name
