"""Finds the text that code was made from, wherever that was written: in a file, in a cell, at a prompt, in a string.

Each way is a function of the table `WAYS`, called in order. None of them is believed: the caller compares what a
text compiles to with the code that runs. A text that is believed is kept with the names of its module, since a file may
be written while the program that has loaded it runs, and its lines are put where messages read them.

What is typed at a prompt has one file name, `<stdin>`, for all that is typed there. Its texts get names of their own.

See also `diagnostics.definitions` (what a text means, and whether it is the right one).
"""

from __future__ import annotations

import io
import linecache
import os
import stat
import sys
import tokenize
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from .code_keys import code_key
from .shield import raise_if_of_handler
from .syntax_trees import syntax_tree

SOURCE = "__einkorn_source__"  # where a module keeps the texts that it was made from, by file, the newest first

PROMPTS = ("<stdin>", "<console>")  # names that many texts share
_KEPT = 8  # texts of a file that are kept: a module that is loaded again leaves functions of its older texts behind


class Text(NamedTuple):
    """A text that may be the right one, and the name under which messages show it."""

    text: str
    name: str


Way = Callable[[str, dict[str, Any], str], Iterator[Text]]


def texts(file: str, names: dict[str, Any], defined: str) -> Iterator[Text]:
    """What the code of a file may have been made from, the likeliest first.

    Args:
        names: those of the module that the code runs in.
        defined: a name that the text defines; only for the search in long histories.
    """
    for way in WAYS:
        yield from way(file, names, defined)


def _kept(file: str, names: dict[str, Any], defined: str) -> Iterator[Text]:
    """What the module keeps: of files that were imported, of strings, and of all that was believed before."""
    yield from names.get(SOURCE, {}).get(file, ())


def _file(file: str, names: dict[str, Any], defined: str) -> Iterator[Text]:
    """The file as it is now."""
    try:
        with tokenize.open(file) as stream:
            yield Text(stream.read(), file)
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise_if_of_handler(error)
        return


def _lines(file: str, names: dict[str, Any], defined: str) -> Iterator[Text]:
    """What Python's own cache of lines has: cells of IPython, prompts since Python 3.13, doctests, archives."""
    if lines := linecache.getlines(file):
        yield Text("".join(lines), file)


def _command(file: str, names: dict[str, Any], defined: str) -> Iterator[Text]:
    """The text of `python -c`."""
    if file == "<string>" and "-c" in sys.orig_argv[:-1]:
        yield Text(sys.orig_argv[sys.orig_argv.index("-c") + 1], file)


def _standard_input(file: str, names: dict[str, Any], defined: str) -> Iterator[Text]:
    """The text of `python - < file`, which is read again; one that came by a pipe is gone."""
    if file != "<stdin>" or "readline" in sys.modules:
        return
    try:
        if stat.S_ISREG((status := os.fstat(0)).st_mode):
            yield Text(os.pread(0, status.st_size, 0).decode(), file)
    except (OSError, ValueError):
        return


def _history(file: str, names: dict[str, Any], defined: str) -> Iterator[Text]:
    """The lines of a plain prompt, from the newest back; a statement ends where the next one begins.

    What is typed twice in a row stands in the history once, and empty lines do not: such a text is not the right one.
    """
    readline = sys.modules.get("readline")  # loaded where there is a prompt
    if file not in PROMPTS or readline is None:
        return
    lines = [readline.get_history_item(k + 1) or "" for k in range(readline.get_current_history_length())]
    end = len(lines)
    for start in range(len(lines) - 1, -1, -1):
        line = lines[start]
        if not line or line[0] in " \t)]}":
            continue
        text = "\n".join(lines[start:end]) + "\n"
        if defined in text:
            yield Text(text, f"<prompt {start + 1}>")
        if not (start and lines[start - 1].startswith("@")):
            end = start


def _cells(file: str, names: dict[str, Any], defined: str) -> Iterator[Text]:
    """Cells of IPython that a magic, such as `%%time`, has compiled under a name of its own."""
    shell, typed = interactive_shell(), names.get("In")
    if shell is None or not file.startswith("<") or not isinstance(typed, list):
        return
    for number in range(len(typed) - 1, 0, -1):
        head, _, body = str(typed[number]).partition("\n")
        if not head.startswith("%%"):
            head, _, body = _magic_of(head, body)
        if body and defined in body:
            yield Text(shell.transform_cell(body), f"In[{number}] {head.split()[0]}")


def _magic_of(head: str, body: str) -> tuple[str, str, str]:
    """The magic and the body of a cell as IPython keeps it: `get_ipython().run_cell_magic('time', '', 'text')`."""
    text = f"{head}\n{body}"
    begin = "get_ipython().run_cell_magic("
    if not text.startswith(begin):
        return "", "", ""
    import ast

    call = syntax_tree(text).body[0]
    assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
    magic, _, cell = (ast.literal_eval(argument) for argument in call.value.args)
    return f"%%{magic}", "", cell


WAYS: tuple[Way, ...] = (_kept, _file, _lines, _command, _standard_input, _history, _cells)


def keep_text(names: dict[str, Any], file: str, text: str | None = None) -> None:
    """Keeps the text that a module was made from, for kernels and for messages; by default the one of its file now."""
    if text is not None:
        _keep(names, file, Text(text, file))
    elif first := next((first for way in (_file, _lines) for first in way(file, names, "")), None):
        _keep(names, file, first)


def believe(what: CodeType | type, file: str, text: Text, names: dict[str, Any]) -> None:
    """Keeps a text of which it is known that some code, or a class, was made from it."""
    if text.name != file:
        _own_names[file, _key(what)] = text.name
    _keep(names, file, text)


def _keep(names: dict[str, Any], file: str, text: Text) -> None:
    kept = names.setdefault(SOURCE, {})
    known = kept.get(file, ())
    if text in known[:1] and text.name in linecache.cache:
        return
    kept[file] = (text, *(other for other in known if other != text))[:_KEPT]
    # Messages show this text, also when the file has another one by then: it has no time to be compared.
    linecache.cache[text.name] = (len(text.text), None, io.StringIO(text.text).readlines(), text.name)


_own_names: dict[tuple[str, bytes | type], str] = {}


def _key(what: CodeType | type) -> bytes | type:
    return what if isinstance(what, type) else code_key(what)


def file_of(what: CodeType | type, file: str) -> str:
    """The name under which messages show the text of some code, or of a class, of a file."""
    return _own_names.get((file, _key(what)), file) if _own_names else file


def fresh_name(name: str, text: str) -> str:
    """A name for a text that no other text has: `<text>`, `<text 2>`."""
    candidate, number = name, 1
    while candidate in linecache.cache and "".join(linecache.getlines(candidate)) != text:
        number += 1
        candidate = f"{name[:-1]} {number}>" if name.endswith(">") else f"{name} {number}"
    return candidate


def interactive_shell() -> Any:
    """The shell of IPython or Jupyter that the program runs in, if it does."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get is None else get()


def cell_name(file: str) -> str | None:
    """The name of a cell, `In[3]`, by the file name that IPython has given its code."""
    shell = interactive_shell()
    named = None if shell is None else shell.compile.format_code_name(file)
    return None if named is None else str(named[1])
