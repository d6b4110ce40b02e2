"""The tables of ops: what a row says agrees with its kernel, with what type checkers see, and with the page of ops."""

from __future__ import annotations

import ast
import inspect
import operator
from pathlib import Path
from typing import Any

import pytest
from support import op_page

from einkorn.dsl.signature.schema import OpSchema
from einkorn.dsl.types.dtype import DType
from einkorn.graph import BufferValue, TensorValue, ops
from einkorn.graph.ops.operands import KINDS
from einkorn.graph.ops.stage import METHODS, OPS, BuiltinOp
from einkorn.graph.staging import value
from einkorn.graph.staging.kernels import kernel_family

ROWS = sorted(name for name, op in OPS.items() if op.kernel is not None)
FOLDER = Path(inspect.getfile(ops)).parent


def schema_of(op: BuiltinOp) -> OpSchema:
    assert op.kernel is not None
    family, name = op.kernel
    return kernel_family(family).kernels[name].schema


def allowed(schema: OpSchema, dtype: DType | str) -> set[DType]:
    return {dtype} if isinstance(dtype, DType) else set(dict(schema.typevars)[dtype])


def test_there_are_rows() -> None:
    assert len(ROWS) > 40 and set(ROWS) < set(OPS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_takes_the_dtypes_of_its_kernel(name: str) -> None:
    """Aside from integers that are computed in floats, and complex numbers that are computed by another kernel."""
    op, schema = OPS[name], schema_of(OPS[name])
    assert len(op.operands) == len(schema.inputs), "an operand for each tensor of the kernel"
    for kind, argument in zip(op.operands.values(), schema.inputs, strict=True):
        taken = set(KINDS[kind].dtypes)
        if op.integers is not None:
            taken = {dtype if dtype.is_float() or dtype.is_complex() else op.integers for dtype in taken}
        if op.bools is not None:
            taken = {op.bools if dtype is DType.bool else dtype for dtype in taken}
        held = allowed(schema, argument.dtype)
        if not any(dtype.is_complex() for dtype in held):
            taken = {dtype for dtype in taken if not dtype.is_complex()}
        assert taken == held, f"{argument.name} is {kind}"
    attributes = set(inspect.signature(op.function).parameters) - set(op.operands) - {"keepdims", "fast"}
    assert attributes == {parameter.name for parameter in schema.parameters}


def test_fast_rows_have_two_kernels_of_the_same_arguments() -> None:
    fast = [op for op in map(OPS.__getitem__, ROWS) if "fast" in inspect.signature(op.function).parameters]
    assert {f"{op.name}_fast" for op in fast} == set(kernel_family("fast").kernels)
    for op in fast:
        schema = kernel_family("fast").kernels[f"{op.name}_fast"].schema
        assert schema.parameters == schema_of(op).parameters
        assert [a.name for a in schema.inputs] == [a.name for a in schema_of(op).inputs]


@pytest.mark.parametrize("name", sorted(OPS))
def test_an_op_says_what_it_does(name: str) -> None:
    function: Any = operator.attrgetter(name)(ops)
    assert function is OPS[name].function and function.__name__ == name.rpartition(".")[2]
    assert function.__doc__ and function.__doc__.split("\n")[0].endswith((".", "…")), function.__doc__
    annotations = inspect.signature(function).parameters.values()
    assert all(parameter.annotation is not parameter.empty for parameter in annotations)


def declared(owner: type) -> dict[str, tuple[tuple[str, Any], ...]]:
    """Name -> parameters after the first, of the methods that `staging.value` declares for type checkers only."""
    tree = ast.parse(inspect.getsource(value))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__)
    blocks = [node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    functions = [node for block in blocks for node in block.body if isinstance(node, ast.FunctionDef)]
    return {node.name: parameters(node.args) for node in functions}


def parameters(arguments: ast.arguments) -> tuple[tuple[str, Any], ...]:
    names = [argument.arg for argument in arguments.args]
    defaults = [None] * (len(names) - len(arguments.defaults)) + [ast.unparse(node) for node in arguments.defaults]
    return tuple(zip(names, defaults, strict=True))[1:]


@pytest.mark.parametrize("owner", [TensorValue, BufferValue])
def test_type_checkers_see_the_methods_that_rows_add(owner: type) -> None:
    """A row with `method=` or `operator=` wants a line below `if TYPE_CHECKING` in `graph/staging/value.py`."""
    added = {name: function for (whose, name), function in METHODS.items() if whose is owner}
    seen = declared(owner)
    assert sorted(seen) == sorted(added)
    for name, function in added.items():
        assert getattr(owner, name) is function
        actual = list(inspect.signature(function).parameters.values())[1:]
        if name.startswith("__"):  # Python passes these by position
            actual = [p for p in actual if p.kind is not inspect.Parameter.KEYWORD_ONLY]
            assert len(actual) == len(seen[name]), name
        else:
            empty = inspect.Parameter.empty
            actual = [p for p in actual if p.kind is not inspect.Parameter.VAR_POSITIONAL]
            wanted = [(p.name, None if p.default is empty else repr(p.default)) for p in actual]
            assert list(seen[name]) == wanted, name


def test_type_checkers_see_the_ops_that_there_are() -> None:
    """Star imports give them every public name of a file, or those in its `__all__`."""
    seen: dict[str, str] = {}
    for line in (FOLDER / "__init__.py").read_text().splitlines():
        if line.strip().startswith("from .") and line.endswith("import *"):
            file = line.split()[1].lstrip(".")
            for node in ast.parse((FOLDER / f"{file}.py").read_text()).body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                    names = ast.literal_eval(node.value)
                    seen = {k: v for k, v in seen.items() if v != file} | dict.fromkeys(names, file)
                    break
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    seen[node.name] = file
    modules = {name.partition(".")[0] for name in OPS if "." in name}
    assert sorted(seen) == sorted(name for name in OPS if "." not in name)
    assert sorted({*seen, *modules}) == ops.__all__
    for name in modules:
        assert f"from . import {name} as {name}" in (FOLDER / "__init__.py").read_text()


def test_the_page_of_ops_is_the_table() -> None:
    text = op_page.PAGE.read_text(encoding="utf-8")
    assert text == op_page.page(), "run: python tests/support/op_page.py"
    again = sum(bool(op.host_only) for op in OPS.values())  # they are listed with the reason, too
    assert text.count("\n| `") == len(OPS) + again
