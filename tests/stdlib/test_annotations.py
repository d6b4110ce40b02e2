"""What functions of the library say of their arguments is true: kernels are evaluated with these annotations checked.

Compilations do not check them, so that they cost nothing: see `ExpressionParser.annotation`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from einkorn.compiler.check import failures, representative_instances
from einkorn.compiler.targets import lookup
from einkorn.dsl.diagnostics.errors import each_of
from einkorn.dsl.frontend.python import collect, expressions
from einkorn.dsl.package.library import library_of

FAMILIES = ("scans", "activations", "gathering", "rearranging")


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(expressions, "is_shipped", lambda file: False)
    collect.operator_program.cache_clear()
    yield
    collect.operator_program.cache_clear()


def refused(family: str) -> tuple[int, list[str]]:
    """How many instances of a family's kernels were evaluated, and what was refused for an annotation."""
    evaluated, actual = 0, []
    for kernel in library_of(importlib.import_module(f"einkorn.stdlib.kernels.{family}")).kernels.values():
        for error in failures(kernel, representative_instances(kernel.schema), [lookup("host")]):
            evaluated += error is None
            actual += [str(each) for each in each_of(error) if "is declared as" in str(each)] if error else []
    return evaluated, actual


@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_are_what_they_are_declared_as(checked: None, family: str) -> None:
    evaluated, violations = refused(family)
    assert evaluated > 3
    assert not violations, "\n".join(violations)
