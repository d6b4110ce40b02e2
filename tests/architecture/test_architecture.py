"""The house keeps its shape: which package may import which, no islands, a package list that is the tree, rooms of one
idea.

Read DESIGN's rules off the syntax trees of all files; nothing is imported here except in a process of its own.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.syntax_nodes import nodes

import einkorn

ROOT = Path(__file__).parents[2]
FLOORS = ("dsl", "compiler", "stdlib", "graph", "testing", "cli")
# Which floors a floor may import in addition to itself, at the top of its files. Files in the root may import all.
MAY_IMPORT = {
    "dsl": set(),
    "compiler": {"dsl"},
    "stdlib": {"dsl"},
    "graph": {"dsl"},
    "testing": {"dsl", "graph"},
    "cli": {"dsl", "compiler", "graph", "testing"},
    "": set(FLOORS) - {"stdlib"},
}
DOOR = "graph.loading.compile"  # the one file of the graph floor that imports the compiler
# What may import our own modules inside functions.
LATE_IMPORTS = {DOOR, "cli.application", "cli.commands", "cli.inspected"}
# What is imported where it is first needed, since most runs never need it.
OPENED_LATE = {
    DOOR,
    "dsl.package.container",
    "dsl.package.findings",
    "graph.interop.tuned",
    "graph.checking.fusion_check",
    "graph.engine.export",
    "graph.engine.packaged_model",
    "graph.loading.packaged_code",
    "graph.passes.summaries",
    "graph.driver.cuda",
    "graph.driver.hip",
    "graph.driver.simulated",
    "graph.findings.device_reports",
    "graph.findings.findings",
    "graph.calling.schedules",
    "graph.profiling.memory_counters",
    "graph.onnx.importer",
    "graph.drawing.dot",
    "graph.drawing.page",
    "graph.distributed.mpi",
}
# Imported by users, by Python itself, by kinds of devices that are added.
ENTRIES = {"", "__main__", "testing", "errors", "graph.nn", "graph.weights", "graph.driver.halves"}
ENTRIES |= {"graph.interop.tuning_child"}  # a process of its own
MAX_FILE, MAX_FUNCTION = 600, 60


def package_list() -> list[str]:
    """The packages by their folders: `einkorn.torch`, as it is installed, is `einkorn.graph.public.torch`."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        settings = tomllib.load(file)["tool"]["setuptools"]
    folders = {name: folder for name, folder in settings["package-dir"].items() if folder != "."}
    moved = {name: ".".join(("einkorn", *Path(folder).parts)) for name, folder in folders.items()}
    return [moved.get(name, name) for name in settings["packages"]]


@cache
def modules() -> dict[str, Path]:
    """Name without the leading `einkorn.` -> file, for every module of the package; the package itself is ''."""
    collected = {}
    for package in package_list():
        folder = ROOT.joinpath(*package.split(".")[1:])
        for file in sorted(folder.glob("*.py")):
            parts = [*package.split(".")[1:], *([] if file.stem == "__init__" else [file.stem])]
            collected[".".join(parts)] = file
    return collected


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(), str(modules()[name]))


def floor(name: str) -> str:
    return name.split(".")[0] if name.split(".")[0] in FLOORS else ""


@cache
def imports(name: str) -> tuple[tuple[str, int, bool, bool], ...]:
    """What a module imports of Einkorn: (module, line, inside a function, only for type checkers)."""

    def visit(node: ast.AST, late: bool, typing: bool) -> Iterator[tuple[str, int, bool, bool]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            late = True
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            typing = True
        if isinstance(node, ast.ImportFrom | ast.Import):
            for target in targets(name, node):
                yield target, node.lineno, late, typing
        if not isinstance(node, ast.expr):  # no expression holds an import
            for child in ast.iter_child_nodes(node):
                yield from visit(child, late, typing)

    return tuple(visit(tree(name), False, False))


def targets(name: str, node: ast.ImportFrom | ast.Import) -> Iterator[str]:
    """The modules of Einkorn that an import statement in module `name` loads."""
    if isinstance(node, ast.Import):
        absolute = [alias.name for alias in node.names]
        yield from (n.removeprefix("einkorn").lstrip(".") for n in absolute if n.split(".")[0] == "einkorn")
        return
    if node.level:
        parts = name.split(".") if name else []
        if modules()[name].stem != "__init__":
            parts = parts[:-1]
        base = parts[: len(parts) - (node.level - 1)] + (node.module.split(".") if node.module else [])
    elif node.module and node.module.split(".")[0] == "einkorn":
        base = node.module.split(".")[1:]
    else:
        return
    for alias in node.names:
        whole = ".".join([*base, alias.name])
        yield whole if whole in modules() else ".".join(base)


def where(name: str, line: int) -> str:
    return f"{modules()[name].relative_to(ROOT)}:{line}"


def test_the_modules_are_found() -> None:
    assert {"", "__main__", "dsl.diagnostics.errors", "compiler.targets", "graph"} <= set(modules())


def test_imports_go_one_way() -> None:
    wrong = []
    for name in modules():
        allowed = MAY_IMPORT[floor(name)] | {floor(name)} | ({"compiler"} if name == DOOR else set())
        for target, line, _, _ in imports(name):
            if floor(target) not in allowed:
                wrong.append(f"{where(name, line)}: {floor(name) or 'the root'} imports {target or 'the root'}")
    assert not wrong, "\n".join(wrong)


def test_functions_import_no_module_of_einkorn() -> None:
    wrong = [
        f"{where(name, line)}: {target}"
        for name in modules()
        if name not in LATE_IMPORTS
        for target, line, late, typing in imports(name)
        if late and not typing and target not in OPENED_LATE
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_name_things_that_exist() -> None:
    """A relative import of a missing module would only fail when it runs."""
    wrong = [
        f"{where(name, line)}: {target}"
        for name in modules()
        for target, line, _, _ in imports(name)
        if target not in modules()
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_is_an_island() -> None:
    """Each is reached from what users import. Stdlib's kernel files are loaded by the kernel loader instead."""
    entries = list(ENTRIES) + [provider for _, provider, _ in extension_points()]
    entries += [name for name in modules() if floor(name) == "stdlib" or name.startswith("graph.public")]
    reached, todo = set(), [*entries, "dsl", "graph"]
    while todo:
        name = todo.pop()
        if name in modules() and name not in reached:
            reached.add(name)
            todo += [target for target, *_ in imports(name)]
            todo += [".".join(name.split(".")[:-1])]  # importing a module imports its packages
    assert sorted(set(modules()) - reached) == []


@cache
def extension_points() -> tuple[tuple[str, str, str], ...]:
    """Where each extension point is declared, the module that provides it, and the name there."""
    collected = []
    for name in modules():
        for node in nodes(tree(name), ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "ExtensionPoint":
                texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
                assert len(texts) == len(node.args) and not node.keywords, f"{where(name, node.lineno)}: write texts"
                provider, *attribute = map(str, texts)
                provider = provider if provider in modules() else f"graph.public.{provider}"
                collected.append((name, provider, "".join(attribute)))
    return tuple(collected)


def test_extension_points_are_provided_and_listed() -> None:
    """Each names a function or a class of a module that is there; docs/architecture.md has a row for each."""
    wrong, rows = [], []
    for name, provider, attribute in extension_points():
        body = tree(provider).body if provider in modules() else []
        defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        if provider not in modules() or (attribute and attribute not in defined):
            wrong.append(f"{name}: {provider} does not define {attribute or 'anything'}")
        rows.append((name, f"{provider}.{attribute}".rstrip(".")))
    assert not wrong, "\n".join(wrong)
    page = (ROOT / "docs" / "architecture.md").read_text()
    _, _, section = page.partition("## Extension points")
    listed = re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(listed) == sorted(rows)


def test_the_package_list_is_the_tree() -> None:
    folders = {
        ".".join(("einkorn", *file.parent.relative_to(ROOT).parts))
        for floor in FLOORS
        for file in (ROOT / floor).rglob("__init__.py")
    }
    assert sorted(package_list()) == sorted(folders | {"einkorn"})
    strangers = [
        str(file.relative_to(ROOT))
        for floor in FLOORS
        for file in (ROOT / floor).rglob("*.py")
        if not (file.parent / "__init__.py").exists()
    ]
    assert not strangers, f"not in any package: {strangers}"


HEAVY = ("llvmlite", "torch_mlir", "mlir", "torch", "jax", "numba", "onnx", "cuda", "hip", "mpi4py", "dask", "ray")
# What is about kernels on devices, of which a machine without a GPU has none; and what is opened late.
FOR_DEVICES = {
    *("dsl.contract.checking", "dsl.contract.kernels", "graph.driver.checked_memory", "graph.driver.gpu"),
    *(
        "graph.driver.gpu_library",
        "graph.driver.halves",
        "graph.profiling.line_counters",
        "graph.profiling.memory_page",
    ),
}


def test_importing_loads_nothing_heavy_and_nothing_for_gpus() -> None:
    names = ["einkorn", "einkorn.dsl", "einkorn.stdlib", "einkorn.__main__", "einkorn.graph"]
    code = f"import importlib, sys\nfor name in {names}:\n    importlib.import_module(name)\n    print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    late = {f"einkorn.{name}" for name in (OPENED_LATE - {DOOR}) | FOR_DEVICES}
    assert late <= {f"einkorn.{name}" for name in modules()}
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        loaded = line.split()
        assert name in loaded
        assert not [each for each in loaded if each.split(".")[0] in HEAVY or each in late], name


def test_rooms_hold_one_idea() -> None:
    long = []
    for name, file in modules().items():
        lines = file.read_text().count("\n")
        if lines > MAX_FILE:
            long.append(f"{file.relative_to(ROOT)}: {lines} lines (at most {MAX_FILE})")
        for node in nodes(tree(name), ast.FunctionDef, ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length <= MAX_FUNCTION:  # with heads of any length
                continue
            inner = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            length -= sum(n.body[0].lineno - n.lineno - 1 for n in inner)  # a head counts as one line
            if length > MAX_FUNCTION:
                long.append(f"{where(name, node.lineno)}: {node.name} has {length} lines (at most {MAX_FUNCTION})")
    assert not long, "\n".join(long)


def test_every_module_says_what_it_is() -> None:
    wrong = [str(modules()[name].relative_to(ROOT)) for name in modules() if not ast.get_docstring(tree(name))]
    assert not wrong, f"no docstring: {wrong}"


def ours() -> list[Path]:
    """The files that belong to the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_machine_or_a_registry() -> None:
    # Taken apart, so that this file does not find itself.
    folders = "|".join(("ho" + "me", "Us" + "ers", "ro" + "ot", "wo" + "rk", "o" + "pt", "m" + "nt"))
    hosts = "|".join(("files.python" + "hosted", "pypi.org/" + "simple", "--index-" + "url", "--extra-index-" + "url"))
    pattern = re.compile(rf"(?<![\w.~)/}}\]>-])/(?:{folders})/[\w.-]+|/t" + rf"mp/\w+|{hosts}")
    violations = []
    for file in ours():
        try:
            lines = file.read_text().splitlines()
        except UnicodeDecodeError:  # a picture
            continue
        violations += [
            f"{file.relative_to(ROOT)}:{number}: {match[0]}"
            for number, line in enumerate(lines, 1)
            for match in [pattern.search(line)]
            if match
        ]
    assert not violations, "\n".join(violations)


def test_modules_of_the_root_stand_before_no_other() -> None:
    """The root of the repository is on `sys.path` of whatever starts Python there."""
    others = sys.stdlib_module_names | {"torch", "jax", "numba", "numpy", "tensor", "functional"}
    assert not sorted({file.stem for file in ROOT.glob("*.py")} & others)
    assert not sorted({file.parent.name for file in ROOT.glob("*/__init__.py")} & others)


def test_public_modules_are_found_by_their_short_names() -> None:
    assert [Path(folder).name for folder in einkorn.__path__][-1] == "public"
    files = sorted((ROOT / "graph" / "public").glob("*/__init__.py"))
    assert len(files) >= 6
    for file in files:
        actual = importlib.util.find_spec(f"einkorn.{file.parent.name}")
        assert actual is not None and actual.origin is not None and Path(actual.origin).samefile(file)


def test_tests_run_without_the_optional_packages() -> None:
    """A test file that needs PyTorch or JAX is skipped where they are not installed: it does not end the whole run."""
    needs = re.compile(r"^(?:import|from) (?:einkorn\.)?(?:torch|jax)\b", re.MULTILINE)
    files = (file for file in (ROOT / "tests").rglob("test_*.py") if needs.search(file.read_text(encoding="utf-8")))
    assert not [file.name for file in files if "importorskip(" not in file.read_text(encoding="utf-8")]
