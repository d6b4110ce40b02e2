"""Reads JSON of other programs strictly, and refuses it with the place of the first thing that is wrong.

A reader of a value raises `Misread` with what is wrong; code that reads the value that holds it adds where it stands,
so that a correct value costs no paths. Python's reader takes more than JSON and passes over what is ambiguous: here a
name that an object has twice, text that is not Unicode, and nesting without end are errors. `NaN` and `Infinity` are
read: where they may stand is for the reader of that value to say.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}|\\u[dD][c-fC-F][0-9a-fA-F]{2}")


class Misread(ValueError):
    """Something in a value that cannot be. `what` goes on a sentence that begins with the place."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []

    def below(self, part: str) -> Misread:
        """The same mistake, seen from the value whose part it is in: `[3]`, or `.name`."""
        self.path.append(part)
        return self

    def at(self, root: str = "") -> str:
        """Where it stands: `functions[2].syntax.body[0]`."""
        return "".join([root, *reversed(self.path)]).removeprefix(".")

    def __str__(self) -> str:
        return f"{self.at()} {self.what}".strip()


def read_json(data: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON text, or an object has a name twice, or a text in it is not Unicode.
    """
    try:
        value = json.loads(data.decode(), object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _SURROGATE.search(data):  # most are halves of pairs, and fine
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair, which is not a character") from None
    return value


def depth_of(data: bytes) -> int:
    """How deep lists and objects stand in each other in a JSON text; of no JSON text some number."""
    depth = deepest = 0
    for result in _BRACKETS.finditer(data):
        first = result[0][:1]
        depth += 1 if first in b"[{" else -1 if first in b"]}" else 0
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, object]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object has the name {next(n for n in names if names.count(n) > 1)!r} twice")
    return value


def expected(what: str, got: object) -> NoReturn:
    """Raises the Misread for a value that is something else."""
    raise Misread(f"should be {what} and is {shown(got)}")


def shown(value: Any) -> str:
    """A value in a message: short, whatever it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and abs(value) >> 128:
        return "a huge integer"
    text = json.dumps(value if not isinstance(value, str) else value[:80])
    return text if len(text) <= 60 else text[:57] + "..."


def each(items: Iterable[Any], read: Callable[[Any], T]) -> tuple[T, ...]:
    """The items of a list, read one by one."""
    values = []
    for number, item in enumerate(items):
        try:
            values.append(read(item))
        except Misread as wrong:
            raise wrong.below(f"[{number}]") from None
    return tuple(values)


def listed(data: object, read: Callable[[Any], T]) -> tuple[T, ...]:
    """A list, read item by item."""
    return each(data, read) if type(data) is list else expected("a list", data)


def field(data: dict[str, Any], name: str, read: Callable[[Any], T]) -> T:
    """A field that an object must have."""
    if name not in data:
        raise Misread(f"lacks {name!r}")
    try:
        return read(data[name])
    except Misread as wrong:
        raise wrong.below(f".{name}") from None


def of_fields(data: object, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    """An object that has these fields and no others."""
    if type(data) is not dict:
        expected("an object", data)
    missing = [name for name in required if name not in data]
    if missing:
        raise Misread(f"lacks {missing[0]!r}")
    novel = [name for name in data if name not in {*required, *optional}]
    if novel:
        raise Misread(f"holds an unknown field, {shown(novel[0])}")
    return dict(data)


def text(data: object) -> str:
    return data if type(data) is str else expected("a string", data)


def switch(data: object) -> bool:
    return data if type(data) is bool else expected("true or false", data)


def count(data: object) -> int:
    return data if type(data) is int and data >= 0 else expected("an integer from 0", data)


def one_of(data: object, options: Iterable[str]) -> str:
    known = tuple(options)
    if type(data) is str and data in known:
        return data
    expected(f"one of {', '.join(known)}" if len(known) <= 12 else "a name that this version of Einkorn supports", data)


def identifier(data: object) -> str:
    """A name that an author can have written."""
    if type(data) is str and data.isidentifier() and not keyword.iskeyword(data):
        return data
    expected("a name", data)
