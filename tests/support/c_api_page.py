"""Writes docs/c-api-reference.md, the page of the functions and types of the C API, from its headers.

    python tests/support/c_api_page.py

A header begins with a comment. What follows are parts with an empty line between them: titles, `/* *** Title *** */`,
comments with the declarations below them, and parts that begin with a directive, which are left out. Each function is
linked with the first program of docs/c-api.md that calls it. A test compares the page with the headers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from einkorn.graph.c_api.building import INCLUDE
from einkorn.graph.loading.compile import header_code

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "c-api-reference.md"
EXAMPLES: Final = DOCS / "c-api.md"

HEAD: Final = """# The C API: reference

Every function and type, written from the headers of the C API by `make c-api-page`. [The C API](c-api.md) has the
rules that hold for all of them, and the programs that are linked here.
"""

HEADERS: Final = (
    "max/c/common.h",
    "max/c/context.h",
    "max/c/model.h",
    "max/c/tensor.h",
    "einkorn/runtime.h",
    "max/c/types.h",
)
TITLE: Final = re.compile(r"/\* \*\*\* (.*) \*\*\* \*/")
COMMENT: Final = re.compile(r"/\*(.*?)\*/\s*", re.DOTALL)
FUNCTION: Final = re.compile(r"^EINKORN_API [^(]*?\b(\w+)\(", re.MULTILINE)
PROGRAM: Final = re.compile(r"^## (?P<title>[^\n]*)$|^```c\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
CODE_WORD: Final = re.compile(r"`[^`]*`|\b(?:M|einkorn)_\w+|\bEINKORN_\w+|\bk[A-Z]\w+|\bNULL\b|\bNAME_\w+")


def functions(text: str) -> list[str]:
    """The names of the functions that the text of a header declares."""
    return FUNCTION.findall(text)


def declared() -> list[str]:
    """The names of all functions of the C API."""
    return [name for header in HEADERS for name in functions((INCLUDE / header).read_text(encoding="utf-8"))]


def examples() -> dict[str, str]:
    """The heading, on the page of the C API, of the first program that calls a function."""
    title, called = "", dict[str, str]()
    for part in PROGRAM.finditer(EXAMPLES.read_text(encoding="utf-8")):
        title = part["title"] or title
        for name in re.findall(r"\b((?:M|einkorn)_\w+)\(", part["code"] or ""):
            called.setdefault(name, title)
    return called


def page() -> str:
    """The whole page."""
    called, known = examples(), set(declared())
    text = HEAD
    for header in HEADERS:
        text += section(header, (INCLUDE / header).read_text(encoding="utf-8"), called, known)
    shared = header_code([], "export.h").partition('extern "C" {\n#endif\n')[2]
    about = "/* What exported files and the C API share: statuses, failures, and the descriptor of a model. */\n\n"
    return text + section("einkorn/export.h", about + shared, called, known)


def section(header: str, text: str, called: dict[str, str], known: set[str]) -> str:
    """What one header declares."""
    about = COMMENT.match(text)
    assert about is not None, f"{header} does not begin with a comment"
    shown = f"\n## `{header}`\n\n{prose(about[1], known)}\n"
    for part in text[about.end() :].split("\n\n"):
        if title := TITLE.fullmatch(part.strip()):
            shown += f"\n### {title[1]}\n"
        elif not part.startswith("#"):
            shown += declaration(part.strip(), called, known)
    return shown


def declaration(part: str, called: dict[str, str], known: set[str]) -> str:
    """A comment and what it is about."""
    comment = COMMENT.match(part)
    code = part[comment.end() :] if comment else part
    text = prose(comment[1], known) if comment else ""
    names = functions(code)
    title = f"\n#### `{names[0]}`\n" if names else ""
    block = f"\n```c\n{outdented(code)}\n```\n"
    if names and names[0] in called:
        heading = called[names[0]]
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        text += f" Example: [{heading}](c-api.md#{anchor})."
    return title + block + (f"\n{text}\n" if text else "")


def outdented(code: str) -> str:
    """A declaration without the macro before it; lines that continue it stay aligned."""
    lines = code.split("\n")
    if not lines[0].startswith("EINKORN_API "):
        return code
    width = len("EINKORN_API ")
    return "\n".join([lines[0][width:], *(line[width:] for line in lines[1:])])


def prose(comment: str, known: set[str]) -> str:
    """A comment as Markdown: names are code, and those of functions are links."""
    paragraphs = [" ".join(part.split()) for part in comment.strip().split("\n\n")]
    return "\n\n".join(CODE_WORD.sub(lambda found: word(found[0], known), part) for part in paragraphs)


def word(name: str, known: set[str]) -> str:
    if name in known:
        return f"[`{name}`](#{name.lower()})"
    return name if name.startswith("`") else f"`{name}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
