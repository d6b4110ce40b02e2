"""Doing what a hint says: `write X` put where the message points, as an author would.

A hint that names no replacement (it explains, or shows a form with a placeholder) gives None.
"""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.dsl.diagnostics.places import Place

LIBRARY = "from einkorn.stdlib import *\n"


def follow(source: str, error: EinkornError) -> str | None:
    """The text of a kernel file after the hint of `error` has been followed, or None if it names no replacement."""
    hint, place = error.hint, error.place
    if hint is None or place is None or place.line != place.end_line:
        return None
    lines = source.split("\n")
    line = lines[place.line - 1]
    marked = line[place.column - 1 : place.end_column - 1]
    if found := re.match(r"write `((?:from|import) [^`]+)` at the top of the file(?:, and ([\w.]+))?", hint):
        if found[2]:
            lines[place.line - 1] = _put(line, place, marked, found[2])
        return "\n".join([found[1], *lines])
    if found := re.match(r"use '([\w.]+)' of einkorn.dsl", hint):
        written = found[1]
    elif found := re.match(r"did you mean '([\w.]+)'", hint):
        written = _respelt(marked, error.message, found[1])
    elif found := re.match(r"write (\w+) without quotes", hint):
        written = marked.replace(f'"{found[1]}"', found[1]).replace(f"'{found[1]}'", found[1])
    elif found := re.match(r"write (\w+) for (\w+)$", hint):
        written = re.sub(rf"\b(?:\w+\.)?{found[2]}\b", found[1], marked)
    elif found := re.match(r"write (width=(.+)) for the number of lanes", hint):
        head, _, tail = marked.rpartition(found[2])
        written = head + found[1] + tail
    else:
        code = _code(hint)
        if code is None:
            return None
        if "no attribute" in error.message:
            return "\n".join(_library(hint, [*lines[: place.line - 1], _call(line, place, code), *lines[place.line :]]))
        written = _within(marked, code)
    lines[place.line - 1] = _put(line, place, marked, written)
    return "\n".join(_library(hint, lines))


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
    found = re.fullmatch(r"\((.+)\)\.cast\(([\w.]+)\)", code) or re.fullmatch(r"(\w+|\(.+\))\[:\d+\]", code)
    if found is None:
        return code
    part = found[1].removeprefix("(").removesuffix(")") if code.endswith("]") else found[1]
    places = [m.start() for m in re.finditer(rf"(?<![\w.]){re.escape(part)}(?!\w)", marked)]
    if part == marked or not places:
        return code
    at = places[-1]  # of `x[i] + i`, the operand and not the index
    return marked[:at] + code + marked[at + len(part) :]


def _call(line: str, place: Place, code: str) -> str:
    """A method that is not there gives way with its call; `...` in the code stands for its arguments."""
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


def _library(hint: str, lines: list[str]) -> list[str]:
    if "einkorn.stdlib" not in hint:
        return lines
    at = 1 + next(k for k, text in enumerate(lines) if text.startswith("from einkorn.dsl"))
    return [*lines[:at], LIBRARY.rstrip(), *lines[at:]]
