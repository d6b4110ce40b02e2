"""Says which imports a hint needs: names of the language that it writes and that the author's file does not import.

write (lo).cast(int64); import it: `from einkorn.dsl import int64`
"""

from __future__ import annotations

import ast
import builtins
import linecache
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ..diagnostics.errors import did_you_mean
from ..diagnostics.installation import PACKAGE
from ..diagnostics.places import Place, is_shipped
from ..diagnostics.syntax_trees import syntax_tree
from ..diagnostics.text import cell_name
from .foreign_names import LIBRARY, of_name
from .stubs import exported_names

_QUOTED = re.compile(r"`([^`]*)`|'(\w+)'")
_WORD = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?=(\(|\[|\.\w)?)")
_IMPORT = re.compile(r"from [\w.]+ import [\w, ]+")


def module_of(name: str) -> str | None:
    """The module that exports a name of the language or of its library; None for every other name."""
    if name in exported_names():
        return f"{PACKAGE}.dsl"
    return f"{PACKAGE}.stdlib" if name in LIBRARY else None


def import_of(name: str) -> str | None:
    """`from einkorn.dsl import exp`, for a name of the language or of its library."""
    module = module_of(name)
    return None if module is None else f"from {module} import {name}"


def of_unknown(name: str, known: Iterable[str]) -> str | None:
    """The hint for an unknown name: its import, what the language calls it, or the names most like it.

    Args:
        known: the names that the author's text has there.
    """
    if (line := import_of(name)) is not None:
        return f"write `{line}` at the top of the file"
    names = set(known)
    from difflib import get_close_matches  # few names are wrong

    similar = get_close_matches(name, exported_names(), 1, 0.75)
    return of_name(name, names) or did_you_mean(name, names.union(similar))


def with_imports(hint: str | None, place: Place | None) -> str | None:
    """A hint for a place, with the imports of the names in its code that the file at that place does not have."""
    if hint is None or place is None or is_shipped(place.file):
        return hint
    names = [name for name in dict.fromkeys(_names_in_code(hint)) if not hasattr(builtins, name)]
    if not names:
        return hint
    bound = _names_of_file(place.file)
    missing = [] if bound is None else [name for name in names if bound.get(name) not in (module_of(name), _OWN)]
    if not missing:
        return hint
    modules = sorted({module for name in missing if (module := module_of(name)) is not None})
    lines = [f"`from {m} import {', '.join(n for n in missing if module_of(n) == m)}`" for m in modules]
    return f"{hint}; import {'it' if len(missing) == 1 else 'them'}: {' and '.join(lines)}"


def _names_in_code(hint: str) -> Iterator[str]:
    """The names of the language in the code of a hint: quoted, called, indexed, an argument, or behind `write`."""
    imported = {word for line in _IMPORT.findall(hint) for word in re.findall(r"\w+", line)}
    quoted = [(result.start(), result.end()) for result in _QUOTED.finditer(hint)]
    for result in _WORD.finditer(hint):
        name = result[1]
        if name in imported or module_of(name) is None:
            continue
        written = hint[: result.start()].endswith("write ")
        written |= hint[: result.start()].rstrip()[-1:] in ("(", ",", "[") and hint[result.end() :][:1] in (
            ")",
            ",",
            "]",
        )
        in_quotes = any(start < result.start() < end for start, end in quoted)
        if result[2] or in_quotes or written or any(c.isdigit() for c in name):
            yield name


_OWN = "own"  # stands for the module of a name that the file defines


def _names_of_file(file: str) -> dict[str, str] | None:
    """The names that a file imports, each with its module, and those that it defines; None where its text is lost."""
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file))
    result = _names_of_text(text) if text else None
    if file.startswith("<") or cell_name(file) is not None:  # the imports stand in other cells, or came with the text
        main = vars(sys.modules["__main__"])
        result = (result or {}) | {name: module_of(name) or _OWN for name in main}
    return result


@lru_cache(maxsize=32)
def _names_of_text(text: str) -> dict[str, str] | None:
    try:
        tree = syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    results: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                results |= _imported(node.module or "", alias)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            results[node.name] = _OWN
    return results


def _imported(module: str, alias: ast.alias) -> dict[str, str]:
    """What `from module import alias` binds."""
    if alias.name != "*":
        own = alias.asname or alias.name
        return {own: module if alias.asname in (None, alias.name) else _OWN}
    if module == f"{PACKAGE}.stdlib":
        return dict.fromkeys(LIBRARY, module)
    return dict.fromkeys(exported_names(), f"{PACKAGE}.dsl") if module.startswith(PACKAGE) else {}
