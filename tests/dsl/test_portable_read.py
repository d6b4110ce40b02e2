"""Portable programs that are read: what was written comes back, what differs is refused, and its place is named."""

from __future__ import annotations

import copy
import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.frontend import syntax
from einkorn.dsl.frontend.program import PortableKernel
from einkorn.dsl.frontend.python import names
from einkorn.dsl.frontend.read_program import read_program
from einkorn.dsl.package.library import library_of, load_library

KERNELS = '''
from typing import TypeVar

from einkorn.dsl import *

T = TypeVar("T", bound=Floating)
SCALES = (1.5, (2, True), "text", float32)


@struct
class Pair:
    low: float64
    high: float64 = 1.0
    UNIT = 2.5

    def width(self):
        return self.high - self.low

    @staticmethod
    def unit():
        return Pair(0.0, 1.0)


WHOLE = Pair(0.0, 4.0)


class Group:
    @staticmethod
    def twice(x):
        return x * 2


def ends(parts: tuple[Floating | None, ...]):
    return parts[0]


def helper(x, *, scale: int = 2):
    def inner(y):
        return y + x

    total = inner(1.0)
    for k, j in enumerate(range(scale)):
        if k > 1 and j < 3 or not k == j:
            break
        total += x if k < j <= 3 else -x
    while total < 0.0:
        total += 1.0
        continue
    return total


@register("every")
def every(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], *, k: int = 3, size: float = float("inf")) -> None:
    """All kinds of nodes."""
    assert x.shape[0] > 0, f"no elements, {k:3d} of {size}"
    low = min(v for v in (1, 2, 3) if v > 1)
    pair = WHOLE
    pair.low = 0.5
    a, (b, c) = k, (SCALES[1][0], low)
    first = x[0:1:1] if k > 100 else x
    if k < 0:
        raise ValueError("negative")

    def element(i):
        total = helper(ends((exp(1.0), None)))
        return (x[i].cast(float64) * SCALES[0] + pair.width() + Pair.UNIT + a * b // c + total).cast(T)

    foreach(out, element)
    foreach(out, lambda i: out[i] + T(Group.twice(*(k,))))


@register("filtered")
def filtered(out: OutputTensor[float32, "k"], x: InputTensor[float32, "n"], *, least: float = 0.0) -> None:
    m: Int = 0
    for i in range(x.shape[0]):
        if x[i] > least:
            out[m] = x[i]
            m += 1


@filtered.shape
def filtered_shape(x, *, least):
    m: Int = 0
    for i in range(x.shape[0]):
        if x[i] > least:
            m += 1
    return m
'''


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("programs") / "kernels.py"
    file.write_text(KERNELS)
    library = load_library(file)
    return {name: kernel.portable.to_json() for name, kernel in library.kernels.items()}


def same(program: PortableKernel) -> None:
    written = json.loads(json.dumps(program.to_json()))
    again = read_program(written)
    assert [f.syntax for f in again.functions] == [f.syntax for f in program.functions]
    assert (again.digest, repr(again.globals)) == (program.digest, repr(program.globals))
    assert again.to_json() == written


def test_what_was_written_comes_back(programs: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(KERNELS)
    for kernel in load_library(file).kernels.values():
        same(kernel.portable)


@pytest.mark.parametrize("family", ["elementwise", "reduction", "matmul", "movement"])
def test_the_standard_library_comes_back(family: str) -> None:
    for kernel in library_of(importlib.import_module(f"einkorn.stdlib.kernels.{family}")).kernels.values():
        same(kernel.portable)


def test_the_operators_of_python_are_those_of_trees() -> None:
    for ours, trees in ((names.BINARY, syntax.BINARY), (names.UNARY, syntax.UNARY), (names.COMPARE, syntax.COMPARE)):
        assert sorted(ours.values()) == sorted(trees)


def test_every_kind_of_node_is_in_the_example(programs: dict[str, Any]) -> None:
    actual = {v[0] for p in programs.values() for _, v in places(p) if type(v) is list and v and type(v[0]) is str}
    assert set(syntax.CLASSES) - actual == {"Wrong"}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in a JSON value, with the way to it."""
    yield path, value
    parts = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def put(program: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The program with another value in this place; what does not lie on the way to it is shared."""
    if not path:
        return value
    changed = copy.copy(program)
    changed[path[0]] = put(program[path[0]], path[1:], value)
    return changed


STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    0.5,
    float("nan"),
    "",
    "x y",
    "class",
    [],
    {},
    [[]],
    {"t": 1},
    ["Wrong", [1] * 4],
)


def some_places(program: Any, each: int) -> list[tuple[Any, ...]]:
    """So many of each field of each kind of node, and of all in it: to read a large program takes milliseconds."""
    counts: Counter[Any] = Counter()
    actual = []
    for path, value in places(program):
        field = field_of(program, path)
        counts[field] += 1
        if counts[field] <= each:
            actual.append((path, value))
    return actual


def field_of(program: Any, path: tuple[Any, ...]) -> tuple[Any, ...]:
    """The kind of the node that a value lies in, and the way from there."""
    kind, since, value = "", 0, program
    for at, key in enumerate(path):
        if type(value) is list and value and type(value[0]) is str and key:
            kind, since = value[0], at
        value = value[key]
    return (kind, *path[since:])


def test_no_strange_value_escapes(programs: dict[str, Any]) -> None:
    """In the place of each value in turn: refused with a code and a place, or as good as what was there."""
    tried = refused = 0
    for program in programs.values():
        for number, (path, value) in enumerate(some_places(program, 3)):
            strange = STRANGE[number % len(STRANGE)]
            if "doc" in path or strange == value:
                continue
            tried += 1
            try:
                read_program(put(program, path, strange)).to_json()
            except PackageError as error:
                refused += 1
                assert error.code == "EK0510" and "cannot be read: " in str(error)
    assert tried > 1200 and refused > tried * 0.6


def test_nothing_may_be_missing_or_added(programs: dict[str, Any]) -> None:
    for program in programs.values():
        for path, value in some_places(program, 1):
            for changed in (value[:-1], [*value, None]) if type(value) is list and value else ():
                if path[-2:-1] == ("schema",) or "t" in path[-1:] or path[-1:] in (("functions",), ("globals",)):
                    continue
                try:
                    read_program(put(program, path, changed))
                except PackageError as error:
                    assert error.code == "EK0510"
                else:
                    assert path[0] == "schema" or type(value[0]) is list or value[0] == "class", path


def find(program: Any, kind: str, field: int, number: int = 0) -> tuple[Any, ...]:
    """The way to a field of a node of this kind."""
    actual = [p for p, value in places(program) if type(value) is list and value[:1] == [kind] and len(value) > 1]
    return (*actual[number], field + 2)


def node(kind: str, *fields: Any) -> list[Any]:
    return [kind, [1, 1, 1, 1], *fields]


NAME = node("Name", "x")
CASES: list[tuple[str, int, Any, str]] = [
    ("Binary", 0, "power", "should be one of"),
    ("Binary", 1, node("Slice", None, None, None), "should be a node of an expression"),
    ("Binary", 1, node("Return", None), "should be a node of an expression"),
    ("Binary", 1, node("Starred", NAME), "should be a node of an expression"),
    ("Unary", 0, "minus", "should be one of"),
    ("Compare", 0, {"t": []}, "operands by 0 operators"),
    ("Logical", 0, "xor", "should be one of and, or"),
    ("Logical", 1, {"t": [NAME]}, "should have two operands or more"),
    ("Name", 0, "missing", "is a name that nothing around it binds: 'missing'"),
    ("Name", 0, "a b", "should be a name"),
    ("Name", 0, "import", "should be a name"),
    ("Attribute", 1, "low; import os", "should be a name"),
    ("Global", 0, 1000, "should be one of the"),
    ("Global", 0, True, "should be an integer from 0 and is true"),
    ("Constant", 0, {"f": "1.5 apples"}, "should be a constant"),
    ("Constant", 0, {"f": "0x1p999999"}, "should be a constant"),
    ("Constant", 0, 0.5, "should be a constant"),
    ("Assign", 0, node("Constant", 1), "should be a node of Name or Subscript or Attribute"),
    ("Assign", 0, node("Attribute", node("Constant", 1), "low"), "a field of something that is not a variable"),
    ("For", 0, node("Subscript", NAME, NAME), "should be a node of Name"),
    ("Raise", 0, "bounds", "should be the name of an exception"),
    ("Formatted", 1, {"t": []}, "parts and 0 formats"),
    ("Function", 0, "f(); g", "should be a name"),
    ("Method", 1, "late", "should be one of method, static, class, property"),
    ("Param", 0, "lambda", "should be a name"),
    ("If", 1, {"t": [node("Break")]}, "is a break outside of loops"),
    ("If", 1, [node("Break")], "should be a sequence"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "field", "value", "message"), CASES)
def test_what_is_wrong_in_a_node_is_named(
    programs: dict[str, Any], kind: str, field: int, value: Any, message: str
) -> None:
    program = programs["every"]
    with pytest.raises(PackageError) as caught:
        read_program(put(program, find(program, kind, field), value))
    assert caught.value.code == "EK0510" and message in str(caught.value)
    assert str(caught.value).split("cannot be read: ")[1].startswith("functions[")


def entry(program: Any, kind: str) -> tuple[Any, ...]:
    return next(("globals", n) for n, item in enumerate(program["globals"]) if item[0] == kind)


ENTRIES: list[tuple[str, Any, str]] = [
    ("function", 0, "should be the index of a function and is 0"),  # nothing calls the kernel
    ("function", 10**6, "should be the index of a function"),
    ("function", True, "should be the index of a function and is true"),
    ("struct", 0, "should be the index of a struct"),
    ("library", ["exp", 0], "should be the index of a function"),
    ("library", ["nothing", 1], "should be a name that this version of Einkorn supports"),
    ("stub", "exp", "should be a name that this version of Einkorn supports"),
    ("stub", ["foreach"], "should be a name that this version of Einkorn supports and is a list"),
    ("typevar", "T]", "should be a name"),
    ("dtype", "float1", "should be a name that this version of Einkorn supports"),
    ("constant", {"f": 1}, "should be a constant"),
    ("constant", [["constant", {}]], "should be a constant"),
    ("type", ["float32", 0], "should be a number of lanes"),
    ("type", ["float32", 3], "should be a number of lanes"),
    ("marker", "Pointed", "should be one of SIMD, stack, scratch, Pointer"),
    ("class", ["G", [["a", ["constant", 1]], ["a", ["constant", 1]]]], "has two members of one name"),
    ("instance", [1, []], "of the 2 fields of 'Pair'"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "message"), ENTRIES)
def test_what_is_wrong_in_a_global_is_named(programs: dict[str, Any], kind: str, value: Any, message: str) -> None:
    program = programs["every"]
    struct = next(n for n, f in enumerate(program["functions"]) if f["syntax"][0] == "Struct")
    if kind == "instance":
        value = [struct, []]
    with pytest.raises(PackageError) as caught:
        read_program({**program, "globals": [*program["globals"], [kind, value]]})
    assert message in str(caught.value) and f"globals[{len(program['globals'])}]" in str(caught.value)


WHOLES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("every", lambda p: [], "it should be an object and is a list"),
    ("every", lambda p: {**p, "more": 1}, "holds an unknown field"),
    ("every", lambda p: {**p, "functions": []}, "functions holds no kernel"),
    ("every", lambda p: {**p, "shape": p}, "has a shape function and nothing for it to compute"),
    ("filtered", lambda p: {k: v for k, v in p.items() if k != "shape"}, "it lacks its shape function"),
    ("filtered", lambda p: {**p, "shape": p}, "shape.schema is not that of the op's shape function"),
    ("every", lambda p: put(p, ("functions", 0, "file"), "../kernels.py"), "functions[0].file should be the name of a"),
    ("every", lambda p: put(p, ("functions", 0, "file"), "/dev/zero"), "functions[0].file should be the name of a"),
    ("every", lambda p: put(p, ("schema", "arguments", 1, "role"), "thief"), "schema of op 'every' has a missing"),
    ("every", lambda p: put(p, ("schema", "parameters", 0, "kind"), "bytes"), "schema.parameters[0].kind"),
    ("every", lambda p: put(p, ("schema", "parameters", 0, "default"), None), "schema.parameters[0].default"),
    ("every", lambda p: put(p, ("schema", "parameters", 0, "default"), True), "schema.parameters[0].default"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "change", "message"), WHOLES)
def test_what_is_wrong_in_the_whole_is_named(
    programs: dict[str, Any], op: str, change: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(PackageError) as caught:
        read_program(change(programs[op]), "the program of a test")
    assert "the program of a test cannot be read: " in str(caught.value) and message in str(caught.value)


def test_a_program_has_the_schema_of_the_manifest(programs: dict[str, Any]) -> None:
    every, filtered = read_program(programs["every"]), read_program(programs["filtered"])
    assert read_program(programs["every"], schema=every.schema) == every
    with pytest.raises(PackageError, match=r"schema should be the schema of the manifest"):
        read_program(programs["every"], schema=filtered.schema)


def test_nesting_has_an_end(programs: dict[str, Any]) -> None:
    """Far below what would exhaust Python's stack, and above what the parser lets pass."""
    program = programs["every"]
    way = find(program, "Binary", 1)

    def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
        value: Any = node("Constant", 1)
        for _ in range(depth):
            value = wrap(value)
        return put(program, way, value)

    wraps: tuple[Callable[[Any], Any], ...] = (
        lambda v: node("Unary", "neg", v),
        lambda v: node("Tuple", {"t": [v]}),
        lambda v: node("Call", node("Constant", 1), {"t": [v]}, {"t": []}),
        lambda v: node("Lambda", {"t": []}, v),
        lambda v: node("Subscript", node("Constant", 1), node("Tuple", {"t": [v]})),
    )
    for wrap in wraps:
        read_program(nested(60, wrap))
        with pytest.raises(PackageError, match="is nested too deeply"):
            read_program(nested(200, wrap))
    target: Any = node("Name", "a")
    for _ in range(300):
        target = node("Tuple", {"t": [target]})
    with pytest.raises(PackageError, match="is nested too deeply"):
        read_program(put(program, find(program, "Assign", 0), target))
    constant: Any = ["constant", 1]
    for _ in range(300):
        constant = ["constant", [constant]]
    with pytest.raises(PackageError, match="is nested too deeply"):
        read_program({**program, "globals": [*program["globals"], constant]})
