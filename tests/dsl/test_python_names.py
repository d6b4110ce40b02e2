"""`from einkorn.dsl import *` keeps Python's names working, and exceptions are exported from `einkorn.errors`."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn import dsl, errors, stdlib
from einkorn.dsl.diagnostics import errors as defined
from einkorn.graph import Buffer, Dim

DOCS = Path(__file__).resolve().parents[2] / "docs"
SHARED = sorted(name for name in dsl.__all__ if hasattr(builtins, name))
SIX = np.arange(-3, 3)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("abs", (-3,), {}),
    ("abs", (-2.5 + 1j,), {}),
    ("abs", (SIX,), {}),
    ("abs", (np.float32(-2),), {}),
    ("max", ([1, 5, 2],), {}),
    ("max", (1, 5, 2), {}),
    ("max", ("ab", "c"), {"key": len}),
    ("max", ((),), {"default": 7}),
    ("max", (SIX,), {}),
    ("max", (np.float64(2), 3), {}),
    ("min", ({"b": 1, "a": 2},), {}),
    ("min", ((3, 1, 2),), {}),
    ("min", (1.5, True), {}),
    ("pow", (2, 5, 7), {}),
    ("pow", (2.0, 0.5), {}),
    ("pow", (SIX, 2), {}),
    ("round", (2.5,), {}),
    ("round", (2.567,), {"ndigits": 1}),
    ("round", (1234, -2), {}),
    ("round", (np.float32(2.567), 1), {}),
]


@pytest.mark.parametrize("name, arguments, keywords", CALLS)
def test_python_names_do_what_pythons_do(name: str, arguments: Any, keywords: Any) -> None:
    wanted = getattr(builtins, name)(*arguments, **keywords)
    got = getattr(dsl, name)(*arguments, **keywords)
    assert type(got) is type(wanted) and np.array_equal(got, wanted)


def test_all_of_them_are_tried() -> None:
    assert sorted({name for name, _, _ in CALLS}) == SHARED


def test_their_mistakes_are_pythons() -> None:
    with pytest.raises(TypeError, match="bad operand type for abs"):
        dsl.abs("x")
    with pytest.raises(ValueError, match="empty"):
        dsl.max([])


def test_values_of_other_libraries_have_their_say() -> None:
    assert str(dsl.abs(Buffer.from_numpy(SIX.astype(np.float32)).to_numpy())[0]) == "3.0"
    assert dsl.max(Dim(3), Dim(4)) == Dim(4)


def test_one_helper_serves_python_and_kernels() -> None:
    kernels = dsl.kernels_of(
        """
from einkorn.dsl import *

def level(x):
    return round(min(max(x, 0.0), 9.0)) + abs(pow(x, 2))

@register("level")
def level_op(out: OutputTensor[float64, "n"], x: InputTensor[float64, "n"]):
    foreach(out, lambda i: level(x[i]))
"""
    )
    x = np.array([-1.5, 2.4, 12.0])
    level = kernels["level"].function.__globals__["level"]
    assert kernels["level"](x).tolist() == [level(v) for v in x.tolist()]


def test_what_is_not_pythons_is_for_kernels() -> None:
    with pytest.raises(errors.EinkornError) as caught:
        dsl.exp(1.0)
    assert caught.value.code == "EK0106"


def test_nothing_else_shadows_a_name_of_python() -> None:
    assert [name for name in stdlib.__all__ if hasattr(builtins, name)] == []


def test_the_exceptions_are_exported() -> None:
    classes = {
        name
        for name, value in vars(defined).items()
        if isinstance(value, type) and value.__module__ == defined.__name__
    }
    assert set(errors.__all__) == {name for name in classes if issubclass(getattr(defined, name), Exception)} - {
        "Remark"
    }
    assert all(getattr(errors, name) is getattr(defined, name) for name in errors.__all__)


def test_docs_import_them_from_there() -> None:
    pages = [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"), DOCS.parent / "README.md"]
    assert [page.name for page in pages if "einkorn.dsl.diagnostics" in page.read_text(encoding="utf-8")] == []
