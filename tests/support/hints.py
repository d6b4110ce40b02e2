"""Doing what a hint says: `write X` put where the message points, as an author would.

A hint that names no replacement (it explains, or shows a form with a placeholder) gives None. What a hint says of
imports is done, too: hints are tested on files that import what they use, and nothing else (`with_own_imports`).
"""

from __future__ import annotations

import ast
import builtins
import re
from difflib import get_close_matches

from einkorn import dsl, stdlib
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.dsl.diagnostics.places import Place

_IMPORTS = re.compile(r"; import (?:it|them): (?P<lines>`[^`]+`(?: and `[^`]+`)*)$")


def with_own_imports(text: str) -> str:
    """A kernel file with an import of the names that it uses, where it imports all names of a module."""
    try:
        used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    except SyntaxError:
        return text
    for module in (dsl, stdlib):
        names = sorted(name for name in used & set(module.__all__) if not hasattr(builtins, name))
        line = f"from {module.__name__} import {', '.join(names)}" if names else ""
        text = text.replace(f"from {module.__name__} import *", line)
    return text


def imports_of(hint: str) -> list[str]:
    """The lines that a hint says to put at the top of the file."""
    match = _IMPORTS.search(hint)
    return re.findall("`([^`]+)`", match["lines"]) if match else []


def _imported(text: str, imports: list[str]) -> str:
    """A file with these lines behind its imports."""
    lines = text.split("\n")
    at = 1 + max((k for k, line in enumerate(lines) if line.startswith(("from ", "import "))), default=-1)
    return "\n".join([*lines[:at], *imports, *lines[at:]])


def follow(source: str, error: EinkornError) -> str | None:
    """The text of a kernel file after the hint of `error` has been followed, or None if it names no replacement."""
    if error.hint is None or error.place is None or error.place.line != error.place.end_line:
        return None
    followed = _followed(source, error, _IMPORTS.sub("", error.hint), error.place)
    return None if followed is None else _imported(followed, imports_of(error.hint))


def _followed(source: str, error: EinkornError, hint: str, place: Place) -> str | None:
    lines = source.split("\n")
    line = lines[place.line - 1]
    marked = line[place.column - 1 : place.end_column - 1]
    if match := re.match(r"write `((?:from|import) [^`]+)` at the top of the file(?:, and ([\w.]+))?", hint):
        if match[2]:
            lines[place.line - 1] = _put(line, place, marked, match[2])
        return _imported("\n".join(lines), [match[1]])
    if match := re.match(r"use '([\w.]+)' of einkorn.dsl", hint):
        written = match[1]
    elif match := re.match(r"did you mean '([\w.]+)'", hint):
        written = _respelt(marked, error.message, match[1])
    elif match := re.match(r"write (\w+) without quotes", hint):
        written = marked.replace(f'"{match[1]}"', match[1]).replace(f"'{match[1]}'", match[1])
    elif match := re.match(r"write (\w+) for (\w+)$", hint):
        written = re.sub(rf"\b(?:\w+\.)?{match[2]}\b", match[1], marked)
    elif match := re.match(r"write (width=(.+)) for the number of lanes", hint):
        head, _, tail = marked.rpartition(match[2])
        written = head + match[1] + tail
    else:
        code = _code(hint)
        if code is None:
            return None
        if "no attribute" in error.message:
            return "\n".join([*lines[: place.line - 1], _call(line, place, code), *lines[place.line :]])
        next_to = re.fullmatch(r"\((.+)\)\.cast\(([\w.]+)\)", code)
        if next_to is not None and next_to[1] not in marked and next_to[1] in line[: place.column - 1]:
            head, _, tail = line.rpartition(next_to[1])  # the other operand is cast
            lines[place.line - 1] = head + code + tail
            return "\n".join(lines)
        if next_to is not None and next_to[1] not in marked and next_to[1] in line[place.end_column - 1 :]:
            head, _, tail = line[place.end_column - 1 :].partition(next_to[1])
            lines[place.line - 1] = line[: place.end_column - 1] + head + code + tail
            return "\n".join(lines)
        written = _within(marked, code)
    lines[place.line - 1] = _put(line, place, marked, written)
    return "\n".join(lines)


def _code(hint: str) -> str | None:
    """What stands behind `write`, up to where the sentence goes on."""
    if not hint.startswith("write "):
        return None
    text = hint.removeprefix("write ")
    ends = [len(text), *(m.start() for m in re.finditer(r", or |, for |; |: it is | to have ", text))]
    for end in sorted(ends):
        code = text[:end].strip("`")
        if _parses(code.replace("...", "_")):
            return code
    return None


def _parses(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def _put(line: str, place: Place, marked: str, written: str) -> str:
    return line[: place.column - 1] + written + line[place.column - 1 + len(marked) :]


def _within(marked: str, code: str) -> str:
    """`(n).cast(T)` and `v[:4]` stand for `n` and `v` in the marked text; anything else for all of it."""
    match = re.fullmatch(r"\((.+)\)\.cast\(([\w.]+)\)", code) or re.fullmatch(r"(\w+|\(.+\))\[:\d+\]", code)
    if match is None:
        return code
    part = match[1].removeprefix("(").removesuffix(")") if code.endswith("]") else match[1]
    places = [m.start() for m in re.finditer(rf"(?<![\w.]){re.escape(part)}(?!\w)", marked)]
    if part == marked or not places:
        return code
    at = places[-1]  # of `x[i] + i`, the operand and not the index
    return marked[:at] + code + marked[at + len(part) :]


def _call(line: str, place: Place, code: str) -> str:
    """An unknown method is replaced together with its call; `...` in the code stands for its arguments."""
    after = line[place.end_column - 1 :]
    given = ""
    if after.startswith("("):
        end = next(k for k in range(1, len(after) + 1) if after[:k].count("(") == after[:k].count(")"))
        given, after = after[1 : end - 1], after[end:]
    return line[: place.column - 1] + code.replace("...", given) + after


def _respelt(marked: str, message: str, name: str) -> str:
    """The marked text with the name that the message says is unknown in another spelling."""
    known = [word for word in re.findall(r"\w+", marked) if re.search(rf"\b{word}\b", message)]
    near = get_close_matches(name, known, 1, 0)
    return re.sub(rf"\b{near[0]}\b", name, marked) if near else name
