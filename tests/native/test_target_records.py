"""A target is one record: nothing but `compiler/targets` compares kinds, names or formats, and one row makes one."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.cli.application import run as einkorn
from einkorn.compiler import targets
from einkorn.compiler.targets import host, known, lookup, named
from einkorn.dsl.contract.code_formats import FORMATS
from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.container import read_package
from einkorn.graph import ops

ROOT = Path(__file__).parents[2]
HOME = ROOT / "compiler" / "targets"
DEVICES = ROOT / "graph" / "driver"  # kinds of devices have a table of their own
KINDS = {lookup(name).kind for name in known()}
TEXTS = {*KINDS, *FORMATS, *known()} - {"host"}  # which is a part of an op, too
FACTS = {"name", "kind", "triple", "cpu", "architecture", "dialect", "suffix"}


def product() -> Iterator[Path]:
    for folder in ("compiler", "graph", "dsl"):
        yield from (file for file in sorted((ROOT / folder).rglob("*.py")) if not {HOME, DEVICES} & set(file.parents))
    yield from sorted(ROOT.glob("*.py"))


def is_targets(node: ast.AST) -> bool:
    """Whether an expression is a target's name, kind, ...: `x.target.kind`, `target.name`, `target.format.suffix`."""
    if isinstance(node, ast.Name):
        return node.id == "target"
    return isinstance(node, ast.Attribute) and (
        node.attr in ("target", "object_kind")
        or (node.attr in {*FACTS, "format"} and is_targets(node.value))
        or (node.attr in FACTS and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "lookup")
    )


def texts(node: ast.AST) -> set[str]:
    return {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}


def comparisons(tree: ast.Module) -> Iterator[int]:
    """The lines on which code is chosen by what a target is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(texts(side) & TEXTS for side in sides) or (
                any(is_targets(side) for side in sides) and any(texts(side) for side in sides)
            ):
                yield node.lineno
        elif isinstance(node, ast.Match):
            cases = set().union(*(texts(case.pattern) for case in node.cases))
            if cases & TEXTS or (cases and is_targets(node.subject)):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("startswith", "endswith", "find") and is_targets(node.func.value):
                yield node.lineno
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Attribute) and is_targets(node.slice):
            yield node.lineno  # a table by name or kind


def test_nothing_compares_what_targets_are_called() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: read a feature or a fact of the target (compiler/targets/base.py)"
        for file in product()
        for line in comparisons(ast.parse(file.read_text()))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('x = target.kind == "metal"', True),
        ('if e.target.name != "host": pass', True),
        ('x = variant.kind in ("so", "dylib")', True),
        ('x = backend == "cuda"', True),
        ('x = target.startswith("x86-64")', True),
        ("x = TABLE[target.kind]", True),
        ("x = TABLE[target.format.suffix]", True),
        ('match target.kind:\n    case "other": pass', True),
        ('x = level == "host"', False),
        ("x = target.name in ready", False),
        ('x = target.supports("f16")', False),
    ],
)
def test_the_search_finds_them(text: str, wrong: bool) -> None:
    assert bool(list(comparisons(ast.parse(text)))) == wrong


KERNEL = """
from einkorn.dsl import InputTensor, OutputTensor, float16, float32, foreach, register


@register("scaled")
def scaled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, a: float = 2.0):
    foreach(out, lambda i: a * x[i])


@register("halves")
def halves(out: OutputTensor[float16, "m n"], x: InputTensor[float32, "m n"]):
    foreach(out, lambda i: x[i].cast(float16))
"""
Run = Callable[..., str]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("kernels.py").write_text(KERNEL)

    def call(*arguments: str) -> str:
        status = einkorn(list(arguments))
        captured = capfd.readouterr()
        assert status == 0, captured.err
        return captured.out

    return call


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    """A family of one target, made by one record and known by one row: a CPU with another name and fewer features."""
    like = named(host())
    record = replace(like, name="toy-1", kind="toy", capabilities=like.capabilities - {"f16c"})
    monkeypatch.setitem(targets._TARGETS, record.name, record)
    return record.name


def test_a_family_is_one_record(toy: str, run: Run) -> None:
    assert re.search(rf"^toy-1 +toy +{host().triple} +yes", run("targets"), re.MULTILINE)
    shown = run("build", "kernels.py", "-o", "toy.pkg", "--target", toy)
    assert re.search(r"^toy-1 +scaled .* so ", shown, re.MULTILINE)
    compiled = {(v.op, v.target, v.kind) for v in read_package("toy.pkg").variants}
    assert compiled == {("scaled", toy, "so"), ("halves", toy, "so")}
    assert "toy.pkg: all 6 members match the manifest" in run("pkg", "verify", "toy.pkg")
    assert "toy-1" in run("pkg", "info", "toy.pkg")
    assert run("check", "kernels.py", "--target", toy).startswith("1 file, 2 kernels")
    run("explore", "kernels.py", "--op", "scaled", "--target", toy, "-o", "page.html")
    assert 'data-target="toy-1"' in Path("page.html").read_text()


@pytest.mark.parametrize("like", ["x86-64-v3", "aarch64", "sm_90", "gfx942"])
def test_code_does_not_depend_on_names(like: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(targets._TARGETS, "toy-2", replace(lookup(like), name="toy-2", kind="toy"))
    run("build", "kernels.py", "-o", "both.pkg", "--target", like, "--target", "toy-2")
    package = read_package("both.pkg")
    codes = {(variant.op, variant.target): package.code(variant) for variant in package.variants}
    assert codes["scaled", "toy-2"] == codes["scaled", like] and codes["halves", "toy-2"] == codes["halves", like]


@pytest.mark.parametrize("name", known())
def test_records_are_whole(name: str) -> None:
    target = lookup(name)
    assert FORMATS[target.format.suffix] is target.format
    assert target.format.in_process == target.has_context == (target.system is not None)
    assert bool(target.dialect) == target.has_grid and len(target.prefetch) in (0, 4)
    assert bool(target.cpu) != bool(target.identity)
    assert not target.has_grid or (target.limits.threads_per_block > 1 and target.supports("f16c"))


def test_lowering_follows_the_record(toy: str, run: Run) -> None:
    def stage(name: str, target: str) -> str:
        return run("inspect", "kernels.py", "--op", "halves", "--target", target, "--stage", name)

    assert "arith.truncf" not in stage("mlir", toy)  # no instruction for it, says the record
    assert "arith.truncf" in stage("mlir", "sm_90")
    assert "f16" not in stage("llvm", toy).replace("halves", "") and stage("asm", toy)


def test_code_of_a_family_runs_where_the_record_fits(toy: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("build", "kernels.py", "-o", "toy.pkg", "--target", toy)
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    x = np.linspace(-3, 3, 100, dtype=np.float32).reshape(10, 10)

    def halves(x: Any) -> Any:
        return ops.custom("halves", device=graphs.HOST, values=[x], out_types=[graphs.tensor_type(np.float16, x.shape)])

    assert (graphs.run(halves, x, extensions="toy.pkg")[0] == x.astype(np.float16)).all()
    record = targets._TARGETS[toy]
    monkeypatch.setitem(targets._TARGETS, toy, replace(record, needs=record.needs | {"antigravity"}))
    with pytest.raises(PackageError, match="no ready-made code"):
        graphs.run(halves, x, extensions="toy.pkg")
