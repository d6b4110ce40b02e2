"""Syntax trees where CPython's own parser is disturbed by other threads."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from einkorn.dsl.diagnostics.syntax_trees import ATTEMPTS, expression_tree, syntax_tree


class Disturbed:
    """A parser that fails as CPython 3.11.7 does where threads parse side by side."""

    def __init__(self, failures: int) -> None:
        self.parse, self.failures, self.calls = ast.parse, failures, 0

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        if self.calls <= self.failures:
            raise SystemError("AST constructor recursion depth mismatch (before=18, after=11)")
        return self.parse(*given)


def test_text_is_parsed_again_where_other_threads_disturb_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ast, "parse", Disturbed(2))
    assert ast.unparse(syntax_tree("x = 1", "a.py")) == "x = 1"
    monkeypatch.setattr(ast, "parse", Disturbed(2))
    assert ast.unparse(expression_tree("x + 1")) == "x + 1"


def test_a_parser_that_always_fails_gives_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = Disturbed(2 * ATTEMPTS)
    monkeypatch.setattr(ast, "parse", parser)
    with pytest.raises(SystemError, match="depth mismatch"):
        syntax_tree("x = 1")
    assert parser.calls == ATTEMPTS


def test_what_is_wrong_in_a_text_is_raised_at_once() -> None:
    with pytest.raises(SyntaxError) as caught:
        syntax_tree("x = = 1", "a.py")
    assert (caught.value.filename, caught.value.lineno) == ("a.py", 1)
    with pytest.raises(SyntaxError):
        expression_tree("x = 1")
