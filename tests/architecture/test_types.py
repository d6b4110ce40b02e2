"""Types say something: arguments of the library are annotated, and functions take few arguments.

`LEFT` holds how many arguments of the library may still be unannotated or `Any`, and `LONG` how many of its functions
may have more than eight arguments. `UNKNOWN` holds how often `Any` stands in each floor. A count may only fall: lower
the number then.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from support.syntax_nodes import nodes

from .test_architecture import floor, modules, tree

LEFT = 0
LONG = 0
UNKNOWN = {"": 1, "cli": 11, "compiler": 767, "dsl": 1131, "graph": 1737, "stdlib": 658, "testing": 46}
MOST = 8  # arguments of a function of the library; an op has those that its callers pass

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(part: ast.AST) -> Iterator[Function]:
    """All functions, nested ones and methods too."""
    return iter((*nodes(part, ast.FunctionDef), *nodes(part, ast.AsyncFunctionDef)))


def arguments(function: Function) -> list[ast.arg]:
    """The arguments of a function, without `self` and `cls`."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return [argument for argument in named if argument.arg not in ("self", "cls")]


def says_nothing(argument: ast.arg) -> bool:
    """Whether an argument has no annotation, or one with `Any` in it."""
    said = argument.annotation
    return said is None or any(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(said))


def is_op(function: Function) -> bool:
    """Whether a function is an op, its reference, or computes its sizes: these have the arguments that callers pass."""
    texts = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(text.startswith("register(") or text.endswith((".reference", ".shape")) for text in texts)


def library() -> Iterator[tuple[str, Function]]:
    for name in modules():
        if name == "stdlib" or name.startswith("stdlib."):
            yield from ((name, function) for function in functions(tree(name)))


def test_arguments_of_the_library_have_types() -> None:
    lacking = [
        f"{name}: {function.name}({argument.arg})"
        for name, function in library()
        for argument in arguments(function)
        if says_nothing(argument)
    ]
    assert len(lacking) <= LEFT, f"{len(lacking)} arguments without a type, {LEFT} allowed:\n" + "\n".join(lacking)
    assert len(lacking) == LEFT, f"lower LEFT to {len(lacking)}"


def test_functions_of_the_library_take_few_arguments() -> None:
    long = [
        f"{name}: {function.name} takes {len(arguments(function))}"
        for name, function in library()
        if len(arguments(function)) > MOST and not is_op(function)
    ]
    assert len(long) <= LONG, f"{len(long)} functions of more than {MOST} arguments, {LONG} allowed:\n" + "\n".join(
        long
    )
    assert len(long) == LONG, f"lower LONG to {len(long)}"


def anys(part: ast.AST) -> int:
    """How often `Any` stands in a module, without its import."""
    return sum(node.id == "Any" for node in nodes(part, ast.Name))


def test_any_is_counted() -> None:
    sample = ast.parse("from typing import Any\ndef f(x: Any, y: dict[str, Any]) -> object: ...\nz: Any = Any")
    assert anys(sample) == 4


def test_any_only_gets_rarer() -> None:
    counts = Counter(dict.fromkeys(UNKNOWN, 0))
    for name in modules():
        counts[floor(name)] += anys(tree(name))
    grown = [
        f"{name or 'root'}: {count}, {UNKNOWN[name]} allowed" for name, count in counts.items() if count > UNKNOWN[name]
    ]
    assert not grown, "`Any` where a type, a type variable or `object` can stand:\n" + "\n".join(grown)
    fallen = {name: count for name, count in counts.items() if count < UNKNOWN[name]}
    assert not fallen, f"lower UNKNOWN to {fallen}"
