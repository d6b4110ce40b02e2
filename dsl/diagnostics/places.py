"""Names places in the author's text, and draws messages under them."""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import unicodedata
from functools import cache, lru_cache
from itertools import islice
from types import CodeType

from .dataclass import dataclass
from .installation import is_below, is_between
from .text import cell_name

_COMMAND_LINE = f"{__name__.partition('.')[0]}.cli."  # callers of its modules are click and Python, not a user


@dataclass(frozen=True)
class Place:
    """A range of source text. Lines and columns count from 1; the end column is exclusive."""

    file: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{shown_path(self.file)}:{self.line}:{self.column}"

    def to_dict(self) -> dict[str, str | int]:
        """The range as JSON values; the file as messages show it."""
        here: dict[str, str | int] = {"file": shown_path(self.file), "line": self.line, "column": self.column}
        return {**here, "end_line": self.end_line or self.line, "end_column": self.end_column or self.column + 1}

    def source_line(self) -> str | None:
        """The text of the first line, or None when the file is not at hand (a kernel from a package)."""
        linecache.checkcache(self.file)  # the file may have been written since
        line = linecache.getline(self.file, self.line)
        return line.rstrip("\n") if line else None


@dataclass(frozen=True)
class InnerPlace(Place):
    """A place in something that was written once and is used in several places, with the one that is meant."""

    caller: Place | None = None

    def __str__(self) -> str:
        return f"{super().__str__()}, called at {self.caller}"


def within(place: Place | None, caller: Place | None) -> Place | None:
    """A place as it is reached from a caller's; what it was reached from before lies between."""
    if place is None or caller is None:
        return place or caller
    outer = within(place.caller, caller) if isinstance(place, InnerPlace) else caller
    return InnerPlace(place.file, place.line, place.column, place.end_line, place.end_column, outer)


def instruction_place(code: CodeType, instruction: int, line: int) -> Place:
    """Where the code of an instruction (a frame's `f_lasti`) stands."""
    file = code.co_filename
    positions = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    start, end, column, end_column = positions
    if start is None or column is None or end_column is None:  # left out (python -X no_debug_ranges)
        return Place(file, line)
    end = end or start
    return Place(file, start, characters(file, start, column), end, characters(file, end, end_column))


def user_place() -> Place | None:
    """Where the code that called into this package stands, also by PyTorch or JAX; None in a command.

    Frames are distinguished by the names of their modules, not by paths: the repository's root is the package, so a
    test or an example lies below the package's folder and is a user all the same.
    """
    frame = sys._getframe(1)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith(_COMMAND_LINE):
        if not is_between(frame.f_globals.get("__name__", "")):
            return _place(frame.f_code.co_filename, frame.f_code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def user_trace() -> Place | None:
    """As `user_place`, with the places of the user's calls that led there."""
    frame, places = sys._getframe(1), []
    while frame is not None and not frame.f_globals.get("__name__", "").startswith(_COMMAND_LINE):
        if not is_between(frame.f_globals.get("__name__", "")):
            places.append(_place(frame.f_code.co_filename, frame.f_code, frame.f_lasti, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    result: Place | None = None
    for place in reversed(places):
        result = within(place, result)
    return result


@lru_cache(maxsize=4096)
def _place(file: str, code: CodeType, instruction: int, line: int) -> Place:
    # An op staged in a loop requests the same instruction each time, hence the cache. Code of two files can be equal,
    # for its file's name does not count: hence the key.
    assert file == code.co_filename
    return instruction_place(code, instruction, line)


SHIPPED = "<einkorn>/"  # stands for the package's folder in the names of files that travel


@cache
def is_shipped(file: str) -> bool:
    """Whether a source file belongs to the language itself: its functions are not text of the author's."""
    return file.startswith(SHIPPED) or is_below(file, "dsl", "stdlib")


def characters(file: str, line: int, offset: int) -> int:
    """The column, counted from 1 in characters, of an offset counted from 0 in UTF-8 bytes."""
    text = linecache.getline(file, line)
    return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="replace")) + 1


@dataclass(frozen=True)
class Label:
    """A remark that belongs under a place: `^^^^ Float32 (from 'acc')`."""

    place: Place
    text: str = ""
    primary: bool = True


def shown_path(file: str) -> str:
    """The name of a cell; the path relative to the working directory when it lies below it, else as it is."""
    if (cell := cell_name(file)) is not None:
        return cell
    if file.startswith("<"):
        return file
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if relative.startswith("..") else relative


def _cells(text: str) -> int:
    """How many terminal cells a text takes: wide characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def draw(labels: tuple[Label, ...]) -> list[str]:
    """The source lines that the labels point at, each followed by one line of marks."""
    out: list[str] = []
    lines: dict[tuple[str, int], list[Label]] = {}
    for label in labels:
        lines.setdefault((label.place.file, label.place.line), []).append(label)
    for (file, number), on_line in lines.items():
        text = on_line[0].place.source_line()
        if text is None:
            continue
        if file != labels[0].place.file:
            out.append(f"  --> {on_line[0].place}")
        line, marks = _window(text.expandtabs(4).translate(_CONTROLS), _marks(text, on_line))
        out.append(f"{number:5} | {line}")
        out.append(f"      | {marks}".rstrip())
    return out


_MAX_LINE, _CUT_LINE = 200, 160  # characters of a line that is cut, and how many of it are shown then
_CONTROLS = {code: 0x2400 + code for code in range(32) if code != 9} | {0x7F: 0x2421}  # as signs, not as commands


def _window(line: str, marks: str) -> tuple[str, str]:
    """A line and its marks, cut to a part around the first mark where they are long."""
    if len(line) <= _MAX_LINE:
        return line, marks
    first = max(0, len(marks) - len(marks.lstrip()) - _CUT_LINE // 4)
    # The marks count cells of a terminal, and a wide character takes two.
    cells = itertools.accumulate(map(_cells, line), initial=0)
    start = next((k for k, before in enumerate(cells) if before >= first), 0) if first else 0
    start = min(start, len(line) - _CUT_LINE)
    lost = _cells(line[:start])
    line, marks = line[start:], marks[lost:]
    end = "…" if len(line) > _CUT_LINE else ""
    line = line[:_CUT_LINE] + end
    ruler = len(marks) - len(marks.lstrip("^~ "))  # a remark behind the marks stays
    marks = marks[:ruler][: _cells(line)].rstrip() + (" " + marks[ruler:] if marks[ruler:] else "")
    return ("…" + line, " " + marks) if start else (line, marks)


def _marks(text: str, labels: list[Label]) -> str:
    drawn = ""
    remarks = ""
    for label in sorted(labels, key=lambda item: item.place.column):
        place = label.place
        start = place.column - 1
        end = place.end_column - 1 if place.end_line in (0, place.line) else len(text)
        before = _cells(text[:start].expandtabs(4))
        width = max(1, _cells(text[start : max(end, start)].expandtabs(4)))
        drawn = drawn.ljust(before) + ("^" if label.primary else "~") * width
        if label.text:
            remarks = label.text if label.primary or not remarks else remarks
    return f"{drawn} {remarks}" if remarks else drawn
