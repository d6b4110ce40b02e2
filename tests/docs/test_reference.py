"""The reference page of the language says of each name what its declaration says.

`python tests/docs/test_reference.py` writes the table anew.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from einkorn.dsl.language import arithmetic, atomics, bits, gpu, loops, mathematics, native
from einkorn.dsl.language.stubs import Namespace, Storage, Stub

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language" / "names.md"
BEGIN, END = "<!-- table: declarations -->\n", "<!-- end -->\n"
FAMILIES = {
    "Numbers": arithmetic,
    "Bits": bits,
    "Mathematics": mathematics,
    "Loops and the target": loops,
    "Atomic operations": atomics,
    "Next to the machine": native,
    "Grids": gpu,
}


def row(name: str, value: Any) -> str:
    """A line of the table: how the name is written, and the first paragraph of its docstring."""
    if isinstance(value, Storage):
        return f"| `{name}[T]{value.takes}` | {value.__doc__} |"
    function = value.function if isinstance(value, Stub) else value
    signature = inspect.signature(function)
    bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    call = "" if getattr(value, "kind", "") == "value" else str(inspect.Signature(bare))
    meaning = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return f"| `{name}{call}` | {meaning.replace('|', chr(92) + '|')} |"


def rows(name: str, value: Any) -> list[str]:
    if isinstance(value, Namespace):
        return [line for own, member in vars(value).items() for line in rows(f"{name}.{own}", member)]
    return [row(name, value)]


def tables() -> str:
    text = ""
    for title, family in FAMILIES.items():
        declared = [name for name in vars(family) if name in family.__all__]
        lines = [line for name in declared for line in rows(name, vars(family)[name])]
        text += "\n".join(["", f"### {title}", "", "| name | gives |", "|---|---|", *lines, ""])
    return text


def test_the_page_says_what_the_declarations_say() -> None:
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown.splitlines() == tables().splitlines()


if __name__ == "__main__":
    head, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(head + begin + tables() + END + rest.partition(END)[2], encoding="utf-8")
