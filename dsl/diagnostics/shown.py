"""Colours the texts of errors, and shows an error with the lines of the user's that led to it, as IPython requests it.

Colours are an addition: the text is the same without them.

See also `errors` (what the texts say).
"""

from __future__ import annotations

import linecache
import re
import sys
from types import TracebackType

from .installation import is_own_module
from .places import Place, shown_path
from .text import interactive_shell

# What kinds of lines there are; `re` keeps what it compiles of them, when an error is coloured first.
_HEAD = r"(?P<place>.+?:\d+:\d+: )?(?P<word>error|warning)\[(?P<code>EK\d{4})\]: (?P<message>.*)$"
_MARKS = r"(?P<bar>      \| )(?P<space> *)(?P<marks>[\^~][\^~ ]*)(?P<text>.*)$"
_SOURCE = r"(?P<number> *\d+ \| )(?P<text>.*)$"
_ASIDE = r"(?P<word>note|hint): (?P<text>.*)$"

_BOLD, _RED, _YELLOW, _GREEN, _CYAN, _BLUE = "1", "1;31", "1;33", "1;32", "1;36", "34"
_SHELLS = ("IPython", "ipykernel", "nbclient")


def colored(text: str) -> str:
    """The text of an error with colours, by what kind of line each is."""
    return "\n".join(map(_line, text.split("\n")))


def _colored_on_pages(text: str) -> str:
    """As `colored`, with thin colours: Jupyter draws bold ones darker, too dark to be read on dark pages."""
    return colored(text).replace("\x1b[1;", "\x1b[")


def _line(line: str) -> str:
    if match := re.match(_HEAD, line):
        place = _in(_BOLD, match["place"]) if match["place"] else ""
        head = _in(_RED if match["word"] == "error" else _YELLOW, f"{match['word']}[{match['code']}]")
        return f"{place}{head}{_in(_BOLD, ': ' + match['message'])}"
    if match := re.match(_MARKS, line):
        return f"{_in(_BLUE, match['bar'])}{match['space']}{_in(_RED, match['marks'] + match['text'])}"
    if match := re.match(_SOURCE, line):
        return f"{_in(_BLUE, match['number'])}{match['text']}"
    if match := re.match(_ASIDE, line):
        return f"{_in(_GREEN if match['word'] == 'hint' else _CYAN, match['word'])}: {match['text']}"
    return line


def _in(style: str, text: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def traceback_lines(error: BaseException, internals: bool = False) -> list[str]:
    """An error as a notebook shows it: the user's lines that led to it, its text, what caused it.

    With `internals` all frames are shown.
    """
    if internals:
        import traceback

        return "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    shell = interactive_shell()
    paint = _colored_on_pages if shell is not None and str(shell.colors).lower() != "nocolor" else str
    lines = [*_steps(error.__traceback__, getattr(error, "place", None)), *paint(str(error)).split("\n")]
    cause = error.__cause__
    if cause is not None:
        lines.append(f"caused by {type(cause).__name__}: {cause}")
    return [type(error).__name__, *lines]


def _steps(step: TracebackType | None, shown: Place | None) -> list[str]:
    """The user's frames, the call that was made last at the end, each with its line; without the one that is shown."""
    steps: list[tuple[str, int, str]] = []
    while step is not None:
        code, module = step.tb_frame.f_code, str(step.tb_frame.f_globals.get("__name__", ""))
        top = module.partition(".")[0]
        if not (is_own_module(module) or top in _SHELLS or (top in sys.stdlib_module_names and top != "__main__")):
            steps.append((code.co_filename, step.tb_lineno, code.co_name))
        step = step.tb_next
    if steps and shown is not None and steps[-1][:2] == (shown.file, shown.line):
        steps.pop()
    lines = []
    for file, line, name in steps:
        lines.append(f"  {shown_path(file)}:{line}{'' if name == '<module>' else f' in {name}()'}")
        if text := linecache.getline(file, line).strip():
            lines.append(f"    {text}")
    return lines
