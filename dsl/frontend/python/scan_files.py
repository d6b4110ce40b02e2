"""Finds which files of a folder register kernels, from their text: nothing is run to find out.

Loading a folder imports the files that register kernels, and what these import. Scripts, tests and helpers next to them
are not run. A file registers kernels when it calls `register` of the language at the top level of the module (in `if`,
`try`, `with` and loops too): under whatever name it imports it, through an alias, through a function of its own or of a
neighbour that calls it, or through a decorator from elsewhere over a function that takes output tensors.

Files for tests (`test_*.py`, `*_test.py`, `conftest.py`) belong to no folder's library; code that means one names it.
What is not valid Python registers kernels when its text speaks of `register`, so that its mistakes are shown.

See also `frontend.python.import_file` (which kernels; importing).
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from ...diagnostics.installation import PACKAGE
from ...diagnostics.shield import raise_if_of_handler
from ...diagnostics.syntax_trees import syntax_tree

REGISTER = "register"
OUTPUTS = ("OutputTensor", "MutableInputTensor", "OutputVariadicTensors")
_TESTS = re.compile(r"(test_.*|.*_test|conftest)\.py")


def is_test(file: Path) -> bool:
    """Whether a file is one for pytest, by its name."""
    return _TESTS.fullmatch(file.name) is not None


def registers(file: Path, root: Path) -> bool:
    """Whether a file registers kernels; True where it cannot be read, so that importing it says why.

    `root` is the folder in which absolute imports find its neighbours.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise_if_of_handler(error)
        return True
    scan = _Scan(file, root, {})
    try:
        scan.module(_parsed(data))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise_if_of_handler(error)
        return REGISTER.encode() in data
    return scan.has_kernels


def is_broken(file: Path) -> bool:
    """Whether a file is not valid Python."""
    try:
        _parsed(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise_if_of_handler(error)
        return True
    return False


def _parsed(data: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come when the file is imported
        return syntax_tree(data)


class _Scan:
    """Reads one module from top to bottom. `offers` holds what neighbours offer, those being read among them."""

    def __init__(self, file: Path, root: Path, offers: dict[Path, frozenset[str]]) -> None:
        self.file = file
        self.root = root
        self.offers = offers
        self.names: set[str] = set()  # that stand for `register`, or for something that calls it
        self.modules: dict[str, frozenset[str]] = {}  # names of modules, with such names in them
        self.has_kernels = False

    def module(self, tree: ast.Module) -> None:
        self.block(tree.body)

    def block(self, statements: Iterable[ast.stmt]) -> None:
        for node in statements:
            match node:
                case ast.Import():
                    self.imported(node)
                case ast.ImportFrom():
                    self.imported_from(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.function(node)
                case ast.ClassDef():
                    self.has_kernels = self.has_kernels or any(map(self.mentions, node.decorator_list))
                    self.block(node.body)
                case ast.If() if _is_main(node.test):
                    self.block(node.orelse)
                case _:
                    self.others(node)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if any(map(self.mentions, node.decorator_list)) or (node.decorator_list and _takes_outputs(node)):
            self.has_kernels = True
        elif any(map(self.mentions, node.body)):
            self.names.add(node.name)

    def others(self, node: ast.stmt) -> None:
        """Expressions that are evaluated now, and the blocks of a statement."""
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt):
                self.block([part])
            elif isinstance(part, ast.ExceptHandler | ast.match_case):
                self.block(part.body)
            elif any(isinstance(call, ast.Call) and self.mentions(call.func) for call in ast.walk(part)):
                self.has_kernels = True
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and value is not None and self.mentions(value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            self.names |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}

    def mentions(self, node: ast.AST) -> bool:
        """Whether something in a piece of text stands for `register`."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self.names:
                return True
            if isinstance(part, ast.Attribute):
                owner: ast.expr = part.value
                while isinstance(owner, ast.Attribute):
                    owner = owner.value
                if isinstance(owner, ast.Name) and part.attr in self.modules.get(owner.id, ()):
                    return True
        return False

    # *** imports ***

    def imported(self, node: ast.Import) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self.modules[bound] = self.modules.get(bound, frozenset()) | self.offered(0, alias.name)

    def imported_from(self, node: ast.ImportFrom) -> None:
        offered = self.offered(node.level, node.module or "")
        for alias in node.names:
            bound = alias.asname or alias.name
            if alias.name == "*":
                self.names |= offered
            elif alias.name in offered:
                self.names.add(bound)
            else:  # it may be a module
                self.modules[bound] = self.offered(node.level, ".".join(filter(None, (node.module, alias.name))))

    def offered(self, level: int, name: str) -> frozenset[str]:
        """The names of a module that stand for `register`; none of one that is neither a neighbour nor the language."""
        top = name.partition(".")[0]
        if level == 0 and top == PACKAGE:
            return frozenset({REGISTER})
        if level == 0 and top in sys.stdlib_module_names:
            return frozenset()
        folder = self.root if level == 0 else self.file.parents[min(level, len(self.file.parents)) - 1]
        path = folder.joinpath(*name.split(".")) if name else folder
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file not in self.offers:
                self.offers[file] = frozenset()  # for those that import each other
                self.offers[file] = self.neighbour(file)
            if self.offers[file]:
                return self.offers[file]
        return frozenset()

    def neighbour(self, file: Path) -> frozenset[str]:
        scan = _Scan(file, self.root, self.offers)
        try:
            scan.module(_parsed(file.read_bytes()))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise_if_of_handler(error)
            return frozenset()
        return frozenset(scan.names)


def _is_main(test: ast.expr) -> bool:
    """`__name__ == "__main__"`: what follows is not run when the file is imported."""
    names = {part.id for part in ast.walk(test) if isinstance(part, ast.Name)}
    texts = {part.value for part in ast.walk(test) if isinstance(part, ast.Constant)}
    return "__name__" in names and "__main__" in texts


def _takes_outputs(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function has an argument that only kernels have."""
    annotations = [argument.annotation for argument in (*node.args.posonlyargs, *node.args.args)]
    for annotation in filter(None, annotations):
        for part in ast.walk(annotation):
            text = {ast.Name: "id", ast.Attribute: "attr", ast.Constant: "value"}.get(type(part))
            if text is not None and any(output in str(getattr(part, text)) for output in OUTPUTS):
                return True
    return False
